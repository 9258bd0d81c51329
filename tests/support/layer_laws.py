"""What the tests of several layers share: random iterators, and the law that all ways to their
samples agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from data_stack.dataset.iterator import DatasetIterator, DatasetIteratorIF, SequenceDatasetIterator
from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.values.stacking import empty_like, stack_samples


class Samples(DatasetIterator):
    """As a client writes a source: no more than it must define, and plain positions in range only;
    notes which it reads.
    """

    def __init__(self, samples: Sequence[Any]) -> None:
        self.samples = samples
        self.read: list[int] = []

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        assert type(index) is int
        assert 0 <= index < len(self.samples)
        self.read.append(index)
        return self.samples[index]

    @property
    def n_read(self) -> int:
        """How many samples were read."""
        return len(self.read)


class Columns(SequenceDatasetIterator):
    """Counts what is read of its columns; whole samples it does not give."""

    def __init__(self, *columns: Any) -> None:
        super().__init__(columns)
        self.requests: list[tuple[Any, int]] = []

    def __getitem__(self, index: Any) -> Any:
        raise AssertionError("a whole sample was read")

    def read_column(self, key: Any, indices: Any = None) -> Any:
        self.requests.append((key, len(self) if indices is None else len(indices)))
        return super().read_column(key, indices)


class ClientWrapper(DatasetIteratorIF):
    """As mlgym's PostProcessedDatasetIterator."""

    def __init__(self, dataset_iterator: DatasetIteratorIF) -> None:
        self._dataset_iterator = dataset_iterator

    def __len__(self) -> int:
        return len(self._dataset_iterator)

    def __getitem__(self, index: int) -> Any:
        return self._dataset_iterator[index]

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        return [self._dataset_iterator]


def object_column(*values: Any) -> Any:
    """An object column of these very values."""
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def as_plain(value: Any) -> Any:
    """Without numpy, so that ``==`` compares content."""
    if isinstance(value, (np.ndarray, np.generic)):
        return as_plain(value.tolist()) if value.dtype == object else value.tolist()
    if isinstance(value, Mapping):
        return {key: as_plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [as_plain(item) for item in value]
    return value


def exact(value: Any) -> Any:
    """What compares equal only for values of the same types all through; also tensors have a
    dtype.
    """
    if isinstance(value, dict):
        return type(value), [(exact(key), exact(item)) for key, item in value.items()]
    if isinstance(value, (tuple, list)):
        return type(value), [exact(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return type(value), sorted(map(repr, value))
    if hasattr(value, "dtype"):
        items = (
            [exact(item) for item in value.ravel().tolist()]
            if value.dtype == object
            else repr(value.tolist())
        )
        return type(value), value.dtype, tuple(value.shape), items
    return type(value), repr(value)


def form(batch: Any) -> Any:
    """Structure, dtypes and shapes of a batch; of an empty one, whose ragged values have the shape
    of any, dimensions.
    """
    if isinstance(batch, dict):
        return {key: form(column) for key, column in batch.items()}
    if isinstance(batch, tuple):
        return tuple(form(column) for column in batch)
    return batch.dtype, batch.shape if len(batch) else batch.ndim


def types_of_columns(batch: Any) -> Any:
    """Structure, dtypes and shapes of a value of each column, in their order."""
    if isinstance(batch, dict):
        return [(key, types_of_columns(column)) for key, column in batch.items()]
    if isinstance(batch, tuple):
        return tuple(types_of_columns(column) for column in batch)
    return batch.dtype, batch.shape[1:]


def check_all_ways_agree(
    iterator: DatasetIteratorIF, expected: list[Any], data: st.DataObject
) -> None:
    n = len(expected)
    assert len(iterator) == n
    assert (
        as_plain([iterator[i] for i in range(n)]) == as_plain(list(iterator)) == as_plain(expected)
    )
    indices = data.draw(st.lists(st.integers(-n, n - 1), max_size=8)) if n else []
    mask = data.draw(st.lists(st.booleans(), min_size=n, max_size=n))
    given: list[Any] = [
        indices,
        np.array(indices, dtype=np.int8),
        slice(None, None, -2),
        np.array(mask, dtype=bool),
        range(n),
    ]
    for index in given:
        wanted = [
            expected[i]
            for i in np.arange(n)[np.asarray(index, dtype=np.intp) if index is indices else index]
        ]
        assert as_plain(iterator.__getitems__(index)) == as_plain(wanted)
        stacked = (
            stack_samples(wanted) if wanted or not n else empty_like(stack_samples(expected[:1]))
        )
        batch = iterator.read_batch(index)
        if access_to(iterator).fixed_columns:
            assert types_of_columns(batch) == types_of_columns(iterator.read_batch([]))
        if n == 0:  # there may be columns, but nothing is in them
            assert not any(map(len, batch.values() if isinstance(batch, dict) else batch))
            continue
        assert (as_plain(batch), form(batch)) == (as_plain(stacked), form(stacked))
        columns = (
            range(len(stacked))
            if isinstance(stacked, tuple)
            else stacked
            if isinstance(stacked, dict)
            else []
        )
        for key in columns:
            column = iterator.read_column(key, index)
            assert (as_plain(column), form(column)) == (as_plain(stacked[key]), form(stacked[key]))  # type: ignore[index]
    for key in (
        [*expected[0]]
        if n and isinstance(expected[0], dict)
        else range(len(expected[0]))
        if n
        else []
    ):
        assert as_plain(iterator.read_column(key)) == as_plain([sample[key] for sample in expected])
