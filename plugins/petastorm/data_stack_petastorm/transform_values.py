"""Checks the values that the function of a transform returned, against the fields of the result.

Numbers of another dtype are cast if the dtype of the field holds them exactly, or if both are
floats.
"""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.codecs.fitting import as_dtype, check_shape, fits_shape
from data_stack.exception import ConfigError
from data_stack.formats.parquet import Field
from data_stack.formats.parquet.types import dtype_name
from data_stack.values.stacked_values import objects
from data_stack_petastorm.plain_times import as_numpy_time

#: By kind of a dtype whose columns have objects, the Python type of the values.
_TYPES_OF_OBJECTS: Final[dict[str, type]] = {"U": str, "S": bytes, "O": object}


def check_column(field: Field, values: Any) -> npt.NDArray[Any]:
    """Return the values of a field as a column, shape ``(n, ...)``.

    The column has the dtype of the field. It is one of objects for text, bytes, decimals and
    objects, and also if a value is None or the values have several shapes.

    Args:
        field: the field.
        values: an array or list with one value per row, as the function returned it.

    Raises:
        ConfigError: a value does not fit the field; the message names the row and the field.
    """
    has_array_dtype = _has_array_dtype(field)
    if has_array_dtype and len(values):
        column = _as_fitting_array(field, values)
        if column is not None:
            return column

    checked = []
    for number, value in enumerate(values):
        try:
            checked.append(_check_value(field, value))
        except (TypeError, ValueError, RuntimeError) as error:
            raise ConfigError(
                f"the transform returned an invalid value of field {field.name!r} for row {number} "
                f"of a batch: {error}. Declare changed fields in edit_fields, or convert values by "
                "astype()"
            ) from error

    has_nulls = any(value is None for value in checked)
    if not checked or not has_array_dtype or has_nulls:
        return objects(checked)
    if not field.shape:
        return np.array(checked, field.dtype)
    shapes = {value.shape for value in checked}
    if len(shapes) > 1:
        return objects(checked)
    return np.stack(checked)


def with_nulls(field: Field, column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Replace NaT by None in a column of times that comes from a DataFrame.

    pandas has NaT for a missing time, where the readers have None. The column is returned unchanged
    if its field has no nulls, or if the codec of the field stores nulls as NaT.

    Args:
        field: the field of the result.
        column: the values that :func:`check_column` returned, shape ``(n, ...)``.
    """
    is_times = column.dtype.kind in "mM" and column.ndim == 1
    if not is_times or not field.nullable:
        return column
    nulls = getattr(field.codec, "nulls", "none")
    is_missing = np.isnat(column)
    if nulls != "none" or not is_missing.any():
        return column
    values = objects(list(column))
    values[is_missing] = None
    return values


def _has_array_dtype(field: Field) -> bool:
    """Return whether a column of the field is an array of its dtype, not of objects."""
    return isinstance(field.dtype, np.dtype) and field.dtype.kind not in "USO"


def _as_fitting_array(field: Field, values: Any) -> npt.NDArray[Any] | None:
    """Return values as an array if they have the dtype and shape of a field; None otherwise.

    This is fast. Values for which it returns None are checked and converted one by one.
    """
    array: npt.NDArray[Any] = values
    if not isinstance(values, np.ndarray):
        try:
            array = np.array(values)
        except (TypeError, ValueError, RuntimeError):
            # The values have different shapes, or are tensors on a GPU, which torch does not copy.
            return None
    if array.dtype == field.dtype and fits_shape(array.shape[1:], field.shape):
        return array
    return None


def _check_value(field: Field, value: Any) -> Any:
    """Return the value of a field in one row, converted to the field's dtype.

    Raises:
        TypeError, ValueError, RuntimeError: the value does not fit.
    """
    if value is None:
        if not field.nullable:
            raise TypeError("it is None, but the field is not nullable")
        return None
    if _has_array_dtype(field):
        return _check_number(field, value)
    return _check_objects(field, value)


def _check_number(field: Field, value: Any) -> Any:
    """Return a number, a time, or an array of them, converted to the dtype of the field.

    Raises:
        TypeError, ValueError, RuntimeError: the value does not fit.
    """
    dtype: Any = field.dtype
    if dtype.kind == "M" and isinstance(value, date):  # a datetime or Timestamp is a date
        value = as_numpy_time(value)
    array = np.asarray(value)
    check_shape(array.shape, field.shape)
    array = as_dtype(array, dtype, rounds=array.dtype.kind in "fc")
    return array if field.shape else array[()]


def _check_objects(field: Field, value: Any) -> Any:
    """Return a text, bytes, decimal or other object, or an array of them.

    Raises:
        TypeError, ValueError: the value has another type or shape than the field.
    """
    expected_type: type = Decimal
    if isinstance(field.dtype, np.dtype):
        expected_type = _TYPES_OF_OBJECTS[field.dtype.kind]
    if not field.shape:
        scalar = value.item() if isinstance(value, np.generic) else value
        _check_type(scalar, expected_type, field)
        return scalar
    elements = np.array(value, dtype=object)
    check_shape(elements.shape, field.shape)
    for element in elements.flat:
        if element is not None:
            _check_type(element, expected_type, field)
    return elements


def _check_type(value: Any, expected_type: type, field: Field) -> None:
    """Check the type of one value or element.

    Raises:
        TypeError: it has another type.
    """
    if not isinstance(value, expected_type):
        raise TypeError(f"{value!r:.40} is not of dtype {dtype_name(field.dtype)}")
