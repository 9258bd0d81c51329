"""Stratified parts and folds of scikit-learn, with the indices of the original's splitters."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.values.stacked_values import one_hot_positions

try:
    from sklearn.model_selection import StratifiedKFold, train_test_split
except ModuleNotFoundError as error:
    raise MissingDependencyError("a stratified splitter", "scikit-learn", "sklearn") from error

_Positions = npt.NDArray[np.integer[Any]]


def draw_part(
    positions: _Positions,
    targets: npt.NDArray[Any],
    n_wanted: int,
    random_state: np.random.RandomState,
) -> tuple[_Positions, _Positions]:
    """``n_wanted`` of the positions and the others, both in drawn order, with the same mixture of targets.

    Raises:
        ConfigError: the targets have no order, a class has a single member, or a part is smaller than the number of classes.
    """
    try:
        part, rest = train_test_split(
            positions, train_size=n_wanted, stratify=_plain(targets), random_state=random_state
        )
    except (ValueError, TypeError) as error:
        raise ConfigError(f"the targets cannot be stratified: {error}") from error
    return part, rest


def draw_folds(
    targets: npt.NDArray[Any], num_folds: int, random_state: np.random.RandomState | None
) -> list[_Positions]:
    """The positions of each fold, ascending; one-hot targets count as their labels.

    Raises:
        ConfigError: the targets are not labels, or all classes have fewer members than there are folds.
    """
    try:
        labels = _plain(targets)
        if labels.ndim > 1:
            ones = labels.reshape(len(labels)) if labels[0].size == 1 else one_hot_positions(labels)
            if ones is None:
                raise ConfigError(
                    f"stratification needs one label a sample; the targets have values of shape {labels.shape[1:]}"
                )
            labels = ones
        folds = StratifiedKFold(
            num_folds, shuffle=random_state is not None, random_state=random_state
        ).split(labels, labels)
        return [test for _, test in folds]
    except (ValueError, TypeError) as error:
        raise ConfigError(f"the targets cannot be stratified: {error}") from error


def _plain(targets: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.array(targets.tolist()) if targets.dtype == object else targets
