"""Parts and folds of an iterator: what they promise for any samples, and that they stay what they
are.
"""

from __future__ import annotations

import datetime
import hashlib
import itertools
import json
import pickle
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from layer_laws import Columns
from torch_or_stand_in import torch

import data_stack
from data_stack.dataset.iterator import (
    DatasetIteratorIF,
    InformedDatasetIterator,
    SequenceDatasetIterator,
)
from data_stack.dataset.iterator.fold import Fold
from data_stack.dataset.meta import DatasetMeta, IteratorMeta
from data_stack.dataset.splits.class_numbers import class_numbers
from data_stack.dataset.splits.parts import FoldPartIterator, SplitPartIterator
from data_stack.dataset.splits.shares import Shares
from data_stack.dataset.splits.splitting import divide
from data_stack.dataset.splitter import SplitterFactory
from data_stack.exception import ConfigError

N = 23
CLASSES = [(7 * i) % 3 for i in range(N)]
GROUPS = [i * i % 11 for i in range(N)]
TIMES = [(5 * i) % 17 for i in range(N)]
RATIOS = [0.7, 0.2, 0.1]


def dataset() -> SequenceDatasetIterator:
    return SequenceDatasetIterator([list(range(N)), CLASSES, GROUPS, TIMES])


def of(*columns: Any) -> SequenceDatasetIterator:
    """Samples whose column 0 is their position, and these columns."""
    return SequenceDatasetIterator([list(range(len(columns[0]))), *columns])


def positions(part: DatasetIteratorIF) -> list[int]:
    """Where the samples of a part of :func:`of` come from."""
    return [int(sample[0]) for sample in part]


def held_out(folds: Sequence[Fold]) -> list[DatasetIteratorIF]:
    return [fold.test for fold in folds]


ratios_of_parts = (
    st.lists(st.integers(0, 20), min_size=1, max_size=6)
    .filter(any)
    .map(lambda weights: [w / sum(weights) for w in weights])
)
seeds = st.integers(-(2**70), 2**70)


# --- what was published ---------------------------------------------------------------------------

PUBLISHED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "split": (lambda it: it.split(RATIOS, seed=-5), "34153553c05f63f1d8af0bdb32c019d3"),
    "stratified": (
        lambda it: it.split(RATIOS, stratify=True, seed=2**70),
        "a0560c9127ecec3bfe20c2bbb0d0ef42",
    ),
    "groups": (lambda it: it.split(RATIOS, group_by=2), "01167f24716d5ee8f044c203752c8f88"),
    "stratified groups": (
        lambda it: it.split(RATIOS, group_by=2, stratify=True),
        "a6316132f05bf82c0de77186f1930cad",
    ),
    "times": (lambda it: it.split(RATIOS, time=3), "ea794d8c71e61ab37e2e8613946e9529"),
    "folds": (lambda it: held_out(it.folds(3, seed=7)), "b2d1ea037bac0cc6de16afa61529ebcf"),
    "stratified folds": (
        lambda it: held_out(it.folds(7, stratify=True)),
        "7ff5f4e317b78c370e771915fd1dbe78",
    ),
    "folds of groups": (
        lambda it: held_out(it.folds(3, seed=None, group_by=2)),
        "bd487a6e1ba0af38c9540b83a0e314cd",
    ),
    "stratified folds of groups": (
        lambda it: held_out(it.folds(7, group_by=2, stratify=True)),
        "175272b17b2db4fe33ef9645ae8528a8",
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_ten_thousand_samples_are_always_divided_alike(
    name: str,
) -> None:
    i = np.arange(10_007)
    iterator = SequenceDatasetIterator([i, (i * i % 97) % 10, i * 7919 % 503, i * 31 % 4001])
    divide_it, expected = PUBLISHED[name]

    for _ in range(2):
        parts = [part.read_column(0).tolist() for part in divide_it(iterator)]
        assert hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32] == expected


# --- laws -----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:part .* of a split is empty")
@given(ratios=ratios_of_parts, n=st.integers(0, 60), seed=seeds)
def test_sizes_of_parts_differ_from_shares_by_less_than_one(
    ratios: list[float], n: int, seed: int
) -> None:
    parts = of(list(range(n))).split(ratios, seed=seed)

    assert sorted(itertools.chain(*map(positions, parts))) == list(range(n))
    assert all(positions(part) == sorted(positions(part)) for part in parts)
    assert all(abs(len(part) - ratio * n) < 1 for part, ratio in zip(parts, ratios, strict=True))


@given(
    counts=st.lists(st.integers(1, 30), max_size=12),
    weights=st.lists(st.integers(0, 50), min_size=1, max_size=6).filter(any),
)
def test_classes_are_divided_to_within_one_of_each_share(
    counts: list[int], weights: list[int]
) -> None:
    labels = np.repeat(np.arange(len(counts)), counts)
    shares = Shares(tuple(weights), sum(weights))

    part_of = divide(len(labels), shares, None, class_numbers(labels, ""))

    for part, weight in enumerate(weights):
        assert abs((part_of == part).sum() - Fraction(len(labels) * weight, shares.total)) < 1
        for label, count in enumerate(counts):
            assert (
                abs(
                    ((part_of == part) & (labels == label)).sum()
                    - Fraction(count * weight, shares.total)
                )
                < 1
            )


@given(data=st.data(), n=st.integers(1, 60), stratify=st.booleans(), seed=seeds)
def test_groups_stay_whole_in_parts_of_fair_sizes(
    data: st.DataObject, n: int, stratify: bool, seed: int
) -> None:
    groups = data.draw(st.lists(st.integers(0, 12), min_size=n, max_size=n))
    labels = data.draw(st.lists(st.integers(0, 1), min_size=n, max_size=n))
    n_most = min([len(set(groups)), *(Counter(labels).values() if stratify else ())])
    weights = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=n_most))
    ratios = [weight / sum(weights) for weight in weights]

    parts = of(labels, groups).split(ratios, group_by=2, seed=seed, stratify=stratify)

    groups_of_parts = [{groups[position] for position in positions(part)} for part in parts]
    assert sum(map(len, groups_of_parts)) == len(set(groups))
    assert sorted(itertools.chain(*map(positions, parts))) == list(range(n))
    assert all(map(len, parts))
    if not stratify:
        largest = max(Counter(groups).values())
        assert all(
            len(part) < ratio * n + largest for part, ratio in zip(parts, ratios, strict=True)
        )


@pytest.mark.filterwarnings("ignore:part .* of a split is empty")
@given(times=st.lists(st.integers(-5, 20), max_size=50), ratios=ratios_of_parts)
def test_parts_by_time_follow_each_other_and_share_no_time(
    times: list[int], ratios: list[float]
) -> None:
    parts = of(times).split(ratios, time=1)

    times_of_parts = [
        sorted({times[position] for position in positions(part)}) for part in parts if len(part)
    ]
    assert all(earlier[-1] < later[0] for earlier, later in itertools.pairwise(times_of_parts))
    assert sorted(itertools.chain(*map(positions, parts))) == list(range(len(times)))
    most_at_once = max(Counter(times).values(), default=0)
    for n_parts in range(1, len(ratios) + 1):
        n_before = sum(len(part) for part in parts[:n_parts])
        assert abs(n_before - sum(ratios[:n_parts]) * len(times)) < n_parts + most_at_once / 2


@given(names=st.lists(st.sampled_from(["train", "val", "test"]), max_size=30))
def test_parts_by_column_are_in_order_of_appearance(names: list[str]) -> None:
    parts = of(names).split(by=1) if names else of([]).split(by=1)

    assert list(parts) == list(dict.fromkeys(names))
    assert all(
        [names[position] for position in positions(part)] == [name] * names.count(name)
        for name, part in parts.items()
    )


@given(
    data=st.data(),
    n=st.integers(2, 50),
    stratify=st.booleans(),
    grouped=st.booleans(),
    seed=st.none() | seeds,
)
def test_each_sample_is_tested_in_exactly_one_fold(
    data: st.DataObject, n: int, stratify: bool, grouped: bool, seed: int | None
) -> None:
    labels = data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
    groups = data.draw(st.lists(st.integers(0, 12), min_size=n, max_size=n))
    n_folds = data.draw(st.integers(2, 9))
    counts = Counter(labels)
    arguments: Any = {"stratify": stratify, "group_by": 2 if grouped else None}
    if n_folds > min(
        [n, *([len(set(groups))] if grouped else []), *(counts.values() if stratify else [])]
    ):
        with pytest.raises(ConfigError):
            of(labels, groups).folds(n_folds, **arguments)
        return

    folds = of(labels, groups).folds(n_folds, seed=seed, **arguments)

    tests = list(map(positions, held_out(folds)))
    assert sorted(itertools.chain(*tests)) == list(range(n))
    assert all(tests)
    assert [positions(fold.train) for fold in folds] == [
        sorted({*range(n)} - {*test}) for test in tests
    ]
    if grouped:
        assert sum(len({groups[position] for position in test}) for test in tests) == len(
            set(groups)
        )
        return
    for test in tests:
        assert n // n_folds <= len(test) <= -(-n // n_folds)
        members = Counter(labels[position] for position in test)
        assert not stratify or all(
            c // n_folds <= members[label] <= -(-c // n_folds) for label, c in counts.items()
        )


# --- columns of any kind --------------------------------------------------------------------------

ALIKE: list[tuple[str, Any]] = [
    ("ints", CLASSES),
    ("large ints", np.array(CLASSES, dtype=np.uint64) * np.uint64(2**62)),
    ("huge ints", [label * 10**30 for label in CLASSES]),
    ("floats", np.array(CLASSES) / 7),
    ("strings", [["x", "yy", ""][label] for label in CLASSES]),
    ("mixed", [["x", 1, (2, "y")][label] for label in CLASSES]),
    ("a tensor", torch.tensor(CLASSES)),
    ("one-hot rows", np.eye(3)[CLASSES]),
    ("rows", np.array([[1.5, 2], [0, -3], [0, 7]])[CLASSES]),
    ("categories", pd.Series([["x", "y", "z"][label] for label in CLASSES], dtype="category")),
]


@pytest.mark.parametrize("labels", [row[1] for row in ALIKE], ids=[row[0] for row in ALIKE])
def test_labels_of_any_kind_are_stratified_alike(labels: Any) -> None:
    ours, others = [
        [
            *iterator.split(RATIOS, seed=3, stratify=True),
            *held_out(iterator.folds(3, seed=7, stratify=1)),
        ]
        for iterator in (of(labels), dataset())
    ]

    assert list(map(positions, ours)) == list(map(positions, others))


@given(values=st.lists(st.integers(-300, 300) | st.sampled_from([2**62, -(2**62)]), max_size=40))
def test_classes_are_numbered_in_the_order_of_their_appearance(values: list[int]) -> None:
    expected = list(dict.fromkeys(values))

    classes = class_numbers(np.array(values, dtype=np.int64), "")

    assert classes.numbers.tolist() == [expected.index(value) for value in values]
    assert classes.values.tolist() == expected
    assert classes.first_positions.tolist() == [values.index(value) for value in expected]
    assert classes.counts.tolist() == [values.count(value) for value in expected]


@pytest.mark.parametrize(
    "times",
    [
        np.array(TIMES, dtype=np.uint8),
        np.array(TIMES, dtype="datetime64[s]"),
        [datetime.datetime(2024, 1, time + 1) for time in TIMES],
        pd.Series(pd.to_datetime([f"2024-01-{time + 1:02}" for time in TIMES])),
        torch.tensor(TIMES)[:, None],
    ],
)
def test_times_of_any_kind_are_cut_alike(times: Any) -> None:
    parts, others = of(times).split(RATIOS, time=1), dataset().split(RATIOS, time=3)

    assert list(map(positions, parts)) == list(map(positions, others))


@pytest.mark.parametrize(
    ("names", "keys"),
    [([2, 1, 2], [2, 1]), ([True, False, True], [True, False]), ([0.5, "b", 3], [0.5, "b", 3])],
)
def test_parts_are_found_by_the_values_that_name_them(names: list[Any], keys: list[Any]) -> None:
    parts = of(names).split(by=1)

    assert list(parts) == keys
    assert all(type(part) is type(key) for part, key in zip(parts, keys, strict=True))


def of_columns() -> Columns:
    return Columns(*[np.arange(N) % 4] * 4)


@pytest.mark.parametrize(
    ("arguments", "read"),
    [
        ({}, []),
        ({"stratify": 0}, [0]),
        ({"stratify": True}, [1]),
        ({"stratify": np.bool_(True)}, [1]),
        ({"stratify": False, "group_by": 0}, [0]),
        ({"group_by": 2, "stratify": 1}, [1, 2]),
        ({"time": 3}, [3]),
    ],
)
def test_a_division_reads_its_columns_once(arguments: dict[str, Any], read: list[Any]) -> None:
    iterator = of_columns()

    iterator.split([0.5, 0.5], **arguments)

    assert iterator.requests == [(key, N) for key in read]
    if "time" not in arguments:
        iterator.folds(2, **arguments)
        assert iterator.requests == [(key, N) for key in read] * 2


def test_stratify_means_the_target_that_the_meta_names() -> None:
    meta = DatasetMeta(iterator_meta=IteratorMeta(target_pos=3))
    source = of_columns()

    InformedDatasetIterator(source, meta).split([0.5, 0.5], stratify=True)

    assert source.requests == [(3, N)]


# --- parts are layers -----------------------------------------------------------------------------


def test_parts_are_rebuilt_by_their_division() -> None:
    iterator = dataset()
    described: list[tuple[Any, dict[str, Any]]] = [
        (
            iterator.split([0.5, 0.5], seed=np.int64(4))[1],
            {"part": 1, "ratios": [0.5, 0.5], "seed": 4},
        ),
        (
            iterator.split({"a": 0.5, "b": 0.5}, stratify=True, group_by=2)["b"],
            {"part": "b", "ratios": {"a": 0.5, "b": 0.5}, "seed": 0, "stratify": 1, "group_by": 2},
        ),
        (
            iterator.split([0.5, 0.5], time=3, seed=9)[0],
            {"part": 0, "ratios": [0.5, 0.5], "time": 3},
        ),
        (iterator.split(by=1)[2], {"part": 2, "by": 1}),
        (
            iterator.folds(3, stratify=1)[1].train,
            {"fold": 1, "side": "train", "n_folds": 3, "seed": 0, "stratify": 1},
        ),
        (
            iterator.folds(3, seed=None, group_by=2)[2].test,
            {"fold": 2, "side": "test", "n_folds": 3, "seed": None, "group_by": 2},
        ),
    ]

    for part, arguments in described:
        assert part._arguments() == arguments
        assert list(type(part)._from_arguments([iterator], part._arguments())) == list(part)
        assert part.underlying_iterators == [iterator]


def test_a_pickled_part_reads_nothing_to_find_its_samples_again() -> None:
    source = of_columns()
    parts: list[Any] = [*source.split([0.5, 0.5], stratify=True)]
    parts.append(source.folds(2, group_by=1)[1].train)
    source.requests.clear()

    copies = [pickle.loads(pickle.dumps(part)) for part in parts]

    assert [copy.indices.tolist() for copy in copies] == [part.indices.tolist() for part in parts]
    assert [copy._arguments() for copy in copies] == [part._arguments() for part in parts]
    assert all(copy.underlying_iterators[0].requests == [] for copy in copies)


def test_named_parts_are_tagged_with_their_names() -> None:
    untagged: Any = InformedDatasetIterator(dataset(), DatasetMeta(identifier="digits"))
    tagged: Any = InformedDatasetIterator(
        dataset(), DatasetMeta(identifier="digits", dataset_tag="train")
    )

    parts = {
        **untagged.split({"a": 0.5, "b": 0.5}),
        **tagged.split({"c": 1.0}),
        **tagged.split(by=1),
    }
    numbered = [*tagged.split([0.5, 0.5]), *tagged.folds(2)[0]]

    assert [part.dataset_meta.dataset_tag for part in parts.values()] == [
        "a",
        "b",
        "train/c",
        "train/0",
        "train/1",
        "train/2",
    ]
    assert [part.dataset_meta.dataset_tag for part in numbered] == ["train"] * 4
    assert [part.dataset_meta.provenance for part in numbered] == [("split",)] * 2 + [("fold",)] * 2
    assert parts["a"].dataset_meta.identifier == "digits"
    assert isinstance(parts["a"]._iterators_below()[0], SplitPartIterator)
    assert isinstance(numbered[2]._iterators_below()[0], FoldPartIterator)


# --- what cannot be divided -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        {"ratios": [0.5, 0.6]},
        {"ratios": []},
        {"ratios": [0.5, -0.5, 1.0]},
        {"ratios": [float("nan"), 1.0]},
        {"ratios": [0.5, "0.5"]},
        {"ratios": {"train": 1.5, "val": -0.5}},
        {"ratios": {0: 0.5, 1: 0.5}},
        {"ratios": None},
        {"by": 1},
        {"time": 3, "stratify": True},
        {"seed": 1.5},
        {"stratify": 9},
        {"group_by": "patient"},
        {"stratify": 0},
    ],
)
def test_ratios_and_other_arguments_that_make_no_division_are_refused(
    arguments: dict[str, Any],
) -> None:
    with pytest.raises(ConfigError):
        dataset().split(**{"ratios": [0.5, 0.5], **arguments})


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a", "a", "a", "b"], r"such as 'b' \(members: 1, first at position 3\)"),
        ([0.0, 1.0, float("nan"), 0.0], "position 2"),
        (["a", "b", "a", None], "position 3"),
        (["a", pd.NA, "b", "a"], "position 1"),
        (np.array(["2024", "NaT", "2024", "2024"], dtype="datetime64[Y]"), "position 1"),
        ([[1], [1, 2], [3], [1]], "position 0"),
    ],
)
def test_labels_that_cannot_be_stratified_are_refused_with_their_position(
    labels: Any, message: str
) -> None:
    with pytest.raises(ConfigError, match=f"stratified by column 1.*{message}"):
        of(labels).split([0.5, 0.5], stratify=True)


@pytest.mark.parametrize(
    ("n_folds", "arguments"),
    [(1, {}), (2.5, {}), (24, {}), (12, {"group_by": 2}), (9, {"stratify": True})],
)
def test_more_folds_than_there_is_to_divide_are_refused(
    n_folds: Any, arguments: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError):
        dataset().folds(n_folds, **arguments)


# --- empty parts ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_samples", "ratios", "empty"),
    [
        (3, [0.9, 0.1], r"part 1 of a split is empty: 0\.1 of 3 samples gives none; give counts"),
        (7, [0.9, 0.05, 0.05], r"part 2 of a split is empty: 0\.05 of 7 samples"),
        (1, [0.2, 0.2, 0.6], r"part 0 of a split is empty \(so are 1 others\)"),
        (2, {"train": 0.9, "test": 0.1}, "part 'test' of a split is empty"),
    ],
)
def test_a_part_that_would_be_empty_is_warned_of(n_samples: int, ratios: Any, empty: str) -> None:
    samples = data_stack.from_numpy(np.arange(n_samples))

    with pytest.warns(UserWarning, match=empty):
        samples.split(ratios, seed=0)


def test_equal_times_that_leave_a_part_empty_are_warned_of() -> None:
    samples = data_stack.from_numpy({"time": np.zeros(10, "M8[D]")})

    with pytest.warns(
        UserWarning, match=r"0\.5 of 10 samples gives none; equal times stay together"
    ):
        samples.split([0.5, 0.5], time="time")


def test_parts_of_nothing_are_empty_in_silence() -> None:
    samples = data_stack.from_numpy(np.arange(3))

    assert [len(part) for part in samples.split([1.0, 0.0], seed=0)] == [3, 0]
    assert [len(part) for part in samples.take(0).split([0.5, 0.5], seed=0)] == [0, 0]


def test_splitters_warn_of_empty_parts() -> None:
    splitter = SplitterFactory.get_random_splitter([0.1, 0.9], seed=1)

    with pytest.warns(
        UserWarning, match=r"part 0 of a split is empty: 0\.1 of 3 samples gives none"
    ):
        splitter.split(data_stack.from_numpy(np.arange(3)))
