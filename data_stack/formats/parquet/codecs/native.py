"""Codecs for Parquet's own scalars, lists and nested values."""

from __future__ import annotations

import contextlib
from decimal import Decimal
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.codecs.fitting import as_dtype, fits_shape
from data_stack.exception import ConfigError
from data_stack.formats.parquet import types
from data_stack.formats.parquet.codecs.arrow_codec import (
    ArrowCodec,
    Values,
    check_array,
    check_scalar,
)
from data_stack.formats.parquet.codecs.binary import as_binary, null_mask, numbers, plain_cells
from data_stack.formats.parquet.codecs.exact_cells import (
    exact_cells,
    is_instant,
    time_cells,
    time_dtype,
    to_scalar,
)
from data_stack.formats.parquet.columns import (
    ArrayColumn,
    CellError,
    GroupColumn,
    ListColumn,
    MadeColumn,
    Mask,
)
from data_stack.formats.parquet.types import FieldLike
from data_stack.values.stacked_values import objects

Nulls = Literal["none", "nan", "mask"]
"""How a dataset reads nulls, see :class:`~data_stack.formats.parquet.ParquetDataset`."""


class _TypedCodec(ArrowCodec):
    """A codec with a type of the values or of their elements; None: derived from the dtype.

    Raises:
        ConfigError: the type is unknown, or ``nulls`` is invalid.
    """

    def __init__(self, type: Any = None, *, nulls: Literal["none", "nan", "zero"] = "none") -> None:  # noqa: A002  # its name in the stored schema
        if nulls not in ("none", "nan", "zero"):
            raise ConfigError(f"nulls must be 'none', 'nan' or 'zero', got {nulls!r:.40}")
        if hasattr(type, "simpleString"):
            type = type.simpleString()  # noqa: A001  # likewise
        elif isinstance(type, pa.DataType):
            type = types.describe_type(type)  # noqa: A001  # likewise
        if type is not None:
            types.arrow_type_named(type)
        self.type, self.nulls = type, nulls

    def to_json(self) -> dict[str, Any]:
        # defaults are omitted, as in older files
        options = {"type": self.type, "nulls": None if self.nulls == "none" else self.nulls}
        return {
            "codec": self.kind,
            **{name: value for name, value in options.items() if value is not None},
        }

    def _element_type(self, field: FieldLike) -> pa.DataType:
        kinds = {"none": "", "nan": "fmM", "zero": "biufmM"}[self.nulls]
        if kinds and types.numpy_dtype(field.dtype).kind not in kinds:
            what = "floats and times" if self.nulls == "nan" else "numbers and times"
            raise ConfigError(
                f"nulls={self.nulls!r} is for {what}, not for values of dtype {types.dtype_name(field.dtype)}"
            )
        if self.type is None:
            return types.arrow_type_of_dtype(field.dtype)
        type_ = types.arrow_type_named(self.type)
        if types.kind_of(field.dtype) not in (types.kind_of(types.dtype_of_arrow(type_)), "O"):
            raise ConfigError(
                f"a column of type {type_} cannot hold values of dtype {types.dtype_name(field.dtype)}"
            )
        return type_

    def _fill(self, field: FieldLike) -> Any:
        """What a missing scalar is read as."""
        if self.nulls == "none":
            return None
        dtype = types.numpy_dtype(field.dtype)
        return np.array(
            0 if self.nulls == "zero" else np.nan if dtype.kind == "f" else "NaT"
        ).astype(dtype)[()]

    def _read(self, field: FieldLike, cells: pa.Array) -> _ValuesAndNulls:
        """Scalars of the dtype of a field, with nulls filled."""
        try:
            array, is_null = _read_scalars(cells, field.dtype)
        except CellError as error:
            remedy = (
                "; read it exactly with nulls='mask'"
                if self.nulls == "nan" and field.dtype == np.float64
                else ""
            )
            raise CellError(error.row, error.why + remedy) from error
        if self.nulls == "none" or is_null is None:
            return array, is_null
        filled = array if array.flags.writeable else array.copy()
        np.putmask(filled, is_null, self._fill(field))
        return filled, None


class ScalarCodec(_TypedCodec):
    """Numbers, text, bytes, decimals, dates and times.

    Args:
        nulls: "none" reads nulls as None; "nan" as NaN or NaT, for floats and times; "zero" as 0, for numbers and times.
        type: the stored type, by Spark's names (``"boolean" "tinyint" "smallint" "int" "bigint" "float" "double" "string"
            "binary" "date" "timestamp" "timestamp_ntz" "decimal(10,3)"``) or another of
            :func:`~data_stack.formats.parquet.types.arrow_type_named`, or a type of pyspark or Arrow; None: derived from the
            dtype. It may be wider than the dtype: Spark has no unsigned numbers, so Petastorm stores uint8 as smallint.

    Raises:
        ConfigError: the type is unknown.
    """

    kind = "scalar"

    def arrow_type(self, field: FieldLike) -> pa.DataType:
        if field.shape:
            raise ConfigError(
                f"ScalarCodec holds scalars, not values of shape {field.shape}; omit the codec, or use another"
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
        return to_scalar(check_scalar(field, value, is_instant=is_instant(type_)), type_)

    def _encode_column(self, field: FieldLike, values: Values) -> pa.Array:
        dtype, type_ = field.dtype, self.arrow_type(field)
        is_plain = (
            type(values) is np.ndarray and values.ndim == 1 and values.dtype.kind not in "OUST"
        )
        if is_plain and isinstance(dtype, np.dtype) and dtype.kind != "O":
            with contextlib.suppress(
                pa.ArrowException, TypeError, ValueError, OverflowError
            ):  # retried row by row
                array = as_dtype(np.asarray(values), dtype)
                return (
                    time_cells(array, type_) if dtype.kind in "mM" else pa.array(array).cast(type_)
                )
        return super()._encode_column(field, values)

    def _column(self, field: FieldLike, cells: pa.Array, has_nulls: bool) -> GroupColumn:
        array, is_null = self._read(field, cells)
        array = _as_objects(array, is_null) if has_nulls and self.nulls == "none" else array
        return ArrayColumn(array, _object_bytes(cells) if array.dtype == object else None)


class ListCodec(_TypedCodec):
    """Stores arrays of one dimension as Parquet lists, which any tool reads.

    Args:
        type: type of the elements, as for :class:`ScalarCodec`.
        nulls: how missing elements are read, as for :class:`ScalarCodec`.
    """

    kind = "list"

    def arrow_type(self, field: FieldLike) -> pa.DataType:
        if len(field.shape) != 1:
            raise ConfigError(
                f"ListCodec holds arrays of one dimension, not of shape {field.shape}; use NdarrayCodec()"
            )
        return pa.list_(self._element_type(field))

    def encode(self, field: FieldLike, value: Any) -> Any:
        type_ = self._element_type(field)
        may_have_nulls = (
            value.dtype == object
            if isinstance(value, np.ndarray)
            else isinstance(value, (list, tuple))
        )
        has_nulls = may_have_nulls and any(each is None for each in value)
        if isinstance(field.dtype, np.dtype) and field.dtype.kind in "biuf" and not has_nulls:
            array = check_array(
                field, value
            )  # pyarrow checks only Python numbers when the type differs
            if array.dtype == np.float16:
                return [to_scalar(each, type_) for each in array]
            return array if pa.from_numpy_dtype(array.dtype) == type_ else array.tolist()
        size = field.shape[0]
        elements = list(value)
        if isinstance(value, (str, bytes)) or (size is not None and len(elements) != size):
            raise ValueError(
                f"expected a list of shape {field.shape}, got {type(value).__name__} of length {len(elements)}"
            )
        is_zoned = is_instant(type_)
        return [
            None
            if element is None
            else to_scalar(check_scalar(field, element, is_instant=is_zoned), type_)
            for element in elements
        ]

    def _encode_column(self, field: FieldLike, values: Values) -> pa.Array:
        is_plain = (
            type(values) is np.ndarray
            and values.dtype == field.dtype
            and values.dtype.kind in "biuf"
        )
        if (
            is_plain
            and isinstance(values, np.ndarray)
            and fits_shape(values.shape[1:], field.shape)
            and values.size < 1 << 31
        ):
            offsets = pa.array(
                np.arange(len(values) + 1, dtype=np.int32) * np.int32(values.shape[1])
            )
            type_ = self.arrow_type(field)
            with contextlib.suppress(
                pa.ArrowException, ValueError, OverflowError
            ):  # retried row by row
                return pa.ListArray.from_arrays(
                    offsets, pa.array(values.reshape(-1)).cast(type_.value_type), type=type_
                )
        return super()._encode_column(field, values)

    def _column(self, field: FieldLike, cells: pa.Array, has_nulls: bool) -> GroupColumn:
        (elements,), offsets = _list_parts(plain_cells(cells))
        is_null = null_mask(cells) if cells.null_count else None
        sizes = np.diff(offsets)
        if field.shape and field.shape[0] is not None:
            wrong = (sizes != field.shape[0]) & (True if is_null is None else ~is_null)
            if wrong.any():
                row = int(np.flatnonzero(wrong)[0])
                raise CellError(
                    row, f"expected a list of shape {field.shape}, got {sizes[row]} elements"
                )
        try:
            array, no_elements = self._read(field, elements)
        except CellError as error:
            raise CellError(
                int(np.searchsorted(offsets, error.row, "right")) - 1, error.why
            ) from error
        if not has_nulls and no_elements is None and len(sizes) and (sizes == sizes[0]).all():
            return ArrayColumn(
                array.reshape(len(sizes), sizes[0]),
                _object_bytes(elements) if array.dtype == object else None,
            )
        return ListColumn(array, offsets, is_null, no_elements, as_objects=has_nulls)


class NestedCodec(ArrowCodec):
    """Structs, maps, nested lists and all other types of Parquet, as Python objects.

    A struct is a dict, a map a list of pairs ``(key, value)``, a list a list. Their numbers, text and bytes are Python objects,
    times and durations are numpy's.

    Args:
        type: the type of the column: an Arrow type, or as :func:`~data_stack.formats.parquet.types.describe_type` describes it,
            for example ``{"struct": {"name": "string", "boxes": {"list": {"list": "float"}}}}``.

    Raises:
        ConfigError: the type is unknown.
    """

    kind = "nested"

    def __init__(self, type: Any) -> None:  # noqa: A002  # as above
        self.type = types.describe_type(type) if isinstance(type, pa.DataType) else type
        self._arrow = types.type_described(self.type)

    def to_json(self) -> dict[str, Any]:
        return {"codec": self.kind, "type": self.type}

    def arrow_type(self, field: FieldLike) -> pa.DataType:
        if field.dtype != object:
            raise ConfigError(f"NestedCodec holds values of dtype object, not {field.dtype}")
        return self._arrow

    def encode(self, field: FieldLike, value: Any) -> Any:
        return exact_cells([value], self._arrow)[0]

    def _encode_column(self, field: FieldLike, values: Values) -> pa.Array:
        return exact_cells(values, self._arrow)

    def _column(self, field: FieldLike, cells: pa.Array, has_nulls: bool) -> GroupColumn:
        return _NestedColumn(cells)


class _NestedColumn(MadeColumn):
    """Mutable values such as dicts, of which each access gets its own."""

    def __init__(self, cells: pa.Array) -> None:
        self._cells, self.n_bytes = cells, cells.nbytes

    def make(self, rows: list[int]) -> list[Any]:
        return _plain_objects(
            self._cells.slice(rows[0], 1) if len(rows) == 1 else self._cells.take(pa.array(rows))
        )


def _object_bytes(cells: pa.Array) -> int:
    # a Python string has 49 bytes besides its characters, its reference 8
    return int(cells.nbytes) + 57 * len(cells)


# ---------------------------------------------------------------------- reading


#: Float64 holds all integers up to this one.
_MAX_EXACT: Final = 1 << 53

_ValuesAndNulls: TypeAlias = tuple[npt.NDArray[Any], Mask]
"""Values of one dtype, shape ``(n,)``, with any content where a value is null; and which are null, None for none of them."""


def _as_objects(array: npt.NDArray[Any], is_null: Mask) -> npt.NDArray[np.object_]:
    """Values as objects: numpy scalars, so that a number keeps its dtype; None for null."""
    if array.dtype == object and is_null is None:
        return array
    found = objects(list(array))
    if is_null is not None:
        found[is_null] = None
    return found


def _read_scalars(cells: pa.Array, dtype: types.FieldDtype) -> _ValuesAndNulls:
    """Read scalars of any Arrow type as values of a dtype, without a change.

    Raises:
        CellError: a value does not fit.
        ValueError: the cells are not scalars, are of another kind, or are not valid text.
    """
    cells = plain_cells(cells)
    wanted = types.numpy_dtype(dtype)
    is_null = null_mask(cells) if cells.null_count else None
    if pa.types.is_null(cells.type) or (
        wanted.kind not in "USO" and is_null is not None and is_null.all()
    ):
        return np.empty(len(cells), object if wanted.kind in "US" else wanted), is_null
    found = types.dtype_of_arrow(cells.type)
    if types.kind_of(found) == "O" or types.kind_of(dtype) not in (types.kind_of(found), "O"):
        raise ValueError(
            f"expected values of dtype {types.dtype_name(dtype)}, the column has type {cells.type}"
        )
    if found is Decimal:
        if wanted.kind != "O":
            return numbers(cells.cast(pa.from_numpy_dtype(wanted))), is_null
        return objects(cells.to_pylist()), is_null
    kind = types.numpy_dtype(found).kind
    if kind in "US":
        return _texts(cells, wanted.kind), is_null
    array = _times(cells) if kind in "mM" else numbers(cells)
    if dtype is Decimal and kind in "iu":
        return objects(list(map(Decimal, array.tolist()))), is_null
    return array if array.dtype == wanted or types.kind_of(dtype) == "O" else _cast(
        array, is_null, wanted
    ), is_null


def _texts(cells: pa.Array, kind: str) -> npt.NDArray[Any]:
    """Text or bytes as objects, converted to the kind "U" or "S".

    Raises:
        pyarrow.ArrowException: the cells are not valid text.
        MemoryError: not enough memory.
    """
    if kind == "U" and types.is_bytes(cells.type):
        cells = as_binary(cells)
        cells = cells.cast(
            pa.large_string() if pa.types.is_large_binary(cells.type) else pa.string()
        )
    elif kind == "S" and types.is_text(cells.type):
        cells = as_binary(cells)
    try:
        return cells.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]  # an array
    except pa.ArrowException:  # raised also without memory for a str
        cells.validate(full=True)
        raise MemoryError(f"not enough memory for {len(cells):,} texts") from None


def _cast(array: npt.NDArray[Any], is_null: Mask, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Convert numbers or times.

    Raises:
        CellError: a value does not fit.
        ValueError: the values are of another kind.
    """
    if dtype.kind == "O":
        raise ValueError(f"expected decimals, the column has values of dtype {array.dtype}")
    with np.errstate(over="ignore", invalid="ignore"):
        cast = array.astype(dtype)
        if dtype.kind not in "mM" and np.can_cast(
            array.dtype, dtype, "safe"
        ):  # also of integers that float64 rounds
            is_large = array.dtype.kind in "iu" and array.itemsize == 8 and len(array) > 0
            if not is_large or (
                array.max() <= _MAX_EXACT
                and (array.dtype.kind == "u" or array.min() >= -_MAX_EXACT)
            ):
                return cast
        is_same = cast.astype(array.dtype) == array
        if dtype.kind not in "mM":  # a number that is too large may wrap around twice
            is_same &= (cast < 0) == (array < 0)
    if array.dtype.kind == "f":
        is_same |= np.isnan(array) & (np.isnan(cast) if dtype.kind == "f" else False)
    if is_null is not None:
        is_same |= is_null
    if not is_same.all():
        row = int(np.flatnonzero(~is_same)[0])
        why = f"{array[row]} does not fit into dtype {dtype}"
        if dtype.kind == "M":
            why += f"; timestamp_unit={np.datetime_data(array.dtype)[0]!r} reads it"
        raise CellError(row, why)
    return cast


def _plain_objects(cells: pa.Array) -> list[Any]:
    """Convert values of any type to new objects: dicts for structs, lists of pairs for maps, lists, None for null.

    Scalars are Python objects; times and durations are numpy's, because Python's have no nanoseconds.
    """
    cells = plain_cells(cells)
    type_ = cells.type
    is_null = null_mask(cells).tolist()
    if pa.types.is_struct(type_):
        names = [type_.field(number).name for number in range(type_.num_fields)]
        # field() would ignore the offset of a slice
        columns = [_plain_objects(child) for child in cells.flatten()]
        rows = zip(*columns, strict=True) if columns else iter([()] * len(cells))
        return [
            None if null else dict(zip(names, row, strict=True))
            for null, row in zip(is_null, rows, strict=True)
        ]
    if pa.types.is_map(type_) or types.is_list(type_):
        children, offsets = _list_parts(cells)
        plain = [_plain_objects(child) for child in children]
        elements = plain[0] if types.is_list(type_) else list(zip(*plain, strict=True))
        ends = offsets.tolist()
        return [
            None if null else elements[ends[row] : ends[row + 1]]
            for row, null in enumerate(is_null)
        ]
    is_time = pa.types.is_temporal(type_) and not pa.types.is_interval(type_)
    found: list[Any] = (
        _as_objects(_times(cells), null_mask(cells)).tolist() if is_time else cells.to_pylist()
    )
    return found


def _list_parts(cells: pa.Array) -> tuple[list[pa.Array], npt.NDArray[np.int64]]:
    """The elements of lists (of maps: keys and items), and the offsets of the lists.

    Raises:
        ValueError: the cells are not lists.
    """
    type_ = cells.type
    if pa.types.is_fixed_size_list(type_):
        size = type_.list_size
        elements = cells.values.slice(cells.offset * size, len(cells) * size)
        return [elements], np.arange(len(cells) + 1, dtype=np.int64) * size
    if not (pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_map(type_)):
        raise ValueError(f"expected lists, the column has type {type_}")
    offsets = numbers(cells.offsets).astype(np.int64) if len(cells) else np.zeros(1, np.int64)
    children = [cells.keys, cells.items] if pa.types.is_map(type_) else [cells.values]
    return [
        child.slice(offsets[0], offsets[-1] - offsets[0]) for child in children
    ], offsets - offsets[0]


def _times(cells: pa.Array) -> npt.NDArray[Any]:
    """Dates and times as datetime64, times of day and durations as timedelta64."""
    type_ = cells.type
    is_narrow = pa.types.is_date32(type_) or pa.types.is_time32(type_)
    integers = cells.view(pa.int32() if is_narrow else pa.int64())
    array: npt.NDArray[Any] = numbers(integers).astype(np.int64, copy=False).view(time_dtype(type_))
    if pa.types.is_date64(type_):
        return as_dtype(array, np.dtype("M8[D]"))  # milliseconds, of whole days
    return array
