"""Images as JPEG, WebP, TIFF, BMP, GIF or PNM files, by Pillow.

simplejpeg (libjpeg-turbo) decodes and encodes JPEG if it is installed and the image is usual.
Images a second in one thread (best of 14 runs on a busy machine of two cores; photograph-like,
quality 95, decoded to RGB and encoded):

=========  ==============  ==============  =============
pixels     simplejpeg 1.9  OpenCV 5.0      Pillow 13.0
=========  ==============  ==============  =============
96 x 96    20,100; 31,200  14,900; 28,300  7,900; 13,800
224 x 224  3,800; 5,500    3,400; 5,300    2,700; 4,100
512 x 512  770; 1,020      660; 1,070      560; 890
=========  ==============  ==============  =============

All release the GIL while they decode, and return the same pixels. Only simplejpeg reports truncated
image data, which the others fill up with grey.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import check_range
from data_stack.codecs.images import (
    ImageCodec,
    encode_by_pillow,
    orientation_of,
    pixels_of,
    turn_upright,
)
from data_stack.codecs.jpeg_orientation import is_certainly_upright
from data_stack.codecs.registry import register_codec

try:
    import simplejpeg
except ImportError:
    simplejpeg = None

# ------------------------------------------------------------------ TIFF

#: Tags of TIFF 6.0, https://www.itu.int/itudoc/itu-t/com16/tiff-fx/docs/tiff6.pdf
_BITS_PER_SAMPLE = 258
_SAMPLE_FORMAT = 339
#: Values of the tag SampleFormat.
_UNSIGNED = 1
_SIGNED = 2


@register_codec
class TiffCodec(ImageCodec):
    """TIFF, without loss.

    Stores uint8 of shape ``(h, w)``, ``(h, w, 3)`` and ``(h, w, 4)``; bool, uint16, int32 and
    float32 of shape ``(h, w)``. Files of uint32 and int8 are read, too. Files whose values Pillow
    would change, such as float64 and colors of 16 bits, are refused, unless ``mode`` asks for a
    conversion. Pillow turns every TIFF file upright, also with ``orient=False``.

    Args:
        mode: convert to ``"L"``, ``"RGB"`` or ``"RGBA"`` when reading; None for the stored mode.
        max_pixels: maximum number of pixels of a record.
    """

    name = "tiff"
    extensions = ("tiff", "tif")
    media_type = "image/tiff"

    _pillow_module = "TiffImagePlugin"
    _pillow_class = "TiffImageFile"
    _pillow_format = "TIFF"
    _save_options = {"compression": "tiff_adobe_deflate"}
    _signature = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
    _channels = {"uint8": (1, 3, 4), "bool": (1,), "uint16": (1,), "int32": (1,), "float32": (1,)}
    _storable_modes = ("1", "L", "RGB", "RGBA", "I;16", "I", "F")

    def _read_pixels(self, image: Any) -> npt.NDArray[Any]:
        n_bits = max(image.tag_v2.get(_BITS_PER_SAMPLE, (1,)))
        sample_format = max(image.tag_v2.get(_SAMPLE_FORMAT, (_UNSIGNED,)))
        pixels = pixels_of(image)
        n_bits_read = 8 * pixels.dtype.itemsize
        if n_bits > n_bits_read:
            raise ValueError(
                f"its values have {n_bits} bits, of which Pillow reads {n_bits_read}; store them "
                "as .npy or float32, or pass a codec with mode='RGB' to read 8 bits"
            )
        # Pillow's type of 32 bits is signed, and its type of 8 bits is unsigned.
        if pixels.dtype == np.int32 and sample_format == _UNSIGNED and n_bits == 32:
            return pixels.view(np.uint32)
        if pixels.dtype == np.uint8 and sample_format == _SIGNED and n_bits == 8:
            return pixels.view(np.int8)
        return pixels


# ------------------------------------------------------------------ BMP


@register_codec
class BmpCodec(ImageCodec):
    """BMP: uint8 of shape ``(h, w)`` and ``(h, w, 3)``, bool of shape ``(h, w)``.

    Args:
        mode: convert to ``"L"``, ``"RGB"`` or ``"RGBA"`` when reading; None for the stored mode.
        max_pixels: maximum number of pixels of a record.
    """

    name = "bmp"
    extensions = ("bmp",)
    media_type = "image/bmp"

    _pillow_module = "BmpImagePlugin"
    _pillow_class = "BmpImageFile"
    _pillow_format = "BMP"
    _signature = (b"BM",)
    _channels = {"uint8": (1, 3), "bool": (1,)}
    _storable_modes = ("1", "L", "RGB")

    @classmethod
    def recognizes(cls, start: bytes) -> bool:
        # Two letters are not enough; four bytes of the head are reserved, and zero.
        return super().recognizes(start) and start[6:10] == bytes(4)


# ------------------------------------------------------------------ PNM

#: The kinds of PBM, PGM, PPM and PFM files that are read.
_PNM_KINDS = (b"P1", b"P2", b"P3", b"P4", b"P5", b"P6", b"Pf")
#: A number in the head of a PNM file, after white space or comments.
_PNM_NUMBER = rb"(?:\s|#[^\n]*\n)+(\d+)"
#: The head of a PGM or PPM file: kind, width, height, largest value.
_PNM_HEAD = re.compile(rb"P[2356]" + _PNM_NUMBER + _PNM_NUMBER + _PNM_NUMBER)
#: A head is searched in this number of bytes, as comments may be long.
_MAX_PNM_HEAD_BYTES = 4096


@register_codec
class PnmCodec(ImageCodec):
    """PBM, PGM, PPM and PFM files.

    Stores uint8 of shape ``(h, w)`` and ``(h, w, 3)``; bool and float32 of shape ``(h, w)``.

    Grey images of 16 bits are read as int32. Values are as stored: those of a file whose largest
    value is 4095 (12 bits) are 0 to 4095, which Pillow would stretch to 16 bits. Colors of more
    than 8 bits are refused, unless ``mode`` asks for a conversion.

    Args:
        mode: convert to ``"L"``, ``"RGB"`` or ``"RGBA"`` when reading; None for the stored mode.
        max_pixels: maximum number of pixels of a record.
    """

    name = "pnm"
    extensions = ("pnm", "pbm", "pgm", "ppm", "pfm")
    media_type = "image/x-portable-anymap"

    _pillow_module = "PpmImagePlugin"
    _pillow_class = "PpmImageFile"
    _pillow_format = "PPM"
    _signature = tuple(kind + space for kind in _PNM_KINDS for space in (b"\n", b" "))
    _channels = {"uint8": (1, 3), "bool": (1,), "float32": (1,)}
    _storable_modes = ("1", "L", "RGB", "F")

    def _decode(self, record: bytes) -> npt.NDArray[Any]:
        pixels = super()._decode(record)
        largest_value = _largest_value(record)
        if self.mode is not None or largest_value is None:
            return pixels
        # Pillow reads grey images of 16 bits as int32, and others as uint8.
        largest_of_pillow = 65_535 if pixels.dtype == np.int32 else 255
        if largest_value > largest_of_pillow:
            raise ValueError(
                f"its values reach {largest_value}, of which Pillow reads 8 bits; convert it to "
                "PNG of 16 bits, or pass a codec with mode='RGB' to read 8 bits"
            )
        if largest_value == largest_of_pillow:
            return pixels
        # Pillow has stretched the values, by a factor above 1: rounding returns the stored ones.
        stored_values = np.rint(pixels * (largest_value / largest_of_pillow))
        return stored_values.astype(pixels.dtype)


def _largest_value(record: bytes) -> int | None:
    """Return the largest value that the head of a PGM or PPM file declares.

    None: it is another file, which does not declare one.
    """
    head = _PNM_HEAD.match(record[:_MAX_PNM_HEAD_BYTES])
    if head is None:
        return None
    return int(head[3])


# ------------------------------------------------------------------ GIF


@register_codec
class GifCodec(ImageCodec):
    """GIF: decodes to the indices of the palette, uint8 of shape ``(h, w)``.

    Stores the bytes of GIF files, not arrays.

    Args:
        mode: ``"L"``, ``"RGB"`` or ``"RGBA"`` looks the colors up when reading; None for the
            indices.
        max_pixels: maximum number of pixels of a record.
    """

    name = "gif"
    extensions = ("gif",)
    media_type = "image/gif"

    _pillow_module = "GifImagePlugin"
    _pillow_class = "GifImageFile"
    _pillow_format = "GIF"
    _signature = (b"GIF87a", b"GIF89a")
    _channels = {"uint8": (1,)}

    def _to_storable_pixels(self, value: Any) -> npt.NDArray[Any]:
        raise TypeError(
            f"a column of gif images stores files as bytes, not {type(value).__name__}; "
            "store arrays as png"
        )


# ------------------------------------------------------------------ WebP


@register_codec
@dataclass(frozen=True, kw_only=True, repr=False)
class WebpCodec(ImageCodec):
    """WebP of shape ``(h, w, 3)`` or ``(h, w, 4)``, uint8.

    It has no greyscale, and at most 16383 pixels in a row or column.

    Args:
        mode: convert to ``"L"``, ``"RGB"`` or ``"RGBA"`` when reading; None for the stored mode (an
            image without transparent pixels is stored as RGB).
        max_pixels: maximum number of pixels of a record.
        quality: 0 to 100; the effort if ``lossless``.
        lossless: compress without loss.
    """

    quality: int = 90
    lossless: bool = False

    name = "webp"
    extensions = ("webp",)
    media_type = "image/webp"

    _pillow_module = "WebPImagePlugin"
    _pillow_class = "WebPImageFile"
    _signature = b"RIFF"
    _channels = {"uint8": (3, 4)}

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("quality", self.quality, 0, 100)

    @classmethod
    def recognizes(cls, start: bytes) -> bool:
        return start[:4] == b"RIFF" and start[8:12] == b"WEBP"

    def open(self, record: bytes) -> Any:
        # libwebp allocates memory for the pixels before Pillow knows their number.
        width, height = _webp_size(record)
        self._check_size(width, height)
        return super().open(record)

    def _encode(self, pixels: npt.NDArray[Any]) -> bytes:
        options = {
            "quality": self.quality,
            "lossless": self.lossless,
            # Keeps the colors of transparent pixels.
            "exact": self.lossless,
        }
        return encode_by_pillow(pixels, "WEBP", options)


def _webp_size(record: bytes) -> tuple[int, int]:
    """Return the width and height of a WebP file in pixels, RFC 9649 section 2.

    Other files, and damaged ones, seem to have any size of at least 1 x 1; libwebp refuses them.
    """
    kind = record[12:16]
    if kind == b"VP8X":  # a file with further chunks
        width_less_one = int.from_bytes(record[24:27], "little")
        height_less_one = int.from_bytes(record[27:30], "little")
        return width_less_one + 1, height_less_one + 1
    if kind == b"VP8L":  # without loss: 14 bits each
        bits = int.from_bytes(record[21:25], "little")
        width_less_one = bits & 0x3FFF
        height_less_one = bits >> 14 & 0x3FFF
        return width_less_one + 1, height_less_one + 1
    width = int.from_bytes(record[26:28], "little") & 0x3FFF
    height = int.from_bytes(record[28:30], "little") & 0x3FFF
    return width or 1, height or 1


# ------------------------------------------------------------------ JPEG

#: The marker before each scan of a JPEG file.
_SCAN_START = b"\xff\xda"
#: The maximum number of scans of an image of ``max_pixels``; smaller images may have more.
_MAX_SCANS = 32
#: Warnings of libjpeg about images that it decodes correctly.
_HARMLESS_WARNINGS = ("extraneous bytes", "Unknown Adobe color transform")


@register_codec
@dataclass(frozen=True, repr=False)
class JpgCodec(ImageCodec):
    """JPEG (Granular's ``jpg``): uint8 of shape ``(height, width, 3)``, or ``(height, width)``.

    Greyscale of shape ``(height, width, 1)`` can be stored and comes back as ``(height, width)``. A
    file in CMYK is read as four channels, as by Pillow; ``mode="RGB"`` converts it. Colors are
    stored at half the resolution (4:2:0). Damaged image data are only detected if simplejpeg is
    installed.

    Args:
        mode: convert to ``"L"``, ``"RGB"`` or ``"RGBA"`` when reading; None for the stored mode.
        max_pixels: maximum number of pixels of a record.
        quality: 1 to 100. Granular always encodes with 75, by Pillow, whose bytes differ from those
            of simplejpeg.
    """

    quality: int = 95

    name = "jpg"
    extensions = ("jpg", "jpeg")
    media_type = "image/jpeg"

    _pillow_module = "JpegImagePlugin"
    _pillow_class = "JpegImageFile"
    _signature = b"\xff\xd8\xff"
    _channels = {"uint8": (1, 3)}

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("quality", self.quality, 1, 100)

    def _decode(self, record: bytes) -> npt.NDArray[Any]:
        # simplejpeg cannot add a channel.
        if simplejpeg is None or self.mode == "RGBA":
            return super()._decode(record)
        try:
            height, width, colors, _ = simplejpeg.decode_jpeg_header(record)
            self._check_size(width, height)
            self._check_scans(record, width * height)
            if colors not in ("Gray", "YCbCr", "RGB"):
                return super()._decode(record)
            is_grey = self.mode == "L" or (self.mode is None and colors == "Gray")
            pixels: npt.NDArray[Any] = simplejpeg.decode_jpeg(record, "GRAY" if is_grey else "RGB")
        except ValueError as error:
            # simplejpeg raises libjpeg's warnings as errors, too; Pillow decodes such images.
            if any(warning in str(error) for warning in _HARMLESS_WARNINGS):
                return super()._decode(record)
            raise
        if is_grey:
            pixels = pixels[:, :, 0]
        if not self.orient:
            return pixels
        return turn_upright(pixels, self._find_orientation(record))

    def _find_orientation(self, record: bytes) -> int:
        """Return how the image must be turned, 1 to 8 as in EXIF; simplejpeg does not say."""
        if is_certainly_upright(record):
            return 1
        with super().open(record) as image:
            return orientation_of(image)

    def open(self, record: bytes) -> Any:
        image = super().open(record)
        self._check_scans(record, image.width * image.height)
        return image

    def _check_scans(self, record: bytes, n_pixels: int) -> None:
        """Check that an image does not decode all of its pixels too often.

        Each scan of a progressive image takes only a few bytes, and goes over all pixels.

        Raises:
            ValueError: it would take too long to decode.
        """
        max_pixels_of_scans = _MAX_SCANS * self.max_pixels
        # Scans are counted only if so many bytes could hold too many of them.
        max_scans = len(record) // 8
        if n_pixels * max_scans <= max_pixels_of_scans:
            return
        n_scans = record.count(_SCAN_START)
        if n_pixels * n_scans > max_pixels_of_scans:
            raise ValueError(
                f"an image of {n_pixels} pixels in {n_scans} scans would take too long to decode"
            )

    def _encode(self, pixels: npt.NDArray[Any]) -> bytes:
        if simplejpeg is None:
            return encode_by_pillow(pixels, "JPEG", {"quality": self.quality})
        if pixels.ndim == 2:
            return bytes(simplejpeg.encode_jpeg(pixels[:, :, None], self.quality, "GRAY", "Gray"))
        return bytes(simplejpeg.encode_jpeg(pixels, self.quality, "RGB", "420"))
