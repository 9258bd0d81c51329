"""Laws of the whole stack: random layers give what the same computed with lists and numpy gives."""

from __future__ import annotations

import itertools
import json
import pickle
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from layer_laws import Samples as ClientSamples
from layer_laws import check_all_ways_agree

import data_stack
from data_stack.dataset.encoders.categorical import CategoricalEncoder
from data_stack.dataset.encoders.class_mapping import ClassMapping
from data_stack.dataset.encoders.continuous import ContinuousEncoder
from data_stack.dataset.iterator import (
    ColumnKey,
    DatasetIteratorIF,
    DatasetIteratorView,
    InformedDatasetIterator,
    SequenceDatasetIterator,
)
from data_stack.dataset.meta import DatasetMeta, IteratorMeta
from data_stack.io.storage_connectors.memory import InMemoryStorageConnector

Samples = list[Any]
Stack = tuple[DatasetIteratorIF, Samples]
Make = Callable[[Any, Any], DatasetIteratorIF]
Layer = tuple[Make, Callable[[Samples, Any], Samples]]

_MAX_SAMPLES = 120


# ------------------------------------------------------------------ sources, and the same as a list


@st.composite
def _sources(draw: st.DrawFn) -> Stack:
    n_samples = draw(st.integers(0, 25))
    ids = list(range(n_samples))
    labels = draw(st.lists(st.integers(0, 4), min_size=n_samples, max_size=n_samples))
    pictures = [np.full((2, 2), position, dtype=np.uint8) for position in ids]
    texts = [f"text {position % 5}" for position in ids]
    kind = draw(st.sampled_from(["lists", "arrays", "numbers", "dicts"]))
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
    if kind == "numbers":
        columns[3] = np.arange(n_samples, dtype=np.float16)  # all columns are fixed
    return SequenceDatasetIterator(columns), list(zip(*columns, strict=True))


# ------------------------------------------------------------------- layers, and the same of a list


def _is_even(sample: Any) -> bool:
    return bool(sample["id" if isinstance(sample, dict) else 0] % 2 == 0)


def _are_small(labels: Any) -> Any:
    return labels < 3


def _add_one(value: Any) -> Any:
    return value + 1


def _relabel(sample: Any) -> Any:
    if isinstance(sample, dict):
        return {**sample, "label": sample["label"] + 1}
    return (*sample[:1], sample[1] + 1, *sample[2:])


def _make_document(sample: Any) -> Any:
    """A document of up to two tokens, which the label and the id decide."""
    sample_id, label = list(sample.values() if isinstance(sample, dict) else sample)[:2]
    return np.full(int(label) % 3, sample_id, dtype=np.int64)


def _replace(sample: Any, key: Any, value: Any) -> Any:
    """The sample with another value in one column."""
    if isinstance(sample, dict):
        return {**sample, key: value}
    return (*sample[:key], value, *sample[key + 1 :])


def _interleave(samples: Samples, label: ColumnKey) -> Samples:
    half = len(samples) // 2
    in_turn: Samples = []
    for first, second in zip(samples[:half], samples[half:], strict=False):
        in_turn += [first, second]
    return in_turn + samples[2 * half :]


def _choose_small(samples: Samples, label: Any) -> Samples:
    return [sample for sample in samples if sample[label] < 3]


def _choose_first_of_each(samples: Samples, label: Any) -> Samples:
    first_by_label: dict[int, Any] = {}
    for sample in samples:
        first_by_label.setdefault(int(sample[label]), sample)
    return list(first_by_label.values())


def _map_labels(mapping: dict[int, int]) -> Callable[[Samples, Any], Samples]:
    def expect(samples: Samples, label: Any) -> Samples:
        return [
            _replace(sample, label, mapping.get(int(sample[label]), sample[label]))
            for sample in samples
        ]

    return expect


def _map_some_labels(samples: Samples, label: Any) -> Samples:
    return [
        _replace(sample, label, _NEW_LABELS[int(sample[label])])
        for sample in samples
        if int(sample[label]) in _NEW_LABELS
    ]


def _inform(iterator: Any, label: Any) -> DatasetIteratorIF:
    return InformedDatasetIterator(
        iterator, DatasetMeta(IteratorMeta(label, label, label), "id", "name", "tag")
    )


def _names(samples: Samples) -> list[str]:
    return ["id", "label", *(f"field {number}" for number in range(2, len(samples[0])))]


def _rename_last(samples: Samples) -> dict[str, str]:
    return {list(samples[0])[-1]: "last"}


def _draw_by(make: Make, check: Callable[[list[int], list[int]], None]) -> Layer:
    """A layer that draws positions.

    They are read off what it draws from an iterator of positions. That they are rightly drawn is
    checked by ``check(positions, labels)``: what a draw promises, in terms of lists.
    """

    def expect(samples: Samples, label: Any) -> Samples:
        labels = [int(sample[label]) for sample in samples]
        numbers = SequenceDatasetIterator([list(range(len(samples))), labels])
        positions = [position for position, _ in make(numbers, 1)]
        check(positions, labels)
        return [samples[position] for position in positions]

    return make, expect


def _check_permutation(positions: list[int], labels: list[int]) -> None:
    assert sorted(positions) == list(range(len(labels)))


def _check_mix(positions: list[int], labels: list[int]) -> None:
    # two of three samples are of the whole, whose first pass is a permutation, the others are
    # sample 0
    assert len(positions) == 20
    counts = np.bincount(positions, minlength=len(labels))
    assert len(counts) == len(labels)
    assert counts[0] >= 20 // 3 - 1
    n_of_whole = 20 - counts[0]
    if len(labels) > n_of_whole + 1:
        assert counts[1:].max() <= 1


def _check_resampled(positions: list[int], labels: list[int]) -> None:
    assert len(positions) == 12
    assert set(positions) <= set(range(len(labels)))


def _check_balanced(positions: list[int], labels: list[int]) -> None:
    assert len(positions) == len(labels)
    n_of_label = [[labels[place] for place in positions].count(label) for label in set(labels)]
    assert max(n_of_label) - min(n_of_label) <= 1


_NEW_LABELS = {0: 2, 1: 0, 2: 7}

#: Where stored caches lie.
_STORE = InMemoryStorageConnector()

#: Only its version tells a cache of one client's samples from that of others.
_cache_versions = itertools.count()


def _cache_in_store(iterator: Any, label: Any) -> DatasetIteratorIF:
    version = str(next(_cache_versions))
    return iterator.cache(storage=_STORE, version=version)  # type: ignore[no-any-return]


#: Each is given the column of the labels, too.
OF_ANY: list[Layer] = [
    (lambda it, label: it.repeat(2), lambda samples, label: samples * 2),
    (lambda it, label: it.take(7), lambda samples, label: samples[:7]),
    (lambda it, label: it.skip(2), lambda samples, label: samples[2:]),
    (
        lambda it, label: it.combine(it[::-1], it[:0], it[:3]),
        lambda samples, label: samples + samples[::-1] + samples[:3],
    ),
    (lambda it, label: it[: len(it) // 2].interleave(it[len(it) // 2 :]), _interleave),
    (lambda it, label: it.filter(_is_even), lambda samples, label: list(filter(_is_even, samples))),
    (lambda it, label: it.map(_relabel), lambda samples, label: list(map(_relabel, samples))),
    (lambda it, label: it.shard(1, 3), lambda samples, label: samples[1::3]),
    (
        lambda it, label: it.shard(0, 2, contiguous=True),
        lambda samples, label: samples[: -(-len(samples) // 2)],
    ),
    (
        lambda it, label: it.shard(1, 2, uneven="drop"),
        lambda samples, label: samples[1::2],
    ),
    (lambda it, label: it.in_memory(), lambda samples, label: samples),
    (lambda it, label: it.cache(), lambda samples, label: samples),
    (lambda it, label: it.cache(2000), lambda samples, label: samples),
    (_cache_in_store, lambda samples, label: samples),
    (_inform, lambda samples, label: samples),
    # last, as hypothesis often draws the first of a list, and an empty stack tells little
    (lambda it, label: it.repeat(0), lambda samples, label: []),
]
OF_SOME: list[Layer] = [
    (lambda it, label: it.filter(_are_small, column=label), _choose_small),
    (lambda it, label: it.filter(_are_small, column=label, batched=True), _choose_small),
    (
        lambda it, label: it.map(_add_one, column=label),
        lambda samples, label: list(map(_relabel, samples)),
    ),
    (
        lambda it, label: it.map(_add_one, column=label, batched=True),
        lambda samples, label: list(map(_relabel, samples)),
    ),
    (
        lambda it, label: it.sort(label),
        lambda samples, label: sorted(samples, key=itemgetter(label)),
    ),
    # sorted() with reverse=True keeps equal ones in their old order, as ours does
    (
        lambda it, label: it.sort(label, descending=True),
        lambda samples, label: sorted(samples, key=itemgetter(label), reverse=True),
    ),
    (lambda it, label: it.deduplicate(label), _choose_first_of_each),
    (lambda it, label: it.map_classes(_NEW_LABELS, columns=[label]), _map_labels(_NEW_LABELS)),
    (
        lambda it, label: it.map_classes(
            ClassMapping(_NEW_LABELS, unmapped="drop"), columns=[label]
        ),
        _map_some_labels,
    ),
    _draw_by(lambda it, label: it.shuffle(5), _check_permutation),
    _draw_by(
        lambda it, label: it.mix(it[:1], proportions=[2, 1], seed=3, n_samples=20), _check_mix
    ),
    _draw_by(lambda it, label: it.resample(12, seed=4), _check_resampled),
    _draw_by(lambda it, label: it.balance(seed=6, by=label), _check_balanced),
]
OF_TUPLES: list[Layer] = [
    (
        lambda it, label: it.select(0, 1, -1, 2),
        lambda samples, label: [(*sample[:2], sample[-1], sample[2]) for sample in samples],
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
OF_DICTS: list[Layer] = [
    (
        lambda it, label: it.as_tuple(),
        lambda samples, label: [tuple(sample.values()) for sample in samples],
    ),
    (
        lambda it, label: it.rename(_rename_last(it)),
        lambda samples, label: [
            {_rename_last(samples).get(key, key): value for key, value in sample.items()}
            for sample in samples
        ],
    ),
]


# ---------------------------------------------------------------------- layers that end a stack
# After these, labels are vectors or arrays.


def _stack(values: list[Any]) -> Any:
    if isinstance(values[0], str):
        return np.array(values, dtype=object)
    return np.stack([np.asarray(value) for value in values])


def _stack_samples(samples: Samples) -> Any:
    if isinstance(samples[0], dict):
        return {key: _stack([sample[key] for sample in samples]) for key in samples[0]}
    return tuple(_stack(list(values)) for values in zip(*samples, strict=True))


def _make_runs(length: int, stride: int) -> Callable[[Samples, Any], Samples]:
    def expect(samples: Samples, label: Any) -> Samples:
        starts = range(0, len(samples) - length + 1, stride)
        return [_stack_samples(samples[start : start + length]) for start in starts]

    return expect


def _make_windows_of_classes(samples: Samples, label: Any) -> Samples:
    """Pairs of neighbours among the samples of a class; classes in the order of their first
    sample.
    """
    samples_of_class: dict[int, Samples] = {}
    for sample in samples:
        samples_of_class.setdefault(int(sample[label]), []).append(sample)
    windows: Samples = []
    for members in samples_of_class.values():
        windows += _make_runs(2, stride=1)(members, label)
    return windows


def _make_windows_without_gaps(samples: Samples, label: Any) -> Samples:
    """Pairs of neighbours by label whose labels differ by at most one."""
    ordered = sorted(samples, key=itemgetter(label))
    windows: Samples = []
    for first, second in itertools.pairwise(ordered):
        if int(second[label]) - int(first[label]) <= 1:
            windows.append(_stack_samples([first, second]))
    return windows


def _look_ahead(samples: Samples, label: Any) -> Samples:
    """Each sample beside the label of the sample two places later."""
    pairs: Samples = []
    for sample, later in zip(samples, samples[2:], strict=False):
        ahead = {label: later[label]} if isinstance(label, str) else (later[label],)
        pairs.append({0: sample, 2: ahead})
    return pairs


def _fit(encoder: Any) -> Make:
    """The labels encoded by what the encoder learned of all of them."""
    return lambda iterator, label: iterator.encode({label: encoder()}, fit_on=iterator)


def _scale_to_unit_interval(samples: Samples, label: Any) -> Samples:
    labels = np.array([int(sample[label]) for sample in samples], dtype=np.float64)
    extent = np.ptp(labels)
    scaled = (labels - labels.min()) / (extent if extent > 0 else 1)
    return [
        _replace(sample, label, value)
        for sample, value in zip(samples, scaled.astype(np.float32), strict=True)
    ]


def _encode_as_vectors(samples: Samples, label: Any) -> Samples:
    """One-hot vectors of as many numbers as there are distinct labels, in sorted order."""
    labels = [int(sample[label]) for sample in samples]
    classes = sorted(set(labels))
    vectors = np.eye(len(classes), dtype=np.float32)
    return [
        _replace(sample, label, vectors[classes.index(value)])
        for sample, value in zip(samples, labels, strict=True)
    ]


def _pack(samples: Samples, label: Any) -> Samples:
    """Sequences of three tokens, token by token."""
    tokens: list[tuple[int, int, int]] = []
    for number, sample in enumerate(samples):
        for place, token in enumerate(_make_document(sample).tolist()):
            tokens.append((token, number, place))
    sequences: Samples = []
    for start in range(0, len(tokens) - 2, 3):
        values, documents, places = zip(*tokens[start : start + 3], strict=True)
        numbers = sorted(set(documents))
        sequences.append(
            {
                "tokens": np.array(values, dtype=np.int64),
                "segment_ids": np.array(
                    [numbers.index(document) + 1 for document in documents], dtype=np.int32
                ),
                "positions": np.array(places, dtype=np.int32),
            }
        )
    return sequences


_N_CLASSES = 200

AT_THE_TOP: dict[str, Layer] = {
    "batch": (lambda it, label: it.batch(3, drop_last=True), _make_runs(3, stride=3)),
    "windows": (lambda it, label: it.windows(3), _make_runs(3, stride=1)),
    "windows with a stride": (lambda it, label: it.windows(2, stride=3), _make_runs(2, stride=3)),
    "windows of groups": (
        lambda it, label: it.windows(2, group_by=label),
        _make_windows_of_classes,
    ),
    "windows without gaps": (
        lambda it, label: it.windows(2, order_by=label, max_gap=1),
        _make_windows_without_gaps,
    ),
    "windows of offsets": (
        lambda it, label: it.windows(3, offsets={0: None, 2: [label]}),
        _look_ahead,
    ),
    "pack": (lambda it, label: it.map(_make_document).pack(3), _pack),
    "fitted numbers": (_fit(lambda: ContinuousEncoder("min_max")), _scale_to_unit_interval),
    "fitted categories": (_fit(CategoricalEncoder), _encode_as_vectors),
    "one-hot": (
        lambda it, label: it.one_hot(range(_N_CLASSES), column=label),
        lambda samples, label: [
            _replace(sample, label, np.eye(_N_CLASSES, dtype=np.float32)[int(sample[label])])
            for sample in samples
        ],
    ),
}


@st.composite
def _stacks(draw: st.DrawFn) -> Stack:
    iterator, samples = draw(_sources())
    for _ in range(draw(st.integers(0, 10))):
        n_samples = len(samples)
        if draw(st.booleans()):
            index = draw(_indices(n_samples))
            chosen = np.arange(n_samples)[
                np.asarray(index, int) if isinstance(index, list) else index
            ]
            iterator = iterator[index]
            samples = [samples[position] for position in chosen]
        else:
            layers = [*OF_ANY, *_layers_of_form(samples)]
            iterator, samples = _put_on_top(draw(st.sampled_from(layers)), iterator, samples)
    return iterator, samples


def _indices(n_samples: int) -> st.SearchStrategy[Any]:
    bounds = st.none() | st.integers(-30, 30)
    slices = st.builds(slice, bounds, bounds, st.sampled_from([None, 1, 2, -1, -3]))
    if n_samples == 0:
        return slices | st.just([])
    return slices | st.lists(st.integers(-n_samples, n_samples - 1), max_size=40)


def _layers_of_form(samples: Samples) -> list[Layer]:
    """The layers that need samples of a form, as far as these are of it."""
    if not samples:
        return []
    if isinstance(samples[0], dict):
        return OF_SOME + OF_DICTS
    if len(samples[0]) <= 8:
        return OF_SOME + OF_TUPLES
    return OF_SOME


def _put_on_top(layer: Layer, iterator: DatasetIteratorIF, samples: Samples) -> Stack:
    """The stack with one more layer, unless there would be too many samples."""
    make, expect = layer
    is_dict = bool(samples) and isinstance(samples[0], dict)
    label: ColumnKey = "label" if is_dict else 1
    expected = expect(samples, label)
    if len(expected) > _MAX_SAMPLES:
        return iterator, samples
    return make(iterator, label), expected


_thoroughly = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@_thoroughly
@given(stack=_stacks(), data=st.data())
def test_a_stack_gives_what_the_same_gives_with_lists(stack: Stack, data: st.DataObject) -> None:
    check_all_ways_agree(*stack, data)


@pytest.mark.parametrize("name", AT_THE_TOP)
@_thoroughly
@given(stack=_stacks(), data=st.data())
def test_a_top_layer_gives_what_the_same_gives_with_lists(
    name: str, stack: Stack, data: st.DataObject
) -> None:
    iterator, samples = stack
    assume(samples)

    check_all_ways_agree(*_put_on_top(AT_THE_TOP[name], iterator, samples), data)


def _leaves(iterator: DatasetIteratorIF) -> Iterator[DatasetIteratorIF]:
    if isinstance(iterator, ClientSamples):
        yield iterator
    for below in iterator._iterators_below():
        yield from _leaves(below)


_FUNCTIONS = {
    f"{function.__module__}:{function.__qualname__}": function
    for function in (_is_even, _are_small, _add_one, _relabel, _make_document)
}


@_thoroughly
@given(stack=_stacks(), top=st.none() | st.sampled_from(list(AT_THE_TOP.values())), data=st.data())
def test_a_rebuilt_or_pickled_stack_is_the_same(
    stack: Stack, top: Layer | None, data: st.DataObject
) -> None:
    iterator, samples = stack
    if samples and top is not None:
        iterator, samples = _put_on_top(top, iterator, samples)
    recipe = json.loads(json.dumps(iterator.recipe()))

    rebuilt = data_stack.from_recipe(
        recipe, sources=list(_leaves(iterator))[:1], functions=_FUNCTIONS
    )

    assert rebuilt.recipe() == recipe
    for copy in (rebuilt, pickle.loads(pickle.dumps(iterator))):
        check_all_ways_agree(copy, samples, data)
        assert copy.fingerprint() == iterator.fingerprint()
