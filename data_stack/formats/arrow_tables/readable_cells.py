"""Converts cells of types that pyarrow cannot take single rows of to types of the same values."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from data_stack.util.request_limit import check_request

#: Views of text and bytes, and the types to cast them to.
_TYPE_OF_VIEW: Final = {
    pa.string_view(): pa.large_string(),
    pa.binary_view(): pa.large_binary(),
}

#: What an offset or a position takes.
_OFFSET_BYTES: Final = 8


def readable_type(type_: pa.DataType) -> pa.DataType:
    """Return the type of the cells that :func:`readable_cells` makes of cells of a type.

    - An extension type is read as it is stored, apart from tensors. A process may know such a type
      or not: ``datasets`` registers types when it is imported.
    - A view of text or bytes is text or bytes, in lists, structs, maps and dictionaries, too.
    - A view of lists is a list.
    - Run-end encoded numbers, text or bytes are numbers, text or bytes.
    - A dictionary of lists or structs is lists or structs.
    """
    if is_extension(type_):
        return readable_type(type_.storage_type)
    if _is_list_view(type_):
        inner_field = _with_type(type_.value_field, readable_type(type_.value_type))
        if isinstance(type_, pa.LargeListViewType):
            return pa.large_list(inner_field)
        return pa.list_(inner_field)
    if isinstance(type_, pa.RunEndEncodedType) and _is_plain(type_.value_type):
        return type_.value_type
    if _is_nested_dictionary(type_):
        return readable_type(type_.value_type)
    return _without_views(type_)


def readable_field(field: pa.Field) -> pa.Field:
    """Return a column with its :func:`readable_type`."""
    type_ = readable_type(field.type)
    if type_ == field.type:
        return field
    return pa.field(field.name, type_, field.nullable)


def is_extension(type_: pa.DataType) -> bool:
    """Return whether a type is an extension type, but not that of tensors."""
    is_tensor = isinstance(type_, pa.FixedShapeTensorType)
    return isinstance(type_, pa.BaseExtensionType) and not is_tensor


def is_made_back(type_: pa.DataType) -> bool:
    """Return whether values can be converted back to a type, rather than to its readable type."""
    if pa.types.is_dictionary(type_):
        return bool(readable_type(type_) == type_)
    return not _is_list_view(type_) and not isinstance(type_, pa.RunEndEncodedType)


def readable_cells(cells: pa.Array) -> pa.Array:
    """Return cells as the :func:`readable_type` of their type; most are not copied.

    Raises:
        RequestLimitError: they would take more memory than a request may.
        pyarrow.ArrowException: pyarrow cannot convert them.
    """
    type_ = cells.type
    if is_extension(type_):
        return readable_cells(cells.storage)
    if _is_list_view(type_):
        return _lists_of_views(cells)
    if isinstance(type_, pa.RunEndEncodedType) and _is_plain(type_.value_type):
        return _decode_runs(cells)
    if _is_nested_dictionary(type_):
        return readable_cells(cells.dictionary_decode())
    plain = _without_views(type_)
    if plain != type_:
        return cells.cast(plain)
    return cells


def readable_chunks(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return cells in any number of chunks, each as :func:`readable_cells` makes it."""
    type_ = readable_type(cells.type)
    if type_ == cells.type:
        return cells
    return pa.chunked_array([readable_cells(chunk) for chunk in cells.chunks], type_)


# ---------------------------------------------------------------------- types


def _is_list_view(type_: pa.DataType) -> bool:
    return isinstance(type_, (pa.ListViewType, pa.LargeListViewType))


def _is_nested_dictionary(type_: pa.DataType) -> bool:
    return bool(pa.types.is_dictionary(type_) and pa.types.is_nested(type_.value_type))


def _is_plain(type_: pa.DataType) -> bool:
    """Return whether a type is one of numbers, times, text or bytes."""
    is_text_or_bytes = type_ in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
    return bool(is_text_or_bytes or pa.types.is_primitive(type_))


def _without_views(type_: pa.DataType) -> pa.DataType:
    """Return a type with text and bytes in place of views of them, wherever they are in it."""
    if type_ in _TYPE_OF_VIEW:
        return _TYPE_OF_VIEW[type_]
    if isinstance(type_, pa.ListType):
        return pa.list_(_field_without_views(type_.value_field))
    if isinstance(type_, pa.LargeListType):
        return pa.large_list(_field_without_views(type_.value_field))
    if isinstance(type_, pa.FixedSizeListType):
        return pa.list_(_field_without_views(type_.value_field), type_.list_size)
    if isinstance(type_, pa.StructType):
        fields = [type_.field(number) for number in range(type_.num_fields)]
        return pa.struct([_field_without_views(field) for field in fields])
    if isinstance(type_, pa.MapType):
        key_field = _field_without_views(type_.key_field)
        return pa.map_(key_field, _field_without_views(type_.item_field), type_.keys_sorted)
    if isinstance(type_, pa.DictionaryType):
        value_type = _without_views(type_.value_type)
        return pa.dictionary(type_.index_type, value_type, type_.ordered)
    return type_


def _field_without_views(field: pa.Field) -> pa.Field:
    return _with_type(field, _without_views(field.type))


def _with_type(field: pa.Field, type_: pa.DataType) -> pa.Field:
    """Return a field with another type, and all else as it is."""
    return pa.field(field.name, type_, field.nullable, field.metadata)


# ---------------------------------------------------------------------- cells


def _lists_of_views(cells: pa.Array) -> pa.Array:
    """Return views of lists as lists.

    pyarrow 26 has a cast, but leaves out the last offset, so that its lists are damaged.
    """
    starts = cells.offsets.to_numpy().astype(np.int64)
    sizes = cells.sizes.to_numpy().astype(np.int64)
    are_null = cells.is_null().to_numpy(zero_copy_only=False)
    sizes[are_null] = 0
    # Views may overlap, so that a small file states any number of values.
    n_values = sum(sizes.tolist())
    check_request((n_values + len(cells)) * _OFFSET_BYTES, "lists that are stored as views")

    ends = np.cumsum(sizes)
    offsets = np.concatenate([[0], ends])
    positions = np.arange(n_values) + np.repeat(starts - (ends - sizes), sizes)
    inner = readable_cells(cells.values)
    type_ = readable_type(cells.type)
    list_class: Any = pa.ListArray
    offset_type = pa.int32()
    if pa.types.is_large_list(type_):
        list_class = pa.LargeListArray
        offset_type = pa.int64()
    return list_class.from_arrays(
        pa.array(offsets, offset_type),
        inner.take(pa.array(positions)),
        type=type_,
        mask=pa.array(are_null),
    )


def _decode_runs(cells: pa.Array) -> pa.Array:
    """Return run-end encoded cells one by one.

    Raises:
        RequestLimitError: they would take more memory than a request may.
    """
    lengths = np.diff(cells.run_ends.to_numpy().astype(np.int64), prepend=0)
    n_bytes = int((lengths * _bytes_of_values(cells.values)).sum())
    check_request(n_bytes, "values that are stored as runs")
    return pc.run_end_decode(cells)


def _bytes_of_values(values: pa.Array) -> npt.NDArray[np.int64]:
    """Return what each value takes, shape ``(n,)``."""
    if pa.types.is_primitive(values.type):
        return np.full(len(values), max(1, values.type.bit_width // 8))
    lengths: npt.NDArray[np.int64] = pc.binary_length(values).fill_null(0).to_numpy()
    return lengths.astype(np.int64) + _OFFSET_BYTES
