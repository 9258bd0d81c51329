"""A function of each sample of an iterator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.iterator import (
    Batch,
    Column,
    ColumnKey,
    DatasetIterator,
    DatasetIteratorIF,
    IndexArray,
    IndexArrayOfInts,
    Sample,
    adapted,
    batch_at,
    checked_indices,
    checked_integer,
)
from data_stack.dataset.iterator.stacking import as_array, column_of, emptied, join_columns, stack_samples, stack_values, value_of
from data_stack.dataset.iterator.view import sample_or_view
from data_stack.dataset.randomness.seeds import derived_generator, derived_seed
from data_stack.exception import ConfigError

__all__ = ["MappedDatasetIterator"]

# So many samples at once are read and mapped for a column: enough to make batches worth it, few enough to be held.
_SAMPLES_AT_ONCE = 1024
# Iterating over a batched map reads ahead up to so many samples, fewer in the beginning: who takes one sample waits for one.
_MOST_READ_AHEAD = 256


class MappedDatasetIterator(DatasetIterator):
    """Sample ``i`` is ``function`` of sample ``i`` below, called whenever the sample is read; nothing is kept.

    The function may give anything that is a sample: a tuple, a dict, a bare value. It must not change in place what it is
    given, which may be the memory of the dataset. What it raises comes through unchanged. To reach a worker process by
    pickling it must be a function or method that pickle finds by its name, so no lambda.

    A batched function takes and gives columns: what ``read_batch`` gives, so that its cost is shared by many samples::

        iterator.map(lambda batch: (batch[0] / np.float32(255), batch[1]), batched=True)

    It must treat each row by itself, for rows come in batches of any size: ``iterator[i]`` is row 0 of the function of a
    batch of one, so a number in it is a numpy scalar. It is never called with an empty batch. It gives a tuple or dict of
    columns, or one column of bare values; a column is an array, a tensor or a list with one element for each row.

    A random function asks for a ``seed``. As its second argument it then gets a ``numpy.random.Generator`` made for
    this sample, or if ``batched`` a list of them, one for each row. Each depends on seed, epoch and the sample's position in
    this iterator alone: a sample is the same in whatever order, batch, worker or process it is read, and another in
    each epoch. (A generator takes 25 µs to make.)

    An empty request for columns calls the function for sample 0, to know what columns there are; an empty iterator has none.

    The meta stays as it is, with the names of columns as long as the function gives as many of them: where the function changes
    what the target is, or where, say so with an ``InformedDatasetIterator`` around this one.

    Args:
        dataset_iterator: the samples; it stays the caller's to close.
        function: ``(sample) -> sample``, or with ``batched`` ``(batch) -> batch``; with ``seed`` of two arguments.
        batched: which of the two.
        seed: an int for a random function, otherwise None.
        epoch: an int; without a seed it has no meaning.

    Raises:
        ConfigError: ``function`` cannot be called, or ``seed`` or ``epoch`` is no integer. When reading: a batched function
            gave no columns, or columns of another length than its batch.
    """

    _layer_name = "mapped"

    def __init__(
        self,
        dataset_iterator: DatasetIteratorIF,
        function: Callable[..., Any],
        *,
        batched: bool = False,
        seed: int | None = None,
        epoch: int = 0,
    ) -> None:
        if not callable(function):
            raise ConfigError(f"a map needs a function of a sample, got {function!r}")
        self._dataset_iterator, self._function, self._batched = dataset_iterator, function, bool(batched)
        self._seed = None if seed is None else checked_integer("seed", seed)
        self._epoch = checked_integer("epoch", epoch)
        self._prepare()

    def _prepare(self) -> None:
        self._source = adapted(self._dataset_iterator)
        self._read = self._source._unchecked_reader()
        self._mixed_seed = None if self._seed is None else derived_seed("mapped", self._seed, self._epoch)

    def __getstate__(self) -> dict[str, Any]:
        derived = ("_source", "_read", "_mixed_seed")
        return {name: value for name, value in self.__dict__.items() if name not in derived}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: Any) -> Any:
        """The function of a sample for an int; a view for a slice or an index array."""
        if type(index) is int and 0 <= index < len(self._source):
            return self._mapped(index)
        return sample_or_view(self, index)

    def __iter__(self) -> Iterator[Sample]:
        if self._batched:
            n_samples, start, n_ahead = len(self), 0, 1
            while start < n_samples:
                stop = min(start + n_ahead, n_samples)
                yield from _rows(self._mapped_batch(np.arange(start, stop, dtype=np.intp)))
                start, n_ahead = stop, min(2 * n_ahead, _MOST_READ_AHEAD)
        elif self._mixed_seed is None:
            for sample in self._source:
                yield self._function(sample)
        else:
            for position, sample in enumerate(self._source):
                yield self._function(sample, derived_generator(self._mixed_seed, position))

    def __getitems__(self, indices: IndexArray) -> list[Sample]:
        """The functions of the samples at ``indices``, which are read in one request."""
        positions = checked_indices(indices, len(self))
        if not self._batched:
            return self._mapped_samples(positions)
        return _rows(self._mapped_batch(positions)) if len(positions) else []

    def read_batch(self, indices: IndexArray) -> Batch:
        """The functions of the samples at ``indices`` as columns; one request for the samples."""
        return self._batch_at(checked_indices(indices, len(self)))

    def read_column(self, key: ColumnKey, indices: IndexArray | None = None) -> Column:
        """One column of what the function gives, called for these samples only."""
        return self._column_at(key, None if indices is None else checked_indices(indices, len(self)))

    def _unchecked_reader(self) -> Callable[[int], Sample]:
        if self._batched or self._mixed_seed is not None:
            return self._mapped
        read, function = self._read, self._function
        return lambda index: function(read(index))

    def _batch_at(self, positions: IndexArrayOfInts) -> Batch:
        if len(positions) == 0:
            return emptied(self._batch_at(np.zeros(1, dtype=np.intp))) if len(self) else ()
        return self._mapped_batch(positions) if self._batched else stack_samples(self._mapped_samples(positions))

    def _column_at(self, key: ColumnKey, positions: IndexArrayOfInts | None) -> Column:
        return self._columns_at([key], positions)[0]

    def _columns_at(self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None) -> list[Column]:
        n_positions = len(self) if positions is None else len(positions)
        if n_positions == 0:
            at_first = np.zeros(1, dtype=np.intp)
            return [column[:0] for column in self._columns_at(keys, at_first)] if len(self) else [np.empty(0) for _ in keys]
        blocks = []
        for start in range(0, n_positions, _SAMPLES_AT_ONCE):
            stop = min(start + _SAMPLES_AT_ONCE, n_positions)
            wanted = np.arange(start, stop, dtype=np.intp) if positions is None else positions[start:stop]
            blocks.append(self._mapped_columns(keys, wanted))
        return [join_columns(pieces) for pieces in zip(*blocks, strict=True)]

    def _mapped_columns(self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts) -> list[Column]:
        if self._batched:
            batch = self._mapped_batch(positions)
            if not isinstance(batch, np.ndarray):
                return [column_of(batch, key) for key in keys]
            samples = _rows(batch)
        else:
            samples = self._mapped_samples(positions)
        return [stack_values([value_of(sample, key) for sample in samples]) for key in keys]

    def _mapped(self, position: int) -> Sample:
        if self._batched:
            return _rows(self._mapped_batch(np.array([position], dtype=np.intp)))[0]
        if self._mixed_seed is None:
            return self._function(self._read(position))
        return self._function(self._read(position), derived_generator(self._mixed_seed, position))

    def _mapped_samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        places = positions.tolist()
        samples = self._source.__getitems__(places) if places else []
        function, mixed_seed = self._function, self._mixed_seed
        if mixed_seed is None:
            return [function(sample) for sample in samples]
        return [function(sample, derived_generator(mixed_seed, at)) for at, sample in zip(places, samples, strict=True)]

    def _mapped_batch(self, positions: IndexArrayOfInts) -> Batch:
        batch = batch_at(self._source, positions)
        if self._mixed_seed is None:
            mapped = self._function(batch)
        else:
            mapped = self._function(batch, [derived_generator(self._mixed_seed, at) for at in positions.tolist()])
        return self._checked(mapped, len(positions))

    def _checked(self, mapped: Any, n_rows: int) -> Batch:
        """What a batched function gave as a batch of ``n_rows``."""
        if isinstance(mapped, Mapping):
            columns = {key: self._checked_column(column, n_rows, f" in column {key!r}") for key, column in mapped.items()}
            if columns:
                return columns
        elif isinstance(mapped, tuple):
            if mapped:
                return tuple([self._checked_column(column, n_rows, f" in column {i}") for i, column in enumerate(mapped)])
        else:
            return self._checked_column(mapped, n_rows, "")
        raise ConfigError(f"a batched map gave no columns for a batch of {n_rows} samples: its function is {self._function!r}")

    def _checked_column(self, values: Any, n_rows: int, where: str) -> Column:
        column = _as_column(values)
        if column is None:
            raise ConfigError(
                f"a batched map gave a {type(values).__name__}{where}; expected an array, tensor or list of {n_rows} values, "
                f"one for each sample of the batch: its function is {self._function!r}"
            )
        if len(column) != n_rows:
            hint = " (a list is one column, several columns are a tuple)" if isinstance(values, list) and not where else ""
            raise ConfigError(
                f"a batched map gave {len(column)} values{where}; expected {n_rows}, one for each sample of the batch"
                f"{hint}: its function is {self._function!r}"
            )
        return column

    def _arguments(self) -> dict[str, Any]:
        arguments: dict[str, Any] = {"function": self._function, "batched": self._batched}
        if self._seed is not None:  # without one it is the same in each epoch
            arguments |= {"seed": self._seed, "epoch": self._epoch}
        return arguments

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        """The iterator whose samples are mapped."""
        return [self._dataset_iterator]


def _rows(batch: Batch) -> list[Sample]:
    """The samples of a batch; numbers as numpy scalars, arrays as views of their column."""
    if isinstance(batch, dict):
        return [dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True)]
    if isinstance(batch, tuple):
        return list(zip(*batch, strict=True))
    return list(batch)


def _as_column(values: Any) -> Column | None:
    """Values as :func:`stack_values` would stack them one by one; None if they are no sequence of values."""
    if isinstance(values, (str, bytes, Mapping)):
        return None
    if hasattr(values, "__array__"):
        try:
            array: npt.NDArray[Any] = as_array(values)
        except TypeError:  # a tensor of a dtype that numpy lacks
            return stack_values(list(values))
        if array.ndim == 0:
            return None
        # of these kinds single values are Python objects, and objects may be numbers
        return stack_values(array.tolist()) if array.ndim == 1 and array.dtype.kind in "OSU" else array
    return stack_values(list(values)) if isinstance(values, (Sequence, range)) else None
