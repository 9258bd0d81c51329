"""Recordings as records: sound in FLAC or WAV files by soundfile (libsndfile), videos by PyAV (ffmpeg) as in Granular 0.21."""

from __future__ import annotations

import functools
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import Codec, check_range, import_optional, value_errors
from data_stack.codecs.registry import register_codec
from data_stack.exception import ConfigError
from data_stack.util.request_limit import check_request

_MAX_RATE = 2**31 - 1
#: Sizes of the samples of a WAV file that mean "unknown": those of ffmpeg, sox, arecord and others.
_UNKNOWN_WAV_BYTES = (range(2**31 - 4096, 2**31 + 1), range(2**32 - 4096, 2**32))
#: The dtype of samples by the subtype of libsndfile; 24 bits become the upper bits of int32.
_DTYPES = {
    "PCM_U8": "int16",
    "PCM_16": "int16",
    "PCM_24": "int32",
    "PCM_32": "int32",
    "FLOAT": "float32",
    "DOUBLE": "float64",
}


_soundfile = functools.partial(
    import_optional, "soundfile", "a column of sound", "soundfile", "audio"
)


@dataclass(frozen=True, kw_only=True, repr=False)
class SoundCodec(Codec):
    """Sound as ``(samples, rate)``: an array of shape ``(n,)`` or ``(n, channels)``, and the samples per second as an int.

    If the codec has a ``rate``, values are only the arrays, which stack to batches, and a file of another rate is refused.
    One channel comes back with the shape ``(n,)``. The bytes of such a file can be stored, too, unchanged.

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

    def encode(self, value: Any) -> bytes:
        if isinstance(value, (bytes, bytearray, memoryview)):
            record = bytes(value)
            self.decode(record)
            return record
        samples, rate = self._samples(value)
        return self._encode(samples, rate)

    def decode(self, record: bytes) -> Any:
        errors = value_errors(f"a {self.name} file is damaged", _soundfile().SoundFileError)
        with errors, _soundfile().SoundFile(io.BytesIO(record)) as file:
            if (
                file.format.removesuffix("EX") != self.name.upper()
            ):  # WAVEX: WAV with a longer header
                raise ValueError(f"expected a {self.name} file, got {file.format}")
            samples, rate = self._read(file), int(file.samplerate)
        if self.rate is None:
            return samples, rate
        if rate != self.rate:
            raise ValueError(f"expected sound with rate={self.rate}, got {rate}")
        return samples

    def _encode(self, samples: npt.NDArray[Any], rate: int) -> bytes:
        """Encode samples of shape ``(n, channels)``."""
        native, file = np.ascontiguousarray(samples, samples.dtype.newbyteorder("=")), io.BytesIO()
        problem = f"libsndfile cannot write samples of shape {samples.shape} with rate {rate}"
        with value_errors(problem, _soundfile().SoundFileError):
            _soundfile().write(
                file,
                native,
                rate,
                format=self.name.upper(),
                subtype=self._subtypes[native.dtype.name],
            )
        return file.getvalue()

    def _read(self, file: Any) -> npt.NDArray[Any]:
        """Read all samples, shape ``(n,)`` or ``(n, channels)``."""
        # FLAC's header has 36 bits for the number of samples; libsndfile reports more if it is missing.
        if file.subtype not in _DTYPES or not 0 <= file.frames < 2**36:
            raise ValueError(
                f"cannot read a {self.name} file of {file.subtype} with {file.frames} samples; convert it"
            )
        dtype = np.dtype(_DTYPES[file.subtype])
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

    def _samples(self, value: Any) -> tuple[npt.NDArray[Any], int]:
        rate: Any = self.rate
        if rate is None:
            if not isinstance(value, (tuple, list)) or len(value) != 2:
                raise TypeError(
                    f"a column of {self.name} stores (samples, rate), or arrays with {type(self).__name__}(rate=…)"
                )
            value, rate = value
            if (
                isinstance(rate, (bool, np.bool_))
                or not isinstance(rate, (int, np.integer))
                or not 0 < rate <= _MAX_RATE
            ):
                raise TypeError(f"rate must be an integer of samples per second, got {rate!r:.60}")
        elif isinstance(value, tuple):
            raise TypeError(
                f"a column of {self.name} whose codec has rate={rate} stores samples without a rate"
            )
        samples = np.asarray(value)
        if (
            samples.dtype.newbyteorder("=").name not in self._subtypes
            or samples.ndim not in (1, 2)
            or samples.shape[1:] == (0,)
        ):
            what = f"samples of {', '.join(self._subtypes)} and shape (n,) or (n, channels)"
            raise TypeError(
                f"a column of {self.name} stores {what}, not {samples.dtype} of shape {samples.shape}"
            )
        if samples.nbytes > self.max_bytes:
            raise ValueError(
                f"sound of {samples.nbytes} bytes has more than max_bytes={self.max_bytes}, so it could not be read"
            )
        return samples if samples.ndim == 2 else samples[:, None], int(rate)


@register_codec
class FlacCodec(SoundCodec):
    """FLAC, lossless: samples of int16, or of int32 whose lower 8 bits are zero, as FLAC has 24 bits; up to 8 channels.

    Store floats as ``wav``. Empty sound is refused: libsndfile cannot read such a file.
    """

    name, extensions, media_type = "flac", ("flac",), "audio/flac"
    is_compressed = True

    _subtypes = {"int16": "PCM_16", "int32": "PCM_24"}

    @classmethod
    def recognizes(cls, start: bytes) -> bool:
        return start[:4] == b"fLaC"

    def _encode(self, samples: npt.NDArray[Any], rate: int) -> bytes:
        if not len(samples):
            raise ValueError("a FLAC file needs at least one sample")
        if samples.dtype.itemsize == 4 and (samples & 0xFF).any():
            raise ValueError(
                "FLAC stores 24 bits per sample, so the lower 8 bits of int32 must be zero; use wav for 32 bits"
            )
        return super()._encode(samples, rate)


@register_codec
class WavCodec(SoundCodec):
    """WAV, lossless: samples of int16, int32, float32 or float64; 24 bits are read as int32, 8 bits as int16."""

    name, extensions, media_type = "wav", ("wav",), "audio/wav"

    _subtypes = {"int16": "PCM_16", "int32": "PCM_32", "float32": "FLOAT", "float64": "DOUBLE"}

    @classmethod
    def recognizes(cls, start: bytes) -> bool:
        return start[:4] == b"RIFF" and start[8:12] == b"WAVE"

    def decode(self, record: bytes) -> Any:
        if not self.recognizes(record[:16]):
            raise ValueError(f"not a WAV file: it begins with {record[:12]!r}")
        _check_wav_chunks(record)  # as libsndfile accepts truncated files
        return super().decode(record)

    def _encode(self, samples: npt.NDArray[Any], rate: int) -> bytes:
        record = bytearray(super()._encode(samples, rate))
        peak = record.find(b"PEAK", 0, 256)
        if peak > 0:  # contains the time of day; equal sound shall have equal bytes
            record[peak + 12 : peak + 16] = bytes(4)
        return bytes(record)


def _is_unknown_size(n_bytes: int) -> bool:
    """Whether a size stands for one that the writer did not know."""
    return any(n_bytes in sizes for sizes in _UNKNOWN_WAV_BYTES)


def _check_wav_chunks(record: bytes) -> None:
    """Check that the samples of a WAV file are whole. The size in its head says nothing: many programs write another one.

    A program that writes to a pipe does not know the size of the samples, and writes one of about 2 or 4 GiB; then all bytes to
    the end are samples.

    Raises:
        ValueError: the file ends before its samples do.
    """
    offset = 12
    while offset + 8 <= len(record):
        name = record[offset : offset + 4]
        n_bytes = int.from_bytes(record[offset + 4 : offset + 8], "little")
        end = offset + 8 + n_bytes
        if name == b"data" and (end <= len(record) or _is_unknown_size(n_bytes)):
            return
        offset = end + n_bytes % 2
    raise ValueError(
        f"a WAV file is cut short: {len(record)} bytes, which end before its samples do"
    )


_av = functools.partial(import_optional, "av", "a column of videos", "av", "video")


@dataclass(frozen=True, kw_only=True, repr=False)
class VideoCodec(Codec):
    """Videos as uint8 of shape ``(n_frames, height, width, 3)``, RGB, lossy.

    The bytes of such a file can be stored, too, unchanged. Decoding reads the frames of the first video stream as stored, without
    its rate, sound and the rotation in its header.

    Encoding uses one thread and writes no timestamps; nevertheless x264 sometimes encodes equal videos to different bytes.
    """

    fps: float | Fraction = 20
    codec: str = ""
    pixel_format: str = "yuv420p"
    options: Mapping[str, str] = field(default_factory=dict, hash=False)
    max_bytes: int = 1 << 30

    releases_gil = True
    is_compressed = True

    def __post_init__(self) -> None:
        if type(self.fps) not in (int, float, Fraction) or not 0 < self.fps < 1e6:
            raise ConfigError(f"fps must be a number of frames per second, got {self.fps!r:.60}")
        check_range("max_bytes", self.max_bytes, 1)
        try:
            _av().Codec(self.codec, "w")
        except Exception as error:  # of PyAV's own
            raise ConfigError(f"PyAV has no encoder {self.codec!r:.60}") from error

    def encode(self, value: Any) -> bytes:
        if isinstance(value, (bytes, bytearray, memoryview)):
            record = bytes(value)
            with self._open(record):
                return record
        video = np.asarray(value)
        if video.dtype != np.uint8 or video.ndim != 4 or video.shape[3] != 3 or not video.size:
            raise TypeError(
                f"a video is uint8 of shape (n_frames, height, width, 3), not {video.dtype} of shape {video.shape}"
            )
        if video.nbytes > self.max_bytes:
            raise ValueError(
                f"a video of {video.nbytes} bytes has more than max_bytes={self.max_bytes}, so it could not be read"
            )
        with value_errors(
            f"{self.codec} cannot encode shape {video.shape} as {self.pixel_format}",
            _av().FFmpegError,
        ):
            return self._encode(video)

    def decode(self, record: bytes) -> npt.NDArray[Any]:
        frames: list[npt.NDArray[Any]] = []
        n_bytes = 0
        with self._open(record) as container:
            try:
                stream = container.streams.video[0]
                # Readers decode several records in threads.
                stream.codec_context.thread_count = 1
                # Raise an error for damage instead of concealing it.
                damage = "crccheck+bitstream+buffer+explode"
                stream.codec_context.options = {
                    "err_detect": damage,
                    "max_pixels": str(self.max_bytes // 3),
                }
                n_stated = stream.frames  # 0 if unknown, as in webm
                for frame in container.decode(stream):
                    n_bytes += 3 * frame.width * frame.height
                    if n_bytes > self.max_bytes:
                        raise ValueError(
                            f"a video of more than max_bytes={self.max_bytes}; raise max_bytes if intended"
                        )
                    check_request(n_bytes, "a video")
                    if frame.is_corrupt:
                        raise ValueError(f"frame {len(frames)} of a video is damaged")
                    frames.append(frame.to_ndarray(format="rgb24"))
            except _av().FFmpegError as error:
                raise ValueError(
                    f"a {self.name} video is damaged after {len(frames)} frames: {error!s:.300}"
                ) from None
        if not frames or len(frames) < n_stated:
            raise ValueError(
                f"a {self.name} video is cut short: {len(frames)} frames, its header says {n_stated or 'nothing'}"
            )
        return np.stack(frames)

    def _encode(self, video: npt.NDArray[Any]) -> bytes:
        file = io.BytesIO()
        rate = Fraction(self.fps).limit_denominator(1_001_000)
        with _av().open(
            file, mode="w", format=self.name, options={"fflags": "+bitexact"}
        ) as output:
            stream: Any = output.add_stream(self.codec, rate=rate, options=dict(self.options))
            stream.height, stream.width = video.shape[1:3]
            stream.pix_fmt = self.pixel_format
            stream.codec_context.thread_count = 1
            for number, pixels in enumerate(video):
                frame = _av().VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")
                frame.pts = number
                output.mux(stream.encode(frame))
            output.mux(stream.encode(None))
        return file.getvalue()

    def _open(self, record: bytes) -> Any:
        try:
            # Only this format: some others are lists of files to open.
            container = _av().open(io.BytesIO(record), format=self.name)
        except (
            _av().FFmpegError,
            ValueError,
        ) as error:  # also what ffmpeg refuses to allocate for a forged header
            raise ValueError(f"not a {self.name} video: {error!s:.300}") from None
        if not container.streams.video or container.streams.video[0].codec_context is None:
            container.close()
            raise ValueError(f"a {self.name} file without a video that can be decoded")
        return container


@register_codec
@dataclass(frozen=True, kw_only=True, repr=False)
class Mp4Codec(VideoCodec):
    """MP4 (Granular's ``mp4``), by default of H.264 with yuv420p, whose height and width must be even.

    Args:
        fps: frames per second for players.
        codec: encoder, such as ``"h264"`` or ``"hevc"``.
        pixel_format: how colours are stored; ``"yuv444p"`` at full resolution.
        options: options of the encoder, such as ``{"crf": "18"}``.
        max_bytes: maximum size of a decoded record.
    """

    codec: str = "h264"

    name, extensions, media_type = "mp4", ("mp4",), "video/mp4"


@register_codec
@dataclass(frozen=True, kw_only=True, repr=False)
class WebmCodec(VideoCodec):
    """WebM (Granular's ``webm``), by default of VP9 with yuv420p.

    Args:
        fps: frames per second for players.
        codec: encoder, such as ``"vp9"`` or ``"av1"``.
        pixel_format: how colours are stored; ``"yuv444p"`` at full resolution.
        options: options of the encoder, such as ``{"crf": "18", "b": "0"}``.
        max_bytes: maximum size of a decoded record.
    """

    codec: str = "vp9"

    name, extensions, media_type = "webm", ("webm",), "video/webm"
