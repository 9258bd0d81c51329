"""Turns the values of many samples into numpy columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Union

import numpy as np
import numpy.typing as npt

from data_stack.dataset.exact import as_array, common_dtype, leaf_types
from data_stack.exception import ConfigError

__all__ = [
    "Batch",
    "Column",
    "as_array",
    "column_of",
    "common_dtype",
    "emptied",
    "exact_array",
    "join_batches",
    "join_columns",
    "keys_of",
    "reordered",
    "stack_samples",
    "stack_values",
    "value_of",
]

Column = npt.NDArray[Any]
"""The values of one position or key of many samples, shape ``(n_samples, ...)``."""

Batch = Union[tuple[Column, ...], dict[str, Column], Column]
"""Samples as columns: a tuple for tuple samples, a dict for dict samples, one array for bare samples."""

_NUMBERS = (bool, int, float, complex)
_PYTHON_NUMBERS = set(_NUMBERS)
_LISTS = {list, tuple}
_UNSTACKABLE = (ValueError, TypeError, OverflowError, RuntimeError)  # ragged, endless, or tensors that numpy does not take
_NUMERIC_KINDS = "biufc"
_TIMES = (np.datetime64, np.timedelta64)
_EXACT_IN_FLOATS = 2**53  # integers below are floats, too; what is rounded to it may have been another one
_SCALARS = {np.dtype(code).type for code in np.typecodes["AllInteger"] + np.typecodes["Float"] + np.typecodes["Complex"] + "?"}


def value_of(sample: Any, key: int | str) -> Any:
    """The value at ``key`` of one sample.

    Raises:
        ConfigError: it has no such position or key.
    """
    try:
        return sample[key]
    except (LookupError, TypeError) as error:
        if isinstance(sample, Mapping):
            known = "its keys are " + ", ".join(map(repr, sample))
        elif isinstance(sample, (tuple, list)):
            known = f"it has the columns 0 to {len(sample) - 1}"
        else:
            known = f"it is a bare {type(sample).__name__}"
        raise ConfigError(f"a sample has no column {key!r}: {known}") from error


def stack_samples(samples: Sequence[Any]) -> Batch:
    """Samples as a batch; ``()`` for no samples.

    Raises:
        ConfigError: they differ in their number of columns or in their keys.
    """
    if not samples:
        return ()
    first = samples[0]
    if isinstance(first, Mapping):
        keys = first.keys()
        for sample in samples:
            if not isinstance(sample, Mapping) or sample.keys() != keys:
                raise ConfigError(f"samples of one batch differ in their keys: {_structure(first)} and {_structure(sample)}")
        return {key: stack_values([sample[key] for sample in samples]) for key in first}
    if isinstance(first, (tuple, list)):
        for sample in samples:
            if not isinstance(sample, (tuple, list)) or len(sample) != len(first):
                raise ConfigError(f"samples of one batch differ in their columns: {_structure(first)} and {_structure(sample)}")
        return tuple(stack_values(list(values)) for values in zip(*samples, strict=True))
    return stack_values(samples)


def stack_values(values: Sequence[Any]) -> Column:
    """Values as one array of shape ``(len(values), ...)`` that holds each of them exactly; of dtype object where no other does.

    Numbers, arrays, tensors and lists of numbers of one shape are stacked, times in a unit that holds all of them. Python
    objects stay as they are: strings and bytes (numpy's own would cut trailing zeros and take the longest value's memory for
    each), values of no common shape or dtype, arrays with masked entries, and all values of a column in which one would become
    another one: an integer beyond 2**53 beside floats, or beyond int64 beside signed integers, or times of which no unit holds
    all. Records are stacked if they are of one dtype.
    """
    if not values:
        return np.empty(0)
    types = set(map(type, values))
    if types <= _PYTHON_NUMBERS:
        numbers = _numbers(values, types)
        return _objects(values) if numbers is None else numbers
    only = next(iter(types)) if len(types) == 1 else None
    if only in _SCALARS or (only in _TIMES and len({value.dtype for value in values}) == 1):
        return np.array(values)
    if types <= _LISTS and (numbers := _numbers_of_lists(values)) is not None:  # all at once takes a third of the time
        return numbers
    arrays = list(values) if only is np.ndarray else [exact_array(value) for value in values]
    stackable = [array for array in arrays if array is not None]
    if len(stackable) == len(arrays):
        return _stacked(stackable, values)
    return _objects(values)


def join_columns(pieces: Sequence[Column]) -> Column:
    """Columns one after the other, as if their values had been stacked together."""
    if len(pieces) == 1:
        return pieces[0]
    dtype = common_dtype(pieces) if len({piece.shape[1:] for piece in pieces}) == 1 else None
    if dtype is None:
        return _objects([value for piece in pieces for value in piece])
    return np.concatenate(pieces, dtype=dtype)


def join_batches(batches: Sequence[Batch]) -> Batch:
    """Batches one after the other.

    Raises:
        ConfigError: they differ in their number of columns or in their keys.
    """
    first = batches[0]
    if len(batches) == 1:
        return first
    if isinstance(first, dict):
        dicts = [batch for batch in batches if isinstance(batch, dict) and batch.keys() == first.keys()]
        if len(dicts) == len(batches):
            return {key: join_columns([batch[key] for batch in dicts]) for key in first}
    elif isinstance(first, tuple):
        tuples = [batch for batch in batches if isinstance(batch, tuple) and len(batch) == len(first)]
        if len(tuples) == len(batches):
            return tuple(join_columns(columns) for columns in zip(*tuples, strict=True))
    else:
        arrays = [batch for batch in batches if isinstance(batch, np.ndarray)]
        if len(arrays) == len(batches):
            return join_columns(arrays)
    raise ConfigError("samples of one batch differ: " + " and ".join(sorted({_structure(batch) for batch in batches})))


def column_of(batch: tuple[Column, ...] | dict[str, Column], key: int | str) -> Column:
    """One column of a batch.

    Raises:
        ConfigError: it has no such column.
    """
    try:
        column: Column = batch[key]  # type: ignore[index]  # the key suits the batch, or fails
        return column
    except (LookupError, TypeError) as error:
        known = ", ".join(map(repr, batch)) if isinstance(batch, dict) else f"0 to {len(batch) - 1}"
        raise ConfigError(f"samples have no column {key!r}: they have the columns {known}") from error


def keys_of(columns: int | str | Sequence[int | str]) -> list[int | str]:
    """One key, or several, as a list.

    Raises:
        ConfigError: it is neither.
    """
    if isinstance(columns, (str, int, np.integer)):
        return [columns]
    try:
        return list(columns)
    except TypeError:
        raise ConfigError(f"columns are named by a position, a key, or a list of these, not by {columns!r:.80}") from None


def emptied(batch: Batch) -> Batch:
    """The same columns with no sample in them."""
    return reordered(batch, slice(0, 0))


def reordered(batch: Batch, order: npt.NDArray[np.intp] | slice) -> Batch:
    """The samples of a batch at ``order``."""
    if isinstance(batch, dict):
        return {key: column[order] for key, column in batch.items()}
    if isinstance(batch, tuple):
        return tuple(column[order] for column in batch)
    return batch[order]


def exact_array(value: Any) -> Column | None:
    """A number, array, tensor or list of numbers as an array that holds it exactly; None if there is none, and for all else."""
    if isinstance(value, (str, bytes)):
        return None
    if isinstance(value, _NUMBERS):
        return np.asarray(value)
    if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        try:
            return as_array(value)
        except TypeError:  # a tensor of a dtype that numpy lacks
            return None
    if isinstance(value, (list, tuple)):
        array = _numbers_of_lists(value)
        try:
            column = stack_values(value) if array is None else array
        except _UNSTACKABLE:
            return None
        return column if column.dtype.kind in _NUMERIC_KINDS else None
    return None


def _numbers_of_lists(values: Sequence[Any]) -> Column | None:
    """Lists of Python's numbers, nested or not, as the array that holds them exactly; None if there may be none."""
    try:
        types = set(map(type, values))
        if not types <= _PYTHON_NUMBERS:
            types = leaf_types(values)
        return _numbers(values, types) if types <= _PYTHON_NUMBERS else None
    except _UNSTACKABLE:
        return None


def _numbers(values: Sequence[Any], types: set[type]) -> Column | None:
    """Python's numbers, or lists of them, as an array that holds them exactly; None if it might not.

    Raises:
        ValueError: lists are of different lengths.
    """
    try:
        array = np.asarray(values)
    except OverflowError:
        return None
    if len(types) < 2:
        return array if array.dtype.kind in "iu" or int not in types else None
    if array.dtype.kind in "biu" or (array.dtype.kind in "fc" and np.abs(array).max() < _EXACT_IN_FLOATS):
        return array
    return None


def _stacked(arrays: Sequence[Column], values: Sequence[Any]) -> Column:
    """The values that these arrays are made of as one array, or the arrays as objects."""
    dtype = common_dtype(arrays) if len({array.shape for array in arrays}) == 1 else None
    if dtype is None:
        pairs = zip(arrays, values, strict=True)
        return _objects([array if array.ndim else value if isinstance(value, _NUMBERS) else array[()] for array, value in pairs])
    if arrays[0].ndim == 0 and dtype.kind in _NUMERIC_KINDS:
        return np.array(arrays, dtype=dtype)  # np.stack would first reshape each number
    if arrays[0].ndim == 0:
        return np.stack(arrays, dtype=dtype)
    shape = arrays[0].shape
    try:
        stacked = np.empty((len(arrays), *shape), dtype=dtype)
    except ValueError:  # numpy has no array of one dimension more, or none so large (of shape (0, 2**60), say)
        return _objects(arrays)
    np.concatenate(arrays, out=stacked.reshape(len(arrays) * shape[0], *shape[1:]))  # np.stack takes three times as long
    return stacked


def _objects(values: Sequence[Any]) -> Column:
    column = np.empty(len(values), dtype=object)
    for position, value in enumerate(values):  # one by one: numpy would unfold values that are sequences
        column[position] = value
    return column


def _structure(sample: Any) -> str:
    if isinstance(sample, Mapping):
        return "keys " + ", ".join(map(repr, sample))
    if isinstance(sample, (tuple, list)):
        return f"{len(sample)} columns"
    return f"a bare {type(sample).__name__}"
