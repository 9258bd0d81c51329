"""Stores numbers, text, bytes, decimals, dates and times as scalars of Parquet."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.codecs.fitting import as_dtype
from data_stack.exception import ConfigError
from data_stack.formats.parquet import types
from data_stack.formats.parquet.codecs.arrow_codec import Values
from data_stack.formats.parquet.codecs.scalar_values import as_objects, object_bytes
from data_stack.formats.parquet.codecs.times import is_instant, time_cells, to_scalar
from data_stack.formats.parquet.codecs.typed_codec import TypedCodec
from data_stack.formats.parquet.codecs.value_checks import check_scalar
from data_stack.formats.parquet.columns import ArrayColumn, GroupColumn
from data_stack.formats.parquet.types import FieldLike


class ScalarCodec(TypedCodec):
    """Stores numbers, text, bytes, decimals, dates and times.

    Args:
        nulls: "none" reads nulls as None; "nan" as NaN or NaT, for floats and times; "zero" as 0,
            for numbers and times.
        type: the stored type, by Spark's names (``"boolean" "tinyint" "smallint" "int" "bigint"
            "float" "double" "string" "binary" "date" "timestamp" "timestamp_ntz"
            "decimal(10,3)"``) or another of
            :func:`~data_stack.formats.parquet.types.arrow_type_named`, or a type of pyspark or
            Arrow; None: derived from the dtype. It may be wider than the dtype: Spark has no
            unsigned numbers, so Petastorm stores uint8 as smallint.

    Raises:
        ConfigError: the type is unknown.
    """

    kind = "scalar"

    def arrow_type(self, field: FieldLike) -> pa.DataType:
        if field.shape:
            raise ConfigError(
                f"ScalarCodec holds scalars, not values of shape {field.shape}; "
                "omit the codec, or use another"
            )
        return self._element_type(field)

    def compares_cells(self, field: FieldLike, type_: pa.DataType) -> bool:
        # Floats (NaN), decimals and times with a zone or in other units are compared in Python.
        if self.nulls != "none":
            return False
        dtype = types.numpy_dtype(field.dtype)
        if dtype.kind == "U":
            return types.is_text(type_)
        if dtype.kind == "S":
            return types.is_bytes(type_)
        if dtype.kind in "biu":
            return types.dtype_of_arrow(type_) == dtype
        return dtype == np.dtype("M8[D]") and bool(pa.types.is_date32(type_))

    def fill(self, field: FieldLike) -> Any:
        return self._fill(field)

    def encode(self, field: FieldLike, value: Any) -> Any:
        type_ = self.arrow_type(field)
        scalar = check_scalar(field, value, is_instant=is_instant(type_))
        return to_scalar(scalar, type_)

    def _encode_column(self, field: FieldLike, values: Values) -> pa.Array:
        is_array = type(values) is np.ndarray and values.ndim == 1
        if is_array and np.asarray(values).dtype.kind not in "OUST":
            try:
                return self._encode_array(field, np.asarray(values))
            except (pa.ArrowException, TypeError, ValueError, OverflowError):
                pass  # retried row by row, to name the row
        return super()._encode_column(field, values)

    def _encode_array(self, field: FieldLike, values: npt.NDArray[Any]) -> pa.Array:
        """Encode an array of numbers or times at once.

        Raises:
            pyarrow.ArrowException, TypeError, ValueError, OverflowError: a value does not fit.
        """
        if not isinstance(field.dtype, np.dtype) or field.dtype.kind == "O":
            raise TypeError("objects are encoded one by one")
        type_ = self.arrow_type(field)
        array = as_dtype(values, field.dtype)
        if field.dtype.kind in "mM":
            return time_cells(array, type_)
        return pa.array(array).cast(type_)

    def _column(self, field: FieldLike, cells: pa.Array, has_nulls: bool) -> GroupColumn:
        array, is_null = self._read(field, cells)
        if has_nulls and self.nulls == "none":
            array = as_objects(array, is_null)
        if array.dtype == object:
            return ArrayColumn(array, object_bytes(cells))
        return ArrayColumn(array)
