"""Sound as FLAC or WAV files, by soundfile (libsndfile)."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import Codec, check_range, import_optional, value_errors
from data_stack.codecs.registry import register_codec
from data_stack.util.request_limit import check_request

#: The maximum number of samples per second.
_MAX_RATE = 2**31 - 1

#: More samples than a file can state: the header of FLAC has 36 bits for their number. libsndfile
#: reports a larger number for a file that states none.
_MAX_SAMPLES = 2**36

#: The dtype of samples by the subtype of libsndfile; 24 bits become the upper bits of int32.
_DTYPES_BY_SUBTYPE = {
    "PCM_U8": "int16",
    "PCM_16": "int16",
    "PCM_24": "int32",
    "PCM_32": "int32",
    "FLOAT": "float32",
    "DOUBLE": "float64",
}


def _soundfile() -> ModuleType:
    """Return soundfile.

    Raises:
        MissingDependencyError: it is not installed.
    """
    return import_optional("soundfile", "a column of sound", "soundfile", "audio")


# ------------------------------------------------------------------ sound


@dataclass(frozen=True, kw_only=True, repr=False)
class SoundCodec(Codec):
    """Sound as ``(samples, rate)``: an array, and the number of samples per second as an int.

    The array has the shape ``(n,)`` or ``(n, channels)``; one channel comes back with the shape
    ``(n,)``. If the codec has a ``rate``, values are the arrays alone, which stack to batches, and
    files of another rate are refused. The bytes of a sound file can be stored, too, and are not
    changed.

    Args:
        rate: samples per second if values are only arrays; None for values ``(samples, rate)``.
        max_bytes: maximum size of a decoded record.
    """

    rate: int | None = None
    max_bytes: int = 1 << 30

    releases_gil = True

    #: The subtype of libsndfile by the dtype of the samples.
    _subtypes: ClassVar[Mapping[str, str]]

    def __post_init__(self) -> None:
        _soundfile()
        if self.rate is not None:
            check_range("rate", self.rate, 1, _MAX_RATE)
        check_range("max_bytes", self.max_bytes, 1)

    # ------------------------------------------------------------------ encode

    def encode(self, value: Any) -> bytes:
        if isinstance(value, (bytes, bytearray, memoryview)):
            record = bytes(value)
            self.decode(record)
            return record
        samples, rate = self._split_value(value)
        return self._encode(self._check_samples(samples), rate)

    def _split_value(self, value: Any) -> tuple[Any, int]:
        """Return the samples and the rate of a value.

        Raises:
            TypeError: the rate is missing, wrong, or stated although the codec has one.
        """
        if self.rate is not None:
            if isinstance(value, tuple):
                raise TypeError(
                    f"a column of {self.name} whose codec has rate={self.rate} stores samples "
                    "without a rate"
                )
            return value, self.rate

        if not isinstance(value, (tuple, list)) or len(value) != 2:
            raise TypeError(
                f"a column of {self.name} stores (samples, rate), "
                f"or arrays with {type(self).__name__}(rate=…)"
            )
        samples, rate = value
        is_bool = isinstance(rate, (bool, np.bool_))  # bool is a subclass of int
        is_integer = isinstance(rate, (int, np.integer)) and not is_bool
        if not is_integer or not 0 < rate <= _MAX_RATE:
            raise TypeError(f"rate must be an integer of samples per second, got {rate!r:.60}")
        return samples, int(rate)

    def _check_samples(self, value: Any) -> npt.NDArray[Any]:
        """Return samples with the shape ``(n, channels)``.

        Raises:
            TypeError: the format cannot store samples of that dtype or shape.
            ValueError: there are more than ``max_bytes``.
        """
        samples = np.asarray(value)
        has_known_dtype = samples.dtype.newbyteorder("=").name in self._subtypes
        has_channels = samples.shape[1:] != (0,)
        if not has_known_dtype or samples.ndim not in (1, 2) or not has_channels:
            raise TypeError(
                f"a column of {self.name} stores samples of {', '.join(self._subtypes)} "
                "and shape (n,) or (n, channels), "
                f"not {samples.dtype} of shape {samples.shape}"
            )
        if samples.nbytes > self.max_bytes:
            raise ValueError(
                f"sound of {samples.nbytes} bytes has more than max_bytes={self.max_bytes}, "
                "so it could not be read"
            )
        if samples.ndim == 1:
            return samples[:, None]
        return samples

    def _encode(self, samples: npt.NDArray[Any], rate: int) -> bytes:
        """Encode samples of shape ``(n, channels)``."""
        native_samples = np.ascontiguousarray(samples, samples.dtype.newbyteorder("="))
        file = io.BytesIO()
        problem = f"libsndfile cannot write samples of shape {samples.shape} with rate {rate}"
        with value_errors(problem, _soundfile().SoundFileError):
            _soundfile().write(
                file,
                native_samples,
                rate,
                format=self.name.upper(),
                subtype=self._subtypes[native_samples.dtype.name],
            )
        return file.getvalue()

    # ------------------------------------------------------------------ decode

    def decode(self, record: bytes) -> Any:
        soundfile = _soundfile()
        errors = value_errors(f"a {self.name} file is damaged", soundfile.SoundFileError)
        with errors, soundfile.SoundFile(io.BytesIO(record)) as file:
            # WAVEX is WAV with a longer header.
            file_format = file.format.removesuffix("EX")
            if file_format != self.name.upper():
                raise ValueError(f"expected a {self.name} file, got {file.format}")
            samples = self._read(file)
            rate = int(file.samplerate)
        if self.rate is None:
            return samples, rate
        if rate != self.rate:
            raise ValueError(f"expected sound with rate={self.rate}, got {rate}")
        return samples

    def _read(self, file: Any) -> npt.NDArray[Any]:
        """Read all samples of an open file, shape ``(n,)`` or ``(n, channels)``.

        Raises:
            ValueError: the file has samples of another kind, too many or too few of them.
            RequestLimitError: the samples exceed the limit of a request.
        """
        if file.subtype not in _DTYPES_BY_SUBTYPE or not 0 <= file.frames < _MAX_SAMPLES:
            raise ValueError(
                f"cannot read a {self.name} file of {file.subtype} with {file.frames} samples; "
                "convert it"
            )
        dtype = np.dtype(_DTYPES_BY_SUBTYPE[file.subtype])
        n_bytes = file.frames * file.channels * dtype.itemsize
        if n_bytes > self.max_bytes:
            raise ValueError(
                f"sound of more than max_bytes={self.max_bytes}; raise max_bytes if intended"
            )
        check_request(n_bytes, f"sound of {n_bytes:,} bytes")
        samples: npt.NDArray[Any] = file.read(dtype=dtype.name)
        if len(samples) < file.frames:
            raise ValueError(
                f"a {self.name} file is cut short: it has {len(samples)} of {file.frames} samples"
            )
        return samples


# ------------------------------------------------------------------ FLAC


@register_codec
class FlacCodec(SoundCodec):
    """FLAC, lossless: samples of int16 or int32, up to 8 channels.

    FLAC has 24 bits, so the lower 8 bits of int32 must be zero. Store floats as ``wav``. Empty
    sound is refused: libsndfile cannot read such a file.
    """

    name = "flac"
    extensions = ("flac",)
    media_type = "audio/flac"
    is_compressed = True

    _subtypes = {"int16": "PCM_16", "int32": "PCM_24"}

    @classmethod
    def recognizes(cls, start: bytes) -> bool:
        return start[:4] == b"fLaC"

    def _encode(self, samples: npt.NDArray[Any], rate: int) -> bytes:
        if len(samples) == 0:
            raise ValueError("a FLAC file needs at least one sample")
        is_int32 = samples.dtype.itemsize == 4
        if is_int32 and (samples & 0xFF).any():
            raise ValueError(
                "FLAC stores 24 bits per sample, so the lower 8 bits of int32 must be zero; "
                "use wav for 32 bits"
            )
        return super()._encode(samples, rate)


# ------------------------------------------------------------------ WAV

#: The size of the name of a chunk in bytes.
_CHUNK_NAME_BYTES = 4
#: The size of the head of a chunk: its name, and its size as a little-endian uint32.
_CHUNK_HEAD_BYTES = 8

#: The head of a WAV file, before its first chunk: RIFF, a size, WAVE.
_WAV_HEAD_BYTES = 12

#: Sizes of the samples of a WAV file that mean "unknown": those of ffmpeg, sox, arecord and others.
_UNKNOWN_SIZES = (range(2**31 - 4096, 2**31 + 1), range(2**32 - 4096, 2**32))

#: The chunk PEAK begins within this number of bytes, before the samples.
_MAX_PEAK_OFFSET = 256
#: The bytes of the chunk PEAK that are the time of day.
_TIME_IN_PEAK = slice(12, 16)


@register_codec
class WavCodec(SoundCodec):
    """WAV, lossless: samples of int16, int32, float32 or float64.

    24 bits are read as int32, 8 bits as int16.
    """

    name = "wav"
    extensions = ("wav",)
    media_type = "audio/wav"

    _subtypes = {"int16": "PCM_16", "int32": "PCM_32", "float32": "FLOAT", "float64": "DOUBLE"}

    @classmethod
    def recognizes(cls, start: bytes) -> bool:
        return start[:4] == b"RIFF" and start[8:12] == b"WAVE"

    def decode(self, record: bytes) -> Any:
        if not self.recognizes(record[:16]):
            raise ValueError(f"not a WAV file: it begins with {record[:12]!r}")
        # libsndfile accepts truncated files.
        _check_wav_is_whole(record)
        return super().decode(record)

    def _encode(self, samples: npt.NDArray[Any], rate: int) -> bytes:
        record = bytearray(super()._encode(samples, rate))
        # The chunk of peaks contains the time of day, but equal sound has equal bytes.
        peak_offset = record.find(b"PEAK", 0, _MAX_PEAK_OFFSET)
        if peak_offset > 0:
            time_begin = peak_offset + _TIME_IN_PEAK.start
            time_end = peak_offset + _TIME_IN_PEAK.stop
            record[time_begin:time_end] = bytes(time_end - time_begin)
        return bytes(record)


def _check_wav_is_whole(record: bytes) -> None:
    """Check that the samples of a WAV file are whole.

    The size in the head of the file says nothing: many programs write another one. A program that
    writes to a pipe does not know the size of the samples, and writes one of about 2 or 4 GiB; then
    all bytes to the end are samples.

    Raises:
        ValueError: the file ends before its samples do.
    """
    offset = _WAV_HEAD_BYTES
    while offset + _CHUNK_HEAD_BYTES <= len(record):
        name = record[offset : offset + _CHUNK_NAME_BYTES]
        size_field = record[offset + _CHUNK_NAME_BYTES : offset + _CHUNK_HEAD_BYTES]
        n_bytes = int.from_bytes(size_field, "little")
        end = offset + _CHUNK_HEAD_BYTES + n_bytes
        if name == b"data" and (end <= len(record) or _is_unknown_size(n_bytes)):
            return
        offset = end + n_bytes % 2  # a chunk is padded to an even size
    raise ValueError(
        f"a WAV file is cut short: {len(record)} bytes, which end before its samples do"
    )


def _is_unknown_size(n_bytes: int) -> bool:
    """Return whether a size stands for one that the writer did not know."""
    return any(n_bytes in sizes for sizes in _UNKNOWN_SIZES)
