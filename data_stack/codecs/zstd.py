"""Compression around any other codec, by the package zstandard."""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass
from typing import Any

from data_stack.codecs.codec import Codec, check_range, import_optional
from data_stack.codecs.registry import register_codec
from data_stack.exception import ConfigError
from data_stack.util.request_limit import check_request, current_request, limit_bytes

_zstd = functools.partial(import_optional, "zstandard", "a column of zstd(…)", "zstandard", "zstd")

_WHAT = "a record of zstd"
#: Creating a compressor costs more than using it, and threads cannot share one.
_own = threading.local()


@register_codec
@dataclass(frozen=True, repr=False)
class ZstdCodec(Codec):
    """The records of another codec, each compressed as one zstd frame with a checksum: ``zstd(json)``, ``zstd(array)``.

    Compression pays off for records of a KiB or more; small records hardly shrink.

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
        _zstd()

    @property
    def type_name(self) -> str:
        return f"zstd({self.inner.type_name})"

    def encode(self, value: Any) -> bytes:
        data = self.inner.encode(value)
        if len(data) > self.max_bytes:
            raise ValueError(
                f"a record of {len(data)} bytes has more than max_bytes={self.max_bytes}, so it could not be read"
            )
        compressors: dict[int, Any] = _own.__dict__.setdefault("compressors", {})
        if self.level not in compressors:
            compressors[self.level] = _zstd().ZstdCompressor(level=self.level, write_checksum=True)
        return bytes(compressors[self.level].compress(data))

    def decode(self, record: bytes) -> Any:
        data = _decompress(record, self.max_bytes)
        request = current_request()
        request.reserve(len(data), _WHAT)  # also around another zstd
        value = self.inner.decode(data)
        if hasattr(value, "nbytes"):
            request.n_bytes -= len(data)  # freed by now; the caller counts the value
        return value


def _decompress(record: bytes, max_bytes: int) -> bytes:
    zstandard = _zstd()
    decompressor = _own.__dict__.get("decompressor")
    if decompressor is None:
        # What a decompressor may allocate for itself.
        decompressor = _own.decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 27)
    try:
        stated = zstandard.frame_content_size(record)  # -1 where a frame does not say
        if stated > max_bytes:
            raise ValueError(
                f"a zstd record unpacks to more than max_bytes={max_bytes}; raise max_bytes if intended"
            )
        check_request(max(0, stated), _WHAT)
        most = min(max_bytes, limit_bytes())
        return bytes(decompressor.decompress(record, max_output_size=most, allow_extra_data=False))
    except zstandard.ZstdError as error:
        raise ValueError(
            f"a zstd record is damaged, or larger than its header says: {error}"
        ) from error
