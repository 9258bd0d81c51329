"""Tells which values the cells of an Arrow type have."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import pyarrow as pa

from data_stack.formats.arrow_tables.values import field_of, values_of
from data_stack.formats.parquet.types import dtype_name, is_list
from data_stack.values.stacked_values import objects

_Array = npt.NDArray[Any]


def describe_values(
    name: str, type_: pa.DataType, shape: tuple[int, ...]
) -> tuple[str | None, tuple[int | None, ...]]:
    """Return dtype and shape of the values of a type.

    Raises:
        ConfigError: the type is unsupported.
    """
    field = field_of(name, type_)
    no_values = values_of(pa.nulls(0, type_), name, has_nulls=False, shape=shape)
    if no_values.ndim > 2:
        return no_values.dtype.name, no_values.shape[1:]
    return dtype_name(field.dtype), field.shape


def is_list_of_numbers_or_text(type_: pa.DataType) -> bool:
    """Return whether a type is one of lists of integers, floats or text."""
    if not pa.types.is_list(type_) and not pa.types.is_large_list(type_):
        return False
    inner = type_.value_type
    is_number = pa.types.is_integer(inner) or pa.types.is_floating(inner)
    return bool(is_number or pa.types.is_string(inner))


def array_of_list(cell: Any) -> _Array | None:
    """Return a list of numbers or text as an array; None if it is null or holds a null number."""
    elements = cell.values
    if elements is None:
        return None
    if pa.types.is_string(elements.type):
        return objects(elements.to_pylist())
    if elements.null_count:
        return None
    array: _Array = elements.to_numpy(zero_copy_only=False).copy()
    return array


def has_python_values(type_: pa.DataType) -> bool:
    """Return whether ``as_py()`` returns the values of a type as samples hold them.

    It does not for times, which are numpy's in samples; nor for float16, of which old versions of
    pyarrow return scalars of numpy.
    """
    if pa.types.is_struct(type_):
        fields = [type_.field(number) for number in range(type_.num_fields)]
        names = {field.name for field in fields}
        are_distinct = len(names) == len(fields)  # as_py() raises for equal names
        return are_distinct and all(has_python_values(field.type) for field in fields)
    if is_list(type_):
        return has_python_values(type_.value_type)
    return is_number_of_python(type_) or bool(pa.types.is_string(type_))


def is_number_of_python(type_: pa.DataType) -> bool:
    """Return whether ``as_py()`` returns numbers or truth values of Python for a type."""
    is_float = pa.types.is_float32(type_) or pa.types.is_float64(type_)
    return bool(is_float or pa.types.is_integer(type_) or pa.types.is_boolean(type_))
