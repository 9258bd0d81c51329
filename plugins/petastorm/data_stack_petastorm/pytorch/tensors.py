"""Values and columns of a reader as tensors."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import numpy as np
import torch

#: Types of values that Petastorm does not convert to tensors.
TYPES_WITHOUT_TENSORS: Final = (str, bytes, Decimal)

#: How Petastorm converts tensors of dtypes that old versions of torch lack, for columns.
_PROMOTED_TENSORS: Final = {
    torch.uint16: torch.int32,
    torch.uint32: torch.int64,
    torch.bool: torch.uint8,
}

#: How it converts arrays of these dtypes, for single values. The keys are the names of the dtypes
#: without the byte order.
_PROMOTED_ARRAYS: Final = {"u2": np.int32, "u4": np.int64, "b1": np.uint8}


def sanitize_row(row_as_dict: dict[str, Any]) -> None:
    """Convert the values of a row, in place, to dtypes that old versions of torch have.

    Raises:
        TypeError: a value is None, or an array of text or objects; the message names the field.
    """
    for name, value in row_as_dict.items():
        row_as_dict[name] = sanitize_value(name, value)


def sanitize_value(name: str, value: Any) -> Any:
    """Convert the value of a field to a dtype that old versions of torch have.

    Raises:
        TypeError: the value is None, or an array of text or objects; the message names the field.
    """
    if value is None:
        raise refusal(name, "rows without a value (None)")
    if not isinstance(value, (np.ndarray, np.generic)):
        return value
    if isinstance(value, np.ndarray) and value.dtype.kind in "SUO":
        raise refusal(name, f"arrays of strings or objects, such as {value!r:.60}")
    promoted_dtype = _PROMOTED_ARRAYS.get(value.dtype.str[1:])
    if promoted_dtype is None:
        return value
    return value.astype(promoted_dtype)


def as_tensor(name: str, column: Any) -> torch.Tensor:
    """Convert a column to a tensor of a dtype that Petastorm knows.

    Args:
        name: name of the field.
        column: a tensor of shape ``(n, ...)``, or a list of values that are not tensors.

    Raises:
        TypeError: torch has no tensors for the values; the message names the field.
    """
    if not isinstance(column, torch.Tensor):
        raise refusal(name, _describe_values(column))
    return column.to(_PROMOTED_TENSORS.get(column.dtype, column.dtype))


def refusal(name: str, what: str) -> TypeError:
    """Return the error for a field whose values cannot be tensors.

    Args:
        name: name of the field.
        what: describes the values, such as "arrays of different shapes in one batch".
    """
    return TypeError(
        f"field {name!r} has {what}, for which torch has no tensors: exclude the field "
        f"(schema_fields=) or such rows (predicate=col({name!r}).is_valid()), convert it by a "
        "TransformSpec, or read floats without a value as NaN (nulls='nan')"
    )


def _describe_values(values: list[Any]) -> str:
    """Return a description of values without tensors, for :func:`refusal`."""
    if any(value is None for value in values):
        return "rows without a value (None)"
    shapes = {value.shape for value in values if isinstance(value, (np.ndarray, torch.Tensor))}
    if len(shapes) > 1:
        return "arrays of different shapes in one batch"
    return f"values such as {values[0]!r:.60}"
