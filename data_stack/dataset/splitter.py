"""Splitters: objects that divide an iterator by ratios or into folds, the same for the same seed."""

from __future__ import annotations

import inspect
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.contract import ColumnKey, DatasetIteratorIF, IndexArray, adapted
from data_stack.dataset.iterator.indices import checked_indices
from data_stack.dataset.iterator.view import DatasetIteratorView
from data_stack.dataset.positions import as_index_array
from data_stack.dataset.randomness.seeds import derived_seed
from data_stack.dataset.splits.parts import Division, Fold, Folding, SplitPartIterator, checked_n_folds
from data_stack.dataset.splits.scikit_learn_splits import all_positions, drawn_part, folds_of, labels_of, sorted_numbers
from data_stack.dataset.splits.splitting import checked_ratios, positions_of_parts
from data_stack.exception import ConfigError

__all__ = [
    "CVSplitterImpl",
    "Fold",
    "GroupedCVSplitterImpl",
    "GroupedSplitterImpl",
    "NestedCVSplitterImpl",
    "PredefinedSplitterImpl",
    "RandomSplitterImpl",
    "Splitter",
    "SplitterFactory",
    "SplitterIF",
    "StratifiedSplitterImpl",
    "TimeSplitterImpl",
]

_Arguments = ParamSpec("_Arguments")
_Positions = npt.NDArray[np.integer[Any]]


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
    (``iterator.split`` rounds instead, and draws several times as fast.)

    Args:
        ratios: sizes as fractions; none negative, of sum 1 (to 1e-9).
        seed: decides the order; None draws one now, to be found in ``seed``.

    Raises:
        ConfigError: the ratios are not such.
    """

    def __init__(self, ratios: Sequence[float], seed: int | None = 1) -> None:
        self.ratios = checked_ratios(ratios)
        self.seed = _drawn_if_none(seed)

    def split(self, dataset_iterator: DatasetIteratorIF) -> list[DatasetIteratorView]:
        """One view for each ratio."""
        return [DatasetIteratorView(dataset_iterator, part) for part in self.get_indices(dataset_iterator)]

    def get_indices(self, dataset_iterator: DatasetIteratorIF) -> list[list[int]]:
        """One list of positions for each ratio; no sample is read."""
        return self._determine_split_indices(len(dataset_iterator), self.ratios)

    def _determine_split_indices(self, dataset_length: int, ratios: Sequence[float]) -> list[list[int]]:
        """The original's name, which programs override and call: the positions of each part."""
        order = all_positions(dataset_length)
        # Python's own shuffle, of an array: a list of positions takes ten times the memory and half as long again.
        random.Random(self.seed).shuffle(_memory(order))  # noqa: S311  # an order, not a secret
        ends = np.cumsum([int(ratio * dataset_length) for ratio in ratios])
        return [part.tolist() for part in np.split(order, ends[:-1])]


class StratifiedSplitterImpl(SplitterIF):
    """Parts of given sizes with the same mixture of targets in each, as scikit-learn's ``train_test_split`` draws them.

    Args:
        ratios: sizes as fractions; none negative, of sum 1 (to 1e-9). Sizes are cut off as in :class:`RandomSplitterImpl`.
        seed: decides the drawing, 0 to 2**32 - 1; None draws one now, to be found in ``seed``.
        target_pos: position or key of the target in a sample. Rows of several values are classes of their own.

    Raises:
        ConfigError: the ratios are not such; when splitting: the seed is not, or a class or a part is too small.
    """

    def __init__(self, ratios: Sequence[float], seed: int | None = None, target_pos: ColumnKey = 1) -> None:
        self.ratios = checked_ratios(ratios)
        self.seed = _drawn_if_none(seed)
        self.target_pos = target_pos

    def split(self, dataset_iterator: DatasetIteratorIF) -> list[DatasetIteratorView]:
        """One view for each ratio."""
        return [DatasetIteratorView(dataset_iterator, part) for part in self.get_indices(dataset_iterator)]

    def get_indices(self, dataset_iterator: DatasetIteratorIF) -> list[list[int]]:
        """One list of positions for each ratio; only targets are read."""
        return self._determine_split_indices(len(dataset_iterator), self.ratios, dataset_iterator)

    def _determine_split_indices(
        self, dataset_length: int, ratios: Sequence[float], dataset_iterator: DatasetIteratorIF
    ) -> list[list[int]]:
        """The original's name, which programs override and call: the positions of each part."""
        remaining = all_positions(dataset_length)
        if len(ratios) == 1:
            return [remaining.tolist()]
        numbers, names = sorted_numbers(adapted(dataset_iterator).read_column(self.target_pos))
        parts: list[_Positions] = []
        for ratio in ratios[:-1]:
            n_wanted = min(int(dataset_length * ratio), len(remaining))
            if ratio == 0 or n_wanted == len(remaining):
                part, remaining = remaining[:n_wanted], remaining[n_wanted:]
            else:
                # the same seed each time: so the original drew three and more parts
                drawn, rest = drawn_part(numbers, names, n_wanted, _random_state(self.seed))
                part, remaining, numbers = remaining[drawn], remaining[rest], numbers[rest]
            parts.append(part)
        return [part.tolist() for part in (*parts, remaining)]


class CVSplitterImpl(SplitterIF):
    """Folds for cross validation: each sample in exactly one, sizes differing by one at most.

    They are drawn as scikit-learn's ``KFold`` and ``StratifiedKFold`` draw them.

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
        self.num_folds = checked_n_folds(num_folds)
        self.stratification = stratification
        self.target_pos = target_pos
        self.shuffle = shuffle
        self.seed = _drawn_if_none(seed)

    def split(self, dataset_iterator: DatasetIteratorIF) -> list[DatasetIteratorView]:
        """One view for each fold."""
        return [_view(dataset_iterator, fold) for fold in self._positions(dataset_iterator)]

    def get_indices(self, dataset_iterator: DatasetIteratorIF) -> list[list[int]]:
        """One list of positions for each fold, ascending; at most targets are read."""
        return [list(fold.indices) for fold in self.split(dataset_iterator)]  # of the split, as programs override that

    def _positions(self, dataset_iterator: DatasetIteratorIF) -> list[_Positions]:
        labels = labels_of(dataset_iterator, self.target_pos) if self.stratification else None
        random_state = _random_state(self.seed) if self.shuffle else None
        return folds_of(len(dataset_iterator), self.num_folds, labels, random_state)


class NestedCVSplitterImpl(SplitterIF):
    """Outer folds, and for each of them inner folds of all samples outside of it; either plain, stratified or grouped.

    Args:
        num_outer_loop_folds: at least 2.
        num_inner_loop_folds: at least 2.
        inner_stratification: the same mixture of targets in each inner fold.
        outer_stratification: the same of the outer folds. With neither no target is read.
        target_pos: position or key of the target in a sample.
        shuffle: draw the folds; otherwise they are consecutive.
        seed: decides the drawing, 0 to 2**32 - 1; None draws one now, to be found in ``seed``.
        inner_group_pos: a column whose equal values stay together in one inner fold, placed as :class:`GroupedCVSplitterImpl`
            places them; stratified, too, as far as groups allow, if ``inner_stratification`` says so.
        outer_group_pos: the same of the outer folds.

    Raises:
        ConfigError: fewer than 2 folds; when splitting: more folds than samples or groups, or no class has that many samples.
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
        *,
        inner_group_pos: ColumnKey | None = None,
        outer_group_pos: ColumnKey | None = None,
    ) -> None:
        self.num_outer_loop_folds = checked_n_folds(num_outer_loop_folds)
        self.num_inner_loop_folds = checked_n_folds(num_inner_loop_folds)
        self.inner_stratification = inner_stratification
        self.outer_stratification = outer_stratification
        self.target_pos = target_pos
        self.shuffle = shuffle
        self.seed = _drawn_if_none(seed)
        self.inner_group_pos = inner_group_pos
        self.outer_group_pos = outer_group_pos

    def split(self, dataset_iterator: DatasetIteratorIF) -> tuple[list[DatasetIteratorView], list[list[DatasetIteratorView]]]:
        """Views of the outer folds; and for each of them, views of its inner folds. All look through ``dataset_iterator``."""
        outer_folds, inner_folds = self._positions(dataset_iterator)
        return (
            [_view(dataset_iterator, fold) for fold in outer_folds],
            [[_view(dataset_iterator, fold) for fold in folds] for folds in inner_folds],
        )

    def get_indices(self, dataset_iterator: DatasetIteratorIF) -> tuple[list[list[int]], list[list[list[int]]]]:
        """Positions of the outer folds; and for each of them, those of its inner folds, all in ``dataset_iterator``."""
        outer_folds, inner_folds = self.split(dataset_iterator)  # as programs override that
        return [list(fold.indices) for fold in outer_folds], [[list(fold.indices) for fold in folds] for folds in inner_folds]

    def _positions(self, dataset_iterator: DatasetIteratorIF) -> tuple[list[_Positions], list[list[_Positions]]]:
        stratifies_outside = self.outer_stratification and self.outer_group_pos is None
        stratifies_inside = self.inner_stratification and self.inner_group_pos is None
        labels = labels_of(dataset_iterator, self.target_pos) if stratifies_outside or stratifies_inside else None
        # One generator for all folds, outer ones first: published folds depend on it.
        random_state = _random_state(self.seed) if self.shuffle else None
        if self.outer_group_pos is None:
            outer_labels = labels if stratifies_outside else None
            outer_folds = folds_of(len(dataset_iterator), self.num_outer_loop_folds, outer_labels, random_state)
        else:
            target_pos = self.target_pos if self.outer_stratification else None
            seed = self.seed if self.shuffle else None
            folding = Folding.of(self.num_outer_loop_folds, seed=seed, stratify=target_pos, group_by=self.outer_group_pos)
            outer_folds = _grouped_folds(dataset_iterator, folding)
        inner_folds: list[list[_Positions]] = []
        for left_out in range(len(outer_folds)):
            others = np.concatenate([fold for number, fold in enumerate(outer_folds) if number != left_out])
            if self.inner_group_pos is None:
                inner_labels = labels.among(others) if labels is not None and stratifies_inside else None
                folds = folds_of(len(others), self.num_inner_loop_folds, inner_labels, random_state)
            else:
                target_pos = self.target_pos if self.inner_stratification else None
                seed = derived_seed("nested", self.seed, left_out) if self.shuffle else None
                folding = Folding.of(self.num_inner_loop_folds, seed=seed, stratify=target_pos, group_by=self.inner_group_pos)
                folds = _grouped_folds(DatasetIteratorView(dataset_iterator, others), folding)
            inner_folds.append([others[fold] for fold in folds])
        return outer_folds, inner_folds


class _DivisionSplitter(SplitterIF):
    """Divides as ``iterator.split`` does; see :class:`~data_stack.dataset.splits.parts.Division`."""

    division: Division

    def split(self, dataset_iterator: DatasetIteratorIF) -> Any:
        """One view for each part, its samples in the iterator's order: a dict if parts have names, otherwise a list."""
        arguments = self.division.arguments()
        return self.division.arranged(
            {
                part: SplitPartIterator(dataset_iterator, part=part, positions=positions, **arguments)
                for part, positions in self.division.positions(dataset_iterator).items()
            }
        )

    def get_indices(self, dataset_iterator: DatasetIteratorIF) -> Any:
        """One list of positions for each part, ascending, arranged likewise; only the columns that decide are read."""
        positions_of = self.division.positions(dataset_iterator)
        return self.division.arranged({part: as_index_array(positions).tolist() for part, positions in positions_of.items()})


class GroupedSplitterImpl(_DivisionSplitter):
    """Parts of given sizes as nearly as it can be with groups kept whole; see :class:`~data_stack.dataset.splits.parts.Division`.

    Args:
        ratios: sizes as fractions of sum 1; a mapping names the parts.
        seed: decides the drawing; None draws one now, to be found in ``seed``.
        group_pos: position or key of the group in a sample.
        target_pos: of a column to be mixed as equally in all parts as the groups allow; None for no such thing.

    Raises:
        ConfigError: the ratios are not such; when splitting: fewer groups than parts, or a group is NaN or None.
    """

    def __init__(
        self,
        ratios: Sequence[float] | Mapping[str, float],
        seed: int | None = 1,
        group_pos: ColumnKey = 2,
        target_pos: ColumnKey | None = None,
    ) -> None:
        self.seed = _drawn_if_none(seed)
        self.division = Division.of(ratios, seed=self.seed, group_by=group_pos, stratify=target_pos)


class TimeSplitterImpl(_DivisionSplitter):
    """Parts in the order of time, the earliest samples in the first; equal times are in one part.

    Args:
        ratios: sizes as fractions of sum 1; a mapping names the parts.
        time_pos: position or key of the time in a sample: a number, a datetime, or text that sorts by time.

    Raises:
        ConfigError: the ratios are not such; when splitting: a time is NaN, NaT or None, or times do not compare.
    """

    def __init__(self, ratios: Sequence[float] | Mapping[str, float], time_pos: ColumnKey) -> None:
        self.division = Division.of(ratios, time=time_pos)


class PredefinedSplitterImpl(_DivisionSplitter):
    """Parts that somebody else has decided on: by a column that names the part of each sample, or by their indices.

    Args:
        part_pos: position or key of the column with the parts' names. Parts come as a dict, in the order of appearance.
        indices: for each part the positions of its samples (negative ones count from the end) or one bool for each sample; a
            mapping names the parts. A part keeps the order of its indices. There may be samples in no part.

    Raises:
        ConfigError: neither or both are given; when splitting: a sample is in two parts, or twice in one; a name is NaN or None.
        DatasetOutOfBoundsError: when splitting: a position lies outside of the iterator, or a mask has another length.
    """

    def __init__(
        self, part_pos: ColumnKey | None = None, indices: Sequence[IndexArray] | Mapping[str, IndexArray] | None = None
    ) -> None:
        if (part_pos is None) == (indices is None):
            raise ConfigError("a predefined split needs either part_pos, a column that names each sample's part, or indices")
        self.part_pos = part_pos
        self.indices = indices
        if part_pos is not None:
            self.division = Division.of(None, by=part_pos)

    def split(self, dataset_iterator: DatasetIteratorIF) -> Any:
        """One view for each part: a dict if parts have names, otherwise a list."""
        if self.part_pos is not None:
            return super().split(dataset_iterator)
        return self._arranged({name: _view(dataset_iterator, part) for name, part in self._positions(dataset_iterator).items()})

    def get_indices(self, dataset_iterator: DatasetIteratorIF) -> Any:
        """One list of positions for each part, arranged likewise."""
        if self.part_pos is not None:
            return super().get_indices(dataset_iterator)
        return self._arranged({name: part.tolist() for name, part in self._positions(dataset_iterator).items()})

    def _arranged(self, parts: dict[Any, Any]) -> Any:
        return parts if isinstance(self.indices, Mapping) else list(parts.values())

    def _positions(self, dataset_iterator: DatasetIteratorIF) -> dict[Any, _Positions]:
        given = self.indices if isinstance(self.indices, Mapping) else dict(enumerate(self.indices or ()))
        n_samples = len(dataset_iterator)
        positions_of: dict[Any, _Positions] = {name: checked_indices(indices, n_samples) for name, indices in given.items()}
        all_positions = np.concatenate([np.empty(0, dtype=np.intp), *positions_of.values()])
        in_order = np.sort(all_positions)
        again = np.flatnonzero(in_order[1:] == in_order[:-1])
        if len(again):
            position = int(in_order[again[0]])
            parts = [repr(name) for name, positions in positions_of.items() for _ in np.flatnonzero(positions == position)]
            raise ConfigError(f"position {position} is in several parts of a predefined split, or several times in one: {parts}")
        return positions_of


class GroupedCVSplitterImpl(SplitterIF):
    """Folds for cross validation that keep groups whole, of sizes as equal as the groups allow.

    Args:
        num_folds: at least 2.
        group_pos: position or key of the group in a sample.
        target_pos: of a column to be mixed as equally in all folds as the groups allow; None for no such thing.
        shuffle: draw among groups of about one size; otherwise larger ones, then earlier ones, are placed first.
        seed: decides the drawing; None draws one now, to be found in ``seed``.

    Raises:
        ConfigError: fewer than 2 folds; when splitting: more folds than groups, or than members of a class.
    """

    def __init__(
        self,
        num_folds: int = 5,
        group_pos: ColumnKey = 2,
        target_pos: ColumnKey | None = None,
        shuffle: bool = True,
        seed: int | None = 1,
    ) -> None:
        self.seed = _drawn_if_none(seed)
        self.folding = Folding.of(num_folds, seed=self.seed if shuffle else None, stratify=target_pos, group_by=group_pos)

    def split(self, dataset_iterator: DatasetIteratorIF) -> list[DatasetIteratorView]:
        """One view for each fold."""
        return [_view(dataset_iterator, fold) for fold in _grouped_folds(dataset_iterator, self.folding)]

    def get_indices(self, dataset_iterator: DatasetIteratorIF) -> list[list[int]]:
        """One list of positions for each fold, ascending; groups, and targets if they are named, are read."""
        return [fold.tolist() for fold in _grouped_folds(dataset_iterator, self.folding)]


def _maker_of(implementation: Callable[_Arguments, SplitterIF]) -> Callable[_Arguments, Splitter]:
    """What makes a splitter of an implementation, with its arguments and docstring."""

    def get_splitter(*arguments: _Arguments.args, **options: _Arguments.kwargs) -> Splitter:
        return Splitter(splitter_impl=implementation(*arguments, **options))

    get_splitter.__doc__ = implementation.__doc__
    get_splitter.__signature__ = inspect.signature(implementation)  # type: ignore[attr-defined]  # what inspect looks for
    return get_splitter


class SplitterFactory:
    """Makes splitters, each from the arguments of its implementation."""

    get_random_splitter = staticmethod(_maker_of(RandomSplitterImpl))
    get_stratified_splitter = staticmethod(_maker_of(StratifiedSplitterImpl))
    get_nested_cv_splitter = staticmethod(_maker_of(NestedCVSplitterImpl))
    get_cv_splitter = staticmethod(_maker_of(CVSplitterImpl))
    get_grouped_splitter = staticmethod(_maker_of(GroupedSplitterImpl))
    get_time_splitter = staticmethod(_maker_of(TimeSplitterImpl))
    get_predefined_splitter = staticmethod(_maker_of(PredefinedSplitterImpl))
    get_grouped_cv_splitter = staticmethod(_maker_of(GroupedCVSplitterImpl))


def _drawn_if_none(seed: int | None) -> int:
    return random.SystemRandom().randrange(1 << 32) if seed is None else seed


def _random_state(seed: int) -> np.random.RandomState:
    try:
        return np.random.RandomState(seed)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the seed of this splitter must be an integer from 0 to 2**32 - 1, got {seed!r}") from error


def _view(dataset_iterator: DatasetIteratorIF, positions: _Positions) -> DatasetIteratorView:
    # A view made with an array has an array as its ``indices``; made with anything else, a list, as the original's had.
    return DatasetIteratorView(dataset_iterator, _memory(positions))


def _memory(positions: Any) -> Any:
    return memoryview(positions)  # which numpy declares arrays to have from Python 3.12 on only


def _grouped_folds(dataset_iterator: DatasetIteratorIF, folding: Folding) -> list[_Positions]:
    return [as_index_array(fold) for fold in positions_of_parts(folding.fold_of(dataset_iterator), folding.n_folds)]
