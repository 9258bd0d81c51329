"""Splitters: objects that divide an iterator by ratios or into folds, as a seed decides."""

from __future__ import annotations

import functools
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.contract import ColumnKey, DatasetIteratorIF
from data_stack.dataset.iterator.layers.view import DatasetIteratorView
from data_stack.dataset.splits.divisions import check_n_folds
from data_stack.dataset.splits.shares import check_ratios, warn_of_empty_parts
from data_stack.exception import ConfigError

_Arguments = ParamSpec("_Arguments")
_Positions = npt.NDArray[np.integer[Any]]

#: Up to this number of samples, positions fit in 4 bytes.
_MAX_IN_INT32 = 2**31


class SplitterIF(ABC):
    """Divides an iterator.

    A splitter is stateless: it always returns the same parts of the same iterator.
    """

    @abstractmethod
    def split(self, dataset_iterator: DatasetIteratorIF) -> Any:
        """Return the parts as views of ``dataset_iterator``."""

    @abstractmethod
    def get_indices(self, dataset_iterator: DatasetIteratorIF) -> Any:
        """Return the positions of the parts' samples, as lists of ints.

        They are arranged as :meth:`split` arranges the views.
        """


class Splitter(SplitterIF):
    """A splitter that passes its calls on to another one, its implementation."""

    def __init__(self, splitter_impl: SplitterIF) -> None:
        self.splitter_impl = splitter_impl

    def split(self, dataset_iterator: DatasetIteratorIF) -> Any:
        """Return the parts as views of ``dataset_iterator``."""
        return self.splitter_impl.split(dataset_iterator)

    def get_indices(self, dataset_iterator: DatasetIteratorIF) -> Any:
        """Return the positions of the parts' samples."""
        return self.splitter_impl.get_indices(dataset_iterator)


# ------------------------------------------------------------------------------------------- ratios


class _RatioSplitterImpl(SplitterIF):
    """Divides by ratios; a subclass defines ``get_indices``."""

    def split(self, dataset_iterator: DatasetIteratorIF) -> list[DatasetIteratorView]:
        """Return one view for each ratio.

        Warns of a view that is empty though its ratio is not 0.
        """
        parts = self.get_indices(dataset_iterator)
        # A client's subclass need not have ratios; then no part is expected to have samples.
        ratios = getattr(self, "ratios", [0.0] * len(parts))
        warn_of_empty_parts(
            sizes={number: len(part) for number, part in enumerate(parts)},
            ratios=dict(enumerate(ratios)),
            n_samples=len(dataset_iterator),
            advice="iterator.split() rounds sizes instead of cutting them off",
        )
        return [DatasetIteratorView(dataset_iterator, part) for part in parts]


class RandomSplitterImpl(_RatioSplitterImpl):
    """Draws parts of given sizes, without looking at the samples.

    Part ``i`` has ``int(ratios[i] * n)`` samples: sizes are cut off, as the original DataStack did.
    The last part also has what remains. (``iterator.split`` rounds sizes instead, and draws several
    times as fast.)

    Args:
        ratios: sizes as fractions; none negative, of sum 1 (to 1e-9).
        seed: decides the order. None draws a seed now; the attribute ``seed`` holds it.

    Raises:
        ConfigError: the ratios are not such.
    """

    def __init__(self, ratios: Sequence[float], seed: int | None = 1) -> None:
        self.ratios = check_ratios(ratios)
        self.seed = _draw_if_none(seed)

    def get_indices(self, dataset_iterator: DatasetIteratorIF) -> list[list[int]]:
        """Return one list of positions for each ratio; no sample is read."""
        return self._determine_split_indices(len(dataset_iterator), self.ratios)

    def _determine_split_indices(
        self, dataset_length: int, ratios: Sequence[float]
    ) -> list[list[int]]:
        """Return the positions of each part.

        The name is the original's: programs override and call this method.
        """
        order = _all_positions(dataset_length)
        # Python's own shuffle, of an array: a list of positions takes ten times the memory and half
        # as long again.
        random.Random(self.seed).shuffle(_memory(order))  # noqa: S311  # an order, not a secret
        sizes = [int(ratio * dataset_length) for ratio in ratios]
        ends = np.cumsum(sizes)
        return [part.tolist() for part in np.split(order, ends[:-1])]


class StratifiedSplitterImpl(_RatioSplitterImpl):
    """Draws parts of given sizes, with the same mixture of targets in each.

    scikit-learn's ``train_test_split`` draws them.

    Args:
        ratios: sizes as fractions; none negative, of sum 1 (to 1e-9). Sizes are cut off as in
            :class:`RandomSplitterImpl`.
        seed: decides the drawing, 0 to 2**32 - 1. None draws a seed now; the attribute ``seed``
            holds it.
        target_pos: position or key of the target in a sample. If a target has several values, all
            of them together are its class.

    Raises:
        ConfigError: the ratios are not such; when splitting: the seed is not, or a class or a part
            is too small.
        MissingDependencyError: when splitting: scikit-learn is not installed.
    """

    def __init__(
        self, ratios: Sequence[float], seed: int | None = None, target_pos: ColumnKey = 1
    ) -> None:
        self.ratios = check_ratios(ratios)
        self.seed = _draw_if_none(seed)
        self.target_pos = target_pos

    def get_indices(self, dataset_iterator: DatasetIteratorIF) -> list[list[int]]:
        """Return one list of positions for each ratio; only targets are read."""
        return self._determine_split_indices(len(dataset_iterator), self.ratios, dataset_iterator)

    def _determine_split_indices(
        self, dataset_length: int, ratios: Sequence[float], dataset_iterator: DatasetIteratorIF
    ) -> list[list[int]]:
        """Return the positions of each part.

        The name is the original's: programs override and call this method.
        """
        remaining = _all_positions(dataset_length)
        if len(ratios) == 1:
            return [remaining.tolist()]
        from data_stack.dataset.splits.scikit_learn_splits import draw_part  # imports scikit-learn

        targets = as_iterator(dataset_iterator).read_column(self.target_pos)
        parts: list[_Positions] = []
        for ratio in ratios[:-1]:
            n_wanted = min(int(dataset_length * ratio), len(remaining))
            takes_all = n_wanted == len(remaining)
            if ratio == 0 or takes_all:
                part = remaining[:n_wanted]
                remaining = remaining[n_wanted:]
            else:
                # With the same seed each time, as the original drew three and more parts.
                random_state = _random_state(self.seed)
                part, remaining = draw_part(remaining, targets[remaining], n_wanted, random_state)
            parts.append(part)
        parts.append(remaining)
        return [part.tolist() for part in parts]


# -------------------------------------------------------------------------------------------- folds


class CVSplitterImpl(SplitterIF):
    """Divides into folds for cross validation.

    Each sample is in exactly one fold, and the sizes of folds differ by at most one. The folds are
    those of scikit-learn's ``KFold`` and ``StratifiedKFold``; stratified folds need scikit-learn.

    Args:
        num_folds: at least 2.
        stratification: the same mixture of targets in each fold. If it is False, no sample is read.
        target_pos: position or key of the target in a sample.
        shuffle: draw the folds; otherwise they are consecutive.
        seed: decides the drawing, 0 to 2**32 - 1. None draws a seed now; the attribute ``seed``
            holds it.

    Raises:
        ConfigError: fewer than 2 folds; when splitting: more folds than samples, or no class has
            that many samples.
    """

    def __init__(
        self,
        num_folds: int = 5,
        stratification: bool = True,
        target_pos: ColumnKey = 1,
        shuffle: bool = True,
        seed: int | None = 1,
    ) -> None:
        self.num_folds = check_n_folds(num_folds)
        self.stratification = stratification
        self.target_pos = target_pos
        self.shuffle = shuffle
        self.seed = _draw_if_none(seed)

    def split(self, dataset_iterator: DatasetIteratorIF) -> list[DatasetIteratorView]:
        """Return one view for each fold."""
        targets = None
        if self.stratification:
            targets = as_iterator(dataset_iterator).read_column(self.target_pos)
        random_state = _random_state(self.seed) if self.shuffle else None
        folds = _positions_of_folds(len(dataset_iterator), self.num_folds, targets, random_state)
        return [_view(dataset_iterator, fold) for fold in folds]

    def get_indices(self, dataset_iterator: DatasetIteratorIF) -> list[list[int]]:
        """Return one list of positions for each fold, ascending; at most targets are read."""
        # Programs override split(), so its views decide.
        return _indices_of(self.split(dataset_iterator))


class NestedCVSplitterImpl(SplitterIF):
    """Divides into outer folds, and for each of them all samples outside of it into inner folds.

    Args:
        num_outer_loop_folds: at least 2.
        num_inner_loop_folds: at least 2.
        inner_stratification: the same mixture of targets in each inner fold.
        outer_stratification: the same mixture of targets in each outer fold. If neither is set, no
            target is read.
        target_pos: position or key of the target in a sample.
        shuffle: draw the folds; otherwise they are consecutive.
        seed: decides the drawing, 0 to 2**32 - 1. None draws a seed now; the attribute ``seed``
            holds it.

    Raises:
        ConfigError: fewer than 2 folds; when splitting: more folds than samples, or no class has
            that many samples.
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
        self.inner_stratification = inner_stratification
        self.outer_stratification = outer_stratification
        self.target_pos = target_pos
        self.shuffle = shuffle
        self.seed = _draw_if_none(seed)

    def split(
        self, dataset_iterator: DatasetIteratorIF
    ) -> tuple[list[DatasetIteratorView], list[list[DatasetIteratorView]]]:
        """Return views of the outer folds; and for each of them, views of its inner folds.

        All views look through ``dataset_iterator``.
        """
        targets = None
        if self.outer_stratification or self.inner_stratification:
            targets = as_iterator(dataset_iterator).read_column(self.target_pos)
        # One generator draws all folds, outer ones first: published folds depend on it.
        random_state = _random_state(self.seed) if self.shuffle else None

        outer_targets = targets if self.outer_stratification else None
        outer_folds = _positions_of_folds(
            len(dataset_iterator), self.num_outer_loop_folds, outer_targets, random_state
        )

        inner_views: list[list[DatasetIteratorView]] = []
        for number in range(len(outer_folds)):
            others = np.concatenate(outer_folds[:number] + outer_folds[number + 1 :])
            inner_targets = None
            if targets is not None and self.inner_stratification:
                inner_targets = targets[others]
            inner_folds = _positions_of_folds(
                len(others), self.num_inner_loop_folds, inner_targets, random_state
            )
            inner_views.append([_view(dataset_iterator, others[fold]) for fold in inner_folds])
        outer_views = [_view(dataset_iterator, fold) for fold in outer_folds]
        return outer_views, inner_views

    def get_indices(
        self, dataset_iterator: DatasetIteratorIF
    ) -> tuple[list[list[int]], list[list[list[int]]]]:
        """Return positions of the outer folds; and for each of them, those of its inner folds.

        All are positions in ``dataset_iterator``.
        """
        # Programs override split(), so its views decide.
        outer_views, inner_views = self.split(dataset_iterator)
        return _indices_of(outer_views), [_indices_of(views) for views in inner_views]


# ---------------------------------------------------------------------------------------- factory


def _make_getter(
    implementation: Callable[_Arguments, SplitterIF],
) -> Callable[_Arguments, Splitter]:
    """Return a function that makes a splitter, with the signature of its implementation."""

    @functools.wraps(implementation)
    def get_splitter(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> Splitter:
        return Splitter(splitter_impl=implementation(*args, **kwargs))

    return get_splitter


class SplitterFactory:
    """Makes splitters, each from the arguments of its implementation."""

    get_random_splitter = staticmethod(_make_getter(RandomSplitterImpl))
    get_stratified_splitter = staticmethod(_make_getter(StratifiedSplitterImpl))
    get_nested_cv_splitter = staticmethod(_make_getter(NestedCVSplitterImpl))
    get_cv_splitter = staticmethod(_make_getter(CVSplitterImpl))


# ---------------------------------------------------------------------------------------- positions


def _draw_if_none(seed: int | None) -> int:
    if seed is not None:
        return seed
    return random.SystemRandom().randrange(1 << 32)


def _random_state(seed: int) -> np.random.RandomState:
    """Return numpy's legacy generator for a seed.

    Raises:
        ConfigError: the seed is not an integer from 0 to 2**32 - 1.
    """
    try:
        return np.random.RandomState(seed)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"the seed of this splitter must be an integer from 0 to 2**32 - 1, got {seed!r}"
        ) from error


def _all_positions(n_samples: int) -> _Positions:
    dtype = np.int32 if n_samples <= _MAX_IN_INT32 else np.int64
    return np.arange(n_samples, dtype=dtype)


def _positions_of_folds(
    n_samples: int,
    num_folds: int,
    targets: npt.NDArray[Any] | None,
    random_state: np.random.RandomState | None,
) -> list[_Positions]:
    """Return the positions in each fold, ascending.

    Args:
        n_samples: the number of samples.
        num_folds: the number of folds.
        targets: for the same mixture in each fold; None: targets do not matter.
        random_state: draws the folds, and moves on; None: they are consecutive.

    Raises:
        ConfigError: more folds than samples, or no class has that many samples.
    """
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
    # Programs expect that the ``indices`` of these views are lists. Those of a view that is made
    # with an array are an array; with anything else, such as the memory of an array, a list.
    return DatasetIteratorView(dataset_iterator, _memory(positions))


def _indices_of(views: Sequence[DatasetIteratorView]) -> list[list[int]]:
    return [list(view.indices) for view in views]


def _memory(positions: Any) -> Any:
    """Return a memoryview of an array.

    The types are Any because numpy declares only from Python 3.12 on that arrays have memory.
    """
    return memoryview(positions)
