"""Granular's types of columns: what encodes their values and decodes them, by name."""

from __future__ import annotations

import functools
import io
import operator
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from data_stack.codecs import ArrayCodec, BytesCodec, IntCodec, MsgpackCodec, TreeCodec, Utf8Codec, codec_of
from data_stack.codecs import Mp4Codec as _Mp4Codec
from data_stack.codecs import WebmCodec as _WebmCodec
from data_stack.codecs.images import pillow
from data_stack.exception import ConfigError

__all__ = [
    "decode_array",
    "decode_image",
    "decode_int",
    "decode_tree",
    "decode_video",
    "decoders",
    "encode_array",
    "encode_image",
    "encode_int",
    "encode_tree",
    "encode_video",
    "encoders",
]

_Endian = Literal["little", "big"]
_MAX_INT_BYTES = 16


def encode_int(value: Any, size: int | None = None, signed: bool = True, endian: _Endian = "little") -> bytes:
    """An integer as ``size`` bytes; None for the fewest that hold it."""
    if size is not None:
        return operator.index(value).to_bytes(size, endian, signed=signed)
    record = IntCodec(signed=signed).encode(value)
    return record if endian == "little" else record[::-1]


def decode_int(buffer: bytes, size: int | None = None, signed: bool = True, endian: _Endian = "little") -> int:
    """What :func:`encode_int` gave.

    Raises:
        ConfigError: it has not ``size`` bytes, or more than 16.
    """
    if len(buffer) > _MAX_INT_BYTES or size not in (None, len(buffer)):
        raise ConfigError(f"an integer has {size or f'at most {_MAX_INT_BYTES}'} bytes, not {len(buffer)}")
    return int.from_bytes(buffer, endian, signed=signed)


encode_array, decode_array = ArrayCodec().encode, ArrayCodec().decode
encode_tree, decode_tree = TreeCodec().encode, TreeCodec().decode


def encode_image(value: npt.NDArray[np.uint8], quality: int = 75, format: str = "jpg") -> bytes:  # noqa: A002  # as Granular
    """Pixels as a file, by Pillow, with the bytes that Granular gives.

    Args:
        value: uint8 of shape ``(height, width)`` or ``(height, width, channels)``.
        quality: of a JPEG file. (Granular has the argument, and always stores 75.)
        format: ``"jpg"``, ``"png"`` or another that Pillow writes.
    """
    stream, kind = io.BytesIO(), {"JPG": "JPEG"}.get(format.upper(), format.upper())
    options = {"quality": quality} if kind == "JPEG" else {}
    pillow().fromarray(value).save(stream, format=kind, **options)
    return stream.getvalue()


def decode_image(buffer: bytes, *args: Any) -> npt.NDArray[np.uint8]:
    """The pixels of a JPEG or PNG file."""
    pixels: npt.NDArray[np.uint8] = codec_of("png" if buffer.startswith(b"\x89PNG") else "jpg").decode(buffer)
    return pixels


def encode_video(
    array: npt.NDArray[np.uint8],
    fps: int = 20,
    codec: str = "h264",
    format: str | None = None,  # noqa: A002  # as Granular
) -> bytes:
    """Frames, uint8 of shape ``(n_frames, height, width, 3)``, as a file.

    ``format`` is ``"mp4"`` or ``"webm"``; None for what goes with the codec: ``"webm"`` for VP8 and VP9, otherwise ``"mp4"``.
    """
    chosen = format or ("webm" if codec in ("vp8", "vp9") else "mp4")
    if chosen not in ("mp4", "webm"):
        raise ConfigError(f"a video is written as 'mp4' or 'webm', not {format!r:.60}")
    return (_Mp4Codec if chosen == "mp4" else _WebmCodec)(fps=fps, codec=codec).encode(array)


def decode_video(buffer: bytes, *args: Any) -> npt.NDArray[np.uint8]:
    """The frames of an MP4 or WebM file."""
    frames: npt.NDArray[np.uint8] = codec_of("webm" if buffer.startswith(b"\x1a\x45\xdf\xa3") else "mp4").decode(buffer)
    return frames


#: By type, what makes bytes of a value.
encoders: dict[str, Callable[[Any], bytes]] = {
    "bytes": BytesCodec().encode,
    "utf8": Utf8Codec().encode,
    "msgpack": MsgpackCodec().encode,
    "int": encode_int,
    "i64": functools.partial(encode_int, size=8),
    "u64": functools.partial(encode_int, size=8, signed=False),
    "array": encode_array,
    "tree": encode_tree,
    "jpg": functools.partial(encode_image, format="jpg"),
    "png": functools.partial(encode_image, format="png"),
    "mp4": functools.partial(encode_video, codec="h264"),
    "webm": functools.partial(encode_video, codec="vp9"),
}

#: By type, what makes a value of its bytes.
decoders: dict[str, Callable[[bytes], Any]] = {
    "bytes": BytesCodec().decode,
    "utf8": Utf8Codec().decode,
    "msgpack": MsgpackCodec().decode,
    "int": decode_int,
    "i64": functools.partial(decode_int, size=8),
    "u64": functools.partial(decode_int, size=8, signed=False),
    "array": decode_array,
    "tree": decode_tree,
    "jpg": decode_image,
    "png": decode_image,
    "mp4": decode_video,
    "webm": decode_video,
}
