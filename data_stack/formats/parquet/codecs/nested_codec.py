"""Stores structs, maps, nested lists and all other types of Parquet as Python objects."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from data_stack.exception import ConfigError
from data_stack.formats.parquet import types
from data_stack.formats.parquet.codecs.arrow_codec import ArrowCodec, Values
from data_stack.formats.parquet.codecs.cells import (
    null_mask,
    numbers,
    plain_cells,
    python_scalars,
)
from data_stack.formats.parquet.codecs.exact_cells import exact_cells
from data_stack.formats.parquet.codecs.list_codec import list_parts
from data_stack.formats.parquet.codecs.scalar_values import as_objects, read_times
from data_stack.formats.parquet.codecs.tensor_codec import unflatten_tensors
from data_stack.formats.parquet.columns import GroupColumn, MadeColumn
from data_stack.formats.parquet.types import FieldLike
from data_stack.values.stacked_values import objects


class NestedCodec(ArrowCodec):
    """Stores structs, maps, nested lists and all other types of Parquet as Python objects.

    A struct is a dict, a map a list of pairs ``(key, value)``, a list a list, a tensor an array of
    its shape. Their numbers, text and bytes are Python objects, times and durations are numpy's.

    Args:
        type: the type of the column: an Arrow type, or as
            :func:`~data_stack.formats.parquet.types.describe_type` describes it, for example
            ``{"struct": {"name": "string", "boxes": {"list": {"list": "float"}}}}``.

    Raises:
        ConfigError: the type is unknown.
    """

    kind = "nested"

    def __init__(self, type: Any) -> None:  # noqa: A002  # its name in the stored schema
        self.type = types.describe_type(type) if isinstance(type, pa.DataType) else type
        self._arrow_type = types.type_described(self.type)

    def to_json(self) -> dict[str, Any]:
        return {"codec": self.kind, "type": self.type}

    def arrow_type(self, field: FieldLike) -> pa.DataType:
        if field.dtype != object:
            raise ConfigError(f"NestedCodec holds values of dtype object, not {field.dtype}")
        return self._arrow_type

    def encode(self, field: FieldLike, value: Any) -> Any:
        return exact_cells([value], self._arrow_type)[0]

    def _encode_column(self, field: FieldLike, values: Values) -> pa.Array:
        return exact_cells(values, self._arrow_type)

    def _column(self, field: FieldLike, cells: pa.Array, has_nulls: bool) -> GroupColumn:
        if "_view" in str(cells.type):
            # pyarrow takes no rows of views of text or bytes within other types.
            cells = cells.cast(self._arrow_type)
        return _NestedColumn(cells)


class _NestedColumn(MadeColumn):
    """Makes new values on each access: dicts and lists are mutable."""

    def __init__(self, cells: pa.Array) -> None:
        self._cells = cells
        self.n_bytes = cells.nbytes

    def make(self, rows: list[int]) -> list[Any]:
        if len(rows) == 1:
            return _plain_objects(self._cells.slice(rows[0], 1))
        return _plain_objects(self._cells.take(pa.array(rows)))


def _plain_objects(cells: pa.Array) -> list[Any]:
    """Convert values of any type to new objects.

    A struct becomes a dict, a map a list of pairs, a list a list, a tensor an array, null None.
    Scalars are Python objects; times and durations are numpy's, because Python's have no
    nanoseconds.
    """
    if types.is_tensor(cells.type):
        return _tensors(cells)
    cells = plain_cells(cells)
    type_ = cells.type
    if pa.types.is_struct(type_):
        return _dicts(cells)
    if pa.types.is_map(type_) or types.is_list(type_):
        return _lists(cells)
    if pa.types.is_temporal(type_) and not pa.types.is_interval(type_):
        times: list[Any] = as_objects(read_times(cells), null_mask(cells)).tolist()
        return times
    return python_scalars(cells)


def _tensors(cells: pa.FixedShapeTensorArray) -> list[Any]:
    """Return tensors as arrays of their shape; one with missing elements has dtype object."""
    (elements,), offsets = list_parts(plain_cells(cells))
    type_ = elements.type
    is_time = pa.types.is_temporal(type_) and not pa.types.is_interval(type_)
    if is_time:
        array = read_times(elements)
    elif pa.types.is_primitive(type_):
        array = numbers(elements)
    else:
        array = objects(_plain_objects(elements))
    is_missing = null_mask(elements)

    starts = offsets.tolist()
    tensors: list[Any] = []
    for row, is_null in enumerate(null_mask(cells).tolist()):
        if is_null:
            tensors.append(None)
            continue
        place = slice(starts[row], starts[row + 1])
        # The array may be the memory of the cells.
        values = array[place].copy()
        if is_missing[place].any():
            values = objects(_plain_objects(elements[place]))
        (tensor,) = unflatten_tensors(values, 1, tuple(cells.type.shape), cells.type.permutation)
        tensors.append(tensor)
    return tensors


def _dicts(cells: pa.Array) -> list[Any]:
    names = [cells.type.field(number).name for number in range(cells.type.num_fields)]
    # flatten() heeds the offset of a slice, which field() would ignore.
    columns = [_plain_objects(child) for child in cells.flatten()]
    dicts: list[Any] = []
    for row, is_null in enumerate(null_mask(cells).tolist()):
        if is_null:
            dicts.append(None)
        else:
            dicts.append({name: column[row] for name, column in zip(names, columns, strict=True)})
    return dicts


def _lists(cells: pa.Array) -> list[Any]:
    children, offsets = list_parts(cells)
    plain_children = [_plain_objects(child) for child in children]
    if pa.types.is_map(cells.type):
        elements = list(zip(*plain_children, strict=True))
    else:
        (elements,) = plain_children
    starts = offsets.tolist()
    lists: list[Any] = []
    for row, is_null in enumerate(null_mask(cells).tolist()):
        if is_null:
            lists.append(None)
        else:
            lists.append(elements[starts[row] : starts[row + 1]])
    return lists
