"""Images as WebP files, by Pillow."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from data_stack.codecs.codec import check_range
from data_stack.codecs.images import ImageCodec, pillow
from data_stack.codecs.registry import register_codec

if TYPE_CHECKING:
    from PIL import ImageFile


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
    _channels = (3, 4)

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
        stream = io.BytesIO()
        # exact: else the colours of transparent pixels are lost
        pillow().fromarray(pixels).save(stream, format="WEBP", quality=self.quality, lossless=self.lossless, exact=self.lossless)
        return stream.getvalue()


def _webp_size(record: bytes) -> tuple[int, int]:
    """Width and height of a WebP file, RFC 9649 section 2; both 1 if it is not WebP, which libwebp reports."""
    kind, bits = record[12:16], int.from_bytes(record[21:25], "little")
    if kind == b"VP8X":
        return 1 + int.from_bytes(record[24:27], "little"), 1 + int.from_bytes(record[27:30], "little")
    if kind == b"VP8L":
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    return int.from_bytes(record[26:28], "little") & 0x3FFF or 1, int.from_bytes(record[28:30], "little") & 0x3FFF or 1
