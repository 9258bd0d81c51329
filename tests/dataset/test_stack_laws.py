"""Laws of the whole stack: ten random layers give what the same computed with plain Python lists gives."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from layer_laws import Samples as ClientSamples

import data_stack
from data_stack.dataset.iterator import (
    ColumnKey,
    DatasetIteratorIF,
    DatasetIteratorView,
    InformedDatasetIterator,
    SequenceDatasetIterator,
)
from data_stack.dataset.meta import MetaFactory
from data_stack.values.stacked_values import stack_values
from data_stack.values.stacking import stack_samples

Samples = list[Any]
Stack = tuple[DatasetIteratorIF, Samples]
Layer = Callable[[DatasetIteratorIF, Samples], Stack]

_MAX_SAMPLES = 120
_LABEL: dict[str, ColumnKey] = {"tuple": 1, "dict": "label"}
_ID: dict[str, ColumnKey] = {"tuple": 0, "dict": "id"}


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
        fields = [{"id": i, "label": c, "picture": p, "text": t} for i, c, p, t in zip(ids, labels, pictures, texts, strict=True)]
        return DatasetIteratorView(ClientSamples(fields), range(n_samples)), fields  # a view, for it takes all kinds of indices
    if kind == "lists":
        columns: list[Any] = [ids, labels, pictures, texts]
    else:
        shape = (n_samples, 2, 2)
        columns = [np.asarray(ids, dtype=np.int32), np.asarray(labels, dtype=np.int64), np.zeros(shape) + 1.5, texts]
    return SequenceDatasetIterator(columns), list(zip(*columns, strict=True))


def _kind(samples: Samples) -> str:
    return "dict" if samples and isinstance(samples[0], dict) else "tuple"


# ---------------------------------------------------------------------- layers, and the same of a list


def _drawn(source: DatasetIteratorIF, samples: Samples, stack: Callable[[DatasetIteratorIF], DatasetIteratorIF]) -> Stack:
    """A layer that draws positions: which ones, is seen from what it draws from an iterator of positions."""
    labels = [sample[_LABEL[_kind(samples)]] for sample in samples]
    order = [position for position, _ in stack(SequenceDatasetIterator([list(range(len(samples))), labels]))]
    return stack(source), [samples[position] for position in order]


def _is_even(sample: Any) -> bool:
    return bool(sample[_ID[_kind([sample])]] % 2 == 0)


def _is_small(label: Any) -> bool:
    return bool(label < 3)


def _are_small(labels: Any) -> Any:
    return labels < 3


def _relabelled(sample: Any) -> Any:
    if isinstance(sample, dict):
        return {**sample, "label": sample["label"] + 1}
    return (*sample[:1], sample[1] + 1, *sample[2:])


def _slice(draw: st.DrawFn) -> Layer:
    start, stop = (draw(st.none() | st.integers(-30, 30)) for _ in range(2))
    index = slice(start, stop, draw(st.sampled_from([None, 1, 2, -1, -3])))
    return lambda iterator, samples: (iterator[index], samples[index])


def _index_array(draw: st.DrawFn) -> Layer:
    numbers = draw(st.lists(st.floats(0, 1, exclude_max=True), max_size=40))
    as_array = draw(st.booleans())

    def layer(iterator: DatasetIteratorIF, samples: Samples) -> Stack:
        indices = [int(number * 2 * len(samples)) - len(samples) for number in numbers] if samples else []
        return iterator[np.asarray(indices, dtype=np.int16) if as_array else indices], [samples[index] for index in indices]

    return layer


def _shuffle(draw: st.DrawFn) -> Layer:
    seed = draw(st.integers(0, 99))
    return lambda iterator, samples: _drawn(iterator, samples, lambda it: it.shuffle(seed))


def _repeat(draw: st.DrawFn) -> Layer:
    times = draw(st.integers(0, 3))
    return lambda iterator, samples: (iterator.repeat(times), samples * times)


def _combine(draw: st.DrawFn) -> Layer:
    step = draw(st.sampled_from([1, 2, -1]))
    return lambda iterator, samples: (
        iterator.combine(iterator[::step], iterator[:0], iterator[:3]),
        samples + samples[::step] + samples[:3],
    )


def _interleave(draw: st.DrawFn) -> Layer:
    def layer(iterator: DatasetIteratorIF, samples: Samples) -> Stack:
        half = len(samples) // 2
        first, second = samples[:half], samples[half:]  # the second has at most one more
        turns = [sample for pair in zip(first, second, strict=False) for sample in pair]
        return iterator[:half].interleave(iterator[half:]), turns + second[half:]

    return layer


def _mix(draw: st.DrawFn) -> Layer:
    seed = draw(st.integers(0, 99))

    def layer(iterator: DatasetIteratorIF, samples: Samples) -> Stack:
        if not samples:
            return iterator, samples
        return _drawn(iterator, samples, lambda it: it.mix(it[:1], proportions=[2, 1], seed=seed, n_samples=20))

    return layer


def _filter(draw: st.DrawFn) -> Layer:
    kind = draw(st.sampled_from(["samples", "column", "batched"]))

    def layer(iterator: DatasetIteratorIF, samples: Samples) -> Stack:
        label = _LABEL[_kind(samples)]
        if not samples:
            return iterator.filter(_is_even), []
        if kind == "samples":
            return iterator.filter(_is_even), [sample for sample in samples if _is_even(sample)]
        predicate = _is_small if kind == "column" else _are_small
        filtered = iterator.filter(predicate, column=label, batched=kind == "batched")
        return filtered, [sample for sample in samples if sample[label] < 3]

    return layer


def _sort(draw: st.DrawFn) -> Layer:
    descending = draw(st.booleans())

    def layer(iterator: DatasetIteratorIF, samples: Samples) -> Stack:
        if not samples:
            return iterator, samples
        by = _LABEL[_kind(samples)]
        # sorted() with reverse=True keeps equal ones in their old order, as ours does
        expected = sorted(samples, key=lambda sample: sample[by], reverse=descending)
        return iterator.sort(by, descending=descending), expected

    return layer


def _shard(draw: st.DrawFn) -> Layer:
    world = draw(st.integers(1, 4))
    rank = draw(st.integers(0, world - 1))
    if draw(st.booleans()):
        return lambda iterator, samples: (iterator.shard(rank, world), samples[rank::world])

    def contiguous(iterator: DatasetIteratorIF, samples: Samples) -> Stack:
        parts = np.array_split(np.arange(len(samples)), world)
        return iterator.shard(rank, world, contiguous=True), [samples[position] for position in parts[rank].tolist()]

    return contiguous


def _map(draw: st.DrawFn) -> Layer:
    return lambda iterator, samples: (iterator.map(_relabelled), [_relabelled(sample) for sample in samples])


def _select(draw: st.DrawFn) -> Layer:
    def layer(iterator: DatasetIteratorIF, samples: Samples) -> Stack:
        if _kind(samples) == "dict" or (samples and len(samples[0]) != 4):
            return iterator, samples
        return iterator.select(0, 1, 3, 2), [(i, c, t, p) for i, c, p, t in samples]

    return layer


def _as_dict(draw: st.DrawFn) -> Layer:
    def layer(iterator: DatasetIteratorIF, samples: Samples) -> Stack:
        if not samples or _kind(samples) == "dict":
            return iterator, samples
        names = ["id", "label", *(f"field {number}" for number in range(2, len(samples[0])))]
        return iterator.as_dict(*names), [dict(zip(names, sample, strict=True)) for sample in samples]

    return layer


def _zip(draw: st.DrawFn) -> Layer:
    def layer(iterator: DatasetIteratorIF, samples: Samples) -> Stack:
        if not samples or _kind(samples) == "dict" or len(samples[0]) > 8:
            return iterator, samples
        others = samples[::-1]
        return iterator.zip(iterator[::-1]), [one + other for one, other in zip(samples, others, strict=True)]

    return layer


def _in_memory(draw: st.DrawFn) -> Layer:
    return lambda iterator, samples: (iterator.in_memory(), samples)


def _cache(draw: st.DrawFn) -> Layer:
    max_bytes = draw(st.sampled_from([None, 0, 2_000]))
    return lambda iterator, samples: (iterator.cache(max_bytes), samples)


def _inform(draw: st.DrawFn) -> Layer:
    def layer(iterator: DatasetIteratorIF, samples: Samples) -> Stack:
        kind = _kind(samples)
        layout = MetaFactory.get_iterator_meta(sample_pos=_ID[kind], target_pos=_LABEL[kind], tag_pos=_LABEL[kind])
        return InformedDatasetIterator(iterator, MetaFactory.get_dataset_meta("id", "name", "tag", layout)), samples

    return layer


_REARRANGING = [_slice, _index_array, _shuffle, _repeat, _combine, _interleave, _mix, _filter, _sort, _shard]
_CHANGING = [_map, _select, _as_dict, _zip, _in_memory, _cache, _inform]


@st.composite
def _stacks(draw: st.DrawFn) -> Stack:
    iterator, samples = draw(_sources())
    for _ in range(draw(st.integers(0, 10))):
        layer = draw(st.sampled_from(_REARRANGING if draw(st.booleans()) else _CHANGING))(draw)
        before = iterator, samples
        iterator, samples = layer(iterator, samples)
        if len(samples) > _MAX_SAMPLES:
            iterator, samples = before
    return iterator, samples


# ---------------------------------------------------------------------- what is compared


def _equal(one: Any, other: Any) -> bool:
    """Whether two samples are the same, but for the kind of their numbers."""
    if isinstance(one, dict) or isinstance(other, dict):
        return list(one) == list(other) and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, (tuple, list)) and isinstance(other, (tuple, list)):
        return len(one) == len(other) and all(map(_equal, one, other))
    return np.shape(one) == np.shape(other) and bool(np.all(np.asarray(one) == np.asarray(other)))


def _assert_same_column(one: Any, other: Any) -> None:
    assert one.shape == other.shape
    assert _equal(one.tolist(), other.tolist())


def _assert_same_samples(iterator: DatasetIteratorIF, samples: Samples) -> None:
    assert len(iterator) == len(samples)
    assert all(map(_equal, (iterator[position] for position in range(len(samples))), samples))
    assert all(map(_equal, iterator, samples))
    assert not samples or _equal(iterator[-1], samples[-1])


def _assert_same_batches(iterator: DatasetIteratorIF, samples: Samples, indices: Sequence[int]) -> None:
    expected = [samples[index] for index in indices]

    assert all(map(_equal, iterator.__getitems__(list(indices)), expected))
    if not expected:
        return
    batch, stacked = iterator.read_batch(np.asarray(indices)), stack_samples(expected)
    assert type(batch) is type(stacked)
    for key in batch if isinstance(batch, dict) else range(len(batch)):
        _assert_same_column(batch[key], stacked[key])  # type: ignore[index]
        column = stack_values([sample[key] for sample in expected])
        _assert_same_column(iterator.read_column(key, indices), column)
        assert batch[key].dtype == iterator.read_column(key, indices).dtype  # type: ignore[index]


def _some(indices: Sequence[float], n_samples: int) -> list[int]:
    return [int(index * n_samples) for index in indices] if n_samples else []


_indices = st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=12)
_thoroughly = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@_thoroughly
@given(stack=_stacks(), indices=_indices)
def test_a_stack_gives_what_the_same_gives_with_lists(stack: Stack, indices: list[float]) -> None:
    iterator, samples = stack

    _assert_same_samples(iterator, samples)
    _assert_same_batches(iterator, samples, _some(indices, len(samples)))
    _assert_same_batches(iterator, samples, range(len(samples)))
    for index in (len(samples), -len(samples) - 1):
        with pytest.raises(IndexError):
            iterator[index]
        with pytest.raises(IndexError):
            iterator.read_batch([index])


def _leaves(iterator: DatasetIteratorIF) -> Iterator[DatasetIteratorIF]:
    if isinstance(iterator, ClientSamples):
        yield iterator
    for below in iterator._stack_on():
        yield from _leaves(below)


_FUNCTIONS = {
    f"{function.__module__}:{function.__qualname__}": function for function in (_is_even, _is_small, _are_small, _relabelled)
}


@_thoroughly
@given(stack=_stacks(), indices=_indices)
def test_a_stack_that_was_rebuilt_from_its_recipe_or_pickled_is_the_same(stack: Stack, indices: list[float]) -> None:
    iterator, samples = stack
    recipe = json.loads(json.dumps(iterator.recipe()))

    rebuilt = data_stack.from_recipe(recipe, sources=list(_leaves(iterator))[:1], functions=_FUNCTIONS)

    assert rebuilt.recipe() == recipe
    for copy in (rebuilt, pickle.loads(pickle.dumps(iterator))):
        _assert_same_samples(copy, samples)
        _assert_same_batches(copy, samples, _some(indices, len(samples)))
        assert copy.fingerprint() == iterator.fingerprint()
