"""Encoders and decoders of Granular's types of columns."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack import codecs
from data_stack.codecs.images import pillow

__all__ = ["decode_image", "decode_video", "decoders", "encode_image", "encode_video", "encoders"]

_Pixels = npt.NDArray[np.uint8]

#: The first bytes of files.
_PNG_SIGNATURE = b"\x89PNG"
_WEBM_SIGNATURE = b"\x1a\x45\xdf\xa3"

#: The video codecs that a WebM file holds.
_WEBM_VIDEO_CODECS = ("vp8", "vp9")


# ---------------------------------------------------------------------- images and videos


def encode_image(
    value: _Pixels,
    quality: int = 75,
    format: str = "jpg",  # noqa: A002  # as Granular
) -> bytes:
    """Encode pixels as a file, by Pillow; the bytes are those of Granular.

    Args:
        value: uint8 of shape ``(height, width)`` or ``(height, width, channels)``.
        quality: quality of JPEG. (Granular ignores this argument and always uses 75.)
        format: ``"jpg"``, ``"png"`` or another format that Pillow writes.
    """
    pillow_format = format.upper().replace("JPG", "JPEG")
    image = pillow().fromarray(value)
    stream = io.BytesIO()
    if pillow_format == "JPEG":
        image.save(stream, format=pillow_format, quality=quality)
    else:
        image.save(stream, format=pillow_format)
    return stream.getvalue()


def decode_image(buffer: bytes, *args: Any) -> _Pixels:
    """Decode a JPEG or PNG file; its pixels are as they are stored, as by Granular."""
    if buffer.startswith(_PNG_SIGNATURE):
        return codecs.PngCodec(orient=False).decode(buffer)
    return codecs.JpgCodec(orient=False).decode(buffer)


def encode_video(array: _Pixels, fps: int = 20, codec: str = "h264") -> bytes:
    """Encode frames: VP8 and VP9 as WebM, other codecs as MP4.

    Args:
        array: uint8 of shape ``(n_frames, height, width, 3)``.
        fps: frames per second.
        codec: the video codec.
    """
    if codec in _WEBM_VIDEO_CODECS:
        return codecs.WebmCodec(fps=fps, codec=codec).encode(array)
    return codecs.Mp4Codec(fps=fps, codec=codec).encode(array)


def decode_video(buffer: bytes, *args: Any) -> _Pixels:
    """Decode an MP4 or WebM file to frames of shape ``(n_frames, height, width, 3)``, uint8."""
    if buffer.startswith(_WEBM_SIGNATURE):
        return codecs.WebmCodec().decode(buffer)
    return codecs.Mp4Codec().decode(buffer)


# ---------------------------------------------------------------------- other types

#: The codecs of data_stack for the types that have the same bytes in Granular.
_CODECS = {
    "bytes": codecs.codec_of("bytes"),
    "utf8": codecs.codec_of("utf8"),
    "msgpack": codecs.codec_of("msgpack"),
    "int": codecs.codec_of("int"),
    "i64": codecs.codec_of("i64"),
    "u64": codecs.codec_of("u64"),
    "array": codecs.codec_of("array"),
    "tree": codecs.codec_of("tree"),
}

encode_int = _CODECS["int"].encode
decode_int = _CODECS["int"].decode
encode_array = _CODECS["array"].encode
decode_array = _CODECS["array"].decode
encode_tree = _CODECS["tree"].encode
decode_tree = _CODECS["tree"].decode

#: Functions from a value to bytes, by type.
encoders: dict[str, Callable[..., bytes]] = {
    column_type: codec.encode for column_type, codec in _CODECS.items()
}
encoders["jpg"] = functools.partial(encode_image, format="jpg")
encoders["png"] = functools.partial(encode_image, format="png")
encoders["mp4"] = encode_video
encoders["webm"] = functools.partial(encode_video, codec="vp9")

#: Functions from bytes to a value, by type.
decoders: dict[str, Callable[..., Any]] = {
    column_type: codec.decode for column_type, codec in _CODECS.items()
}
decoders["jpg"] = decode_image
decoders["png"] = decode_image
decoders["mp4"] = decode_video
decoders["webm"] = decode_video
