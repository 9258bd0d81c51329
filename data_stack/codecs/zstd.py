"""Compression around any other codec, by the package zstandard."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from data_stack.codecs.codec import Codec, check_range, import_optional
from data_stack.codecs.registry import register_codec
from data_stack.exception import ConfigError
from data_stack.util.request_limit import check_request, current_request, limit_bytes

#: How messages call a record that exceeds the limit of a request.
_RECORD_IN_MESSAGES = "a record of zstd"

#: The maximum window of a frame, which the decompressor allocates beside the content, in bytes.
_MAX_WINDOW_BYTES = 1 << 27


class _ThreadState(threading.local):
    """The compressors of a thread.

    Creating a compressor costs more than using it, and threads cannot share one.
    """

    #: The compressors by their level.
    compressors: dict[int, Any]
    #: The decompressor; None until the thread decodes its first record.
    decompressor: Any

    def __init__(self) -> None:
        self.compressors = {}
        self.decompressor = None


_thread_state = _ThreadState()


def _zstandard() -> Any:
    """Return the package zstandard.

    Raises:
        MissingDependencyError: the package is not installed.
    """
    return import_optional("zstandard", "a column of zstd(…)", "zstandard", "zstd")


@register_codec
@dataclass(frozen=True, repr=False)
class ZstdCodec(Codec):
    """Compresses the records of another codec: ``zstd(json)``, ``zstd(array)``.

    Each record is one zstd frame with a checksum. Compression pays off for records of a KiB or
    more; small records hardly shrink.

    Args:
        inner: the codec of the records.
        level: 1 (fast) to 22 (small).
        max_bytes: maximum size of a decompressed record.
    """

    inner: Codec
    level: int = 3
    max_bytes: int = 1 << 30

    name = "zstd"
    releases_gil = True
    is_compressed = True
    wraps_codec = True

    def __post_init__(self) -> None:
        if not isinstance(self.inner, Codec):
            raise ConfigError(f"zstd wraps a Codec, got {self.inner!r:.60}")
        check_range("level", self.level, 1, 22)
        check_range("max_bytes", self.max_bytes, 1)
        _zstandard()  # raises the error if it is missing

    @property
    def type_name(self) -> str:
        return f"zstd({self.inner.type_name})"

    def encode(self, value: Any) -> bytes:
        data = self.inner.encode(value)
        if len(data) > self.max_bytes:
            raise ValueError(
                f"a record of {len(data)} bytes has more than max_bytes={self.max_bytes}, "
                "so it could not be read"
            )
        compressors = _thread_state.compressors
        compressor = compressors.get(self.level)
        if compressor is None:
            compressor = _zstandard().ZstdCompressor(level=self.level, write_checksum=True)
            compressors[self.level] = compressor
        return bytes(compressor.compress(data))

    def decode(self, record: bytes) -> Any:
        data = _decompress(record, self.max_bytes)
        request = current_request()
        # The bytes are in memory while the inner codec decodes, which may be zstd, too.
        request.reserve(len(data), _RECORD_IN_MESSAGES)
        value = self.inner.decode(data)
        # The bytes are free now. The caller counts an array by its nbytes. The size of other values
        # is unknown, so the bytes stay counted in their place.
        if hasattr(value, "nbytes"):
            request.n_bytes -= len(data)
        return value


def _decompress(record: bytes, max_bytes: int) -> bytes:
    """Return the content of a zstd frame.

    Raises:
        ValueError: the frame is damaged, or unpacks to more than ``max_bytes``.
        RequestLimitError: it unpacks to more than the current request may take.
    """
    zstandard = _zstandard()
    decompressor = _thread_state.decompressor
    if decompressor is None:
        decompressor = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES)
        _thread_state.decompressor = decompressor
    try:
        stated_bytes = zstandard.frame_content_size(record)  # -1 where a frame does not say
        if stated_bytes > max_bytes:
            raise ValueError(
                f"a zstd record unpacks to more than max_bytes={max_bytes}; "
                "raise max_bytes if intended"
            )
        check_request(max(0, stated_bytes), _RECORD_IN_MESSAGES)
        max_output_bytes = min(max_bytes, limit_bytes())
        data = decompressor.decompress(
            record, max_output_size=max_output_bytes, allow_extra_data=False
        )
        return bytes(data)
    except zstandard.ZstdError as error:
        raise ValueError(
            f"a zstd record is damaged, or larger than its header says: {error}"
        ) from error
