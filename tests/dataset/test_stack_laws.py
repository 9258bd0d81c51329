"""Laws of the whole stack: ten random layers give what the same computed with plain Python lists gives."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from layer_laws import Samples as ClientSamples
from layer_laws import check_all_ways_agree

import data_stack
from data_stack.dataset.iterator import (
    ColumnKey,
    DatasetIteratorIF,
    DatasetIteratorView,
    InformedDatasetIterator,
    SequenceDatasetIterator,
)
from data_stack.dataset.meta import DatasetMeta, IteratorMeta

Samples = list[Any]
Stack = tuple[DatasetIteratorIF, Samples]
Make = Callable[[Any, Any], DatasetIteratorIF]
Layer = tuple[Make, Callable[[Samples, Any], Samples]]

_MAX_SAMPLES = 120


# ---------------------------------------------------------------------- sources, and the same as a list


@st.composite
def _sources(draw: st.DrawFn) -> Stack:
    n_samples = draw(st.integers(0, 25))
    ids = list(range(n_samples))
    labels = draw(st.lists(st.integers(0, 4), min_size=n_samples, max_size=n_samples))
    pictures = [np.full((2, 2), position, dtype=np.uint8) for position in ids]
    texts = [f"text {position % 5}" for position in ids]
    kind = draw(st.sampled_from(["lists", "arrays", "dicts"]))
    if kind == "dicts":
        fields = [
            {"id": i, "label": c, "picture": p, "text": t}
            for i, c, p, t in zip(ids, labels, pictures, texts, strict=True)
        ]
        return DatasetIteratorView(
            ClientSamples(fields), range(n_samples)
        ), fields  # a view, for it takes all kinds of indices
    if kind == "lists":
        columns: list[Any] = [ids, labels, pictures, texts]
    else:
        shape = (n_samples, 2, 2)
        columns = [
            np.asarray(ids, dtype=np.int32),
            np.asarray(labels, dtype=np.int64),
            np.zeros(shape) + 1.5,
            texts,
        ]
    return SequenceDatasetIterator(columns), list(zip(*columns, strict=True))


# ---------------------------------------------------------------------- layers, and the same of a list


def _is_even(sample: Any) -> bool:
    return bool(sample["id" if isinstance(sample, dict) else 0] % 2 == 0)


def _are_small(labels: Any) -> Any:
    return labels < 3


def _relabelled(sample: Any) -> Any:
    if isinstance(sample, dict):
        return {**sample, "label": sample["label"] + 1}
    return (*sample[:1], sample[1] + 1, *sample[2:])


def _interleaved(samples: Samples, label: ColumnKey) -> Samples:
    half = len(samples) // 2
    turns = [
        sample for pair in zip(samples[:half], samples[half:], strict=False) for sample in pair
    ]
    return turns + samples[2 * half :]


def _small(samples: Samples, label: Any) -> Samples:
    return [sample for sample in samples if sample[label] < 3]


def _informed(iterator: Any, label: Any) -> DatasetIteratorIF:
    return InformedDatasetIterator(
        iterator, DatasetMeta(IteratorMeta(label, label, label), "id", "name", "tag")
    )


def _names(samples: Samples) -> list[str]:
    return ["id", "label", *(f"field {number}" for number in range(2, len(samples[0])))]


def _drawn(make: Make) -> Layer:
    """A layer that draws positions: which ones, is seen from what it draws from an iterator of positions."""

    def expect(samples: Samples, label: Any) -> Samples:
        probe = SequenceDatasetIterator(
            [list(range(len(samples))), [sample[label] for sample in samples]]
        )
        return [samples[position] for position, _ in make(probe, 1)]

    return make, expect


#: Each is given the column of the labels, too.
OF_ANY: list[Layer] = [
    (lambda it, label: it.repeat(0), lambda samples, label: []),
    (lambda it, label: it.repeat(2), lambda samples, label: samples * 2),
    (
        lambda it, label: it.combine(it[::-1], it[:0], it[:3]),
        lambda samples, label: samples + samples[::-1] + samples[:3],
    ),
    (lambda it, label: it[: len(it) // 2].interleave(it[len(it) // 2 :]), _interleaved),
    (lambda it, label: it.filter(_is_even), lambda samples, label: list(filter(_is_even, samples))),
    (lambda it, label: it.map(_relabelled), lambda samples, label: list(map(_relabelled, samples))),
    (lambda it, label: it.shard(1, 3), lambda samples, label: samples[1::3]),
    (
        lambda it, label: it.shard(0, 2, contiguous=True),
        lambda samples, label: samples[: -(-len(samples) // 2)],
    ),
    (lambda it, label: it.in_memory(), lambda samples, label: samples),
    (lambda it, label: it.cache(), lambda samples, label: samples),
    (lambda it, label: it.cache(2000), lambda samples, label: samples),
    (_informed, lambda samples, label: samples),
]
OF_SOME: list[Layer] = [
    (lambda it, label: it.filter(_are_small, column=label), _small),
    (lambda it, label: it.filter(_are_small, column=label, batched=True), _small),
    (
        lambda it, label: it.sort(label),
        lambda samples, label: sorted(samples, key=itemgetter(label)),
    ),
    # sorted() with reverse=True keeps equal ones in their old order, as ours does
    (
        lambda it, label: it.sort(label, descending=True),
        lambda samples, label: sorted(samples, key=itemgetter(label), reverse=True),
    ),
    _drawn(lambda it, label: it.shuffle(5)),
    _drawn(lambda it, label: it.mix(it[:1], proportions=[2, 1], seed=3, n_samples=20)),
]
OF_TUPLES: list[Layer] = [
    (
        lambda it, label: it.select(0, 1, -1, 2),
        lambda samples, label: [(*each[:2], each[-1], each[2]) for each in samples],
    ),
    (
        lambda it, label: it.as_dict(*_names(it)),
        lambda samples, label: [
            dict(zip(_names(samples), sample, strict=True)) for sample in samples
        ],
    ),
    (
        lambda it, label: it.zip(it[::-1]),
        lambda samples, label: [a + b for a, b in zip(samples, samples[::-1], strict=True)],
    ),
]


@st.composite
def _stacks(draw: st.DrawFn) -> Stack:
    iterator, samples = draw(_sources())
    for _ in range(draw(st.integers(0, 10))):
        n = len(samples)
        is_dict = n > 0 and isinstance(samples[0], dict)
        label: ColumnKey = "label" if is_dict else 1
        if draw(st.booleans()):
            bounds = st.none() | st.integers(-30, 30)
            positions = st.lists(st.integers(-n, n - 1), max_size=40) if n else st.just([])
            index = draw(
                st.builds(slice, bounds, bounds, st.sampled_from([None, 1, 2, -1, -3])) | positions
            )
            chosen = np.arange(n)[np.asarray(index, int) if isinstance(index, list) else index]
            iterator, samples = iterator[index], [samples[position] for position in chosen]
            continue
        layers = [
            *OF_ANY,
            *(OF_SOME if n else []),
            *(OF_TUPLES if n and not is_dict and len(samples[0]) <= 8 else []),
        ]
        make, expect = draw(st.sampled_from(layers))
        expected = expect(samples, label)
        if len(expected) <= _MAX_SAMPLES:
            iterator, samples = make(iterator, label), expected
    return iterator, samples


_thoroughly = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@_thoroughly
@given(stack=_stacks(), data=st.data())
def test_a_stack_gives_what_the_same_gives_with_lists(stack: Stack, data: st.DataObject) -> None:
    check_all_ways_agree(*stack, data)


def _leaves(iterator: DatasetIteratorIF) -> Iterator[DatasetIteratorIF]:
    if isinstance(iterator, ClientSamples):
        yield iterator
    for below in iterator._iterators_below():
        yield from _leaves(below)


_FUNCTIONS = {
    f"{function.__module__}:{function.__qualname__}": function
    for function in (_is_even, _are_small, _relabelled)
}


@_thoroughly
@given(stack=_stacks(), data=st.data())
def test_a_stack_that_was_rebuilt_from_its_recipe_or_pickled_is_the_same(
    stack: Stack, data: st.DataObject
) -> None:
    iterator, samples = stack
    recipe = json.loads(json.dumps(iterator.recipe()))

    rebuilt = data_stack.from_recipe(
        recipe, sources=list(_leaves(iterator))[:1], functions=_FUNCTIONS
    )

    assert rebuilt.recipe() == recipe
    for copy in (rebuilt, pickle.loads(pickle.dumps(iterator))):
        check_all_ways_agree(copy, samples, data)
        assert copy.fingerprint() == iterator.fingerprint()
