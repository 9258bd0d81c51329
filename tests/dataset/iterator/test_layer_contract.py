"""Every layer keeps the contract of layers, on arrays and on an iterator of a third party."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import neg
from typing import Any

import numpy as np
import pytest

from data_stack.dataset.iterator import DatasetIteratorIF, SequenceDatasetIterator
from data_stack.testing import LayerContract
from data_stack.values.stacking import stack_samples

Samples = list[Any]
Make = Callable[[Any], DatasetIteratorIF]


def brighter(sample: Any) -> Any:
    return {"image": sample[0] + 1, "tag": sample[2]}


def brighter_batch(batch: Any) -> Any:
    return batch[0] + 1, batch[2]


def is_odd(label: Any) -> bool:
    return bool(label % 2)


def document(sample: Any) -> Any:
    return np.full(sample[1] + 1, sample[1])


def packed(documents: Any) -> DatasetIteratorIF:
    iterator: DatasetIteratorIF = documents.pack(4, seed=3, end_token=9, drop_last=False)
    return iterator


def named(samples: Samples, names: str = "abc") -> Samples:
    return [dict(zip(names, sample, strict=True)) for sample in samples]


def drawn(make: Make) -> tuple[Make, Callable[[Samples], Samples]]:
    """A layer that draws positions: which ones, is seen from what it draws from an iterator of
    positions.
    """

    def expect(samples: Samples) -> Samples:
        probe = SequenceDatasetIterator(
            [list(range(len(samples))), [label for _, label, _ in samples]]
        )
        return [samples[sample[0]] for sample in make(probe)]

    return make, expect


LAYERS: dict[str, tuple[Make, Callable[[Samples], Samples]]] = {
    "map": (lambda it: it.map(brighter), lambda samples: list(map(brighter, samples))),
    "batched map": (
        lambda it: it.map(brighter_batch, batched=True),
        lambda samples: [(x + 1, z) for x, _, z in samples],
    ),
    "map of a column": (
        lambda it: it.map(neg, column=1),
        lambda samples: [(x, -y, z) for x, y, z in samples],
    ),
    "select": (lambda it: it.select(-1, 0), lambda samples: [(z, x) for x, _, z in samples]),
    "as_dict": (lambda it: it.as_dict(*"abc"), named),
    "rename": (
        lambda it: it.as_dict(*"abc").rename({"a": "c", "c": "a"}),
        lambda samples: named(samples, "cba"),
    ),
    "as_tuple": (
        lambda it: it.as_dict(*"abc").as_tuple("c", "a"),
        lambda samples: [(z, x) for x, _, z in samples],
    ),
    "zip": (
        lambda it: it.zip(it.skip(0).map(neg, column=1)),
        lambda samples: [(x, y, z, x, -y, z) for x, y, z in samples],
    ),
    "one_hot": (
        lambda it: it.one_hot([0, 1, 2]),
        lambda samples: [(x, np.eye(3, dtype=np.float32)[y], z) for x, y, z in samples],
    ),
    "combine": (lambda it: it.combine(it.take(2)), lambda samples: samples + samples[:2]),
    "interleave": (
        lambda it: it.take(4).interleave(it.skip(4), stop="shortest"),
        lambda samples: [samples[i] for i in (0, 4, 1, 5, 2, 6)],
    ),
    "repeat": (lambda it: it.repeat(2), lambda samples: samples * 2),
    "filter": (
        lambda it: it.repeat(2).filter(is_odd, column=1),
        lambda samples: [s for s in samples if s[1] % 2] * 2,
    ),
    "sort": (
        lambda it: it.sort(1, descending=True),
        lambda samples: sorted(samples, key=lambda s: s[1], reverse=True),
    ),
    "deduplicate": (lambda it: it.deduplicate(1), lambda samples: samples[:3]),
    "shard": (lambda it: it.shard(1, 2), lambda samples: samples[1::2]),
    "in_memory": (lambda it: it.in_memory(), list),
    "cache": (lambda it: it.cache(), list),
    "bounded cache": (lambda it: it.cache(300), list),
    "batch": (
        lambda it: it.batch(3),
        lambda samples: [stack_samples(samples[i : i + 3]) for i in (0, 3, 6)],
    ),
    "windows": (
        lambda it: it.windows(3),
        lambda samples: [stack_samples(samples[i : i + 3]) for i in range(5)],
    ),
    "windows with offsets": (
        lambda it: it.as_dict(*"abc").windows(3, offsets={-1: ["c", "a"], 1: None}),
        lambda samples: [
            {-1: {"c": before["c"], "a": before["a"]}, 1: after}
            for before, after in zip(named(samples), named(samples)[2:], strict=False)
        ],
    ),
    "pack": (
        lambda it: packed(it.map(document)),
        lambda samples: list(packed(SequenceDatasetIterator([list(map(document, samples))]))),
    ),
    "shuffle": drawn(lambda it: it.shuffle(seed=1)),
    "mix": drawn(lambda it: it.mix(it.take(2), proportions=[2, 1], seed=1, n_samples=9)),
    "resample": drawn(lambda it: it.resample(9, seed=1)),
    "balance": drawn(lambda it: it.balance(seed=1, by=1, n_samples=9)),
}


class TestLayers(LayerContract):
    @pytest.fixture(params=LAYERS)
    def layer(self, request: pytest.FixtureRequest) -> Any:
        return LAYERS[request.param]

    @pytest.fixture
    def iterator(self, source: DatasetIteratorIF, layer: Any) -> DatasetIteratorIF:
        iterator: DatasetIteratorIF = layer[0](source)
        return iterator

    @pytest.fixture
    def expected(self, samples: Samples, layer: Any) -> Samples:
        expected: Samples = layer[1](samples)
        return expected

    def test_it_is_stacked_on_its_source(
        self, iterator: DatasetIteratorIF, source: DatasetIteratorIF
    ) -> None:
        """Some of these are stacks of several layers, whose lowest one has the source."""
        assert any(iterator_ is source for iterator_ in iterators_below(iterator))


def iterators_below(iterator: DatasetIteratorIF) -> Iterator[DatasetIteratorIF]:
    """Yield the iterators that a stack of layers is made of, at any depth."""
    for underlying in iterator.underlying_iterators:
        yield underlying
        yield from iterators_below(underlying)
