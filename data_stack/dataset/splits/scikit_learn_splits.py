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
    """Draw ``n_wanted`` of the positions, with the same mixture of targets.

    Returns:
        The drawn positions and the others, both in drawn order.

    Raises:
        ConfigError: the targets have no order, a class has a single member, or a part is smaller
            than the number of classes.
    """
    try:
        part, others = train_test_split(
            positions,
            train_size=n_wanted,
            stratify=_with_own_dtype(targets),
            random_state=random_state,
        )
    except (ValueError, TypeError) as error:
        raise ConfigError(f"the targets cannot be stratified: {error}") from error
    return part, others


def draw_folds(
    targets: npt.NDArray[Any], num_folds: int, random_state: np.random.RandomState | None
) -> list[_Positions]:
    """Return the positions of each fold, ascending; one-hot targets count as their labels.

    Args:
        targets: shape ``(n_samples, ...)``.
        num_folds: the number of folds.
        random_state: draws the folds; None: they are consecutive within each class.

    Raises:
        ConfigError: the targets are not labels, or all classes have fewer members than there are
            folds.
    """
    try:
        labels = _labels_of(_with_own_dtype(targets))
        is_drawn = random_state is not None
        splitter = StratifiedKFold(num_folds, shuffle=is_drawn, random_state=random_state)
        return [test for _, test in splitter.split(labels, labels)]
    except (ValueError, TypeError) as error:
        raise ConfigError(f"the targets cannot be stratified: {error}") from error


def _labels_of(targets: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return one label a sample.

    Raises:
        ConfigError: a target has several values, and is not a one-hot vector.
    """
    if targets.ndim == 1:
        return targets
    has_one_value_each = targets[0].size == 1
    if has_one_value_each:
        return targets.reshape(len(targets))
    labels = one_hot_positions(targets)
    if labels is None:
        raise ConfigError(
            "stratification needs one label a sample; "
            f"the targets have values of shape {targets.shape[1:]}"
        )
    return labels


def _with_own_dtype(targets: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return targets; those of a column of objects in the dtype that numpy finds for them."""
    if targets.dtype != object:
        return targets
    return np.array(targets.tolist())
