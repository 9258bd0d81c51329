"""The test suite of layers, which are dataset iterators on other iterators."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from data_stack.dataset.iterator import DatasetIteratorIF, SequenceDatasetIterator
from data_stack.loader import Loader
from data_stack.loader.workers.base import WorkerKind
from data_stack.testing.comparing import assert_same
from data_stack.testing.dataset_iterator import DatasetIteratorContract
from data_stack.testing.processes import call_in_process


class LayerContract(DatasetIteratorContract):
    """What every layer promises, beside what every iterator does.

    Inherit it in a test class, and define :meth:`make_layer` and :meth:`expect`.

    The layer is tested on arrays, and on an iterator of a third party. Its samples are seven of
    ``(image, label, tag)``: float32 of shape ``(2, 2)``, an int, a str; override the fixture
    ``samples`` for others.
    """

    def make_layer(self, iterator: DatasetIteratorIF) -> DatasetIteratorIF:
        """Return the layer on ``iterator``."""
        raise NotImplementedError(f"{type(self).__name__} must define make_layer(iterator)")

    def expect(self, samples: list[Any]) -> list[Any]:
        """Return the samples that the layer has on an iterator with ``samples``.

        They must be at least three.
        """
        raise NotImplementedError(f"{type(self).__name__} must define expect(samples)")

    @pytest.fixture
    def samples(self) -> list[Any]:
        """Return the samples below the layer: tuples."""
        samples = []
        for number, tag in enumerate("abcdefg"):
            image = np.full((2, 2), number, dtype=np.float32)
            samples.append((image, number % 3, tag))
        return samples

    @pytest.fixture(params=["columns", "third party"])
    def source(self, request: pytest.FixtureRequest, samples: list[Any]) -> DatasetIteratorIF:
        """Return the iterator below the layer."""
        if request.param == "columns":
            columns = list(zip(*samples, strict=True))
            return SequenceDatasetIterator(columns)
        return PlainIterator(samples)

    @pytest.fixture
    def iterator(self, source: DatasetIteratorIF) -> DatasetIteratorIF:
        """Return the layer."""
        return self.make_layer(source)

    @pytest.fixture
    def expected(self, samples: list[Any]) -> list[Any]:
        """Return the samples of the layer."""
        return self.expect(samples)

    def test_it_is_stacked_on_its_source(
        self, iterator: DatasetIteratorIF, source: DatasetIteratorIF
    ) -> None:
        """``underlying_iterators`` has the iterator that the layer was made of."""
        assert any(underlying is source for underlying in iterator.underlying_iterators)

    def test_it_leaves_its_source_as_it_is(
        self, iterator: DatasetIteratorIF, source: DatasetIteratorIF, samples: list[Any]
    ) -> None:
        """Reading the layer changes no sample below it, nor does the end of the layer."""
        list(iterator)
        del iterator

        assert_same([source[position] for position in range(len(source))], samples)

    # On a busy machine, a process warns that it takes long to start.
    @pytest.mark.filterwarnings("ignore:worker process:RuntimeWarning")
    @pytest.mark.parametrize("kind", ["threads", "processes"])
    def test_workers_of_a_loader_read_the_same_samples(
        self, iterator: DatasetIteratorIF, kind: WorkerKind
    ) -> None:
        """Batches of a loader with workers are those of a loader without."""
        if kind == "processes" and not self.pickles:
            pytest.skip("pickles is False")
        expected_batches = list(Loader(iterator, 2, workers=0))

        with Loader(iterator, 2, workers=1, worker_kind=kind, timeout_seconds=60) as loader:
            batches = list(loader)

        assert_same(batches, expected_batches)

    def test_its_recipe_is_json(self, iterator: DatasetIteratorIF) -> None:
        """A recipe says how the layer was made, in values that JSON holds without loss."""
        recipe = iterator.recipe()

        assert json.loads(json.dumps(recipe)) == recipe

    def test_its_fingerprint_is_the_same_in_every_process(
        self, iterator: DatasetIteratorIF
    ) -> None:
        """Another process computes the same fingerprint of a copy."""
        if not self.pickles:
            pytest.skip("pickles is False")

        assert call_in_process(_fingerprint, iterator) == iterator.fingerprint()


class PlainIterator(DatasetIteratorIF):
    """An iterator as third parties write it.

    It has the three methods of the original DataStack, and does not call ``super().__init__()``.
    """

    def __init__(self, samples: Sequence[Any]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        return self.samples[index]

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        return []


def _fingerprint(iterator: DatasetIteratorIF) -> str:
    return iterator.fingerprint()
