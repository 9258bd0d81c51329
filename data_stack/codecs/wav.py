"""Sound as records in WAV files, read and written by hand.

libsndfile puts the time of day into those of floats, so that no two runs of a preprocessor would give the same bytes, and takes a
file that is cut short for a whole one. The format: https://www.mmsp.ece.mcgill.ca/Documents/AudioFormats/WAVE/WAVE.html
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.codecs.registry import register_codec
from data_stack.codecs.sound import SoundCodec

__all__ = ["WavCodec"]

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
#: By format tag and bits of a sample; 24 bits become the upper ones of 32.
_STORED = {(_PCM, 8): "|u1", (_PCM, 16): "<i2", (_PCM, 24): "<i4", (_PCM, 32): "<i4", (_FLOAT, 32): "<f4", (_FLOAT, 64): "<f8"}
_MAX_CHANNELS = 2**16 - 1


@register_codec
@dataclass(frozen=True, kw_only=True, repr=False)
class WavCodec(SoundCodec):
    """WAV: samples of uint8, int16, int32, float32 or float64, without loss; 24 bits are read as int32.

    Args:
        rate: values are arrays of this many samples a second; None for values ``(samples, rate)``.
        max_bytes: what a record may hold.
    """

    name, extensions, media_type = "wav", ("wav",), "audio/wav"
    _dtypes = ("uint8", "int16", "int32", "float32", "float64")

    def _encode(self, samples: npt.NDArray[Any], rate: int) -> bytes:
        n_channels, width = samples.shape[1], samples.dtype.itemsize
        if n_channels > _MAX_CHANNELS or samples.nbytes > 2**32 - 100 or rate * n_channels * width >= 2**32:
            raise ValueError(f"WAV does not hold {n_channels} channels of {rate} samples a second, {samples.nbytes} bytes")
        is_float = samples.dtype.kind == "f"
        form = struct.pack(
            "<HHIIHH", _FLOAT if is_float else _PCM, n_channels, rate, rate * n_channels * width, n_channels * width, 8 * width
        )
        data = np.ascontiguousarray(samples, samples.dtype.newbyteorder("<")).tobytes()
        chunks = _chunk(b"fmt ", form + b"\0\0" if is_float else form)
        if is_float:
            chunks += _chunk(b"fact", struct.pack("<I", len(samples)))
        chunks += _chunk(b"data", data)
        return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks

    def _decode(self, record: bytes) -> tuple[npt.NDArray[Any], int]:
        chunks = _chunks_of(record)
        if b"fmt " not in chunks or b"data" not in chunks or len(chunks[b"fmt "]) < 16:
            raise ValueError("a WAV file without format or without samples")
        form, data = chunks[b"fmt "], chunks[b"data"]
        tag, n_channels, rate, _, frame_bytes, bits = struct.unpack_from("<HHIIHH", form)
        if tag == _EXTENSIBLE and len(form) >= 26:
            (tag,) = struct.unpack_from("<H", form, 24)
        if (tag, bits) not in _STORED or frame_bytes != n_channels * bits // 8 or not n_channels or not rate:
            raise ValueError(
                f"a WAV file of format {tag:#x}, {bits} bits, {n_channels} channels is not read; PCM and floats are, convert it"
            )
        if len(data) % frame_bytes:
            raise ValueError(f"a WAV file of {len(data)} bytes of samples, which is no multiple of {frame_bytes}")
        dtype = np.dtype(_STORED[tag, bits])
        self._check_bytes(len(data) // (bits // 8) * dtype.itemsize)
        samples: npt.NDArray[Any]
        if bits == 24:
            wide = np.zeros((len(data) // 3, 4), np.uint8)
            wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
            samples = wide.reshape(-1).view(dtype)
        else:
            samples = np.frombuffer(data, dtype).copy()
        return samples if n_channels == 1 else samples.reshape(-1, n_channels), rate


def _chunk(name: bytes, data: bytes) -> bytes:
    return name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)


def _chunks_of(record: bytes) -> dict[bytes, memoryview]:
    """The first chunk of each name."""
    if len(record) < 12 or record[:4] != b"RIFF" or record[8:12] != b"WAVE":
        raise ValueError(f"this is no WAV file: it begins with {record[:12]!r}")
    end = 8 + int.from_bytes(record[4:8], "little")
    chunks: dict[bytes, memoryview] = {}
    view, offset = memoryview(record), 12
    while offset + 8 <= end:
        size = int.from_bytes(view[offset + 4 : offset + 8], "little")
        start = offset + 8
        if end > len(record) or start + size > end:
            raise ValueError(f"a WAV file of {len(record)} bytes is cut short: it should have {max(end, start + size)}")
        chunks.setdefault(bytes(view[offset : offset + 4]), view[start : start + size])
        offset = start + size + size % 2
    return chunks
