"""Converts values of any depth to Arrow cells of a type, each of which equals its value."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from data_stack.codecs.fitting import as_dtype
from data_stack.formats.parquet import types
from data_stack.formats.parquet.codecs.arrow_arrays import UNSUITABLE
from data_stack.formats.parquet.codecs.exact_scalars import is_null, scalar_cells
from data_stack.formats.parquet.codecs.list_arrays import (
    MAX_ELEMENTS,
    arrow_offsets,
    join_fixed_lists,
    join_lists,
    offsets_of,
    row_of_element,
)
from data_stack.formats.parquet.codecs.times import time_cells
from data_stack.formats.parquet.codecs.value_checks import show_value
from data_stack.formats.parquet.columns import CellError
from data_stack.values.stacked_values import as_array

_Values: TypeAlias = "Sequence[Any] | npt.NDArray[Any]"


def exact_cells(values: _Values, type_: pa.DataType) -> pa.Array:
    """Convert values to cells of a type. Each cell equals its value; what would change is refused.

    Numbers keep their value; only a float of Python may be rounded to a narrower type of floats,
    where it stays finite. Text is not bytes, a bool is not a number, a date is not a datetime, and
    a datetime with a time zone is not one without. Times of numpy may have any unit that the type
    holds exactly; in a type with a time zone they are in UTC.

    Args:
        values: a sequence or an array, shape ``(n, ...)``. None, NaT and pandas' NA are null. A
            struct is a dict, whose missing keys are null; a map is a dict or a list of pairs; a
            list is a list, a tuple or an array; a tensor is an array, or lists of its shape.
        type_: any type of Arrow.

    Returns:
        ``n`` cells.

    Raises:
        CellError: a value does not fit; the message says where in the value.
        MemoryError: not enough memory.
    """
    if types.is_tensor(type_):
        return _tensor_cells(values, type_)
    if isinstance(type_, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type_, exact_cells(values, type_.storage_type))
    if pa.types.is_dictionary(type_):
        return exact_cells(values, type_.value_type).dictionary_encode().cast(type_)
    if isinstance(values, np.ndarray) and values.dtype != object:
        cells = _cells_of_array(values, type_)
        if cells is not None:
            return cells
    items = _as_list_of_items(values)
    if pa.types.is_struct(type_):
        return _struct_cells(items, type_)
    if pa.types.is_map(type_):
        return _map_cells(items, type_)
    if types.is_list(type_):
        return _list_cells(items, type_)
    return scalar_cells(items, type_)


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


def _as_list_of_items(values: _Values) -> list[Any]:
    """Return the values in a list; objects in an array stay as they are."""
    if isinstance(values, np.ndarray) and values.dtype == object and values.ndim == 1:
        objects: list[Any] = values.tolist()
        return objects
    return list(values)


# ---------------------------------------------------------------------- arrays of numpy


def _cells_of_array(array: npt.NDArray[Any], type_: pa.DataType) -> pa.Array | None:
    """Convert an array of numbers or times, shape ``(n, ...)``, at once.

    Returns:
        ``n`` cells; None if the values must be converted one by one.
    """
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
    """Convert each row of an array of several dimensions to a list."""
    n_rows, list_size = array.shape[:2]
    is_null_list = np.zeros(n_rows, np.bool_)
    is_fixed = pa.types.is_fixed_size_list(type_)
    if is_fixed and n_rows:
        _check_list_size(type_, list_size, 0)
    if is_fixed and n_rows * list_size == 0:
        return join_fixed_lists(exact_cells([], type_.value_type), is_null_list, type_)
    offsets = np.arange(n_rows + 1, dtype=np.int64) * list_size
    flat = array.reshape(n_rows * list_size, *array.shape[2:])
    elements = _cells_of_elements(flat, type_.value_type, offsets, "element")
    return join_lists(elements, offsets, is_null_list, type_)


# ---------------------------------------------------------------------- tensors


def _tensor_cells(values: _Values, type_: pa.FixedShapeTensorType) -> pa.Array:
    """Convert arrays to tensors.

    Raises:
        CellError: a value has another shape, or an element does not fit.
    """
    shape = types.tensor_shape(type_)
    stored_axes = np.arange(len(shape))
    if type_.permutation is not None:
        stored_axes = np.argsort(type_.permutation)
    flat_arrays: list[npt.NDArray[Any] | None] = []
    for row, value in enumerate(values):
        if not isinstance(value, np.ndarray) and is_null(value):
            flat_arrays.append(None)
            continue
        try:
            array = as_array(value)
        except UNSUITABLE as error:
            raise CellError(row, f"expected an array, got {show_value(value)}") from error
        if array.shape != shape:
            raise CellError(row, f"expected an array of shape {shape}, got {array.shape}")
        flat_arrays.append(array.transpose(stored_axes).reshape(-1))
    return pa.ExtensionArray.from_storage(type_, exact_cells(flat_arrays, type_.storage_type))


# ---------------------------------------------------------------------- structs


def _struct_cells(values: list[Any], type_: pa.DataType) -> pa.Array:
    """Convert dicts to structs, field by field.

    Raises:
        CellError: a value is not a dict, has an unknown key, or an item of it does not fit.
    """
    fields = [type_.field(number) for number in range(type_.num_fields)]
    names = {field.name for field in fields}
    shown_names = ", ".join(field.name for field in fields)[:200]
    empty: dict[str, Any] = {}  # stands for a null row, whose fields are null
    rows: list[Mapping[str, Any]] = []
    is_null_row = np.zeros(len(values), np.bool_)
    for row, value in enumerate(values):
        if type(value) is not dict and is_null(value):
            is_null_row[row] = True
            rows.append(empty)
            continue
        if not isinstance(value, Mapping):
            raise CellError(row, f"expected a dict of {shown_names}, got {show_value(value)}")
        if not value.keys() <= names:  # pyarrow would drop unknown keys
            unknown = next(name for name in value if name not in names)
            raise CellError(row, f"expected a struct of {shown_names}, got the key {unknown!r:.60}")
        rows.append(value)
    if not fields:
        return pa.array([None if null else {} for null in is_null_row.tolist()], type_)
    children = []
    for field in fields:
        try:
            cells = exact_cells([row.get(field.name) for row in rows], field.type)
        except CellError as error:
            raise CellError(error.row, f"key {field.name!r:.60}: {error.why}") from error
        children.append(_refuse_chunks(cells))
    mask = pa.array(is_null_row) if is_null_row.any() else None
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


# ---------------------------------------------------------------------- lists


def _list_cells(values: list[Any], type_: pa.DataType) -> pa.Array:
    """Convert lists, tuples and arrays to lists: all their elements at once.

    Raises:
        CellError: a value is not a list, has another size, or an element does not fit.
    """
    is_fixed = pa.types.is_fixed_size_list(type_)
    null_list = [None] * type_.list_size if is_fixed else []
    lists = []
    is_null_list = np.zeros(len(values), np.bool_)
    for row, value in enumerate(values):
        if type(value) is list:
            elements = value
        elif is_null(value):
            is_null_list[row] = True
            lists.append(null_list)
            continue
        else:
            elements = _as_list(value)
        if elements is None:
            raise CellError(row, f"expected a list, got {show_value(value)}")
        if is_fixed:
            _check_list_size(type_, len(elements), row)
        lists.append(elements)
    offsets = offsets_of(lists)
    cells = _cells_of_elements(_concatenate(lists), type_.value_type, offsets, "element")
    return join_lists(cells, offsets, is_null_list, type_)


def _as_list(value: Any) -> Any:
    """Return a list, a tuple or an array of at least one dimension; None of anything else."""
    if isinstance(value, (list, tuple)):
        return value
    if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        array = as_array(value)
        return array if array.ndim else None
    return None


def _check_list_size(type_: pa.DataType, size: int, row: int) -> None:
    if size != type_.list_size:
        raise CellError(row, f"expected a list of {type_.list_size} elements, got {size}")


def _concatenate(lists: list[Any]) -> Any:
    """Return the elements of all lists: one array if all are arrays of one dtype and shape."""
    types_of_lists = set(map(type, lists))
    if types_of_lists <= {list, tuple}:
        return list(itertools.chain.from_iterable(lists))
    arrays = [elements for elements in lists if len(elements)]
    if _are_arrays_of_one_form(arrays):
        return np.concatenate(arrays)
    return list(itertools.chain.from_iterable(lists))


def _are_arrays_of_one_form(values: list[Any]) -> bool:
    """Whether all values are arrays of one dtype, and of one shape but for the first dimension."""
    forms = set()
    for value in values:
        if not isinstance(value, np.ndarray):
            return False
        forms.add((value.dtype, value.shape[1:]))
    return len(forms) == 1


# ---------------------------------------------------------------------- maps


def _map_cells(values: list[Any], type_: pa.DataType) -> pa.Array:
    """Convert dicts and lists of pairs to maps: all their keys, and all their items, at once.

    Raises:
        CellError: a value is not a map, a key is null, or a key or item does not fit.
    """
    pairs_of_maps: list[Any] = []
    is_null_map = np.zeros(len(values), np.bool_)
    for row, value in enumerate(values):
        if is_null(value):
            is_null_map[row] = True
            pairs_of_maps.append([])
            continue
        pairs = list(value.items()) if isinstance(value, Mapping) else _as_list(value)
        if not _are_pairs(pairs):
            raise CellError(row, f"expected a dict or a list of pairs, got {show_value(value)}")
        pairs_of_maps.append(pairs)
    offsets = offsets_of(pairs_of_maps)
    keys: list[Any] = []
    items: list[Any] = []
    for key, item in itertools.chain.from_iterable(pairs_of_maps):
        if is_null(key):
            raise CellError(row_of_element(offsets, len(keys)), "a key of a map is null")
        keys.append(key)
        items.append(item)
    key_cells = _cells_of_elements(keys, type_.key_type, offsets, "key of pair")
    item_cells = _cells_of_elements(items, type_.item_type, offsets, "item of pair")
    maps = pa.MapArray.from_arrays(arrow_offsets(offsets, is_null_map), key_cells, item_cells)
    return maps.cast(type_)


def _are_pairs(values: Any) -> bool:
    """Whether all values are tuples or lists of two; False for None."""
    if values is None:
        return False
    return all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in values)


# ---------------------------------------------------------------------- elements


def _cells_of_elements(
    elements: Any, type_: pa.DataType, offsets: npt.NDArray[np.int64], what: str
) -> pa.Array:
    """Convert the elements of all lists.

    Args:
        elements: the elements of all lists.
        type_: the type of the elements.
        offsets: where each list begins in them, shape ``(n_lists + 1,)``.
        what: the name of an element, for messages.

    Raises:
        CellError: an element does not fit; its row is that of the list.
    """
    if len(elements) > MAX_ELEMENTS:
        raise CellError(
            0, f"all lists together have {len(elements):,} elements: write fewer at once"
        )
    try:
        return _refuse_chunks(exact_cells(elements, type_))
    except CellError as error:
        row = row_of_element(offsets, error.row)
        position = error.row - offsets[row]
        raise CellError(row, f"{what} {position}: {error.why}") from error


def _refuse_chunks(cells: Any) -> pa.Array:
    """Refuse text of more than 2 GiB, of which pyarrow makes several chunks."""
    if isinstance(cells, pa.ChunkedArray):
        raise CellError(0, "the text in all values together exceeds 2 GiB: write fewer at once")
    return cells
