"""Images as PNG files: by OpenCV if it is installed and the file is plain, by Pillow otherwise."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import Codec, Column, check_range
from data_stack.codecs.images import ImageCodec, pillow
from data_stack.codecs.opencv_png import SIGNATURE, check_chunks, decode_png, encode_png, plain_png
from data_stack.codecs.registry import register_codec
from data_stack.exception import MissingDependencyError

if TYPE_CHECKING:
    from PIL import ImageFile

#: Images of up to this number of pixels are decoded without checking the limit of a request first.
_MIN_PIXELS_CHECKED = 1 << 20
#: Pillow's modes by the last dimension of a plain PNG file's shape.
_MODES = {(): "L", (3,): "RGB", (4,): "RGBA"}


@register_codec
@dataclass(frozen=True, kw_only=True, repr=False)
class PngCodec(ImageCodec):
    """PNG (Granular's ``png``), without loss.

    Stores uint8 of shape ``(h, w)``, ``(h, w, 2)`` (grey and alpha), ``(h, w, 3)`` and ``(h, w, 4)``; uint16 and bool of shape
    ``(h, w)``. Decoded arrays are those of Pillow: of palette files the indices (``mode="RGB"`` converts them), of colour images
    of 16 bits the upper 8. OpenCV decodes plain files if it is installed.

    Args:
        mode: convert to ``"L"``, ``"RGB"`` or ``"RGBA"`` when reading; None for the stored mode.
        max_pixels: maximum number of pixels of a record.
        compress_level: 0 (none) to 9.
        deep: store and read the 16 bits of images of shape ``(h, w, 3)`` and ``(h, w, 4)`` too, which needs OpenCV.
    """

    compress_level: int = 6
    deep: bool = False

    name, extensions, media_type = "png", ("png",), "image/png"

    _module, _class = "PngImagePlugin", "PngImageFile"
    _signature = SIGNATURE
    _dtypes = ("uint8", "uint16")
    _channels = (1, 2, 3, 4)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("compress_level", self.compress_level, 0, 9)

    def _decode(self, record: bytes) -> npt.NDArray[Any]:
        plain = plain_png(record)
        if plain is None:
            return self._by_pillow(record)
        shape, dtype = plain
        if shape[0] * shape[1] > min(self.max_pixels, _MIN_PIXELS_CHECKED):
            self._check_pixels(shape[1], shape[0])
        is_deep = dtype == np.uint16 and len(shape) == 3
        if self.mode not in (None, _MODES[shape[2:]]) or (is_deep and not self.deep):
            return self._by_pillow(record)
        pixels = decode_png(record, plain)
        if pixels is None and is_deep:
            raise _needs_opencv()
        return self._by_pillow(record) if pixels is None else pixels

    def adapt(self, column: Column) -> Codec:
        is_deep = column.dtype == np.uint16 and column.shape is not None
        return ImageCodec.adapt(replace(self, deep=True) if is_deep and not self.deep else self, column)

    def open(self, record: bytes) -> ImageFile.ImageFile:
        # Pillow ignores the checksums of the pixels, and accepts truncated files.
        if record.startswith(self._signature):
            check_chunks(record)
        return super().open(record)

    def _takes(self, dtype: np.dtype[Any], channels: int) -> bool:
        name = dtype.newbyteorder("=").name
        if self.deep and name == "uint16" and channels in (3, 4):
            return True
        return super()._takes(dtype, channels) or (channels == 1 and name in ("uint16", "bool"))

    def _encode(self, pixels: npt.NDArray[Any]) -> bytes:
        if pixels.dtype.newbyteorder("=") == np.uint16:
            if pixels.ndim == 3:
                record = encode_png(pixels.astype(np.uint16, copy=False), self.compress_level)
                if record is None:
                    raise _needs_opencv()
                return record
            pixels = pixels.astype("<u2", copy=False)
        stream = io.BytesIO()
        pillow().fromarray(pixels).save(stream, format="PNG", compress_level=self.compress_level)
        return stream.getvalue()


def _needs_opencv() -> MissingDependencyError:
    return MissingDependencyError("a coloured PNG image of 16 bits", "opencv-python-headless", "images")
