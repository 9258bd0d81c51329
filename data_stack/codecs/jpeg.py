"""JPEG as records: by simplejpeg (libjpeg-turbo), or by Pillow if that is not installed or the image is unusual.

Images a second in one thread (best of 14 runs on a busy machine of two cores; photograph-like, quality 95, decoded to RGB and
encoded):

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

from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from data_stack.codecs.codec import check_range, register_codec
from data_stack.codecs.images import ImageCodec, save

try:
    import simplejpeg as _simplejpeg
except ImportError:
    _simplejpeg = None

if TYPE_CHECKING:
    from PIL import ImageFile

simplejpeg: ModuleType | None = _simplejpeg

#: Maximum number of scans over all allowed pixels: each scan of a progressive image takes only a few bytes.
_MAX_SCANS_OF_ALL_PIXELS = 32
_SCAN_START = b"\xff\xda"
_MIN_SCAN_BYTES = 8
#: Warnings of libjpeg about images that it decodes correctly.
_HARMLESS = ("extraneous bytes", "Unknown Adobe color transform")


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
            return self._by_pillow(record)
        try:
            height, width, colours, _ = simplejpeg.decode_jpeg_header(record)
            self._check_pixels(width, height)
            self._check_scans(record, width * height)
            if colours not in ("Gray", "YCbCr", "RGB"):
                return self._by_pillow(record)
            is_grey = self.mode == "L" or (self.mode is None and colours == "Gray")
            pixels: npt.NDArray[Any] = simplejpeg.decode_jpeg(record, "GRAY" if is_grey else "RGB")
        except ValueError as error:
            if any(warning in str(error) for warning in _HARMLESS):
                return self._by_pillow(record)
            raise
        return pixels[:, :, 0] if is_grey else pixels

    def open(self, record: bytes) -> ImageFile.ImageFile:
        image = super().open(record)
        self._check_scans(record, image.width * image.height)
        return image

    def _check_scans(self, record: bytes, n_pixels: int) -> None:
        most = _MAX_SCANS_OF_ALL_PIXELS * self.max_pixels
        if n_pixels * (len(record) // _MIN_SCAN_BYTES) > most and n_pixels * record.count(_SCAN_START) > most:
            raise ValueError(f"an image of {n_pixels} pixels in {record.count(_SCAN_START)} scans would take too long to decode")

    def _encode(self, pixels: npt.NDArray[Any]) -> bytes:
        if simplejpeg is None:
            return save(pixels, "JPEG", quality=self.quality)
        if pixels.ndim == 2:
            record = simplejpeg.encode_jpeg(pixels[:, :, None], self.quality, "GRAY", "Gray")
        else:
            record = simplejpeg.encode_jpeg(pixels, self.quality, "RGB", "420")
        return bytes(record)
