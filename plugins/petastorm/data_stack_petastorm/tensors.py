"""Values and columns of a reader as tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

import numpy as np
import torch

from data_stack.exception import ConfigError
from data_stack_petastorm.columns import NanForNull

#: Types that Petastorm does not convert.
OBJECTS: Final = (str, bytes, Decimal)
#: How Petastorm converts dtypes that torch lacked when it was written.
_PROMOTED: Final = {torch.uint16: torch.int32, torch.uint32: torch.int64, torch.bool: torch.uint8}
_PROMOTED_OF_ROWS: Final = {"u2": np.int32, "u4": np.int64, "b1": np.uint8}


class RowCollate:
    """Applies a function to the rows of a batch, whose values have dtypes of torch."""

    def __init__(self, function: Callable[[list[Any]], Any], is_batched: bool) -> None:
        if not callable(function):
            raise ConfigError(
                f"collate_fn must be a function of a list of rows, got {function!r:.80}"
            )
        self._function, self._is_batched = function, is_batched
        self.left_out: frozenset[str] = frozenset()
        self.nan_for_null = NanForNull(())

    def __call__(self, rows: list[Any]) -> Any:
        return self._function([by_field(row, self._sanitize, self.left_out) for row in rows])

    def _sanitize(self, name: str, value: Any) -> Any:
        if self._is_batched and isinstance(value, OBJECTS):
            raise refusal(name, f"values such as {value!r:.60}")
        return _sanitize(name, self.nan_for_null.value(name, value))


def sanitize_pytorch_types(row_as_dict: dict[str, Any]) -> None:
    """Convert the values of a row, in place, to dtypes that old versions of torch have.

    Raises:
        TypeError: a value is None, or an array of text or objects; the message names the field.
    """
    row_as_dict.update({name: _sanitize(name, value) for name, value in row_as_dict.items()})


def _sanitize(name: str, value: Any) -> Any:
    if value is None:
        raise refusal(name, "rows without a value (None)")
    if not isinstance(value, (np.ndarray, np.generic)):
        return value
    if isinstance(value, np.ndarray) and value.dtype.kind in "SUO":
        raise refusal(name, f"arrays of strings or objects, such as {value!r:.60}")
    dtype = _PROMOTED_OF_ROWS.get(value.dtype.str[1:])
    return value if dtype is None else value.astype(dtype)


def refusal(name: str, what: str) -> TypeError:
    """Return the error for a field whose values cannot be tensors; it says what to do."""
    return TypeError(
        f"field {name!r} has {what}, for which torch has no tensors: exclude the field (schema_fields=) or such rows "
        f"(predicate=col({name!r}).is_valid()), convert it by a TransformSpec, or read floats without a value as NaN "
        f"(nulls='nan')"
    )


def by_field(
    batch: Mapping[Any, Any], function: Callable[..., Any], left_out: frozenset[str] = frozenset()
) -> dict[Any, Any]:
    """Apply a function to name and column (or value) of each field that is not left out; for n-grams at each offset."""
    return {
        key: by_field(value, function)
        if isinstance(value, dict) and not isinstance(key, str)
        else function(key, value)
        for key, value in batch.items()
        if key not in left_out
    }


def as_tensor(name: str, column: Any) -> torch.Tensor:
    """Convert a column to a tensor of a dtype that Petastorm knows.

    Raises:
        TypeError: torch has no tensors for the values.
    """
    if isinstance(column, torch.Tensor):
        return column.to(_PROMOTED.get(column.dtype, column.dtype))
    what = f"values such as {column[0]!r:.60}"
    if any(value is None for value in column):
        what = "rows without a value (None)"
    elif (
        len({value.shape for value in column if isinstance(value, (np.ndarray, torch.Tensor))}) > 1
    ):
        what = "arrays of different shapes in one batch"
    raise refusal(name, what)
