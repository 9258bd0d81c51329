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


def encode_image(value: _Pixels, quality: int = 75, format: str = "jpg") -> bytes:  # noqa: A002  # as Granular
    """Encode pixels as a file, by Pillow; the bytes are those of Granular.

    Args:
        value: uint8 of shape ``(height, width)`` or ``(height, width, channels)``.
        quality: quality of JPEG. (Granular ignores this argument and always uses 75.)
        format: ``"jpg"``, ``"png"`` or another format that Pillow writes.
    """
    stream, kind = io.BytesIO(), format.upper().replace("JPG", "JPEG")
    pillow().fromarray(value).save(
        stream, format=kind, **({"quality": quality} if kind == "JPEG" else {})
    )
    return stream.getvalue()


def decode_image(buffer: bytes, *args: Any) -> _Pixels:
    """Decode a JPEG or PNG file; its pixels are as they are stored, as by Granular."""
    if buffer.startswith(b"\x89PNG"):
        return codecs.PngCodec(orient=False).decode(buffer)
    return codecs.JpgCodec(orient=False).decode(buffer)


def encode_video(array: _Pixels, fps: int = 20, codec: str = "h264") -> bytes:
    """Encode frames, uint8 of shape ``(n_frames, height, width, 3)``: VP8 and VP9 as WebM, other codecs as MP4."""
    return (codecs.WebmCodec if codec in ("vp8", "vp9") else codecs.Mp4Codec)(
        fps=fps, codec=codec
    ).encode(array)


def decode_video(buffer: bytes, *args: Any) -> _Pixels:
    """Decode an MP4 or WebM file."""
    return (
        codecs.WebmCodec() if buffer.startswith(b"\x1a\x45\xdf\xa3") else codecs.Mp4Codec()
    ).decode(buffer)


_OF_DATA_STACK = {
    name: codecs.codec_of(name)
    for name in ("bytes", "utf8", "msgpack", "int", "i64", "u64", "array", "tree")
}
encode_int, decode_int = _OF_DATA_STACK["int"].encode, _OF_DATA_STACK["int"].decode
encode_array, decode_array = _OF_DATA_STACK["array"].encode, _OF_DATA_STACK["array"].decode
encode_tree, decode_tree = _OF_DATA_STACK["tree"].encode, _OF_DATA_STACK["tree"].decode

#: Functions from a value to bytes, by type.
encoders: dict[str, Callable[..., bytes]] = {
    name: codec.encode for name, codec in _OF_DATA_STACK.items()
}
encoders.update({name: functools.partial(encode_image, format=name) for name in ("jpg", "png")})
encoders.update({"mp4": encode_video, "webm": functools.partial(encode_video, codec="vp9")})

#: Functions from bytes to a value, by type.
decoders: dict[str, Callable[..., Any]] = {
    name: codec.decode for name, codec in _OF_DATA_STACK.items()
}
decoders.update(
    {"jpg": decode_image, "png": decode_image, "mp4": decode_video, "webm": decode_video}
)
