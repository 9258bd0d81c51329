"""Splitters: objects that divide an iterator by ratios or into folds, the same for the same seed."""

from __future__ import annotations

import functools
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.contract import ColumnKey, DatasetIteratorIF, as_iterator
from data_stack.dataset.iterator.layers.view import DatasetIteratorView
from data_stack.dataset.splits.parts import check_n_folds
from data_stack.dataset.splits.splitting import check_ratios, warn_of_empty_parts
from data_stack.exception import ConfigError

_Arguments = ParamSpec("_Arguments")
_Positions = npt.NDArray[np.integer[Any]]

_MAX_IN_INT32 = 2**31


class SplitterIF(ABC):
    """Divides an iterator. Stateless: the same splitter always returns the same parts of the same iterator."""

    @abstractmethod
    def split(self, dataset_iterator: DatasetIteratorIF) -> Any:
        """The parts as views of ``dataset_iterator``."""

    @abstractmethod
    def get_indices(self, dataset_iterator: DatasetIteratorIF) -> Any:
        """The positions of the parts' samples, as lists of ints, arranged as :meth:`split` arranges the views."""


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


class _RatioSplitterImpl(SplitterIF):
    def split(self, dataset_iterator: DatasetIteratorIF) -> list[DatasetIteratorView]:
        """One view for each ratio; warns of one that is empty though its ratio is not 0."""
        parts = self.get_indices(dataset_iterator)
        ratios = getattr(self, "ratios", [0.0] * len(parts))  # a client's class need not have them
        warn_of_empty_parts(
            {number: len(part) for number, part in enumerate(parts)},
            dict(enumerate(ratios)),
            len(dataset_iterator),
            "iterator.split() rounds sizes instead of cutting them off",
        )
        return [DatasetIteratorView(dataset_iterator, part) for part in parts]


class RandomSplitterImpl(_RatioSplitterImpl):
    """Parts of given sizes, drawn without looking at the samples.

    Part ``i`` has ``int(ratios[i] * n)`` samples, cut off as the original did, and the last one also what remains.
    (``iterator.split`` rounds instead, and draws several times as fast.)

    Args:
        ratios: sizes as fractions; none negative, of sum 1 (to 1e-9).
        seed: decides the order; None draws one now, to be found in ``seed``.

    Raises:
        ConfigError: the ratios are not such.
    """

    def __init__(self, ratios: Sequence[float], seed: int | None = 1) -> None:
        self.ratios = check_ratios(ratios)
        self.seed = _draw_if_none(seed)

    def get_indices(self, dataset_iterator: DatasetIteratorIF) -> list[list[int]]:
        """One list of positions for each ratio; no sample is read."""
        return self._determine_split_indices(len(dataset_iterator), self.ratios)

    def _determine_split_indices(
        self, dataset_length: int, ratios: Sequence[float]
    ) -> list[list[int]]:
        """The original's name, which programs override and call: the positions of each part."""
        order = _all_positions(dataset_length)
        # Python's own shuffle, of an array: a list of positions takes ten times the memory and half as long again.
        random.Random(self.seed).shuffle(_memory(order))  # noqa: S311  # an order, not a secret
        ends = np.cumsum([int(ratio * dataset_length) for ratio in ratios])
        return [part.tolist() for part in np.split(order, ends[:-1])]


class StratifiedSplitterImpl(_RatioSplitterImpl):
    """Parts of given sizes with the same mixture of targets in each, drawn by scikit-learn's ``train_test_split``.

    Args:
        ratios: sizes as fractions; none negative, of sum 1 (to 1e-9). Sizes are cut off as in :class:`RandomSplitterImpl`.
        seed: decides the drawing, 0 to 2**32 - 1; None draws one now, to be found in ``seed``.
        target_pos: position or key of the target in a sample. Rows of several values are classes of their own.

    Raises:
        ConfigError: the ratios are not such; when splitting: the seed is not, or a class or a part is too small.
        MissingDependencyError: when splitting: scikit-learn is not installed.
    """

    def __init__(
        self, ratios: Sequence[float], seed: int | None = None, target_pos: ColumnKey = 1
    ) -> None:
        self.ratios = check_ratios(ratios)
        self.seed = _draw_if_none(seed)
        self.target_pos = target_pos

    def get_indices(self, dataset_iterator: DatasetIteratorIF) -> list[list[int]]:
        """One list of positions for each ratio; only targets are read."""
        return self._determine_split_indices(len(dataset_iterator), self.ratios, dataset_iterator)

    def _determine_split_indices(
        self, dataset_length: int, ratios: Sequence[float], dataset_iterator: DatasetIteratorIF
    ) -> list[list[int]]:
        """The original's name, which programs override and call: the positions of each part."""
        remaining = _all_positions(dataset_length)
        if len(ratios) == 1:
            return [remaining.tolist()]
        from data_stack.dataset.splits.scikit_learn_splits import draw_part  # imports scikit-learn

        targets = as_iterator(dataset_iterator).read_column(self.target_pos)
        parts: list[_Positions] = []
        for ratio in ratios[:-1]:
            n_wanted = min(int(dataset_length * ratio), len(remaining))
            if ratio == 0 or n_wanted == len(remaining):
                part, remaining = remaining[:n_wanted], remaining[n_wanted:]
            else:
                # the same seed each time: so the original drew three and more parts
                part, remaining = draw_part(
                    remaining, targets[remaining], n_wanted, _random_state(self.seed)
                )
            parts.append(part)
        return [part.tolist() for part in (*parts, remaining)]


class CVSplitterImpl(SplitterIF):
    """Folds for cross validation: each sample in exactly one, sizes differing by one at most.

    They are those of scikit-learn's ``KFold`` and ``StratifiedKFold``; stratified ones need it.

    Args:
        num_folds: at least 2.
        stratification: the same mixture of targets in each fold. Without it no sample is read.
        target_pos: position or key of the target in a sample.
        shuffle: draw the folds; otherwise they are consecutive.
        seed: decides the drawing, 0 to 2**32 - 1; None draws one now, to be found in ``seed``.

    Raises:
        ConfigError: fewer than 2 folds; when splitting: more folds than samples, or no class has that many samples.
    """

    def __init__(
        self,
        num_folds: int = 5,
        stratification: bool = True,
        target_pos: ColumnKey = 1,
        shuffle: bool = True,
        seed: int | None = 1,
    ) -> None:
        self.num_folds, self.stratification = check_n_folds(num_folds), stratification
        self.target_pos, self.shuffle, self.seed = target_pos, shuffle, _draw_if_none(seed)

    def split(self, dataset_iterator: DatasetIteratorIF) -> list[DatasetIteratorView]:
        """One view for each fold."""
        targets = (
            as_iterator(dataset_iterator).read_column(self.target_pos)
            if self.stratification
            else None
        )
        random_state = _random_state(self.seed) if self.shuffle else None
        folds = _folds_of(len(dataset_iterator), self.num_folds, targets, random_state)
        return [_view(dataset_iterator, fold) for fold in folds]

    def get_indices(self, dataset_iterator: DatasetIteratorIF) -> list[list[int]]:
        """One list of positions for each fold, ascending; at most targets are read."""
        return [
            list(fold.indices) for fold in self.split(dataset_iterator)
        ]  # of the split, as programs override that


class NestedCVSplitterImpl(SplitterIF):
    """Outer folds, and for each of them inner folds of all samples outside of it; either plain or stratified.

    Args:
        num_outer_loop_folds: at least 2.
        num_inner_loop_folds: at least 2.
        inner_stratification: the same mixture of targets in each inner fold.
        outer_stratification: the same of the outer folds. With neither no target is read.
        target_pos: position or key of the target in a sample.
        shuffle: draw the folds; otherwise they are consecutive.
        seed: decides the drawing, 0 to 2**32 - 1; None draws one now, to be found in ``seed``.

    Raises:
        ConfigError: fewer than 2 folds; when splitting: more folds than samples, or no class has that many samples.
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
        self.num_outer_loop_folds = check_n_folds(num_outer_loop_folds)
        self.num_inner_loop_folds = check_n_folds(num_inner_loop_folds)
        self.inner_stratification, self.outer_stratification = (
            inner_stratification,
            outer_stratification,
        )
        self.target_pos, self.shuffle, self.seed = target_pos, shuffle, _draw_if_none(seed)

    def split(
        self, dataset_iterator: DatasetIteratorIF
    ) -> tuple[list[DatasetIteratorView], list[list[DatasetIteratorView]]]:
        """Views of the outer folds; and for each of them, views of its inner folds. All look through ``dataset_iterator``."""
        targets = None
        if self.outer_stratification or self.inner_stratification:
            targets = as_iterator(dataset_iterator).read_column(self.target_pos)
        # One generator for all folds, outer ones first: published folds depend on it.
        random_state = _random_state(self.seed) if self.shuffle else None
        outer_targets = targets if self.outer_stratification else None
        outer_folds = _folds_of(
            len(dataset_iterator), self.num_outer_loop_folds, outer_targets, random_state
        )
        inner_folds: list[list[DatasetIteratorView]] = []
        for left_out in range(len(outer_folds)):
            others = np.concatenate(
                [fold for number, fold in enumerate(outer_folds) if number != left_out]
            )
            inner_targets = (
                targets[others] if targets is not None and self.inner_stratification else None
            )
            folds = _folds_of(len(others), self.num_inner_loop_folds, inner_targets, random_state)
            inner_folds.append([_view(dataset_iterator, others[fold]) for fold in folds])
        return [_view(dataset_iterator, fold) for fold in outer_folds], inner_folds

    def get_indices(
        self, dataset_iterator: DatasetIteratorIF
    ) -> tuple[list[list[int]], list[list[list[int]]]]:
        """Positions of the outer folds; and for each of them, those of its inner folds, all in ``dataset_iterator``."""
        outer_folds, inner_folds = self.split(dataset_iterator)  # as programs override that
        return [list(fold.indices) for fold in outer_folds], [
            [list(fold.indices) for fold in folds] for folds in inner_folds
        ]


def _maker_of(implementation: Callable[_Arguments, SplitterIF]) -> Callable[_Arguments, Splitter]:
    """What makes a splitter of an implementation, with its arguments and docstring."""

    @functools.wraps(implementation)
    def get_splitter(*arguments: _Arguments.args, **options: _Arguments.kwargs) -> Splitter:
        return Splitter(splitter_impl=implementation(*arguments, **options))

    return get_splitter


class SplitterFactory:
    """Makes splitters, each from the arguments of its implementation."""

    get_random_splitter = staticmethod(_maker_of(RandomSplitterImpl))
    get_stratified_splitter = staticmethod(_maker_of(StratifiedSplitterImpl))
    get_nested_cv_splitter = staticmethod(_maker_of(NestedCVSplitterImpl))
    get_cv_splitter = staticmethod(_maker_of(CVSplitterImpl))


def _draw_if_none(seed: int | None) -> int:
    return random.SystemRandom().randrange(1 << 32) if seed is None else seed


def _random_state(seed: int) -> np.random.RandomState:
    try:
        return np.random.RandomState(seed)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"the seed of this splitter must be an integer from 0 to 2**32 - 1, got {seed!r}"
        ) from error


def _all_positions(n_samples: int) -> _Positions:
    return np.arange(n_samples, dtype=np.int32 if n_samples <= _MAX_IN_INT32 else np.int64)


def _folds_of(
    n_samples: int,
    num_folds: int,
    targets: npt.NDArray[Any] | None,
    random_state: np.random.RandomState | None,
) -> list[_Positions]:
    """The positions in each fold, ascending; ``random_state`` is drawn from and moves on."""
    if n_samples < num_folds:
        raise ConfigError(f"{n_samples} samples cannot be divided into {num_folds} folds")
    if targets is not None:
        from data_stack.dataset.splits.scikit_learn_splits import draw_folds  # imports scikit-learn

        return draw_folds(targets, num_folds, random_state)
    order = _all_positions(n_samples)
    if random_state is not None:
        random_state.shuffle(order)  # as scikit-learn's KFold
    return [np.sort(fold) for fold in np.array_split(order, num_folds)]


def _view(dataset_iterator: DatasetIteratorIF, positions: _Positions) -> DatasetIteratorView:
    # A view made with an array has an array as its ``indices``; made with anything else, a list, as the original's had.
    return DatasetIteratorView(dataset_iterator, _memory(positions))


def _memory(positions: Any) -> Any:
    return memoryview(positions)  # which numpy declares arrays to have from Python 3.12 on only
