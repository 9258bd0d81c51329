"""The codecs of records as cells of Parquet: video, sound, JSON, msgpack, and around each Zstandard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from data_stack.exception import ConfigError
from data_stack.formats.parquet.codecs.cell_codec import CellCodec
from data_stack.formats.parquet.codecs.cells import cell_views
from data_stack.formats.parquet.codecs.checks import checked_array, checked_scalar, fits_shape
from data_stack.formats.parquet.columns import CellColumn, GroupColumn
from data_stack.formats.records.codecs.codec import Codec
from data_stack.formats.records.codecs.types import codec_of

if TYPE_CHECKING:
    from data_stack.formats.parquet.schema import Field

__all__ = ["RecordCodec"]


class RecordCodec(CellCodec):
    """A codec of :mod:`data_stack.formats.records`, built in or of a plugin.

    Args:
        type: such as ``"webp"``, ``"zstd(json)"``, ``"flac"``.

    Raises:
        ConfigError: there is no such codec.
    """

    kind = "record"

    def __init__(self, type: str) -> None:  # noqa: A002  # as records call it
        if not isinstance(type, str):
            raise ConfigError(f"the type of a record is a name such as 'webp', not {type!r:.60}")
        codec_of(type)
        self.type = type

    def to_json(self) -> dict[str, Any]:
        return {"codec": self.kind, "type": self.type}

    def arrow_type(self, field: Field) -> pa.DataType:
        return pa.binary()

    def encode(self, field: Field, value: Any) -> Any:
        return codec_of(self.type).encode(_checked(field, value))

    def _column(self, field: Field, cells: pa.Array, has_nulls: bool) -> GroupColumn:
        views = cell_views(cells)
        return CellColumn(views, _Decoder(field, codec_of(self.type)), views.n_bytes, as_objects=has_nulls)


def _checked(field: Field, value: Any) -> Any:
    """The value, if it is of the field's dtype and shape; codecs look themselves at what numpy has no dtype for."""
    if not isinstance(field.dtype, np.dtype) or field.dtype.kind not in "biufc":
        return value
    return checked_array(field, value) if field.shape else checked_scalar(field, value)


class _Decoder:
    """Decodes records of a field, and looks whether they are of its dtype and shape."""

    def __init__(self, field: Field, codec: Codec) -> None:
        self._decode, self._dtype, self._shape = codec.decode, field.dtype, field.shape

    def __call__(self, cell: bytes) -> Any:
        value = self._decode(cell)
        has_dtype = isinstance(self._dtype, np.dtype) and self._dtype.kind in "biufc"
        if not has_dtype or not isinstance(value, np.ndarray):
            return value
        if value.dtype != self._dtype or not fits_shape(value.shape, self._shape):
            raise ValueError(f"a value of shape {value.shape}, dtype {value.dtype} where {self._shape}, {self._dtype} belongs")
        return value
