"""Converts values to Arrow cells of a type, each of which equals its value."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from data_stack.codecs.fitting import as_dtype
from data_stack.formats.parquet import types
from data_stack.formats.parquet.codecs.arrow_codec import (
    UNSUITABLE,
    check_scalar,
    is_missing,
    same_time,
)
from data_stack.formats.parquet.columns import CellError
from data_stack.formats.parquet.types import FieldDtype, FieldLike
from data_stack.values.stacked_values import as_array

_Values: TypeAlias = "Sequence[Any] | npt.NDArray[Any]"

#: The greatest number of elements of all lists of a column together: their offsets are int32.
_MAX_ELEMENTS: Final = (1 << 31) - 1
#: Python's types that pyarrow converts to a type without a change, or refuses; for others see :func:`exact_scalar`.
_EXACT_TYPES: Final[Mapping[type, Callable[[pa.DataType], bool]]] = {
    bool: pa.types.is_boolean,
    int: pa.types.is_integer,
    float: pa.types.is_float64,
    str: types.is_text,
    bytes: types.is_bytes,
    datetime.date: pa.types.is_date32,
}
#: Python's types of times, by the kinds of columns that hold them. A datetime is a date to Python.
_TYPES_OF_TIMES: Final[tuple[tuple[Callable[[pa.DataType], bool], Any, str], ...]] = (
    (pa.types.is_timestamp, datetime.datetime, "datetimes"),
    (pa.types.is_date, datetime.date, "dates"),
    (pa.types.is_time, datetime.time, "times of day"),
    (pa.types.is_duration, datetime.timedelta, "durations"),
)


def exact_cells(values: _Values, type_: pa.DataType) -> pa.Array:
    """Convert values to cells of a type. Each cell equals its value; what would change is refused.

    Numbers keep their value; only a float of Python may be rounded to a narrower type of floats, where it stays finite.
    Text is not bytes, a bool is not a number, a date is not a datetime, and a datetime with a time zone is not one without.
    Times of numpy may have any unit that the type holds exactly; in a type with a time zone they are in UTC.

    Args:
        values: a sequence or an array, shape ``(n, ...)``. None, NaT and pandas' NA are null. A struct is a dict, whose missing
            keys are null; a map is a dict or a list of pairs; a list is a list, a tuple or an array.
        type_: any type of Arrow.

    Returns:
        ``n`` cells.

    Raises:
        CellError: a value does not fit; the message says where in the value.
        MemoryError: not enough memory.
    """
    if isinstance(type_, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type_, exact_cells(values, type_.storage_type))
    if pa.types.is_dictionary(type_):
        return exact_cells(values, type_.value_type).dictionary_encode().cast(type_)
    if isinstance(values, np.ndarray) and values.dtype != object:
        cells = _cells_of_array(values, type_)
        if cells is not None:
            return cells
    listed = _listed(values)
    if pa.types.is_struct(type_):
        return _struct_cells(listed, type_)
    if pa.types.is_map(type_):
        return _map_cells(listed, type_)
    if types.is_list(type_):
        return _list_cells(listed, type_)
    return _scalar_cells(listed, type_)


def exact_scalar(value: Any, type_: pa.DataType) -> Any:
    """Convert a scalar that is not null for ``pyarrow.array``; see :func:`exact_cells`.

    Raises:
        TypeError, ValueError, OverflowError: the value does not fit the type.
    """
    _check_kind_of_time(value, type_)
    field = _scalar_field(types.dtype_of_arrow(type_))
    return to_scalar(check_scalar(field, value, is_instant=is_instant(type_)), type_)


def cast_exactly(cells: pa.Array, type_: pa.DataType) -> pa.Array:
    """Cast cells to a type that holds them exactly: they are cast back and compared.

    Raises:
        ValueError, pyarrow.ArrowException: a value would change, or there is no such cast.
    """
    cast = cells.cast(type_)
    if cast.type == cells.type:
        return cast
    back = cast.cast(cells.type)
    if pa.types.is_floating(cells.type):
        is_same = pc.or_(pc.equal(back, cells), pc.and_(pc.is_nan(back), pc.is_nan(cells)))
        is_exact = pc.all(is_same, min_count=0).as_py()
    else:
        is_exact = back.equals(cells)
    if not is_exact:
        raise ValueError(f"a value of type {cells.type!s:.60} does not fit into {type_!s:.60}")
    return cast


def is_instant(type_: pa.DataType) -> bool:
    """Whether the times of a type are instants: they have a time zone."""
    return pa.types.is_timestamp(type_) and type_.tz is not None


def time_dtype(type_: pa.DataType) -> np.dtype[Any]:
    """The dtype of dates, times and durations of an Arrow type."""
    is_span = pa.types.is_duration(type_) or pa.types.is_time(type_)
    if pa.types.is_date32(type_):
        unit = "D"
    elif pa.types.is_date64(type_):
        unit = "ms"
    else:
        unit = type_.unit
    return np.dtype(f"{'m' if is_span else 'M'}8[{unit}]")


def time_cells(times: npt.NDArray[Any], type_: pa.DataType) -> pa.Array:
    """Convert times of numpy to an Arrow type; NaT becomes null.

    Raises:
        ValueError: the type cannot hold a time exactly.
    """
    if pa.types.is_date64(type_):
        times = as_dtype(times, np.dtype("M8[D]"))  # it counts milliseconds, of whole days
    exact = as_dtype(times, time_dtype(type_))
    if pa.types.is_date32(type_):
        return pa.array(exact)
    integers = pa.array(exact.view(np.int64), mask=np.isnat(exact))
    is_narrow = pa.types.is_time32(type_)
    return (integers.cast(pa.int32()) if is_narrow else integers).view(type_)


def to_scalar(value: Any, type_: pa.DataType) -> Any:
    """Convert a checked scalar for ``pyarrow.array``, which does not accept some times of numpy, but their integers, and which
    before version 21 accepts no number for a float16 but numpy's.

    Raises:
        ValueError: the unit of the type cannot hold the time exactly.
    """
    if not isinstance(value, (np.datetime64, np.timedelta64)):
        return np.float16(value) if pa.types.is_float16(type_) and value is not None else value
    if is_missing(value):
        return None
    if pa.types.is_date64(type_):
        value = same_time(value, np.dtype("M8[D]"))
    return same_time(value, time_dtype(type_)).astype(np.int64).item()


# ---------------------------------------------------------------------- scalars


@dataclass(frozen=True)
class _ScalarField(FieldLike):
    """What :func:`check_scalar` needs to know of a scalar inside of a value."""


def _scalar_field(dtype: FieldDtype) -> _ScalarField:
    return _ScalarField("", dtype, (), True)


def _scalar_cells(values: list[Any], type_: pa.DataType) -> pa.Array:
    cells = _cells_of_one_type(values, type_)
    if cells is not None:
        return cells
    present = [None if _is_null(value) else value for value in values]
    if types.kind_of(types.dtype_of_arrow(type_)) == "O":
        return _compared_cells(present, type_)
    exact = []
    for row, value in enumerate(present):
        try:
            exact.append(None if value is None else exact_scalar(value, type_))
        except UNSUITABLE as error:
            raise CellError(row, f"{error!s:.300}") from error
    return array_of_cells(exact, type_)


def array_of_cells(cells: list[Any], type_: pa.DataType) -> pa.Array:
    """What ``pyarrow.array`` makes of encoded cells.

    Raises:
        CellError: it refuses one of them.
    """
    try:
        return pa.array(cells, type_)
    except UNSUITABLE as error:
        for row, cell in enumerate(cells):  # pyarrow does not name the row
            try:
                pa.array([cell], type_)
            except UNSUITABLE as why:
                raise CellError(row, f"{why!s:.300}") from why
        raise CellError(0, f"all values together: {error!s:.300}") from error


def _cells_of_one_type(values: list[Any], type_: pa.DataType) -> pa.Array | None:
    """Cells of values of one type, at once; None if each must be converted by itself."""
    found = set(map(type, values))
    has_nulls = type(None) in found
    found.discard(type(None))
    if not found:
        return pa.nulls(len(values), type_)
    only = found.pop()
    if found:
        return None
    try:
        is_exact = _EXACT_TYPES.get(only)
        if is_exact is not None and is_exact(type_):
            return pa.array(values, type_)
        if only is datetime.datetime and type_ == pa.timestamp("us"):
            is_naive = all(value is None or value.tzinfo is None for value in values)
            return pa.array(values, type_) if is_naive else None
        is_number = issubclass(only, (float, np.number)) and not issubclass(only, np.timedelta64)
        if is_number and _holds_numbers(type_):
            return _cells_of_numbers(values, only, type_, has_nulls=has_nulls)
    except UNSUITABLE:  # retried row by row, to name the row
        return None
    return None


def _holds_numbers(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_))


def _cells_of_numbers(
    values: list[Any], kind: type, type_: pa.DataType, *, has_nulls: bool
) -> pa.Array | None:
    """Cells of floats of Python, or of numbers of one dtype of numpy; None if they have no dtype in common.

    Raises:
        TypeError, ValueError: a number does not fit.
    """
    mask = None
    if has_nulls:
        mask = np.array([value is None for value in values])
        values = [kind(0) if value is None else value for value in values]
    array = np.array(values)
    if array.dtype.kind not in "iuf":
        return None
    exact = as_dtype(array, types.dtype_of_numbers(type_), rounds=kind is float)
    return pa.array(exact, mask=mask)


def _compared_cells(values: list[Any], type_: pa.DataType) -> pa.Array:
    """Cells of a type of which numpy has no values, such as intervals: compared after pyarrow has converted them."""
    cells = array_of_cells(values, type_)
    for row, (value, cell) in enumerate(zip(values, cells.to_pylist(), strict=True)):
        if value is not None and not bool(cell == value):
            raise CellError(row, f"{_show(value)} would become {cell!r:.60} in a column of {type_}")
    return cells


def _check_kind_of_time(value: Any, type_: pa.DataType) -> None:
    """Refuse a time of Python where a column holds times of another kind: a datetime in a column of dates, or one without a time
    zone in a column of instants.

    Raises:
        TypeError: it is of another kind.
    """
    if not isinstance(value, (datetime.date, datetime.time, datetime.timedelta)):
        return
    for is_kind, kind, name in _TYPES_OF_TIMES:
        if is_kind(type_):
            is_of_kind = isinstance(value, kind)
            if kind is datetime.date and isinstance(value, datetime.datetime):
                is_of_kind = False
            if not is_of_kind:
                raise TypeError(
                    f"{_show(value)} in a column of {name} ({type_}): convert all to one type"
                )
    if isinstance(value, datetime.datetime) and value.tzinfo is None and is_instant(type_):
        raise TypeError(
            f"{_show(value)} has no time zone in a column of times with one: "
            f"pass value.replace(tzinfo=timezone.utc), or the zone that it is in"
        )


def _is_null(value: Any) -> bool:
    return is_missing(value) or type(value).__name__ == "NAType"  # of pandas


def _listed(values: _Values) -> list[Any]:
    """The values, those of an array as they are in it."""
    if isinstance(values, np.ndarray) and values.dtype == object and values.ndim == 1:
        objects: list[Any] = values.tolist()
        return objects
    return list(values)


def _show(value: Any) -> str:
    return f"{type(value).__name__} {value!r:.60}"


# ---------------------------------------------------------------------- arrays of numpy


def _cells_of_array(array: npt.NDArray[Any], type_: pa.DataType) -> pa.Array | None:
    """Cells of numbers or times, shape ``(n, ...)``, at once; None if they must be converted one by one."""
    if types.is_list(type_) and array.ndim > 1:
        return _lists_of_array(array, type_)
    dtype = types.dtype_of_arrow(type_)
    if array.ndim != 1 or not isinstance(dtype, np.dtype):
        return None
    try:
        if dtype.kind in "mM" and array.dtype.kind == dtype.kind:
            return time_cells(array, type_)
        if dtype.kind in "biuf":
            return pa.array(as_dtype(array, dtype))
    except UNSUITABLE:  # retried one by one, to name the row
        return None
    return None


def _lists_of_array(array: npt.NDArray[Any], type_: pa.DataType) -> pa.Array:
    """Lists of the rows of an array of several dimensions."""
    n_rows, size = array.shape[:2]
    is_fixed = pa.types.is_fixed_size_list(type_)
    if is_fixed and n_rows:
        _check_size(type_, size, 0)
    if is_fixed and size * n_rows == 0:
        return _fixed_lists(exact_cells([], type_.value_type), type_, np.zeros(n_rows, np.bool_))
    offsets = np.arange(n_rows + 1, dtype=np.int64) * size
    flat = array.reshape(n_rows * size, *array.shape[2:])
    elements = _elements(flat, type_.value_type, offsets, "element")
    return _join_lists(elements, offsets, np.zeros(n_rows, np.bool_), type_)


# ---------------------------------------------------------------------- nested values


def _struct_cells(values: list[Any], type_: pa.DataType) -> pa.Array:
    fields = [type_.field(number) for number in range(type_.num_fields)]
    names = {field.name for field in fields}
    empty: dict[str, Any] = {}
    rows: list[Mapping[str, Any]] = []
    is_null = np.zeros(len(values), np.bool_)
    for row, value in enumerate(values):
        if type(value) is not dict and _is_null(value):
            is_null[row] = True
            rows.append(empty)
            continue
        if not isinstance(value, Mapping):
            raise CellError(row, f"expected a dict of {_names_of(fields)}, got {_show(value)}")
        if not value.keys() <= names:  # pyarrow would drop it
            unknown = next(name for name in value if name not in names)
            raise CellError(
                row, f"expected a struct of {_names_of(fields)}, got the key {unknown!r:.60}"
            )
        rows.append(value)
    children = []
    for field in fields:
        try:
            cells = exact_cells([row.get(field.name) for row in rows], field.type)
        except CellError as error:
            raise CellError(error.row, f"key {field.name!r:.60}: {error.why}") from error
        children.append(_one_piece(cells))
    if not fields:
        return pa.array([None if null else {} for null in is_null.tolist()], type_)
    mask = pa.array(is_null) if is_null.any() else None
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


def _names_of(fields: Sequence[pa.Field]) -> str:
    return f"{', '.join(field.name for field in fields):.200}"


def _list_cells(values: list[Any], type_: pa.DataType) -> pa.Array:
    is_fixed = pa.types.is_fixed_size_list(type_)
    null_list = [None] * type_.list_size if is_fixed else []
    parts = []
    is_null = np.zeros(len(values), np.bool_)
    for row, value in enumerate(values):
        if type(value) is not list and _is_null(value):
            is_null[row] = True
            parts.append(null_list)
            continue
        part = value if type(value) is list else _as_list(value)
        if part is None:
            raise CellError(row, f"expected a list, got {_show(value)}")
        if is_fixed:
            _check_size(type_, len(part), row)
        parts.append(part)
    offsets = _offsets_of(parts)
    elements = _elements(_concatenate(parts), type_.value_type, offsets, "element")
    return _join_lists(elements, offsets, is_null, type_)


def _as_list(value: Any) -> Any:
    """A list, a tuple or an array of at least one dimension; None of anything else."""
    if isinstance(value, (list, tuple)):
        return value
    if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        array = as_array(value)
        return array if array.ndim else None
    return None


def _check_size(type_: pa.DataType, size: int, row: int) -> None:
    if size != type_.list_size:
        raise CellError(row, f"expected a list of {type_.list_size} elements, got {size}")


def _concatenate(parts: list[Any]) -> Any:
    """The elements of all lists: one array where all are arrays of one dtype and shape, otherwise a list."""
    if set(map(type, parts)) <= {list, tuple}:
        return list(itertools.chain.from_iterable(parts))
    given = [part for part in parts if len(part)]
    forms = {
        (part.dtype, part.shape[1:]) if isinstance(part, np.ndarray) else None for part in given
    }
    if len(forms) == 1 and None not in forms:
        return np.concatenate(given)
    return [element for part in parts for element in part]


def _offsets_of(parts: list[Any]) -> npt.NDArray[np.int64]:
    sizes = np.fromiter(map(len, parts), np.int64, len(parts))
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])


def _map_cells(values: list[Any], type_: pa.DataType) -> pa.Array:
    parts: list[Any] = []
    is_null = np.zeros(len(values), np.bool_)
    for row, value in enumerate(values):
        if _is_null(value):
            is_null[row] = True
            parts.append([])
            continue
        pairs = list(value.items()) if isinstance(value, Mapping) else _as_list(value)
        is_pairs = pairs is not None and all(
            isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in pairs
        )
        if not is_pairs:
            raise CellError(row, f"expected a dict or a list of pairs, got {_show(value)}")
        parts.append(pairs)
    offsets = _offsets_of(parts)
    keys = [key for part in parts for key, _ in part]
    if any(map(_is_null, keys)):
        place = next(place for place, key in enumerate(keys) if _is_null(key))
        raise CellError(_row_of(offsets, place), "a key of a map is null")
    items = [item for part in parts for _, item in part]
    key_cells = _elements(keys, type_.key_type, offsets, "key of pair")
    item_cells = _elements(items, type_.item_type, offsets, "item of pair")
    joined = pa.MapArray.from_arrays(_arrow_offsets(offsets, is_null), key_cells, item_cells)
    return joined.cast(type_)


def _elements(
    values: Any, type_: pa.DataType, offsets: npt.NDArray[np.int64], what: str
) -> pa.Array:
    """Cells of the elements of all lists.

    Raises:
        CellError: an element does not fit; its row is that of the list.
    """
    if len(values) > _MAX_ELEMENTS:
        raise CellError(0, f"all lists together have {len(values):,} elements: write fewer at once")
    try:
        return _one_piece(exact_cells(values, type_))
    except CellError as error:
        row = _row_of(offsets, error.row)
        raise CellError(row, f"{what} {error.row - offsets[row]}: {error.why}") from error


def _row_of(offsets: npt.NDArray[np.int64], place: int) -> int:
    """The list that an element belongs to."""
    return int(np.searchsorted(offsets, place, "right")) - 1


def _one_piece(cells: Any) -> pa.Array:
    if isinstance(cells, pa.ChunkedArray):  # text of more than 2 GiB
        raise CellError(0, "the text in all values together exceeds 2 GiB: write fewer at once")
    return cells


def _join_lists(
    elements: pa.Array,
    offsets: npt.NDArray[np.int64],
    is_null: npt.NDArray[np.bool_],
    type_: pa.DataType,
) -> pa.Array:
    if pa.types.is_fixed_size_list(type_):
        return _fixed_lists(elements, type_, is_null)
    if pa.types.is_large_list(type_):
        large = pa.array(offsets, mask=np.append(is_null, False))
        return pa.LargeListArray.from_arrays(large, elements, type=type_)
    return pa.ListArray.from_arrays(_arrow_offsets(offsets, is_null), elements, type=type_)


def _fixed_lists(
    elements: pa.Array, type_: pa.DataType, is_null: npt.NDArray[np.bool_]
) -> pa.Array:
    if type_.list_size == 0:  # whose number the elements do not tell
        return pa.array([None if null else [] for null in is_null.tolist()], type_)
    return pa.FixedSizeListArray.from_arrays(elements, type=type_, mask=pa.array(is_null))


def _arrow_offsets(offsets: npt.NDArray[np.int64], is_null: npt.NDArray[np.bool_]) -> pa.Array:
    """Offsets of lists, in which those of null are null."""
    return pa.array(offsets.astype(np.int32), mask=np.append(is_null, False))
