"""Videos as MP4 or WebM files, by PyAV (ffmpeg) as in Granular 0.21."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import Codec, check_range, import_optional, value_errors
from data_stack.codecs.registry import register_codec
from data_stack.exception import ConfigError
from data_stack.util.request_limit import check_request

#: The maximum number of frames per second.
_MAX_FPS = 1_000_000

#: The largest denominator of a rate: rates such as 30000/1001 stay exact.
_MAX_RATE_DENOMINATOR = 1_001_000

#: The bytes of a pixel of RGB.
_PIXEL_BYTES = 3

#: What ffmpeg reports as an error instead of concealing it.
_REPORTED_DAMAGE = "crccheck+bitstream+buffer+explode"


def _av() -> ModuleType:
    """Return PyAV.

    Raises:
        MissingDependencyError: it is not installed.
    """
    return import_optional("av", "a column of videos", "av", "video")


@dataclass(frozen=True, kw_only=True, repr=False)
class VideoCodec(Codec):
    """Videos as uint8 of shape ``(n_frames, height, width, 3)``, RGB, lossy.

    The bytes of a video file can be stored, too, and are not changed. Decoding returns the frames
    of the first video stream as they are stored. The rate, the sound, and the rotation in the
    header are not read.

    Encoding uses one thread and writes no timestamps; nevertheless x264 sometimes encodes equal
    videos to different bytes.

    Args:
        fps: frames per second for players.
        codec: the name of an encoder of ffmpeg.
        pixel_format: ffmpeg's name of the format in which colors are stored.
        options: options of the encoder.
        max_bytes: maximum size of a decoded record.
    """

    fps: float | Fraction = 20
    codec: str = ""
    pixel_format: str = "yuv420p"
    options: Mapping[str, str] = field(default_factory=dict, hash=False)
    max_bytes: int = 1 << 30

    releases_gil = True
    is_compressed = True

    def __post_init__(self) -> None:
        is_number = type(self.fps) in (int, float, Fraction)
        if not is_number or not 0 < self.fps < _MAX_FPS:
            raise ConfigError(f"fps must be a number of frames per second, got {self.fps!r:.60}")
        check_range("max_bytes", self.max_bytes, 1)
        try:
            _av().Codec(self.codec, "w")
        except Exception as error:  # of PyAV's own
            raise ConfigError(f"PyAV has no encoder {self.codec!r:.60}") from error

    # ------------------------------------------------------------------ encode

    def encode(self, value: Any) -> bytes:
        if isinstance(value, (bytes, bytearray, memoryview)):
            record = bytes(value)
            with self._open(record):
                return record
        video = np.asarray(value)
        is_rgb = video.ndim == 4 and video.shape[3] == 3
        if video.dtype != np.uint8 or not is_rgb or video.size == 0:
            raise TypeError(
                "a video is uint8 of shape (n_frames, height, width, 3), "
                f"not {video.dtype} of shape {video.shape}"
            )
        if video.nbytes > self.max_bytes:
            raise ValueError(
                f"a video of {video.nbytes} bytes has more than max_bytes={self.max_bytes}, "
                "so it could not be read"
            )
        problem = f"{self.codec} cannot encode shape {video.shape} as {self.pixel_format}"
        with value_errors(problem, _av().FFmpegError):
            return self._encode(video)

    def _encode(self, video: npt.NDArray[Any]) -> bytes:
        """Encode frames of shape ``(n_frames, height, width, 3)``."""
        av = _av()
        file = io.BytesIO()
        rate = Fraction(self.fps).limit_denominator(_MAX_RATE_DENOMINATOR)
        # Bit-exact files have no version of ffmpeg.
        with av.open(file, mode="w", format=self.name, options={"fflags": "+bitexact"}) as output:
            stream: Any = output.add_stream(self.codec, rate=rate, options=dict(self.options))
            stream.height = video.shape[1]
            stream.width = video.shape[2]
            stream.pix_fmt = self.pixel_format
            stream.codec_context.thread_count = 1
            for number, pixels in enumerate(video):
                frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")
                frame.pts = number
                output.mux(stream.encode(frame))
            # The encoder returns the packets that it has held back.
            output.mux(stream.encode(None))
        return file.getvalue()

    # ------------------------------------------------------------------ decode

    def decode(self, record: bytes) -> npt.NDArray[Any]:
        frames: list[npt.NDArray[Any]] = []
        with self._open(record) as container:
            try:
                stream = container.streams.video[0]
                # Readers decode several records in threads.
                stream.codec_context.thread_count = 1
                stream.codec_context.options = {
                    "err_detect": _REPORTED_DAMAGE,
                    "max_pixels": str(self.max_bytes // _PIXEL_BYTES),
                }
                n_stated_frames = stream.frames  # 0 if unknown, as in webm
                self._decode_frames(container, stream, frames)
            except _av().FFmpegError as error:
                raise ValueError(
                    f"a {self.name} video is damaged after {len(frames)} frames: {error!s:.300}"
                ) from None
        if not frames or len(frames) < n_stated_frames:
            raise ValueError(
                f"a {self.name} video is cut short: {len(frames)} frames, "
                f"its header says {n_stated_frames or 'nothing'}"
            )
        return np.stack(frames)

    def _decode_frames(self, container: Any, stream: Any, frames: list[npt.NDArray[Any]]) -> None:
        """Append the frames of a stream to ``frames``.

        The caller owns the list, as it reports how many frames came before an error.

        Raises:
            ValueError: a frame is damaged, or the frames have more than ``max_bytes``.
            RequestLimitError: the frames exceed the limit of a request.
        """
        n_bytes = 0
        for frame in container.decode(stream):
            n_bytes += frame.width * frame.height * _PIXEL_BYTES
            if n_bytes > self.max_bytes:
                raise ValueError(
                    f"a video of more than max_bytes={self.max_bytes}; raise max_bytes if intended"
                )
            check_request(n_bytes, "a video")
            if frame.is_corrupt:
                raise ValueError(f"frame {len(frames)} of a video is damaged")
            frames.append(frame.to_ndarray(format="rgb24"))

    def _open(self, record: bytes) -> Any:
        """Open a file that has a video stream, as a context manager.

        Raises:
            ValueError: the file is of another format, or has no video that can be decoded.
        """
        av = _av()
        try:
            # Only this format: some others are lists of files to open.
            container = av.open(io.BytesIO(record), format=self.name)
        except (av.FFmpegError, ValueError) as error:
            # ValueError: ffmpeg refuses to allocate memory for a forged header.
            raise ValueError(f"not a {self.name} video: {error!s:.300}") from None
        video_streams = container.streams.video
        if not video_streams or video_streams[0].codec_context is None:
            container.close()
            raise ValueError(f"a {self.name} file without a video that can be decoded")
        return container


@register_codec
@dataclass(frozen=True, kw_only=True, repr=False)
class Mp4Codec(VideoCodec):
    """MP4 (Granular's ``mp4``), by default of H.264 with yuv420p.

    Height and width of yuv420p must be even.

    Args:
        fps: frames per second for players.
        codec: an encoder of ffmpeg, such as ``"h264"`` or ``"hevc"``.
        pixel_format: the format in which colors are stored; ``"yuv444p"`` at full resolution.
        options: options of the encoder, such as ``{"crf": "18"}``.
        max_bytes: maximum size of a decoded record.
    """

    codec: str = "h264"

    name = "mp4"
    extensions = ("mp4",)
    media_type = "video/mp4"


@register_codec
@dataclass(frozen=True, kw_only=True, repr=False)
class WebmCodec(VideoCodec):
    """WebM (Granular's ``webm``), by default of VP9 with yuv420p.

    Args:
        fps: frames per second for players.
        codec: an encoder of ffmpeg, such as ``"vp9"`` or ``"av1"``.
        pixel_format: the format in which colors are stored; ``"yuv444p"`` at full resolution.
        options: options of the encoder, such as ``{"crf": "18", "b": "0"}``.
        max_bytes: maximum size of a decoded record.
    """

    codec: str = "vp9"

    name = "webm"
    extensions = ("webm",)
    media_type = "video/webm"
