"""The test suite of layers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from data_stack.dataset.iterator import DatasetIteratorIF, SequenceDatasetIterator
from data_stack.loader import Loader
from data_stack.loader.workers import WorkerKind
from data_stack.testing.iterators import DatasetIteratorContract, assert_same
from data_stack.testing.processes import call_in_process


class LayerContract(DatasetIteratorContract):
    """Inherit it in a test class, and define :meth:`make_layer` and :meth:`expect`.

    The layer is tested on arrays, and on an iterator of a third party. Its samples are seven of
    ``(image, label, tag)``: float32 of shape ``(2, 2)``, an int, a str; override the fixture ``samples`` for others.
    """

    def make_layer(self, iterator: DatasetIteratorIF) -> DatasetIteratorIF:
        """The layer on ``iterator``."""
        raise NotImplementedError(f"{type(self).__name__} must define make_layer(iterator)")

    def expect(self, samples: list[Any]) -> list[Any]:
        """The samples of the layer on an iterator with these samples; at least three."""
        raise NotImplementedError(f"{type(self).__name__} must define expect(samples)")

    @pytest.fixture
    def samples(self) -> list[Any]:
        """The samples below the layer: tuples."""
        return [(np.full((2, 2), i, dtype=np.float32), i % 3, "abcdefg"[i]) for i in range(7)]

    @pytest.fixture(params=["columns", "third party"])
    def source(self, request: pytest.FixtureRequest, samples: list[Any]) -> DatasetIteratorIF:
        """The iterator below the layer."""
        return SequenceDatasetIterator([*zip(*samples, strict=True)]) if request.param == "columns" else PlainIterator(samples)

    @pytest.fixture
    def iterator(self, source: DatasetIteratorIF) -> DatasetIteratorIF:
        """The layer."""
        return self.make_layer(source)

    @pytest.fixture
    def expected(self, samples: list[Any]) -> list[Any]:
        """Its samples."""
        return self.expect(samples)

    def test_it_is_stacked_on_its_source_and_leaves_it_as_it_is(
        self, iterator: DatasetIteratorIF, source: DatasetIteratorIF, samples: list[Any]
    ) -> None:
        list(iterator)

        assert any(below is source for below in iterator.underlying_iterators)
        del iterator
        assert_same([source[i] for i in range(len(source))], samples)

    @pytest.mark.filterwarnings("ignore:worker process:RuntimeWarning")  # that it takes long to start, on a busy machine
    @pytest.mark.parametrize("kind", ["threads", "processes"])
    def test_workers_of_a_loader_read_the_same_samples(self, iterator: DatasetIteratorIF, kind: WorkerKind) -> None:
        if kind == "processes" and not self.pickles:
            pytest.skip("pickles is False")

        with Loader(iterator, 2, workers=1, worker_kind=kind, timeout_seconds=60) as batches:
            read = list(batches)

        assert_same(read, list(Loader(iterator, 2, workers=0)))

    def test_its_recipe_is_json_and_its_fingerprint_the_same_in_every_process(self, iterator: DatasetIteratorIF) -> None:
        assert json.loads(json.dumps(iterator.recipe())) == iterator.recipe()
        if self.pickles:
            assert call_in_process(_fingerprint, iterator) == iterator.fingerprint()


class PlainIterator(DatasetIteratorIF):
    """As third parties write them: the three methods of the original DataStack, and no call of ``super().__init__()``."""

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
