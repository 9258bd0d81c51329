"""Samples whose columns lie in sequences: lists, numpy arrays, tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from data_stack.dataset.iterator.access import SampleAccess
from data_stack.dataset.iterator.contract import (
    AccessedDatasetIterator,
    ColumnArray,
    ColumnKey,
    IndexArray,
    Sample,
)
from data_stack.dataset.iterator.layer import layer
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import ConfigError
from data_stack.util.functions import stopped_by
from data_stack.values.stacked_values import as_array, keeps_dtype, stack_values
from data_stack.values.stacking import SampleForm, take_runs


@layer("sequence")
class SequenceDatasetIterator(AccessedDatasetIterator):
    """Sample ``i`` is the tuple of the ``i``-th elements of all sequences.

    Args:
        dataset_sequences: one sequence for each column, all of one length: lists, tuples, numpy
            arrays, torch tensors, h5py datasets, pandas Series (by position, not by label), or
            anything with ``len`` and ``[int]``. They are not copied.

    Raises:
        ConfigError: ``dataset_sequences`` is no list of sequences, or these have different lengths.
    """

    #: The columns: objects whose ``[i]`` is the i-th value.
    _columns: tuple[Any, ...]

    def __init__(self, dataset_sequences: Sequence[Any]) -> None:
        sequences = _list_sequences(dataset_sequences)
        columns = tuple([_index_by_position(sequence) for sequence in sequences])
        if not columns or not all(hasattr(column, "__len__") for column in columns):
            raise ConfigError(
                f"a SequenceDatasetIterator takes columns such as [samples, targets], "
                f"not {dataset_sequences!r:.80}"
            )
        lengths = [len(column) for column in columns]
        if len(set(lengths)) > 1:
            raise ConfigError(
                f"the sequences of a SequenceDatasetIterator must be of one length; "
                f"theirs are {lengths}"
            )
        self._columns = columns
        self._made_with = {"dataset_sequences": sequences}

    if TYPE_CHECKING:  # samples are tuples

        def read_batch(self, indices: IndexArray) -> tuple[ColumnArray, ...]: ...

    def make_access(self) -> SampleAccess:
        return SequenceAccess(self._columns)


def _list_sequences(sequences: Any) -> list[Any]:
    """Return an iterable of sequences as a list; an empty list for anything else.

    Iterables such as ``zip()`` can be read only once.
    """
    is_iterable = hasattr(sequences, "__iter__")
    if not is_iterable or isinstance(sequences, (str, Mapping)):
        return []
    return list(sequences)


def _index_by_position(sequence: Any) -> Any:
    """Return ``sequence`` such that ``[i]`` is its i-th element.

    A pandas Series would look up its labels instead.
    """
    if not hasattr(sequence, "iloc"):
        return sequence
    if sequence.ndim != 1:
        raise ConfigError(
            "a table is not a sequence of values; pass its columns, "
            "or table.to_numpy() for its rows"
        )
    return sequence.array


class SequenceAccess(SampleAccess):
    """Access to columns that are sequences; arrays and tensors are indexed once for a batch.

    Args:
        columns: at least one, all of one length.

    Attributes:
        arrays: the columns.
    """

    #: Tuples with a value of each column.
    _form: SampleForm

    def __init__(self, columns: tuple[Any, ...]) -> None:
        self.arrays = columns
        self.n_samples = len(columns[0])
        self._form = SampleForm.tuples(len(columns))
        # A list of numbers, for one, makes batches of floats and batches of ints.
        self.fixed_columns = all(type(column) is np.ndarray for column in columns)
        self.stacks_samples = self.fixed_columns and all(map(keeps_dtype, columns))

    def sample(self, position: int) -> Sample:
        return tuple([column[position] for column in self.arrays])

    def make_sample_reader(self) -> Callable[[int], Any]:
        if len(self.arrays) != 2:
            return self.sample
        # A closure over both columns takes half the time of the method.
        first, second = self.arrays
        return lambda position: (first[position], second[position])

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        rows = positions.tolist()
        columns: list[list[Any]] = []
        for column in self.arrays:
            columns.append([column[row] for row in rows])
        return list(zip(*columns, strict=True))

    def batch(self, positions: IndexArrayOfInts) -> tuple[ColumnArray, ...]:
        return tuple([_read(column, positions) for column in self.arrays])

    def columns(
        self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None
    ) -> list[ColumnArray]:
        return [_read(array, positions) for array in self._arrays_of(keys)]

    def runs(
        self, starts: IndexArrayOfInts, length: int, keys: Sequence[ColumnKey] | None = None
    ) -> tuple[ColumnArray, ...] | None:
        arrays = self.arrays if keys is None else self._arrays_of(keys)
        columns: list[ColumnArray] = []
        for array in arrays:
            column = _read_runs(array, starts, length)
            if column is None:
                return None
            columns.append(column)
        return tuple(columns)

    def _arrays_of(self, keys: Sequence[ColumnKey]) -> list[Any]:
        arrays: list[Any] = []
        for key in keys:
            # Most keys are plain positions. To find these too would double the time of a small
            # batch.
            if type(key) is int and 0 <= key < len(self.arrays):
                arrays.append(self.arrays[key])
            else:
                arrays.append(self.arrays[self._form.find(key)])
        return arrays


# ---------------------------------------------------------------------- one column


def _read(column: Any, positions: IndexArrayOfInts | None) -> ColumnArray:
    """Read the values of a column at ``positions``; None: all of them."""
    if type(column) is np.ndarray:
        return _take(column, positions)
    if isinstance(column, np.ndarray) or _is_tensor(column):
        array = _as_array(column)
        if array is not None:
            return _take(array, positions)
        return _stack_one_by_one(column, positions)
    if positions is None:
        positions = np.arange(len(column), dtype=np.intp)
    is_run = len(positions) > 0 and bool((np.diff(positions) == 1).all())
    has_slices_of_arrays = hasattr(column, "dtype") and hasattr(column, "shape")
    if is_run and has_slices_of_arrays:
        return _read_slice(column, int(positions[0]), int(positions[-1]) + 1)
    return _stack_one_by_one(column, positions)


def _take(array: ColumnArray, positions: IndexArrayOfInts | None) -> ColumnArray:
    if positions is None:
        return array
    return array.take(positions, axis=0)


def _read_slice(column: Any, start: int, stop: int) -> ColumnArray:
    """Read consecutive values of a dataset of h5py, or of an object like it, by one request."""
    values = column[start:stop]
    if isinstance(values, np.ndarray) and values.dtype != object:
        return values
    return stack_values(list(values))


def _read_runs(column: Any, starts: IndexArrayOfInts, length: int) -> ColumnArray | None:
    """Read runs of consecutive values; None where each value must be read by ``[i]``."""
    if type(column) not in (np.ndarray, np.memmap) and not _is_tensor(column):
        return None
    array = _as_array(column)
    if array is None or array.dtype.hasobject:
        return None
    return take_runs(array, starts, length)


def _is_tensor(column: Any) -> bool:
    return hasattr(column, "detach")


def _as_array(column: Any) -> ColumnArray | None:
    """Return an array or tensor as an array; None for a tensor of a dtype that numpy lacks."""
    try:
        return as_array(column)
    except TypeError:
        return None


def _stack_one_by_one(column: Any, positions: IndexArrayOfInts | None) -> ColumnArray:
    """Stack values that are read one by one.

    Without positions to read, the column has the dtype and shape of the first value.
    """
    rows: Sequence[int] = range(len(column)) if positions is None else positions.tolist()
    rows_to_read = rows
    if not rows and len(column):
        rows_to_read = [0]
    try:
        values = [column[row] for row in rows_to_read]
    except StopIteration as error:
        # The column is of a class of the program.
        raise stopped_by(type(column).__getitem__) from error
    return stack_values(values)[: len(rows)]
