"""Images as TIFF, BMP, GIF and PNM files, by Pillow."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from data_stack.codecs.images import ImageCodec, pillow
from data_stack.codecs.registry import register_codec


@dataclass(frozen=True, kw_only=True, repr=False)
class _PillowCodec(ImageCodec):
    """Images that Pillow reads and writes without loss; dtypes other than uint8 have one channel."""

    _format: ClassVar[str]
    _save_options: ClassVar[dict[str, Any]] = {}

    def _takes(self, dtype: np.dtype[Any], channels: int) -> bool:
        return super()._takes(dtype, channels) or (channels == 1 and dtype.newbyteorder("=").name in self._dtypes)

    def _encode(self, pixels: npt.NDArray[Any]) -> bytes:
        stream = io.BytesIO()
        native = pixels.astype(pixels.dtype.newbyteorder("="), copy=False)
        pillow().fromarray(native).save(stream, format=self._format, **self._save_options)
        return stream.getvalue()


@register_codec
@dataclass(frozen=True, kw_only=True, repr=False)
class TiffCodec(_PillowCodec):
    """TIFF: uint8 of shape ``(h, w)``, ``(h, w, 3)`` and ``(h, w, 4)``; bool, uint16, int32 and float32 of shape ``(h, w)``.

    Other files are read as by Pillow: float64 as float32, colour images of 16 bits as uint8.

    Args:
        mode: convert to ``"L"``, ``"RGB"`` or ``"RGBA"`` when reading; None for the stored mode.
        max_pixels: maximum number of pixels of a record.
    """

    name, extensions, media_type = "tiff", ("tiff", "tif"), "image/tiff"

    _module, _class, _format = "TiffImagePlugin", "TiffImageFile", "TIFF"
    _signature = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
    _dtypes = ("uint8", "bool", "uint16", "int32", "float32")
    _channels = (1, 3, 4)
    _modes = ("1", "L", "RGB", "RGBA", "I;16", "I", "F")
    _save_options = {"compression": "tiff_adobe_deflate"}


@register_codec
@dataclass(frozen=True, kw_only=True, repr=False)
class BmpCodec(_PillowCodec):
    """BMP: uint8 of shape ``(h, w)`` and ``(h, w, 3)``, bool of shape ``(h, w)``.

    Args:
        mode: convert to ``"L"``, ``"RGB"`` or ``"RGBA"`` when reading; None for the stored mode.
        max_pixels: maximum number of pixels of a record.
    """

    name, extensions, media_type = "bmp", ("bmp",), "image/bmp"

    _module, _class, _format = "BmpImagePlugin", "BmpImageFile", "BMP"
    _signature = (b"BM",)
    _dtypes = ("uint8", "bool")
    _channels = (1, 3)
    _modes = ("1", "L", "RGB")

    @classmethod
    def recognizes(cls, start: bytes) -> bool:
        return super().recognizes(start) and start[6:10] == bytes(4)  # reserved


@register_codec
@dataclass(frozen=True, kw_only=True, repr=False)
class PnmCodec(_PillowCodec):
    """PBM, PGM, PPM and PFM: uint8 of shape ``(h, w)`` and ``(h, w, 3)``; bool and float32 of shape ``(h, w)``.

    Grey images of 16 bits are read as int32, as by Pillow.

    Args:
        mode: convert to ``"L"``, ``"RGB"`` or ``"RGBA"`` when reading; None for the stored mode.
        max_pixels: maximum number of pixels of a record.
    """

    name, extensions, media_type = "pnm", ("pnm", "pbm", "pgm", "ppm", "pfm"), "image/x-portable-anymap"

    _module, _class, _format = "PpmImagePlugin", "PpmImageFile", "PPM"
    _signature = tuple(kind + space for kind in (b"P1", b"P2", b"P3", b"P4", b"P5", b"P6", b"Pf") for space in (b"\n", b" "))
    _dtypes = ("uint8", "bool", "float32")
    _channels = (1, 3)
    _modes = ("1", "L", "RGB", "F")


@register_codec
@dataclass(frozen=True, kw_only=True, repr=False)
class GifCodec(_PillowCodec):
    """GIF of one frame: the indices of its palette, uint8 of shape ``(h, w)``. Stores files, not arrays.

    Args:
        mode: ``"L"``, ``"RGB"`` or ``"RGBA"`` looks the colours up when reading; None for the indices.
        max_pixels: maximum number of pixels of a record.
    """

    name, extensions, media_type = "gif", ("gif",), "image/gif"

    _module, _class, _format = "GifImagePlugin", "GifImageFile", "GIF"
    _signature = (b"GIF87a", b"GIF89a")
    _channels = (1,)

    def _pixels(self, value: Any) -> npt.NDArray[Any]:
        raise TypeError(f"a column of gif images stores files as bytes, not {type(value).__name__}; store arrays as png")
