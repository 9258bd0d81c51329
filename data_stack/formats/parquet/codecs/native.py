"""Scalars, lists and nested values as Parquet itself has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.codecs.fitting import as_dtype, fits_shape
from data_stack.exception import ConfigError
from data_stack.formats.parquet.codecs.arrow_codec import ArrowCodec
from data_stack.formats.parquet.codecs.cells import null_mask, plain_cells
from data_stack.formats.parquet.codecs.checks import (
    FieldValues,
    check_array,
    check_scalar,
    is_missing,
    same_time,
)
from data_stack.formats.parquet.codecs.native_values import (
    Values,
    conform,
    list_parts,
    plain_objects,
    plain_values,
    time_dtype,
)
from data_stack.formats.parquet.columns import (
    ArrayColumn,
    CellError,
    GroupColumn,
    ListColumn,
    MadeColumn,
    ObjectColumn,
)
from data_stack.formats.parquet.types import FieldLike, describe_type, dtype_name, element_type, is_list, type_described
from data_stack.values.stacked_values import objects

Nulls = Literal["none", "nan"]
"""What floats without a value are."""


class _TypedCodec(ArrowCodec):
    """A codec that knows the type of the values or of their elements; None: what suits the dtype.

    Raises:
        ConfigError: there is no such type, or ``nulls`` is something else.
    """

    def __init__(self, type: Any = None, *, nulls: Nulls = "none") -> None:  # noqa: A002  # as it is called in the stored schema
        if nulls not in ("none", "nan"):
            raise ConfigError(f"nulls is 'none' or 'nan', not {nulls!r:.40}")
        if type is not None:
            spark_name = getattr(type, "simpleString", None)
            if spark_name is not None:
                type = spark_name()  # noqa: A001  # likewise
            elif isinstance(type, pa.DataType):
                type = describe_type(type)  # noqa: A001  # likewise
            type_described(type)
            if not isinstance(type, str):
                raise ConfigError(f"the type of scalars is a name such as 'bigint', not {type!r:.60}")
        self.type, self.nulls = type, nulls

    def to_json(self) -> dict[str, Any]:
        # what is not there is as it was before there was anything to say
        told = {"type": self.type, "nulls": None if self.nulls == "none" else self.nulls}
        return {"codec": self.kind, **{name: value for name, value in told.items() if value is not None}}

    def _element_type(self, field: FieldLike) -> pa.DataType:
        if self.nulls == "nan" and not _is_float(field):
            raise ConfigError(f"nulls='nan' is for floats, not for values of dtype {dtype_name(field.dtype)}")
        return element_type(field.dtype, self.type)

    def _read(self, field: FieldLike, cells: pa.Array) -> Values:
        """Scalars of the dtype of a field; NaN for null, if that is wanted."""
        found = conform(plain_values(cells, field.dtype), field.dtype)
        if self.nulls == "none" or found.is_null is None:
            return found
        return Values(np.where(found.is_null, field.dtype.type("nan"), found.array), None)  # type: ignore[union-attr]  # a float


class ScalarCodec(_TypedCodec):
    """Numbers, text, bytes, decimals, dates and times.

    Args:
        nulls: "none": floats without a value are None; "nan": they are NaN.
        type: what Parquet stores, by Spark's names (``"boolean" "tinyint" "smallint" "int" "bigint" "float" "double" "string"
            "binary" "date" "timestamp" "timestamp_ntz" "decimal(10,3)"``) or another of
            :func:`~data_stack.formats.parquet.types.arrow_type_named`, or a type of pyspark or Arrow; None: what suits
            the dtype. A wider type than the dtype is fine: Spark has no unsigned numbers, so Petastorm stores uint8 as smallint.

    Raises:
        ConfigError: there is no such type.
    """

    kind = "scalar"

    def arrow_type(self, field: FieldLike) -> pa.DataType:
        if field.shape:
            raise ConfigError(
                f"ScalarCodec holds scalars, not values of shape {field.shape}; leave the codec out, or take another"
            )
        return self._element_type(field)

    def is_gathered(self, field: FieldLike, *, list_length: int | None, has_nulls: bool) -> bool:
        return True

    def encode(self, field: FieldLike, value: Any) -> Any:
        return _to_scalar(check_scalar(field, value), self.arrow_type(field))

    def _encode_column(self, field: FieldLike, values: FieldValues) -> pa.Array:
        type_ = self.arrow_type(field)
        try:
            cells = _cells_at_once(field, values, type_)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            cells = None  # which row it was is found one by one
        return super()._encode_column(field, values) if cells is None else cells

    def _column(self, field: FieldLike, cells: pa.Array, has_nulls: bool) -> GroupColumn:
        found = self._read(field, cells)
        array = found.array
        if not has_nulls or self.nulls == "nan":
            return ArrayColumn(array) if array.dtype != object else ObjectColumn(array, _object_bytes(cells))
        return ObjectColumn(found.as_objects(), _object_bytes(cells))


class ListCodec(_TypedCodec):
    """Arrays of one dimension as lists of Parquet, which any tool reads.

    Args:
        type: of the elements, as for :class:`ScalarCodec`.
        nulls: of the elements, likewise.
    """

    kind = "list"

    def arrow_type(self, field: FieldLike) -> pa.DataType:
        if len(field.shape) != 1:
            raise ConfigError(f"ListCodec holds arrays of one dimension, not of shape {field.shape}; take NdarrayCodec()")
        return pa.list_(self._element_type(field))

    def is_gathered(self, field: FieldLike, *, list_length: int | None, has_nulls: bool) -> bool:
        return list_length is not None

    def encode(self, field: FieldLike, value: Any) -> Any:
        type_ = element_type(field.dtype, self.type)
        if isinstance(field.dtype, np.dtype) and field.dtype.kind in "biuf" and not _has_none(value):
            return _plain_array(check_array(field, value), type_)
        size = field.shape[0]
        elements = list(value)
        if isinstance(value, (str, bytes)) or (size is not None and len(elements) != size):
            raise ValueError(f"a list of shape {field.shape} is expected, not {type(value).__name__} of length {len(elements)}")
        return [None if element is None else _to_scalar(check_scalar(field, element), type_) for element in elements]

    def _encode_column(self, field: FieldLike, values: FieldValues) -> pa.Array:
        flat_type = element_type(field.dtype, self.type)
        if not isinstance(values, np.ndarray) or values.ndim != 2 or values.dtype.kind not in "biuf" or values.size >= 1 << 31:
            return super()._encode_column(field, values)
        if isinstance(values, np.ma.MaskedArray) or values.dtype != field.dtype or not fits_shape(values.shape[1:], field.shape):
            return super()._encode_column(field, values)
        offsets = pa.array(np.arange(len(values) + 1, dtype=np.int32) * np.int32(values.shape[1]))
        try:
            return pa.ListArray.from_arrays(offsets, pa.array(values.reshape(-1)).cast(flat_type), type=pa.list_(flat_type))
        except (pa.ArrowException, ValueError, OverflowError):  # which row it was is found one by one
            return super()._encode_column(field, values)

    def _column(self, field: FieldLike, cells: pa.Array, has_nulls: bool) -> GroupColumn:
        (elements,), offsets = list_parts(plain_cells(cells))
        is_null = null_mask(cells) if cells.null_count else None
        sizes = np.diff(offsets)
        expected = field.shape[0] if field.shape else None
        if expected is not None:
            wrong = sizes != expected if is_null is None else (sizes != expected) & ~is_null
            if wrong.any():
                row = int(np.flatnonzero(wrong)[0])
                raise CellError(row, f"a list of {sizes[row]} elements where the field's shape is {field.shape}")
        try:
            found = self._read(field, elements)
        except CellError as error:
            raise CellError(int(np.searchsorted(offsets, error.row, "right")) - 1, error.why) from error
        if not has_nulls and found.is_null is None and len(sizes) and (sizes == sizes[0]).all():
            return ArrayColumn(found.array.reshape(len(sizes), sizes[0]), _n_held_bytes(found.array, elements))
        return ListColumn(found.array, offsets, is_null, found.is_null, as_objects=has_nulls)


def _is_float(field: FieldLike) -> bool:
    return isinstance(field.dtype, np.dtype) and field.dtype.kind == "f"


class NestedCodec(ArrowCodec):
    """Structs, maps, lists of lists and all other types of Parquet, as Python objects.

    A struct is a dict, a map a list of pairs ``(key, value)``, a list a list; in them numbers, text and bytes are Python's own,
    times and durations numpy's.

    Args:
        type: the type of the column: Arrow's, or as :func:`~data_stack.formats.parquet.types.describe_type` describes it, for
            example ``{"struct": {"name": "string", "boxes": {"list": {"list": "float"}}}}``.

    Raises:
        ConfigError: there is no such type.
    """

    kind = "nested"

    def __init__(self, type: Any) -> None:  # noqa: A002  # as above
        self.type = describe_type(type) if isinstance(type, pa.DataType) else type
        self._arrow = type_described(self.type)

    def to_json(self) -> dict[str, Any]:
        return {"codec": self.kind, "type": self.type}

    def arrow_type(self, field: FieldLike) -> pa.DataType:
        if field.dtype != object:
            raise ConfigError(f"NestedCodec holds values of dtype object, not {field.dtype}")
        return self._arrow

    def encode(self, field: FieldLike, value: Any) -> Any:
        return _to_nested(value, self._arrow)

    def _column(self, field: FieldLike, cells: pa.Array, has_nulls: bool) -> GroupColumn:
        if pa.types.is_null(plain_cells(cells).type):
            return ObjectColumn(objects([None] * len(cells)))
        return MadeColumn(len(cells), lambda rows: plain_objects(_take(cells, rows)), cells.nbytes)


# ---------------------------------------------------------------------- writing


def _cells_at_once(field: FieldLike, values: FieldValues, type_: pa.DataType) -> pa.Array | None:
    """Cells of an array of numbers or times; None where each value must be looked at.

    Raises:
        pyarrow.ArrowException, TypeError, ValueError, OverflowError: one of them does not fit.
    """
    dtype = field.dtype
    if not isinstance(values, np.ndarray) or isinstance(values, np.ma.MaskedArray) or not isinstance(dtype, np.dtype):
        return None
    if values.ndim != 1 or values.dtype.kind in "OUST" or dtype.kind == "O":
        return None
    array = as_dtype(values, dtype)
    return _time_cells(array, type_) if dtype.kind in "mM" else pa.array(array).cast(type_)


def _time_cells(times: npt.NDArray[Any], type_: pa.DataType) -> pa.Array:
    """Times of numpy as an Arrow type; NaT becomes null.

    Raises:
        ValueError: the type's unit of time is too coarse, or too fine, for one of them.
    """
    cells = pa.array(as_dtype(times, time_dtype(type_)))
    if pa.types.is_time32(type_):
        cells = cells.view(pa.int64()).cast(pa.int32())
    return cells if cells.type == type_ else cells.view(type_)


def _to_scalar(value: Any, type_: pa.DataType) -> Any:
    """A scalar as ``pyarrow.array`` takes it for a type.

    Raises:
        ValueError: the type's unit of time is too coarse, or too fine, for a time.
    """
    if not isinstance(value, (np.datetime64, np.timedelta64)):
        return value
    stored = same_time(value, time_dtype(type_))
    if pa.types.is_time(type_) or (pa.types.is_timestamp(type_) and type_.tz is not None):
        return stored.astype(np.int64).item()  # as pyarrow takes them
    return stored.astype(object) if pa.types.is_date(type_) else stored  # pyarrow takes no dates of numpy's


def _plain_array(array: npt.NDArray[Any], type_: pa.DataType) -> Any:
    """Numbers as ``pyarrow.array`` takes them for a list: it looks at Python's whether they fit into another type."""
    return array if array.dtype != np.float16 and pa.from_numpy_dtype(array.dtype) == type_ else array.tolist()


def _to_nested(value: Any, type_: pa.DataType) -> Any:
    """A nested value as ``pyarrow.array`` takes it: what we read is what it takes, but for some times of numpy."""
    types = pa.types
    if isinstance(value, (np.datetime64, np.timedelta64)) and types.is_temporal(type_):
        return None if is_missing(value) else _to_scalar(value, type_)
    if types.is_struct(type_) and isinstance(value, Mapping):
        kinds = {type_.field(number).name: type_.field(number).type for number in range(type_.num_fields)}
        unknown = [name for name in value if name not in kinds]
        if unknown:  # which pyarrow drops
            raise ValueError(f"a struct of {', '.join(kinds)} is expected, this one has {unknown[0]!r:.60}")
        return {name: _to_nested(each, kinds[name]) for name, each in value.items()}
    if types.is_map(type_) and isinstance(value, (list, tuple, Mapping)):
        pairs = value.items() if isinstance(value, Mapping) else value
        return [(_to_nested(key, type_.key_type), _to_nested(item, type_.item_type)) for key, item in pairs]
    if is_list(type_) and isinstance(value, (list, tuple, np.ndarray)):
        return [_to_nested(each, type_.value_type) for each in value]
    return value


def _has_none(value: Any) -> bool:
    is_array = isinstance(value, np.ndarray)
    return (value.dtype == object if is_array else isinstance(value, (list, tuple))) and any(each is None for each in value)


# ---------------------------------------------------------------------- reading


def _take(cells: pa.Array, rows: npt.NDArray[np.int64]) -> pa.Array:
    return cells.slice(int(rows[0]), 1) if len(rows) == 1 else cells.take(pa.array(rows))


def _object_bytes(cells: pa.Array) -> int:
    # a string of Python has 49 bytes before its characters, and the array 8 for it
    return int(cells.nbytes) + 57 * len(cells)


def _n_held_bytes(array: npt.NDArray[Any], elements: pa.Array) -> int:
    return _object_bytes(elements) if array.dtype == object else array.nbytes
