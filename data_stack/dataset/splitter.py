"""Splits of a dataset: by ratios or into folds, at random or stratified, the same for the same seed."""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.iterator import ColumnKey, DatasetIteratorIF, adapted
from data_stack.dataset.iterator.view import DatasetIteratorView
from data_stack.exception import ConfigError, MissingDependencyError

__all__ = [
    "CVSplitterImpl",
    "NestedCVSplitterImpl",
    "RandomSplitterImpl",
    "Splitter",
    "SplitterFactory",
    "SplitterIF",
    "StratifiedSplitterImpl",
]

_Positions = npt.NDArray[np.intp]


class SplitterIF(ABC):
    """Divides an iterator. Stateless: the same splitter gives the same answer for the same iterator, whenever it is asked."""

    @abstractmethod
    def split(self, dataset_iterator: DatasetIteratorIF) -> Any:
        """The parts as views of ``dataset_iterator``."""
        raise NotImplementedError

    @abstractmethod
    def get_indices(self, dataset_iterator: DatasetIteratorIF) -> Any:
        """The positions of the parts' samples, as lists of ints, arranged as :meth:`split` arranges the views."""
        raise NotImplementedError


class Splitter(SplitterIF):
    """A splitter that asks its implementation."""

    def __init__(self, splitter_impl: SplitterIF) -> None:
        self.splitter_impl = splitter_impl

    def split(self, dataset_iterator: DatasetIteratorIF) -> Any:
        """The parts as views of ``dataset_iterator``."""
        return self.splitter_impl.split(dataset_iterator)

    def get_indices(self, dataset_iterator: DatasetIteratorIF) -> Any:
        """The positions of the parts' samples."""
        return self.splitter_impl.get_indices(dataset_iterator)


class RandomSplitterImpl(SplitterIF):
    """Parts of given sizes, drawn without looking at the samples.

    Part ``i`` has ``int(ratios[i] * n)`` samples, cut off as the original did, and the last one also what remains.

    Args:
        ratios: sizes as fractions; none negative, of sum 1 (to 1e-9).
        seed: decides the order; None draws one now, to be found in ``seed``.

    Raises:
        ConfigError: the ratios are not such.
    """

    def __init__(self, ratios: Sequence[float], seed: int | None = 1) -> None:
        self.ratios = _checked_ratios(ratios)
        self.seed = _drawn_if_none(seed)

    def split(self, dataset_iterator: DatasetIteratorIF) -> list[DatasetIteratorView]:
        """One view for each ratio."""
        return [DatasetIteratorView(dataset_iterator, indices) for indices in self.get_indices(dataset_iterator)]

    def get_indices(self, dataset_iterator: DatasetIteratorIF) -> list[list[int]]:
        """One list of positions for each ratio; no sample is read."""
        return self._determine_split_indices(len(dataset_iterator), self.ratios)

    def _determine_split_indices(self, dataset_length: int, ratios: Sequence[float]) -> list[list[int]]:
        indices = list(range(dataset_length))
        random.Random(self.seed).shuffle(indices)  # noqa: S311  # an order, not a secret
        parts: list[list[int]] = []
        start = 0
        for ratio in ratios:
            end = start + int(ratio * dataset_length)
            parts.append(indices[start:end])
            start = end
        parts[-1] += indices[start:]
        return parts


class StratifiedSplitterImpl(SplitterIF):
    """Parts of given sizes with the same mixture of targets in each; needs scikit-learn.

    Args:
        ratios: sizes as fractions; none negative, of sum 1 (to 1e-9). Sizes are cut off as in :class:`RandomSplitterImpl`.
        seed: decides the drawing; None draws one now, to be found in ``seed``.
        target_pos: position or key of the target in a sample.

    Raises:
        ConfigError: the ratios are not such; when splitting: a class or a part is too small to be stratified.
        MissingDependencyError: scikit-learn is not installed.
    """

    def __init__(self, ratios: Sequence[float], seed: int | None = None, target_pos: ColumnKey = 1) -> None:
        self.ratios = _checked_ratios(ratios)
        self.seed = _drawn_if_none(seed)
        self.target_pos = target_pos

    def split(self, dataset_iterator: DatasetIteratorIF) -> list[DatasetIteratorView]:
        """One view for each ratio."""
        return [DatasetIteratorView(dataset_iterator, indices) for indices in self.get_indices(dataset_iterator)]

    def get_indices(self, dataset_iterator: DatasetIteratorIF) -> list[list[int]]:
        """One list of positions for each ratio; only targets are read."""
        n_samples = len(dataset_iterator)
        remaining = np.arange(n_samples)
        if len(self.ratios) == 1:
            return [remaining.tolist()]
        # Rows of several values, such as one-hot vectors, are classes of their own to scikit-learn.
        targets = _targets(dataset_iterator, self.target_pos)
        parts: list[list[int]] = []
        for ratio in self.ratios[:-1]:
            n_wanted = int(n_samples * ratio)
            if ratio == 0 or n_wanted == len(remaining):
                part, remaining = remaining[:n_wanted], remaining[n_wanted:]
            else:
                part, remaining = self._drawn(remaining, targets[remaining], n_wanted)
            parts.append(part.tolist())
        parts.append(remaining.tolist())
        return parts

    def _drawn(self, positions: _Positions, targets: npt.NDArray[Any], n_wanted: int) -> tuple[_Positions, _Positions]:
        try:
            from sklearn.model_selection import train_test_split  # a second to import, so only where it is used
        except ModuleNotFoundError as error:
            raise MissingDependencyError("a stratified split", "scikit-learn", "sklearn") from error
        try:
            part, rest = train_test_split(positions, train_size=n_wanted, stratify=targets, random_state=self.seed, shuffle=True)
        except (TypeError, ValueError) as error:
            raise _not_stratifiable(error) from error
        return part, rest


class CVSplitterImpl(SplitterIF):
    """Folds for cross validation: each sample in exactly one, sizes differing by one at most.

    Args:
        num_folds: at least 2.
        stratification: the same mixture of targets in each fold (needs scikit-learn). Without it no sample is read.
        target_pos: position or key of the target in a sample.
        shuffle: draw the folds; otherwise they are consecutive.
        seed: decides the drawing; None draws one now, to be found in ``seed``.

    Raises:
        ConfigError: fewer than 2 folds; when splitting: more folds than samples, or no class has that many samples.
        MissingDependencyError: scikit-learn is not installed.
    """

    def __init__(
        self,
        num_folds: int = 5,
        stratification: bool = True,
        target_pos: ColumnKey = 1,
        shuffle: bool = True,
        seed: int | None = 1,
    ) -> None:
        self.num_folds = _checked_num_folds(num_folds)
        self.stratification = stratification
        self.target_pos = target_pos
        self.shuffle = shuffle
        self.seed = _drawn_if_none(seed)

    def split(self, dataset_iterator: DatasetIteratorIF) -> list[DatasetIteratorView]:
        """One view for each fold."""
        return [DatasetIteratorView(dataset_iterator, indices) for indices in self.get_indices(dataset_iterator)]

    def get_indices(self, dataset_iterator: DatasetIteratorIF) -> list[list[int]]:
        """One list of positions for each fold, ascending; at most targets are read."""
        labels = _labels(dataset_iterator, self.target_pos) if self.stratification else None
        random_state = np.random.RandomState(self.seed) if self.shuffle else None
        return [fold.tolist() for fold in _folds(len(dataset_iterator), self.num_folds, labels, random_state)]


class NestedCVSplitterImpl(SplitterIF):
    """Outer folds, and for each of them inner folds of all samples outside of it.

    Args:
        num_outer_loop_folds: at least 2.
        num_inner_loop_folds: at least 2.
        inner_stratification: the same mixture of targets in each inner fold (needs scikit-learn).
        outer_stratification: the same of the outer folds. With neither no sample is read.
        target_pos: position or key of the target in a sample.
        shuffle: draw the folds; otherwise they are consecutive.
        seed: decides the drawing; None draws one now, to be found in ``seed``.

    Raises:
        ConfigError: fewer than 2 folds; when splitting: more folds than samples, or no class has that many samples.
        MissingDependencyError: scikit-learn is not installed.
    """

    def __init__(
        self,
        num_outer_loop_folds: int = 5,
        num_inner_loop_folds: int = 2,
        inner_stratification: bool = True,
        outer_stratification: bool = True,
        target_pos: ColumnKey = 1,
        shuffle: bool = True,
        seed: int | None = 1,
    ) -> None:
        self.num_outer_loop_folds = _checked_num_folds(num_outer_loop_folds)
        self.num_inner_loop_folds = _checked_num_folds(num_inner_loop_folds)
        self.inner_stratification = inner_stratification
        self.outer_stratification = outer_stratification
        self.target_pos = target_pos
        self.shuffle = shuffle
        self.seed = _drawn_if_none(seed)

    def split(self, dataset_iterator: DatasetIteratorIF) -> tuple[list[DatasetIteratorView], list[list[DatasetIteratorView]]]:
        """Views of the outer folds; and for each of them, views of its inner folds. All look through ``dataset_iterator``."""
        outer_folds, inner_folds = self._positions(dataset_iterator)
        return (
            [DatasetIteratorView(dataset_iterator, fold) for fold in outer_folds],
            [[DatasetIteratorView(dataset_iterator, fold) for fold in folds] for folds in inner_folds],
        )

    def get_indices(self, dataset_iterator: DatasetIteratorIF) -> tuple[list[list[int]], list[list[list[int]]]]:
        """Positions of the outer folds; and for each of them, those of its inner folds, all in ``dataset_iterator``."""
        outer_folds, inner_folds = self._positions(dataset_iterator)
        return [fold.tolist() for fold in outer_folds], [[fold.tolist() for fold in folds] for folds in inner_folds]

    def _positions(self, dataset_iterator: DatasetIteratorIF) -> tuple[list[_Positions], list[list[_Positions]]]:
        stratifies = self.inner_stratification or self.outer_stratification
        labels = _labels(dataset_iterator, self.target_pos) if stratifies else None
        # One generator for all folds, outer ones first: published folds depend on it.
        random_state = np.random.RandomState(self.seed) if self.shuffle else None
        outer_labels = labels if self.outer_stratification else None
        outer_folds = _folds(len(dataset_iterator), self.num_outer_loop_folds, outer_labels, random_state)
        inner_folds: list[list[_Positions]] = []
        for left_out in range(len(outer_folds)):
            others = np.concatenate([fold for number, fold in enumerate(outer_folds) if number != left_out])
            inner_labels = labels[others] if labels is not None and self.inner_stratification else None
            folds = _folds(len(others), self.num_inner_loop_folds, inner_labels, random_state)
            inner_folds.append([others[fold] for fold in folds])
        return outer_folds, inner_folds


class SplitterFactory:
    """Makes splitters."""

    @staticmethod
    def get_random_splitter(ratios: Sequence[float], seed: int | None) -> Splitter:
        """See :class:`RandomSplitterImpl`."""
        return Splitter(splitter_impl=RandomSplitterImpl(ratios, seed=seed))

    @staticmethod
    def get_stratified_splitter(ratios: Sequence[float], seed: int | None, target_pos: ColumnKey = 1) -> Splitter:
        """See :class:`StratifiedSplitterImpl`."""
        return Splitter(splitter_impl=StratifiedSplitterImpl(ratios, seed=seed, target_pos=target_pos))

    @staticmethod
    def get_nested_cv_splitter(
        num_outer_loop_folds: int = 5,
        num_inner_loop_folds: int = 2,
        inner_stratification: bool = True,
        outer_stratification: bool = True,
        target_pos: ColumnKey = 1,
        shuffle: bool = True,
        seed: int | None = 1,
    ) -> Splitter:
        """See :class:`NestedCVSplitterImpl`."""
        splitter_impl = NestedCVSplitterImpl(
            num_outer_loop_folds=num_outer_loop_folds,
            num_inner_loop_folds=num_inner_loop_folds,
            inner_stratification=inner_stratification,
            outer_stratification=outer_stratification,
            target_pos=target_pos,
            shuffle=shuffle,
            seed=seed,
        )
        return Splitter(splitter_impl=splitter_impl)

    @staticmethod
    def get_cv_splitter(
        num_folds: int = 5,
        stratification: bool = True,
        target_pos: ColumnKey = 1,
        shuffle: bool = True,
        seed: int | None = 1,
    ) -> Splitter:
        """See :class:`CVSplitterImpl`."""
        splitter_impl = CVSplitterImpl(
            num_folds=num_folds, stratification=stratification, target_pos=target_pos, shuffle=shuffle, seed=seed
        )
        return Splitter(splitter_impl=splitter_impl)


def _checked_ratios(ratios: Sequence[float]) -> list[float]:
    ratios = list(ratios)
    # written so that nan fails as well
    if not ratios or not all(ratio >= 0 for ratio in ratios) or not abs(math.fsum(ratios) - 1) <= 1e-9:
        raise ConfigError(f"ratios must not be negative and must sum to 1; {ratios} sum to {math.fsum(ratios)}")
    return ratios


def _checked_num_folds(num_folds: int) -> int:
    if num_folds < 2:
        raise ConfigError(f"cross validation needs at least 2 folds, got {num_folds}")
    return num_folds


def _drawn_if_none(seed: int | None) -> int:
    return random.SystemRandom().randrange(1 << 32) if seed is None else seed


def _targets(dataset_iterator: DatasetIteratorIF, target_pos: ColumnKey) -> npt.NDArray[Any]:
    targets = adapted(dataset_iterator).read_column(target_pos)
    if targets.dtype != object:
        return targets
    try:
        return np.array(targets.tolist())  # strings, as numpy sorts them
    except ValueError as error:  # arrays of different shapes
        raise _not_stratifiable(error) from error


def _labels(dataset_iterator: DatasetIteratorIF, target_pos: ColumnKey) -> npt.NDArray[Any]:
    """One label a sample: of one-hot targets, the position of the one."""
    targets = _targets(dataset_iterator, target_pos)
    if targets.ndim == 2 and targets.dtype.kind in "biuf":
        is_one_hot = ((targets == 0) | (targets == 1)).all() and (targets.sum(axis=1) == 1).all()
        if targets.shape[1] == 1 or is_one_hot:
            return targets[:, 0] if targets.shape[1] == 1 else targets.argmax(axis=1)
    if targets.ndim != 1:
        raise ConfigError(
            f"stratification needs one label a sample; column {target_pos!r} has values of shape {targets.shape[1:]}. "
            f"Name the label's column as target_pos, or split without stratification."
        )
    return targets


def _folds(
    n_samples: int, num_folds: int, labels: npt.NDArray[Any] | None, random_state: np.random.RandomState | None
) -> list[_Positions]:
    """The positions in each fold, ascending."""
    if n_samples < num_folds:
        raise ConfigError(f"{n_samples} samples cannot be divided into {num_folds} folds")
    if labels is None:
        order = np.arange(n_samples)
        if random_state is not None:
            random_state.shuffle(order)  # as scikit-learn's KFold, which need not be installed for it
        return [np.sort(fold) for fold in np.array_split(order, num_folds)]
    try:
        from sklearn.model_selection import StratifiedKFold  # a second to import, so only where it is used
    except ModuleNotFoundError as error:
        raise MissingDependencyError("stratified cross validation", "scikit-learn", "sklearn") from error
    splitter = StratifiedKFold(n_splits=num_folds, shuffle=random_state is not None, random_state=random_state)
    try:
        return [fold for _, fold in splitter.split(X=np.zeros(n_samples), y=labels)]
    except (TypeError, ValueError) as error:
        raise _not_stratifiable(error) from error


def _not_stratifiable(error: Exception) -> ConfigError:
    return ConfigError(f"the targets cannot be stratified: {error} Use larger parts, or split without stratification.")
