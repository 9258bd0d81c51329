"""Splits are those that the original gave, and stay the same however often they are asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from data_stack.dataset.iterator import ColumnArray, DatasetIterator, SequenceDatasetIterator
from data_stack.dataset.splitter import (
    CVSplitterImpl,
    NestedCVSplitterImpl,
    Splitter,
    SplitterFactory,
    StratifiedSplitterImpl,
)
from data_stack.exception import ConfigError

N = 23
CLASSES = [(7 * i) % 3 for i in range(N)]


def dataset() -> SequenceDatasetIterator:
    return SequenceDatasetIterator(
        [list(range(100, 100 + N)), CLASSES, [["x", "y", "z"][label] for label in CLASSES]]
    )


def nested(**config: Any) -> Splitter:
    return SplitterFactory.get_nested_cv_splitter(
        **{"num_outer_loop_folds": 3, "num_inner_loop_folds": 2, "seed": 7} | config
    )


STRATIFIED_3 = [
    [0, 2, 6, 13, 14, 15, 16, 19],
    [1, 3, 5, 10, 11, 12, 17, 18],
    [4, 7, 8, 9, 20, 21, 22],
]
RANDOM_3 = [[0, 1, 2, 5, 11, 12, 20, 22], [6, 9, 10, 13, 16, 17, 18, 21], [3, 4, 7, 8, 14, 15, 19]]

# What data_stack 0.0.13 gave on the first call of a new splitter (scikit-learn 1.9.1, numpy 2.4.6).
GOLDEN: list[tuple[str, Splitter, Any]] = [
    (
        "random",
        SplitterFactory.get_random_splitter([0.29, 0.57, 0.14], 3),
        [[1, 20, 16, 5, 10, 6], [21, 12, 9, 3, 8, 19, 22, 13, 14, 0, 2, 15, 11], [4, 17, 18, 7]],
    ),
    (
        "stratified",
        SplitterFactory.get_stratified_splitter([0.5, 0.3, 0.2], 5),
        [[6, 21, 20, 8, 22, 14, 9, 4, 13, 7, 12], [3, 17, 19, 18, 16, 11], [10, 1, 15, 5, 0, 2]],
    ),
    (
        "nested",
        nested(),
        (
            STRATIFIED_3,
            [
                [[1, 5, 10, 12, 17, 4, 9, 20], [3, 11, 18, 7, 8, 21, 22]],
                [[6, 13, 15, 19, 7, 8, 9, 20], [0, 2, 14, 16, 4, 21, 22]],
                [[2, 6, 14, 19, 1, 11, 12, 18], [0, 13, 15, 16, 3, 5, 10, 17]],
            ],
        ),
    ),
    (
        "nested, random",
        nested(inner_stratification=False, outer_stratification=False),
        (
            RANDOM_3,
            [
                [[6, 9, 10, 16, 18, 4, 8, 19], [13, 17, 21, 3, 7, 14, 15]],
                [[0, 1, 2, 12, 3, 7, 14, 15], [5, 11, 20, 22, 4, 8, 19]],
                [[0, 1, 2, 11, 12, 20, 6, 10], [5, 22, 9, 13, 16, 17, 18, 21]],
            ],
        ),
    ),
]


@pytest.mark.parametrize(
    ("splitter", "expected"), [row[1:] for row in GOLDEN], ids=[row[0] for row in GOLDEN]
)
def test_a_splitter_gives_the_original_split_each_time(splitter: Splitter, expected: Any) -> None:
    assert splitter.get_indices(dataset_iterator=dataset()) == expected
    assert splitter.get_indices(dataset()) == expected


class Sealed(DatasetIterator):
    """Has a length, and targets, but no samples to look at."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("a whole sample was read")

    def read_column(self, key: Any, indices: Any = None) -> ColumnArray:
        assert key == "label"
        return np.array(CLASSES)


@pytest.mark.parametrize(
    "splitter",
    [
        SplitterFactory.get_stratified_splitter([0.5, 0.5], 1, target_pos="label"),
        SplitterFactory.get_cv_splitter(target_pos="label"),
        nested(target_pos="label"),
    ],
)
def test_stratified_splits_read_targets_only_also_of_dict_samples(splitter: Splitter) -> None:
    splitter.split(Sealed())


@pytest.mark.parametrize(
    ("splitter", "targets", "message"),
    [
        (CVSplitterImpl(num_folds=30), CLASSES, "23 samples cannot be divided into 30 folds"),
        (CVSplitterImpl(num_folds=3), np.linspace(0, 1, N), "cannot be stratified"),
        (CVSplitterImpl(num_folds=3), np.random.RandomState(0).rand(N, 4), r"shape \(4,\)"),
        (CVSplitterImpl(num_folds=3), [None, *CLASSES[1:]], "cannot be stratified"),
        (StratifiedSplitterImpl([0.5, 0.5]), [0, *[1] * (N - 1)], "cannot be stratified"),
        (NestedCVSplitterImpl(target_pos=5), CLASSES, "no column 5"),
    ],
)
def test_what_cannot_be_split_is_an_error_that_says_why(
    splitter: Any, targets: Any, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        splitter.get_indices(SequenceDatasetIterator([list(range(N)), targets]))
