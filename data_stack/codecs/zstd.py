"""Compression around any other codec, by the package zstandard."""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from data_stack.codecs.codec import Codec
from data_stack.codecs.registry import register_codec
from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.util.request_limit import check_request, current_request


@functools.cache
def _zstd() -> ModuleType:
    try:
        import zstandard
    except ImportError as error:
        raise MissingDependencyError("a column of zstd(…)", "zstandard", "zstd") from error
    module: ModuleType = zstandard
    return module


__all__ = ["ZstdCodec"]

#: What a decompressor may allocate for itself.
_MAX_WINDOW_LOG = 27
_HARMLESS_BYTES = 1 << 20
_WHAT = "a record of zstd"
#: What is fed at a time to a decompressor whose output has no bound: four bytes give at most 128 KiB.
_PIECE_BYTES = 1 << 10
#: Output that is made room for at once, for each byte that is stored; more is made room for as it comes.
_PLAUSIBLE_RATIO = 256


@register_codec
@dataclass(frozen=True, repr=False)
class ZstdCodec(Codec):
    """The records of another codec, each compressed as one zstd frame with a checksum: ``zstd(json)``, ``zstd(array)``.

    It pays where a record has a KiB or more; a column of small records hardly shrinks.

    Args:
        inner: what makes the records.
        level: 1 (fast) to 22 (small).
        max_bytes: what a record may unpack to.
    """

    inner: Codec
    level: int = 3
    max_bytes: int = 1 << 30

    name = "zstd"
    releases_gil = True
    is_compressed = True
    is_around = True

    def __post_init__(self) -> None:
        if not isinstance(self.inner, Codec):
            raise ConfigError(f"zstd is around a Codec, not {self.inner!r:.60}")
        if type(self.level) is not int or not 1 <= self.level <= 22:
            raise ConfigError(f"level of zstd is a number from 1 to 22, not {self.level!r:.60}")
        if type(self.max_bytes) is not int or self.max_bytes < 1:
            raise ConfigError(f"max_bytes is a positive number, not {self.max_bytes!r:.60}")
        _zstd()

    @property
    def type_name(self) -> str:
        return f"zstd({self.inner.type_name})"

    def encode(self, value: Any) -> bytes:
        data = self.inner.encode(value)
        if len(data) > self.max_bytes:
            raise ValueError(f"a record of {len(data)} bytes has more than max_bytes={self.max_bytes}, and could not be read")
        return _compressed(data, self.level)

    def decode(self, record: bytes) -> Any:
        data = _decompressed(record, self.max_bytes)
        request = current_request()
        request.reserve(len(data), _WHAT)  # also around another zstd
        value = self.inner.decode(data)
        if hasattr(value, "nbytes"):
            request.n_bytes -= len(data)  # gone by now; who asked for the value counts it
        return value


def _too_large(max_bytes: int) -> ValueError:
    return ValueError(
        f"a zstd record unpacks to more than max_bytes={max_bytes}; give its codec more if it is meant: ZstdCodec(…, max_bytes=…)"
    )


#: Making one costs more than using it, and threads cannot share it.
_own = threading.local()


def _compressed(data: bytes, level: int) -> bytes:
    compressors: dict[int, Any] = _own.__dict__.setdefault("compressors", {})
    if level not in compressors:
        compressors[level] = _zstd().ZstdCompressor(level=level, write_checksum=True)
    compressed: bytes = compressors[level].compress(data)
    return compressed


def _decompressed(record: bytes, max_bytes: int) -> bytes:
    zstandard = _zstd()
    decompressor = _own.__dict__.get("decompressor")
    if decompressor is None:
        decompressor = _own.decompressor = zstandard.ZstdDecompressor(max_window_size=1 << _MAX_WINDOW_LOG)
    try:
        # A frame says how much it unpacks to. Believed as far as it is harmless; a liar is found out either way.
        stated = zstandard.frame_content_size(record)
        if stated > max_bytes:
            raise _too_large(max_bytes)
        if stated > _HARMLESS_BYTES:
            check_request(stated, _WHAT)
        if 0 < stated <= max(_HARMLESS_BYTES, _PLAUSIBLE_RATIO * len(record)):
            data: bytes = decompressor.decompress(record, allow_extra_data=False)
            return data
        frame, pieces, n_bytes = decompressor.decompressobj(), [], 0
        for start in range(0, len(record), _PIECE_BYTES):
            if frame.eof:
                break
            pieces.append(frame.decompress(record[start : start + _PIECE_BYTES]))
            n_bytes += len(pieces[-1])
            if n_bytes > max_bytes:
                raise _too_large(max_bytes)
            check_request(n_bytes, _WHAT)
    except zstandard.ZstdError as error:
        raise ValueError(f"a zstd record is damaged: {error}") from error
    if not frame.eof or frame.unused_data or start + _PIECE_BYTES < len(record):
        raise ValueError("a zstd record is cut short, or goes on after its end")
    return b"".join(pieces)
