"""Walks over the columns of batches of rows and of n-grams.

A batch of rows is ``{name: column}``, a batch of n-grams ``{offset: {name: column}}``. Names are
text, offsets are integers. A single row or n-gram has the same form, with values for columns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any


def map_columns(
    batch: Mapping[Any, Any],
    function: Callable[[str, Any], Any],
    omit: Collection[str] = (),
) -> dict[Any, Any]:
    """Return a batch of the results of a function of each column.

    Args:
        batch: columns, or the values of a single row.
        function: called with the name and the column (or value) of each field.
        omit: names of fields to leave out, for rows; n-grams keep all fields.
    """
    results: dict[Any, Any] = {}
    for key, value in batch.items():
        if key in omit:
            continue
        is_offset = not isinstance(key, str)
        if is_offset and isinstance(value, dict):
            results[key] = map_columns(value, function)
        else:
            results[key] = function(key, value)
    return results


def iterate_columns(batch: Mapping[Any, Any]) -> Iterator[Any]:
    """Iterate over the columns of a batch; for n-grams, over those of all offsets."""
    for value in batch.values():
        if isinstance(value, dict):
            yield from value.values()
        else:
            yield value


def count_rows(batch: Mapping[Any, Any]) -> int:
    """Return the number of rows (or n-grams) of a batch; 0 for a batch without columns."""
    for column in iterate_columns(batch):
        return len(column)
    return 0
