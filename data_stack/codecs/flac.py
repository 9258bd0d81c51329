"""Sound as records in FLAC files, by soundfile (libsndfile)."""

from __future__ import annotations

import functools
import io
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.codecs.registry import register_codec
from data_stack.codecs.sound import SoundCodec
from data_stack.exception import MissingDependencyError

__all__ = ["FlacCodec"]

#: FLAC's header has 36 bits for the number of samples; libsndfile says more where it is left out.
_MAX_SAMPLES = 2**36


@functools.cache
def _soundfile() -> ModuleType:
    try:
        import soundfile
    except (ImportError, OSError) as error:  # OSError: the package is there, the library libsndfile is not
        raise MissingDependencyError("a column of flac", "soundfile", "audio") from error
    module: ModuleType = soundfile
    return module


@register_codec
@dataclass(frozen=True, kw_only=True, repr=False)
class FlacCodec(SoundCodec):
    """FLAC, without loss: samples of int16, or of int32 whose lower 8 bits are zero, since FLAC has 24; up to 8 channels.

    Floats are for ``wav``, or to be made integers before. No samples at all are refused: libsndfile cannot read such a file.

    Args:
        rate: values are arrays of this many samples a second; None for values ``(samples, rate)``.
        max_bytes: what a record may unpack to.
    """

    name, extensions, media_type = "flac", ("flac",), "audio/flac"
    releases_gil = True
    is_compressed = True

    _dtypes = ("int16", "int32")

    def __post_init__(self) -> None:
        super().__post_init__()
        _soundfile()

    def _encode(self, samples: npt.NDArray[Any], rate: int) -> bytes:
        if not len(samples):
            raise ValueError("a FLAC file holds one sample at least")
        native = np.ascontiguousarray(samples, samples.dtype.newbyteorder("="))
        if native.dtype == np.int32 and (native & 0xFF).any():
            raise ValueError("FLAC holds 24 bits of a sample: the lower 8 bits of int32 must be zero; wav holds all")
        file = io.BytesIO()
        subtype = "PCM_16" if native.dtype == np.int16 else "PCM_24"
        try:
            _soundfile().write(file, native, rate, format="FLAC", subtype=subtype)
        except _soundfile().SoundFileError as error:
            raise ValueError(f"libsndfile does not write shape {samples.shape} at {rate} samples a second: {error}") from error
        return file.getvalue()

    def _decode(self, record: bytes) -> tuple[npt.NDArray[Any], int]:
        if not record.startswith(b"fLaC"):
            raise ValueError(f"this is no FLAC file: it begins with {record[:12]!r}")
        try:
            with _soundfile().SoundFile(io.BytesIO(record)) as file:
                return self._read(file), file.samplerate
        except _soundfile().SoundFileError as error:
            raise ValueError(f"a FLAC file is damaged: {error!s:.200}") from error

    def _read(self, file: Any) -> npt.NDArray[Any]:
        """All samples."""
        dtype = np.dtype(np.int32 if file.subtype == "PCM_24" else np.int16)
        if not 0 < file.frames < _MAX_SAMPLES:
            raise ValueError("a FLAC file does not tell how many samples it has")
        self._check_bytes(file.frames * file.channels * dtype.itemsize)
        samples: npt.NDArray[Any] = file.read(dtype=dtype.name)
        if len(samples) < file.frames:
            raise ValueError(f"a FLAC file is cut short: {len(samples)} of {file.frames} samples are there")
        return samples
