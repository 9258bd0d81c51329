"""Makes batches of lists of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.utils.data import default_collate

from data_stack.exception import ConfigError
from data_stack_petastorm.batches import map_columns
from data_stack_petastorm.nan_for_null import NanForNull
from data_stack_petastorm.pytorch.tensors import TYPES_WITHOUT_TENSORS, refusal, sanitize_value


def decimal_friendly_collate(batch: Any) -> Any:
    """Collate as torch's ``default_collate``, but keep Decimals and strings as a list.

    Dicts become a dict, tuples a list.

    Args:
        batch: rows, or the values of one field.
    """
    first = batch[0]
    if isinstance(first, TYPES_WITHOUT_TENSORS):
        return batch
    if isinstance(first, Mapping):
        return {key: decimal_friendly_collate([row[key] for row in batch]) for key in first}
    if isinstance(first, Sequence):
        return [decimal_friendly_collate(values) for values in zip(*batch, strict=True)]
    return default_collate(batch)


class RowCollate:
    """Applies a user's function to the rows of a batch, whose values have dtypes of torch.

    It runs in the workers of a loader.

    Args:
        function: makes a batch of a list of rows.
        refuses_text: whether text, bytes and Decimals are refused, as Petastorm does for row
            groups.
        omitted: names of fields that the rows do not have.
        nan_for_null: replaces missing floats.

    Raises:
        ConfigError: ``function`` is not a function.
    """

    _function: Callable[[list[Any]], Any]
    _refuses_text: bool
    _omitted: frozenset[str]
    _nan_for_null: NanForNull

    def __init__(
        self,
        function: Callable[[list[Any]], Any],
        *,
        refuses_text: bool,
        omitted: frozenset[str],
        nan_for_null: NanForNull,
    ) -> None:
        if not callable(function):
            raise ConfigError(
                f"collate_fn must be a function of a list of rows, got {function!r:.80}"
            )
        self._function = function
        self._refuses_text = refuses_text
        self._omitted = omitted
        self._nan_for_null = nan_for_null

    def __call__(self, rows: list[Any]) -> Any:
        """Make a batch.

        Raises:
            TypeError: torch has no tensors for a value; the message names the field.
        """
        sanitized_rows = [map_columns(row, self._sanitize, self._omitted) for row in rows]
        return self._function(sanitized_rows)

    def _sanitize(self, name: str, value: Any) -> Any:
        if self._refuses_text and isinstance(value, TYPES_WITHOUT_TENSORS):
            raise refusal(name, f"values such as {value!r:.60}")
        return sanitize_value(name, self._nan_for_null.fill_value(name, value))
