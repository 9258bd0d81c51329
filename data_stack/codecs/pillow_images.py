"""Images as WebP, TIFF, BMP, GIF and PNM files, by Pillow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy.typing as npt

from data_stack.codecs.codec import check_range, register_codec
from data_stack.codecs.images import ImageCodec, save

if TYPE_CHECKING:
    from PIL import ImageFile


@dataclass(frozen=True, kw_only=True, repr=False)
class _PillowCodec(ImageCodec):
    """Images that Pillow reads and writes without loss; dtypes other than uint8 have one channel."""

    _format: ClassVar[str]
    _save_options: ClassVar[dict[str, Any]] = {}

    def _encode(self, pixels: npt.NDArray[Any]) -> bytes:
        return save(pixels.astype(pixels.dtype.newbyteorder("="), copy=False), self._format, **self._save_options)


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
    _channels = {"uint8": (1, 3, 4), "bool": (1,), "uint16": (1,), "int32": (1,), "float32": (1,)}
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
    _channels = {"uint8": (1, 3), "bool": (1,)}
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
    _channels = {"uint8": (1, 3), "bool": (1,), "float32": (1,)}
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
    _channels = {"uint8": (1,)}

    def _pixels(self, value: Any) -> npt.NDArray[Any]:
        raise TypeError(f"a column of gif images stores files as bytes, not {type(value).__name__}; store arrays as png")


@register_codec
@dataclass(frozen=True, kw_only=True, repr=False)
class WebpCodec(ImageCodec):
    """WebP of shape ``(h, w, 3)`` or ``(h, w, 4)``, uint8; it has no greyscale, and at most 16383 pixels in a row or column.

    Args:
        mode: convert to ``"L"``, ``"RGB"`` or ``"RGBA"`` when reading; None for the stored mode (an image without transparent
            pixels is stored as RGB).
        max_pixels: maximum number of pixels of a record.
        quality: 0 to 100; the effort if ``lossless``.
        lossless: compress without loss.
    """

    quality: int = 90
    lossless: bool = False

    name, extensions, media_type = "webp", ("webp",), "image/webp"

    _module, _class = "WebPImagePlugin", "WebPImageFile"
    _signature = b"RIFF"
    _channels = {"uint8": (3, 4)}

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("quality", self.quality, 0, 100)

    @classmethod
    def recognizes(cls, start: bytes) -> bool:
        return start[:4] == b"RIFF" and start[8:12] == b"WEBP"

    def open(self, record: bytes) -> ImageFile.ImageFile:
        # libwebp allocates memory for the pixels before Pillow knows their number.
        self._check_pixels(*_webp_size(record))
        return super().open(record)

    def _encode(self, pixels: npt.NDArray[Any]) -> bytes:
        # exact: else the colours of transparent pixels are lost
        return save(pixels, "WEBP", quality=self.quality, lossless=self.lossless, exact=self.lossless)


def _webp_size(record: bytes) -> tuple[int, int]:
    """Width and height of a WebP file, RFC 9649 section 2; both 1 if it is not WebP, which libwebp reports."""
    kind, bits = record[12:16], int.from_bytes(record[21:25], "little")
    if kind == b"VP8X":
        return 1 + int.from_bytes(record[24:27], "little"), 1 + int.from_bytes(record[27:30], "little")
    if kind == b"VP8L":
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    return int.from_bytes(record[26:28], "little") & 0x3FFF or 1, int.from_bytes(record[28:30], "little") & 0x3FFF or 1
