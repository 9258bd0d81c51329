"""Images as JPEG, WebP, TIFF, BMP, GIF or PNM files, by Pillow.

simplejpeg (libjpeg-turbo) decodes and encodes JPEG if it is installed and the image is usual. Images a second in one thread (best
of 14 runs on a busy machine of two cores; photograph-like, quality 95, decoded to RGB and encoded):

=========  ==============  ==============  =============
pixels     simplejpeg 1.9  OpenCV 5.0      Pillow 13.0
=========  ==============  ==============  =============
96 x 96    20,100; 31,200  14,900; 28,300  7,900; 13,800
224 x 224  3,800; 5,500    3,400; 5,300    2,700; 4,100
512 x 512  770; 1,020      660; 1,070      560; 890
=========  ==============  ==============  =============

All release the GIL while they decode, and return the same pixels. Only simplejpeg reports truncated image data, which the others
fill up with grey.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import check_range
from data_stack.codecs.images import ImageCodec, orientation_of, pixels_of, save, turned
from data_stack.codecs.registry import register_codec

try:
    import simplejpeg
except ImportError:
    simplejpeg = None

_SCAN_START = b"\xff\xda"

#: EXIF and XMP metadata are in the first segments of a JPEG file, of at most 64 KiB each.
_MAX_METADATA_BYTES = 1 << 17
#: The head of EXIF metadata, and a field of XMP metadata.
_EXIF, _XMP_ORIENTATION = b"Exif\0\0", b"Orientation"
#: The entry of EXIF that says that an image is upright: tag, type (unsigned of 16 bits), count, value.
_UPRIGHT = {
    b"II": struct.pack("<HHIH", 0x0112, 3, 1, 1),
    b"MM": struct.pack(">HHIH", 0x0112, 3, 1, 1),
}

#: Tags of TIFF 6.0, and the values of the latter, https://www.itu.int/itudoc/itu-t/com16/tiff-fx/docs/tiff6.pdf
_BITS_PER_SAMPLE, _SAMPLE_FORMAT = 258, 339
_UNSIGNED, _SIGNED = 1, 2

#: The head of a PGM or PPM file: kind, width, height, largest value, with comments between them.
_PNM_HEAD = re.compile(rb"P[2356]" + rb"(?:\s|#[^\n]*\n)+(\d+)" * 3)
#: Warnings of libjpeg about images that it decodes correctly.
_HARMLESS = ("extraneous bytes", "Unknown Adobe color transform")


@register_codec
class TiffCodec(ImageCodec):
    """TIFF: uint8 of shape ``(h, w)``, ``(h, w, 3)`` and ``(h, w, 4)``; bool, uint16, int32 and float32 of shape ``(h, w)``.

    Files of uint32 and int8 are read, too. Files whose values Pillow would change, such as float64 and colours of 16 bits, are
    refused, unless ``mode`` asks for a conversion. A TIFF file is always turned upright, by Pillow.

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

    def _read_pixels(self, image: Any) -> npt.NDArray[Any]:
        n_bits = max(image.tag_v2.get(_BITS_PER_SAMPLE, (1,)))
        sample_format = max(image.tag_v2.get(_SAMPLE_FORMAT, (_UNSIGNED,)))
        pixels = pixels_of(image)
        if n_bits > 8 * pixels.dtype.itemsize:
            raise ValueError(
                f"its values have {n_bits} bits, of which Pillow reads {8 * pixels.dtype.itemsize}; store "
                f"them as .npy or float32, or pass a codec with mode='RGB' to read 8 bits"
            )
        if pixels.dtype == np.int32 and sample_format == _UNSIGNED and n_bits == 32:
            return pixels.view(np.uint32)  # Pillow has signed numbers only
        if pixels.dtype == np.uint8 and sample_format == _SIGNED and n_bits == 8:
            return pixels.view(np.int8)  # Pillow has unsigned bytes only
        return pixels


@register_codec
class BmpCodec(ImageCodec):
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
class PnmCodec(ImageCodec):
    """PBM, PGM, PPM and PFM: uint8 of shape ``(h, w)`` and ``(h, w, 3)``; bool and float32 of shape ``(h, w)``.

    Grey images of 16 bits are read as int32. Values are as stored: those of a file whose largest value is 4095 (12 bits) are 0 to
    4095, which Pillow would stretch to 16 bits. Colours of more than 8 bits are refused, unless ``mode`` asks for a conversion.

    Args:
        mode: convert to ``"L"``, ``"RGB"`` or ``"RGBA"`` when reading; None for the stored mode.
        max_pixels: maximum number of pixels of a record.
    """

    name, extensions, media_type = (
        "pnm",
        ("pnm", "pbm", "pgm", "ppm", "pfm"),
        "image/x-portable-anymap",
    )

    _module, _class, _format = "PpmImagePlugin", "PpmImageFile", "PPM"
    _signature = tuple(
        kind + space
        for kind in (b"P1", b"P2", b"P3", b"P4", b"P5", b"P6", b"Pf")
        for space in (b"\n", b" ")
    )
    _channels = {"uint8": (1, 3), "bool": (1,), "float32": (1,)}
    _modes = ("1", "L", "RGB", "F")

    def _decode(self, record: bytes) -> npt.NDArray[Any]:
        pixels = super()._decode(record)
        largest = _largest_value(record)
        if self.mode is not None or largest is None:
            return pixels
        largest_of_pillow = 65_535 if pixels.dtype == np.int32 else 255
        if largest > largest_of_pillow:
            raise ValueError(
                f"its values reach {largest}, of which Pillow reads 8 bits; convert it to PNG of 16 bits, or "
                f"pass a codec with mode='RGB' to read 8 bits"
            )
        if largest == largest_of_pillow:
            return pixels
        # Pillow has stretched the values, by at least 1, so rounding gives back what is stored.
        return np.rint(pixels * (largest / largest_of_pillow)).astype(pixels.dtype)


def _largest_value(record: bytes) -> int | None:
    """The largest value that the head of a PGM or PPM file declares; None for other files, which have none."""
    head = _PNM_HEAD.match(record[:4096])
    return None if head is None else int(head[3])


@register_codec
class GifCodec(ImageCodec):
    """GIF: the indices of its palette, uint8 of shape ``(h, w)``. Stores files, not arrays.

    Args:
        mode: ``"L"``, ``"RGB"`` or ``"RGBA"`` looks the colours up when reading; None for the indices.
        max_pixels: maximum number of pixels of a record.
    """

    name, extensions, media_type = "gif", ("gif",), "image/gif"

    _module, _class, _format = "GifImagePlugin", "GifImageFile", "GIF"
    _signature = (b"GIF87a", b"GIF89a")
    _channels = {"uint8": (1,)}

    def _pixels(self, value: Any) -> npt.NDArray[Any]:
        raise TypeError(
            f"a column of gif images stores files as bytes, not {type(value).__name__}; store arrays as png"
        )


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

    def open(self, record: bytes) -> Any:
        # libwebp allocates memory for the pixels before Pillow knows their number.
        self._check_pixels(*_webp_size(record))
        return super().open(record)

    def _encode(self, pixels: npt.NDArray[Any]) -> bytes:
        # exact: else the colours of transparent pixels are lost
        return save(
            pixels, "WEBP", quality=self.quality, lossless=self.lossless, exact=self.lossless
        )


def _has_usual_orientation(record: bytes, start: int) -> bool:
    """Whether EXIF metadata at ``start`` say that the image is upright, as those of most photographs do.

    Pillow, which knows for sure, takes as long as to decode a quarter of a small photograph.
    """
    upright = _UPRIGHT.get(record[start : start + 2])
    if upright is None:
        return False
    byte_order = "<" if upright == _UPRIGHT[b"II"] else ">"
    try:
        (offset,) = struct.unpack_from(f"{byte_order}I", record, start + 4)
        (n_entries,) = struct.unpack_from(f"{byte_order}H", record, start + offset)
    except struct.error:
        return False
    first = start + offset + 2
    entries = record[first : first + 12 * n_entries]
    return any(entries.startswith(upright, position) for position in range(0, len(entries), 12))


def _webp_size(record: bytes) -> tuple[int, int]:
    """Width and height of a WebP file, RFC 9649 section 2; both 1 if it is not WebP, which libwebp reports."""
    kind, bits = record[12:16], int.from_bytes(record[21:25], "little")
    if kind == b"VP8X":
        return 1 + int.from_bytes(record[24:27], "little"), 1 + int.from_bytes(
            record[27:30], "little"
        )
    if kind == b"VP8L":
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    return int.from_bytes(record[26:28], "little") & 0x3FFF or 1, int.from_bytes(
        record[28:30], "little"
    ) & 0x3FFF or 1


@register_codec
@dataclass(frozen=True, repr=False)
class JpgCodec(ImageCodec):
    """JPEG (Granular's ``jpg``): uint8 of shape ``(height, width, 3)``, or ``(height, width)`` of a grey image.

    Greyscale of shape ``(height, width, 1)`` can be stored and comes back as ``(height, width)``. A file in CMYK is read as four
    channels, as by Pillow; ``mode="RGB"`` converts it. Colours are stored at half the resolution (4:2:0). Damaged image data are
    only detected if simplejpeg is installed.

    Args:
        mode: convert to ``"L"``, ``"RGB"`` or ``"RGBA"`` when reading; None for the stored mode.
        max_pixels: maximum number of pixels of a record.
        quality: 1 to 100. (Granular always uses 75, and Pillow, whose bytes differ from those of simplejpeg.)
    """

    quality: int = 95

    name, extensions, media_type = "jpg", ("jpg", "jpeg"), "image/jpeg"

    _module, _class = "JpegImagePlugin", "JpegImageFile"
    _signature = b"\xff\xd8\xff"
    _channels = {"uint8": (1, 3)}

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("quality", self.quality, 1, 100)

    def _decode(self, record: bytes) -> npt.NDArray[Any]:
        if simplejpeg is None or self.mode == "RGBA":
            return super()._decode(record)
        try:
            height, width, colours, _ = simplejpeg.decode_jpeg_header(record)
            self._check_pixels(width, height)
            self._check_scans(record, width * height)
            if colours not in ("Gray", "YCbCr", "RGB"):
                return super()._decode(record)
            is_grey = self.mode == "L" or (self.mode is None and colours == "Gray")
            pixels: npt.NDArray[Any] = simplejpeg.decode_jpeg(record, "GRAY" if is_grey else "RGB")
        except ValueError as error:
            if any(warning in str(error) for warning in _HARMLESS):
                return super()._decode(record)
            raise
        if is_grey:
            pixels = pixels[:, :, 0]
        return turned(pixels, self._find_orientation(record)) if self.orient else pixels

    def _find_orientation(self, record: bytes) -> int:
        """How the image must be turned, 1 to 8 as in EXIF; simplejpeg does not say."""
        exif = record.find(_EXIF, 0, _MAX_METADATA_BYTES)
        if exif < 0 and record.find(_XMP_ORIENTATION, 0, _MAX_METADATA_BYTES) < 0:
            return 1
        if exif >= 0 and _has_usual_orientation(record, exif + len(_EXIF)):
            return 1
        with super().open(record) as image:
            return orientation_of(image)

    def open(self, record: bytes) -> Any:
        image = super().open(record)
        self._check_scans(record, image.width * image.height)
        return image

    def _check_scans(self, record: bytes, n_pixels: int) -> None:
        # Maximum number of scans over all allowed pixels: each scan of a progressive image takes only a few bytes.
        most = 32 * self.max_pixels
        if n_pixels * (len(record) // 8) > most and n_pixels * record.count(_SCAN_START) > most:
            raise ValueError(
                f"an image of {n_pixels} pixels in {record.count(_SCAN_START)} scans would take too long to decode"
            )

    def _encode(self, pixels: npt.NDArray[Any]) -> bytes:
        if simplejpeg is None:
            return save(pixels, "JPEG", quality=self.quality)
        if pixels.ndim == 2:
            return bytes(simplejpeg.encode_jpeg(pixels[:, :, None], self.quality, "GRAY", "Gray"))
        return bytes(simplejpeg.encode_jpeg(pixels, self.quality, "RGB", "420"))
