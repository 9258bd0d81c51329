"""Reads sequences: runs of consecutive values of a column, one run for each sample."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.formats.records.decoded_column import DecodedColumn
from data_stack.formats.records.value_column import ValueColumn
from data_stack.util.request_limit import check_request
from data_stack.values.stacked_values import objects, stack_values

#: A list takes about this many bytes for each value: a reference and the head of an object.
_BYTES_OF_LISTED_VALUE = 24

_Integers = npt.NDArray[np.int64]
_Array = npt.NDArray[Any]


def stack_sequences(elements: ValueColumn, firsts: _Integers, counts: _Integers) -> _Array:
    """Read sequences, in one request, as a column.

    Numbers come as arrays of the declared dtype, also those of empty sequences.

    Args:
        elements: the values of all sequences.
        firsts: the number of the first value of each sequence, shape ``(n,)``.
        counts: the number of values of each sequence, shape ``(n,)``.

    Returns:
        An array of shape ``(n, length, ...)`` where all sequences have one length, otherwise
        ``(n,)`` of objects.

    Raises:
        RequestLimitError: the sequences are too large together.
        DatasetFileCorruptError: a record is damaged.
    """
    if isinstance(elements, DecodedColumn):
        return _stack_decoded(elements, firsts, counts)

    n_values = int(counts.sum())
    check_request(n_values * elements.row_bytes, f"sequences of {n_values:,} values")
    values = elements.read(_number_values(firsts, counts))
    lengths = set(counts.tolist())
    if len(lengths) > 1:
        return objects(np.split(values, _count_before(counts)[1:]))
    length = lengths.pop() if lengths else 0
    return values.reshape(len(counts), length, *values.shape[1:])


def list_sequences(elements: ValueColumn, firsts: _Integers, counts: _Integers) -> list[list[Any]]:
    """Read sequences, in one request, each as a list; arguments as of :func:`stack_sequences`.

    Raises:
        RequestLimitError: the sequences are too large together.
        DatasetFileCorruptError: a record is damaged.
    """
    n_values = int(counts.sum())
    # All of them may be values of one record, so that the size of the file limits nothing.
    n_bytes = n_values * (elements.row_bytes + _BYTES_OF_LISTED_VALUE)
    check_request(n_bytes, f"sequences of {n_values:,} values")
    values: list[Any] = []
    if n_values:
        values = elements.values(_number_values(firsts, counts))
    starts = _count_before(counts).tolist()
    return [
        values[start : start + count] for start, count in zip(starts, counts.tolist(), strict=True)
    ]


def _stack_decoded(elements: DecodedColumn, firsts: _Integers, counts: _Integers) -> _Array:
    """Stack sequences of decoded values, whose dtypes and shapes may differ."""
    stacked = stack_values(list_sequences(elements, firsts, counts))
    declared_dtype = elements.declared_dtype
    if declared_dtype is None or counts.any():
        return stacked
    # No value decides the dtype.
    return np.empty((len(counts), 0), declared_dtype)


def _count_before(counts: _Integers) -> _Integers:
    """Return how many values the sequences before each one have, shape ``(n,)``."""
    return np.cumsum(counts) - counts


def _number_values(firsts: _Integers, counts: _Integers) -> _Integers:
    """Return the numbers of the values of all sequences, one sequence after the other."""
    offsets = np.repeat(firsts - _count_before(counts), counts)
    return offsets + np.arange(len(offsets))
