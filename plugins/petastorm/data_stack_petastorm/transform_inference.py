"""Infers which fields the function of a transform changes, from its result for the first row."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.codecs.fitting import fits_shape
from data_stack.exception import ConfigError
from data_stack.formats.parquet import Field, Schema


def changed_fields(
    schema: Schema, values: Mapping[str, Any], *, except_names: Collection[str]
) -> list[Field]:
    """Return the fields whose dtype or shape the function changed, with the new ones.

    Args:
        schema: the fields of the result, with the dtypes and shapes before the function.
        values: the values of one row by name, as the function returned them.
        except_names: the names of fields that the user declared, which are not inferred.
    """
    changed = []
    for field in schema:
        if field.name in except_names or field.name not in values:
            continue
        inferred = infer_field(field, values[field.name])
        if inferred != field:
            changed.append(inferred)
    return changed


def infer_field(field: Field, value: Any) -> Field:
    """Return the field if it can have the value, or else a new one of the value's dtype and shape.

    Args:
        field: the field, as it was before the function.
        value: a value that the function returned. None tells nothing about the dtype.
    """
    if value is None:
        return field
    array = np.asarray(value)
    dtype = _infer_dtype(field.dtype, value, array)
    shape = _infer_shape(field.shape, array.shape)
    if dtype == field.dtype and shape == field.shape:
        return field
    try:
        return Field(field.name, dtype, shape, None, field.nullable)
    except ConfigError:  # no column has this dtype
        return field


def _infer_dtype(dtype: Any, value: Any, array: npt.NDArray[Any]) -> Any:
    """Return the dtype of a field for a value that the function returned.

    Args:
        dtype: the dtype of the field before the function.
        value: the value.
        array: the value as an array.
    """
    kind = array.dtype.kind
    if isinstance(value, Decimal):
        return Decimal
    if kind == "U":
        return np.dtype(str)
    if kind == "S":
        return np.dtype(bytes)
    if kind not in "biufc":
        return dtype
    is_number_of_python = type(value) in (int, float)
    if is_number_of_python and _takes_numbers_of_python(dtype, kind):
        return dtype
    return array.dtype


def _takes_numbers_of_python(dtype: Any, kind: str) -> bool:
    """Return whether a field of a dtype takes Python's ints (kind "i") or floats (kind "f").

    All fields of numbers take ints, and those of floats take floats.
    """
    if not isinstance(dtype, np.dtype):
        return False
    if kind == "i":
        return dtype.kind in "iuf"
    return dtype.kind == "f"


def _infer_shape(
    shape: tuple[int | None, ...], new_shape: tuple[int, ...]
) -> tuple[int | None, ...]:
    """Return the shape of a field whose values have a new shape.

    A size that varied from row to row may still vary.

    Args:
        shape: the shape of the field, in which None stands for a size that varies.
        new_shape: the shape of one value.
    """
    if fits_shape(new_shape, shape):
        return shape
    if len(shape) != len(new_shape):
        # The number of dimensions changed. If any size varied before, all may vary now.
        if None in shape:
            return (None,) * len(new_shape)
        return new_shape
    sizes: list[int | None] = []
    for size, new_size in zip(shape, new_shape, strict=True):
        sizes.append(None if size is None else new_size)
    return tuple(sizes)
