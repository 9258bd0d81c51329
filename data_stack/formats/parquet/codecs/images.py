"""Images as cells: PNG and JPEG files."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.exception import ConfigError
from data_stack.formats.parquet.codecs.cell_codec import CellCodec
from data_stack.formats.parquet.codecs.cells import cell_bytes, cell_views
from data_stack.formats.parquet.codecs.checks import FieldValues, checked_array, fits_shape
from data_stack.formats.parquet.codecs.png_column import PngColumn
from data_stack.formats.parquet.codecs.png_streams import LARGEST_IMAGE_BYTES, left_filtered_png
from data_stack.formats.parquet.columns import CellColumn, GroupColumn
from data_stack.formats.parquet.types import numpy_dtype
from data_stack.formats.records.codecs.codec import Codec

if TYPE_CHECKING:
    from data_stack.formats.parquet.schema import Field

__all__ = ["JpegCodec", "PngCodec"]


class _ImageCodec(CellCodec):
    """Images of shape ``(height, width)`` or ``(height, width, channels)``; one channel is stored like none."""

    leaves_lock = True
    _dtypes: tuple[str, ...]
    _channels: tuple[int, ...]

    def arrow_type(self, field: Field) -> pa.DataType:
        shape, dtype = field.shape, field.dtype
        channels = shape[2] if len(shape) == 3 else 1
        if (
            len(shape) not in (2, 3)
            or not isinstance(dtype, np.dtype)
            or dtype.name not in self._dtypes
            or (channels is not None and channels not in self._channels)
            or 0 in shape
        ):
            raise ConfigError(
                f"{type(self).__name__} holds images of dtype {' or '.join(self._dtypes)} and shape (height, width) or (height, "
                f"width, channels) with channels of {self._channels}, not {dtype}, {shape}"
            )
        return pa.binary()

    def encode(self, field: Field, value: Any) -> Any:
        return self._codec(field).encode(checked_array(field, value))

    def _encode_column(self, field: Field, values: FieldValues) -> pa.Array:
        if isinstance(values, np.ndarray) and values.dtype != object:
            values = list(values)  # views of each image
        return super()._encode_column(field, values)

    def _column(self, field: Field, cells: pa.Array, has_nulls: bool) -> GroupColumn:
        views = cell_views(cells)
        codec = self._codec(field)
        sizes = tuple(size for size in field.shape if size is not None)
        is_fixed = len(sizes) == len(field.shape) and not has_nulls and sizes[2:] != (1,)
        return CellColumn(
            views,
            _Decoder(field, codec),
            views.n_bytes,
            codec.decode_into if is_fixed else None,
            (numpy_dtype(field.dtype), sizes) if is_fixed else None,
            as_objects=has_nulls,
        )

    @abstractmethod
    def _codec(self, field: Field) -> Codec:
        """What encodes and decodes the files."""


class PngCodec(_ImageCodec):
    """Images as PNG files: nothing is lost; uint8 with 1 to 4 channels, uint16 with 1, 3 or 4.

    Small ones of one shape, up to 8 KiB of pixels each, are read many at a time, up to twice as fast, if they were written here
    or by OpenCV, as Petastorm's are.
    """

    kind = "png"
    _dtypes, _channels = ("uint8", "uint16"), (1, 2, 3, 4)

    def encode(self, field: Field, value: Any) -> Any:
        image = checked_array(field, value)
        n_channels = image.shape[2] if image.ndim == 3 else 1
        if 0 < image.nbytes <= LARGEST_IMAGE_BYTES and n_channels in (1, 3, 4):
            return left_filtered_png(image)
        return self._codec(field).encode(image)

    def _codec(self, field: Field) -> Codec:
        from data_stack.formats.records.codecs.images import PngCodec as PngRecords  # needs Pillow

        return PngRecords(deep=field.dtype == np.uint16)

    def _column(self, field: Field, cells: pa.Array, has_nulls: bool) -> GroupColumn:
        sizes = tuple(size for size in field.shape if size is not None)
        if has_nulls or cells.null_count or len(sizes) != len(field.shape) or sizes[2:] == (1,):
            return super()._column(field, cells, has_nulls)
        codec = self._codec(field)
        return PngColumn(*cell_bytes(cells), _Decoder(field, codec), codec.decode_into, numpy_dtype(field.dtype), sizes)


class JpegCodec(_ImageCodec):
    """Images as JPEG files, uint8, grey or RGB.

    Args:
        quality: 1 to 100; what is stored looks like the image, and is not equal to it.

    Raises:
        ConfigError: that is no quality.
    """

    kind = "jpeg"
    _dtypes, _channels = ("uint8",), (1, 3)

    def __init__(self, quality: int = 80) -> None:
        if type(quality) is not int or not 1 <= quality <= 100:
            raise ConfigError(f"quality is a number from 1 to 100, not {quality!r:.60}")
        self.quality = quality

    def to_json(self) -> dict[str, Any]:
        return {"codec": self.kind, "quality": self.quality}

    def _codec(self, field: Field) -> Codec:
        from data_stack.formats.records.codecs.jpeg import JpgCodec  # needs Pillow

        return JpgCodec(quality=self.quality)


class _Decoder:
    """Decodes images of a field, and looks whether they are such."""

    def __init__(self, field: Field, codec: Codec) -> None:
        self._decode, self._dtype, self._shape = codec.decode, numpy_dtype(field.dtype), field.shape
        self._has_one_channel = len(field.shape) == 3 and field.shape[2] in (1, None)

    def __call__(self, cell: bytes) -> npt.NDArray[Any]:
        image: npt.NDArray[Any] = self._decode(cell)
        if image.ndim == 2 and self._has_one_channel:
            image = image[:, :, None]
        if image.dtype != self._dtype or not fits_shape(image.shape, self._shape):
            raise ValueError(f"an image of shape {image.shape}, dtype {image.dtype} where {self._shape}, {self._dtype} belongs")
        return image
