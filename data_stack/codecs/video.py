"""Videos as records by PyAV (ffmpeg), as in Granular 0.21."""

from __future__ import annotations

import functools
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import Codec, check_range, import_optional, register_codec
from data_stack.exception import ConfigError
from data_stack.util.request_limit import check_request

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
            raise TypeError(f"a video is uint8 of shape (n_frames, height, width, 3), not {video.dtype} of shape {video.shape}")
        if video.nbytes > self.max_bytes:
            raise ValueError(f"a video of {video.nbytes} bytes has more than max_bytes={self.max_bytes}, so it could not be read")
        try:
            return self._encode(video)
        except MemoryError:
            raise
        except _av().FFmpegError as error:
            raise ValueError(f"{self.codec} cannot encode shape {video.shape} as {self.pixel_format}: {error}") from error

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
                stream.codec_context.options = {"err_detect": damage, "max_pixels": str(self.max_bytes // 3)}
                n_stated = stream.frames  # 0 if unknown, as in webm
                for frame in container.decode(stream):
                    n_bytes += 3 * frame.width * frame.height
                    if n_bytes > self.max_bytes:
                        raise ValueError(f"a video of more than max_bytes={self.max_bytes}; raise max_bytes if intended")
                    check_request(n_bytes, "a video")
                    if frame.is_corrupt:
                        raise ValueError(f"frame {len(frames)} of a video is damaged")
                    frames.append(frame.to_ndarray(format="rgb24"))
            except _av().FFmpegError as error:
                raise ValueError(f"a {self.name} video is damaged after {len(frames)} frames: {error!s:.300}") from None
        if not frames or len(frames) < n_stated:
            raise ValueError(f"a {self.name} video is cut short: {len(frames)} frames, its header says {n_stated or 'nothing'}")
        return np.stack(frames)

    def _encode(self, video: npt.NDArray[Any]) -> bytes:
        file = io.BytesIO()
        rate = Fraction(self.fps).limit_denominator(1_001_000)
        with _av().open(file, mode="w", format=self.name, options={"fflags": "+bitexact"}) as output:
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
        except (_av().FFmpegError, ValueError) as error:
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
