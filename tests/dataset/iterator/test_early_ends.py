"""What a function raises is an error of the function, never the end of the samples."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_stack import (
    DatasetIteratorView,
    InMemoryDatasetIterator,
    Loader,
    SequenceDatasetIterator,
)
from data_stack.dataset.iterator import AccessedDatasetIterator, DatasetIterator, SampleAccess
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.exception import ConfigError, EarlyEndError
from data_stack.formats.conversion.conversion import convert
from data_stack.util.functions import iterate_all

N_SAMPLES = 10
FAILING = 3


class FailsAt:
    """A function that raises for one value, for values, samples, columns and batches, with or
    without a generator.
    """

    def __init__(self, error: type[Exception]) -> None:
        self._error = error

    def __call__(self, given: Any, generator: Any = None) -> Any:
        if FAILING in np.ravel(given[0] if isinstance(given, tuple) else given).tolist():
            raise self._error
        return given


class FailingSamples(DatasetIterator):
    """A client's class whose samples fail."""

    def __init__(self, error: type[Exception]) -> None:
        self._function = FailsAt(error)

    def __len__(self) -> int:
        return N_SAMPLES

    def __getitem__(self, index: Any) -> Any:
        return self._function((index,))


class FailingBatches(FailingSamples):
    """A client's class that reads batches and columns by itself."""

    def __getitems__(self, indices: Any) -> Any:
        return [self._function((index,)) for index in indices]

    def read_batch(self, indices: Any) -> Any:
        return self._function((np.asarray(indices),))

    def read_column(self, key: Any, indices: Any = None) -> Any:
        return self._function(np.arange(N_SAMPLES) if indices is None else np.asarray(indices))


class FailingSequence:
    """A list of another library."""

    def __init__(self, error: type[Exception]) -> None:
        self._function = FailsAt(error)

    def __len__(self) -> int:
        return N_SAMPLES

    def __getitem__(self, index: int) -> Any:
        return self._function(index)


class FailingEncoder:
    """A transformer of another library."""

    def __init__(self, error: type[Exception]) -> None:
        self._function = FailsAt(error)

    def fit(self, values: Any) -> FailingEncoder:
        return self

    def transform(self, values: Any) -> Any:
        return self._function(values)


class FailingAccess(SampleAccess):
    """A client's access."""

    n_samples = N_SAMPLES

    def __init__(self, error: type[Exception]) -> None:
        self._function = FailsAt(error)

    def sample(self, position: int) -> Any:
        return self._function((position,))


class FailingAccessed(AccessedDatasetIterator):
    """A client's class with such an access."""

    def __init__(self, error: type[Exception]) -> None:
        self._error = error

    def make_access(self) -> SampleAccess:
        return FailingAccess(self._error)


def numbers() -> Any:
    return SequenceDatasetIterator([list(range(N_SAMPLES))])


STACKS: dict[str, Callable[[type[Exception]], Any]] = {
    "map": lambda error: numbers().map(FailsAt(error)),
    "map of a column": lambda error: numbers().map(FailsAt(error), column=0),
    "seeded map": lambda error: numbers().map(FailsAt(error), seed=1),
    "seeded map of a column": lambda error: numbers().map(FailsAt(error), column=0, seed=1),
    "batched map": lambda error: numbers().map(FailsAt(error), batched=True),
    "batched map of a column": lambda error: numbers().map(FailsAt(error), column=0, batched=True),
    "map of a map": lambda error: numbers().map(FailsAt(error)).map(lambda sample: sample),
    "shuffled map": lambda error: numbers().map(FailsAt(error)).shuffle(seed=1),
    "cached map": lambda error: numbers().map(FailsAt(error)).cache(),
    "combined map": lambda error: numbers().map(FailsAt(error)).combine(numbers()),
    "zipped map": lambda error: numbers().map(FailsAt(error)).zip(numbers()),
    "selected map": lambda error: numbers().map(FailsAt(error)).select(0),
    "client's class": FailingSamples,
    "client's batches": FailingBatches,
    "client's access": FailingAccessed,
    "client's sequence": lambda error: as_iterator(FailingSequence(error)).map(
        lambda value: (value,)
    ),
    "client's column": lambda error: SequenceDatasetIterator([FailingSequence(error)]),
}

READERS: dict[str, Callable[[Any], Any]] = {
    "for": lambda iterator: [sample for sample in iterator],  # noqa: C416  # the loop itself
    "reversed": lambda iterator: list(reversed(iterator)),
    "in": lambda iterator: (N_SAMPLES,) in iterator,
    "index": lambda iterator: operator.indexOf(iterator, (N_SAMPLES,)),
    "zip": lambda iterator: list(zip(*iterator, strict=True)),
    "positions": lambda iterator: list(map(as_view(iterator).__getitem__, range(N_SAMPLES))),
    "samples": lambda iterator: list(iter_lists(as_view(iterator).__getitems__)),
    "batches": lambda iterator: list(iter_lists(as_view(iterator).read_batch)),
    "columns": lambda iterator: list(map(as_view(iterator).read_column, [0])),
    "in_memory": lambda iterator: len(iterator.in_memory()),
    "sort": lambda iterator: len(iterator.sort(0)),
    "filter": lambda iterator: len(iterator.filter(lambda value: True, column=0)),
    "filter of samples": lambda iterator: len(iterator.filter(lambda sample: True)),
    "deduplicate": lambda iterator: len(iterator.deduplicate()),
    "to_pandas": lambda iterator: len(iterator.to_pandas()),
    "to_arrow": lambda iterator: iterator.to_arrow().num_rows,
    "loader": lambda iterator: list(Loader(iterator, 4, worker_kind="inline")),
    "loader of threads": lambda iterator: list(Loader(iterator, 4, worker_kind="threads")),
    "loader with collate": lambda iterator: list(
        Loader(iterator, 4, worker_kind="inline", collate=list)
    ),
}


def as_view(iterator: Any) -> Any:
    """The samples through a layer: what a client's class itself raises is not ours."""
    return DatasetIteratorView(iterator, range(N_SAMPLES))


def iter_lists(read: Callable[[Any], Any]) -> Iterator[Any]:
    return map(read, [range(5), range(5, N_SAMPLES)])


@pytest.mark.parametrize("error", [StopIteration, IndexError])
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("stack", STACKS)
def test_an_error_of_a_function_never_ends_the_samples(
    stack: str, reader: str, error: type[Exception]
) -> None:
    iterator = STACKS[stack](error)

    with pytest.raises((RuntimeError, IndexError)):
        READERS[reader](iterator)


@pytest.mark.parametrize("stack", STACKS)
def test_a_sample_that_stops_is_an_early_end(stack: str) -> None:
    iterator = as_view(STACKS[stack](StopIteration))

    with pytest.raises(EarlyEndError, match="raised StopIteration"):
        [iterator[index] for index in range(N_SAMPLES)]


@pytest.mark.parametrize("error", [StopIteration, IndexError])
def test_an_encoder_that_stops_is_an_error(error: type[Exception]) -> None:
    encoded = numbers().encode({0: FailingEncoder(error)}, fit_on=numbers()[:FAILING])

    with pytest.raises((ConfigError, EarlyEndError), match="transform"):
        list(encoded)
    with pytest.raises((ConfigError, EarlyEndError), match="transform"):
        list(iter_lists(encoded.__getitems__))


@pytest.mark.parametrize("column", [None, 0])
@pytest.mark.parametrize("batched", [False, True])
def test_a_predicate_that_stops_is_an_early_end(column: int | None, batched: bool) -> None:
    fails = FailsAt(StopIteration)

    def predicate(given: Any) -> Any:
        fails(given)
        return np.ones(len(given[0] if column is None else given), bool) if batched else True

    with pytest.raises(EarlyEndError, match="predicate"):
        numbers().filter(predicate, column=column, batched=batched)


@pytest.mark.parametrize("target_format", ["records", "parquet", "webdataset", "npz"])
def test_conversion_blames_the_function_that_stops(tmp_path: Path, target_format: str) -> None:
    source = numbers().map(FailsAt(StopIteration)).as_dict("number")

    with pytest.raises(EarlyEndError, match="FailsAt"):
        convert(source, tmp_path / "target", target_format=target_format, progress=False)

    assert not (tmp_path / "target").exists()


def test_a_stored_cache_of_a_stopping_function_fails(tmp_path: Path) -> None:
    cached = numbers().map(FailsAt(StopIteration)).cache(storage=tmp_path, version="1")

    with pytest.raises(EarlyEndError):
        cached.fill()


class Short(DatasetIterator):
    """A client's class whose iteration ends before its length."""

    def __len__(self) -> int:
        return N_SAMPLES

    def __getitem__(self, index: Any) -> Any:
        return (index,)

    def __iter__(self) -> Iterator[Any]:
        return iter([(0,), (1,)])


def test_an_iteration_shorter_than_its_length_is_an_error() -> None:
    with pytest.raises(EarlyEndError, match="yielded 2 samples, but its length is 10"):
        list(Short().map(lambda sample: sample))
    with pytest.raises(EarlyEndError):
        Short().in_memory()


def test_a_short_sequence_is_not_read_into_memory() -> None:
    with pytest.raises(EarlyEndError):
        InMemoryDatasetIterator(FailingSequence(IndexError))  # type: ignore[arg-type]


def test_exactly_the_samples_of_the_length_are_read() -> None:
    samples = iter(range(N_SAMPLES))

    assert list(iterate_all(samples, 0)) == []
    assert list(iterate_all(samples, 4)) == [0, 1, 2, 3]
    assert next(samples) == 4


def test_reversed_yields_the_samples_from_the_last() -> None:
    assert list(reversed(numbers())) == [(value,) for value in reversed(range(N_SAMPLES))]
    assert list(reversed(numbers()[:0])) == []
