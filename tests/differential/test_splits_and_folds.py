"""Parts and folds are those of scikit-learn where both promise the same, and keep its
invariants.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold, train_test_split
from table_strategies import TEXT, compared

from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.dataset.splitter import SplitterFactory
from data_stack.exception import ConfigError

SEEDS = st.integers(0, 2**32 - 1)


@st.composite
def labelled(draw: st.DrawFn) -> tuple[Any, list[Any], list[int]]:
    """Samples of their position, label and group; the labels; the groups."""
    n_samples = draw(st.integers(2, 40))
    classes = draw(
        st.lists(st.integers(-3, 3), min_size=1, max_size=4, unique=True)
        | st.lists(TEXT, min_size=1, max_size=4, unique=True)
    )
    labels = draw(st.lists(st.sampled_from(classes), min_size=n_samples, max_size=n_samples))
    groups = draw(
        st.lists(st.integers(0, draw(st.integers(0, 12))), min_size=n_samples, max_size=n_samples)
    )
    return SequenceDatasetIterator([list(range(n_samples)), labels, groups]), labels, groups


def positions(part: Any) -> list[int]:
    return [int(sample[0]) for sample in part]


def of_scikit_learn(folds: Any, *columns: Any) -> list[tuple[list[int], list[int]]]:
    return [(train.tolist(), test.tolist()) for train, test in folds.split(*columns)]


def of_ours(folds: Any) -> list[tuple[list[int], list[int]]]:
    return [(positions(fold.train), positions(fold.test)) for fold in folds]


@compared
@given(labelled(), st.integers(2, 6), SEEDS)
def test_folds_are_those_of_scikit_learn(
    drawn: tuple[Any, list[Any], list[int]], n_folds: int, seed: int
) -> None:
    iterator, labels, groups = drawn
    nothing = np.zeros(len(labels))
    if n_folds > len(labels):
        with pytest.raises(ConfigError):
            iterator.folds(n_folds)
        return
    kinds: list[Any] = (
        [KFold, StratifiedKFold] if min(Counter(labels).values()) >= n_folds else [KFold]
    )

    for kind, shuffle in itertools.product(kinds, [False, True]):
        folds = of_scikit_learn(
            kind(n_folds, shuffle=shuffle, random_state=seed if shuffle else None), nothing, labels
        )
        stratify = kind is StratifiedKFold
        of_original = SplitterFactory.get_cv_splitter(
            n_folds, stratification=stratify, shuffle=shuffle, seed=seed
        )
        assert of_original.get_indices(iterator) == [test for _, test in folds]
        assert shuffle or of_ours(iterator.folds(n_folds, seed=None, stratify=stratify)) == folds
    if len(set(groups)) >= n_folds:
        of_groups = of_ours(iterator.folds(n_folds, group_by=2, seed=None))
        of_theirs = of_scikit_learn(GroupKFold(n_folds), nothing, labels, groups)
        assert sorted(len(test) for _, test in of_groups) == sorted(
            len(test) for _, test in of_theirs
        )


@compared
@given(labelled(), st.integers(1, 9), SEEDS)
def test_parts_are_as_large_as_those_of_scikit_learn(
    drawn: tuple[Any, list[Any], list[int]], tenths: int, seed: int
) -> None:
    iterator, labels, _ = drawn
    n_first, counts = round(len(labels) * tenths / 10), Counter(labels)
    if min(counts.values()) < 2 or min(n_first, len(labels) - n_first) < len(counts):
        return

    first, second = map(
        positions, iterator.split([n_first, len(labels) - n_first], seed=seed, stratify=True)
    )
    of_sklearn, _ = train_test_split(
        range(len(labels)), train_size=n_first, stratify=labels, random_state=seed
    )

    ours, theirs = (
        Counter(labels[position] for position in first),
        Counter(labels[position] for position in of_sklearn),
    )
    assert sorted([*first, *second]) == list(range(len(labels)))
    assert len(first) == len(of_sklearn) == n_first
    assert all(abs(ours[label] - theirs[label]) <= 1 for label in counts)
