"""Parts and folds of an iterator, as layers that know how they were divided: behind ``iterator.split`` and ``iterator.folds``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, SupportsIndex, Union

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.access import access_to
from data_stack.dataset.iterator.contract import ColumnKey, DatasetIteratorIF, Fold, adapted
from data_stack.dataset.iterator.indices import checked_integer
from data_stack.dataset.iterator.registry import layer, operation
from data_stack.dataset.iterator.view import DatasetIteratorView
from data_stack.dataset.meta import DatasetMetaIF, MetaFactory
from data_stack.dataset.randomness.seeds import derived_seed
from data_stack.dataset.splits.class_numbers import ClassNumbers, class_numbers
from data_stack.dataset.splits.splitting import (
    Shares,
    checked_ratios,
    divided,
    divided_by_group,
    divided_by_time,
    positions_of_parts,
)
from data_stack.exception import ConfigError

__all__ = ["Division", "Fold", "FoldPartIterator", "Folding", "PartName", "SplitPartIterator"]

PositionsOfPart = Union[range, npt.NDArray[np.integer[Any]]]

PartName = Any
"""What a part is found by: its number, the name given for it, or the value that a column has for its samples."""


@dataclass(frozen=True)
class Division:
    """How a dataset is divided into parts; see :meth:`FluentIterator.split`, whose arguments these are.

    * Without columns the samples are drawn. Each part's size is less than 1 from its share, the largest remainders rounded up.
    * ``stratify``: the members of each class are drawn; of each class and of the whole each part has less than 1 from its share.
    * ``group_by``: groups are placed whole, large ones first, see
      :func:`data_stack.dataset.splits.splitting.divided_by_group`. With
      ``stratify``, such that classes are mixed as equally as the groups allow.
    * ``time``: cuts in the order of time; one that would separate equal times is moved to the nearer end of them.
    * ``by``: one part for each value, in the order in which the values appear.

    Every sample is in one part, and every part keeps the iterator's order: ``part.shuffle(seed)`` shuffles it. A part with ratio
    0 is empty, as are all parts of an empty iterator. Equal values decide, not how they are written: labels and their one-hot
    rows give the same split. It is the same in every process, on every machine, with every version of data_stack.

    Raises:
        ConfigError: ratios are no division, or arguments exclude each other. When dividing: a class has fewer members than there
            are parts, or there are fewer groups than parts; a value is missing (NaN, None), or there is no such column.
    """

    ratios: tuple[float, ...] = ()
    names: tuple[str, ...] | None = None
    seed: int = 0
    stratify: ColumnKey | None = None
    group_by: ColumnKey | None = None
    time: ColumnKey | None = None
    by: ColumnKey | None = None

    @classmethod
    def of(
        cls,
        ratios: Sequence[float] | Mapping[str, float] | None = None,
        *,
        seed: SupportsIndex = 0,
        stratify: ColumnKey | None = None,
        group_by: ColumnKey | None = None,
        time: ColumnKey | None = None,
        by: ColumnKey | None = None,
    ) -> Division:
        """A division by checked arguments; a mapping of ratios names the parts."""
        given = {"ratios": ratios, "stratify": stratify, "group_by": group_by, "time": time, "by": by}
        for name, others in (("by", ("ratios", "stratify", "group_by", "time")), ("time", ("stratify", "group_by"))):
            wrong = [other for other in others if given[name] is not None and given[other] is not None]
            if wrong:
                raise ConfigError(f"a split with {name}={given[name]!r} takes no {wrong[0]}, but got {given[wrong[0]]!r}")
        if by is not None:
            return cls(by=by)
        if ratios is None:
            raise ConfigError("a split needs ratios, such as [0.8, 0.2], or by=…, a column that names the part of each sample")
        names = tuple(ratios) if isinstance(ratios, Mapping) else None
        for name in names or ():
            if not isinstance(name, str):
                raise ConfigError(f"parts are named by strings, not by {name!r}")
        values = checked_ratios(ratios.values() if isinstance(ratios, Mapping) else ratios, names)
        number = 0 if time is not None else checked_integer("the seed of a split", seed)
        return cls(tuple(float(value) for value in values), names, number, stratify, group_by, time)

    def arguments(self) -> dict[str, Any]:
        """The arguments that make it, those that matter only."""
        if self.by is not None:
            return {"by": self.by}
        ratios = list(self.ratios)
        named = ratios if self.names is None else dict(zip(self.names, ratios, strict=True))
        if self.time is not None:
            return {"ratios": named, "time": self.time}
        return {"ratios": named, "seed": self.seed, **_columns_given(self.stratify, self.group_by)}

    def part(self, dataset_iterator: DatasetIteratorIF, part: PartName) -> PositionsOfPart:
        """The positions of one part.

        Raises:
            ConfigError: there is no such part.
        """
        positions_of = self.positions(dataset_iterator)
        if part not in positions_of:
            raise ConfigError(f"there is no part {part!r}; the parts are {', '.join(map(repr, positions_of))}")
        return positions_of[part]

    def positions(self, dataset_iterator: DatasetIteratorIF) -> dict[PartName, PositionsOfPart]:
        """The positions of each part, ascending, by the part's name or number; reads the columns named, as a whole."""
        iterator = adapted(dataset_iterator)
        n_samples = len(iterator)
        if self.by is not None:
            return _positions_by_name(iterator, self.by) if n_samples else {}
        shares = Shares.of_ratios(self.ratios)
        if n_samples == 0:
            part_of: npt.NDArray[np.integer[Any]] = np.empty(0, dtype=np.uint8)
        elif self.time is not None:
            refusal = f"samples cannot be divided by the times in column {self.time!r}"
            part_of = divided_by_time(access_to(iterator).columns([self.time])[0], shares, refusal)
        else:
            part_of = _drawn(iterator, shares, derived_seed("split", self.seed), self.stratify, self.group_by)
        positions = positions_of_parts(part_of, len(shares.weights))
        return dict(zip(self.names or range(len(positions)), positions, strict=True))

    @property
    def has_names(self) -> bool:
        """Whether parts are found by name, not by number."""
        return self.names is not None or self.by is not None


@dataclass(frozen=True)
class Folding:
    """How a dataset is divided into folds; see :meth:`FluentIterator.folds`, whose arguments these are.

    As a :class:`Division` into equal parts: sizes differ by 1 at most, of the whole and of each class. Without a seed folds are
    consecutive, within each class if stratified, and groups are placed strictly by size.

    Raises:
        ConfigError: fewer than 2 folds; when dividing: more folds than samples, members of a class, or groups.
    """

    n_folds: int
    seed: int | None = 0
    stratify: ColumnKey | None = None
    group_by: ColumnKey | None = None

    @classmethod
    def of(
        cls,
        n_folds: SupportsIndex,
        *,
        seed: SupportsIndex | None = 0,
        stratify: ColumnKey | None = None,
        group_by: ColumnKey | None = None,
    ) -> Folding:
        """A folding by checked arguments."""
        number = checked_n_folds(n_folds)
        return cls(number, None if seed is None else checked_integer("the seed of folds", seed), stratify, group_by)

    def arguments(self) -> dict[str, Any]:
        """The arguments that make it, those that matter only."""
        return {"n_folds": self.n_folds, "seed": self.seed, **_columns_given(self.stratify, self.group_by)}

    def part(self, dataset_iterator: DatasetIteratorIF, fold: int, side: str) -> PositionsOfPart:
        """The positions of one side of a fold.

        Raises:
            ConfigError: there is no such fold or side.
        """
        if not 0 <= fold < self.n_folds or side not in ("train", "test"):
            raise ConfigError(
                f"there is no part {side!r} of fold {fold!r}; there are 'train' and 'test' of folds 0 to {self.n_folds - 1}"
            )
        return np.flatnonzero((self.fold_of(dataset_iterator) == fold) == (side == "test"))

    def fold_of(self, dataset_iterator: DatasetIteratorIF) -> npt.NDArray[np.integer[Any]]:
        """The fold in whose test part each sample is, shape ``(n_samples,)``; reads the columns named, as a whole."""
        iterator = adapted(dataset_iterator)
        if len(iterator) < self.n_folds:
            raise ConfigError(f"{len(iterator)} samples cannot be divided into {self.n_folds} folds")
        seed = None if self.seed is None else derived_seed("folds", self.seed)
        return _drawn(iterator, Shares.equal(self.n_folds), seed, self.stratify, self.group_by)


def _columns_given(stratify: ColumnKey | None, group_by: ColumnKey | None) -> dict[str, Any]:
    return {name: key for name, key in (("stratify", stratify), ("group_by", group_by)) if key is not None}


def _positions_by_name(iterator: DatasetIteratorIF, by: ColumnKey) -> dict[PartName, PositionsOfPart]:
    refusal = f"parts cannot be told by column {by!r}"
    classes = class_numbers(access_to(iterator).columns([by])[0], refusal)
    if classes.values.size != len(classes):
        raise ConfigError(
            f"{refusal}: its values have the shape {classes.values.shape[1:]}; name a part by one value, as 'train'"
        )
    return dict(zip(classes.values.ravel().tolist(), positions_of_parts(classes.numbers, len(classes)), strict=True))


def _drawn(
    iterator: DatasetIteratorIF, shares: Shares, seed: int | None, stratify: ColumnKey | None, group_by: ColumnKey | None
) -> npt.NDArray[np.integer[Any]]:
    keys = [key for key in (stratify, group_by) if key is not None]
    columns = access_to(iterator).columns(keys) if keys else []
    classes, groups = None, None
    if stratify is not None:
        classes = class_numbers(columns[0], f"samples cannot be stratified by column {stratify!r}")
        check_class_sizes(classes, stratify, shares.n_wanted)
    if group_by is None:
        return divided(len(iterator), shares, seed, classes)
    groups = class_numbers(columns[-1], f"samples cannot be grouped by column {group_by!r}")
    if len(groups) < shares.n_wanted:
        raise ConfigError(f"the {len(groups)} groups of column {group_by!r} cannot be divided into {shares.n_wanted} parts")
    return divided_by_group(groups, shares, seed, classes)


def check_class_sizes(classes: ClassNumbers, key: ColumnKey, n_parts: int) -> None:
    """Refuse classes that cannot have a member in each part.

    Raises:
        ConfigError: there is one; the message names the first.
    """
    too_small = np.flatnonzero(classes.counts < n_parts).tolist()
    if too_small:
        further = f", as has each of {len(too_small) - 1:,} further classes" if len(too_small) > 1 else ""
        raise ConfigError(
            f"samples cannot be stratified by column {key!r} into {n_parts} parts: class {classes.shown(too_small[0])} has too "
            f"few members{further}. Merge rare classes (iterator.map_classes), leave them out, or divide without stratification."
        )


def checked_n_folds(n_folds: SupportsIndex) -> int:
    """A number of folds.

    Raises:
        ConfigError: it is no integer, or less than 2.
    """
    number = checked_integer("the number of folds", n_folds)
    if number < 2:
        raise ConfigError(f"cross validation needs at least 2 folds, got {number}")
    return number


@layer("split")
class SplitPartIterator(DatasetIteratorView):
    """One part of a divided iterator, its samples in the iterator's order. What ``iterator.split(...)`` gives.

    It is described by the division, so it costs a few words in a recipe however many samples it has; rebuilt, it reads the
    columns that the division needs. Pickled, it carries its positions (4 bytes a sample) and reads nothing again.

    Divide first, shuffle afterwards: parts of a shuffled iterator have other samples in each epoch, so that at another epoch a
    sample of the test part would be one of the training part.

    Where the iterator has a meta, a named part's ``dataset_tag`` is its name, or ``"tag/name"`` if there was a tag already.

    Args:
        dataset_iterator: what is divided.
        part: the number of the part, or its name where parts have names.
        positions: those of the part, where they are known already.
        division: the arguments of a :class:`Division`.

    Raises:
        ConfigError: there is no such part, or as said there.
    """

    def __init__(
        self, dataset_iterator: DatasetIteratorIF, *, part: PartName, positions: PositionsOfPart | None = None, **division: Any
    ) -> None:
        self._division, self._part = Division.of(**division), part
        super().__init__(dataset_iterator, self._division.part(dataset_iterator, part) if positions is None else positions)
        self._gives_list = False  # whether positions are kept as a range is nobody's concern

    def _arguments(self) -> dict[str, Any]:
        return {"part": self._part, **self._division.arguments()}

    def _followed(self, meta: DatasetMetaIF) -> DatasetMetaIF:
        return tagged(meta, self._part if self._division.has_names else None)


@layer("fold")
class FoldPartIterator(DatasetIteratorView):
    """The training or the test part of one fold, its samples in the iterator's order. What ``iterator.folds(...)`` gives.

    Described, rebuilt and pickled as a :class:`SplitPartIterator`; the meta is unchanged.

    Args:
        dataset_iterator: what is divided.
        fold: number of the fold.
        side: ``"train"`` for the samples of all other folds, ``"test"`` for its own.
        positions: those of the part, where they are known already.
        folding: the arguments of a :class:`Folding`.

    Raises:
        ConfigError: there is no such fold or side, or as said there.
    """

    def __init__(
        self,
        dataset_iterator: DatasetIteratorIF,
        *,
        fold: int,
        side: Literal["train", "test"],
        positions: PositionsOfPart | None = None,
        **folding: Any,
    ) -> None:
        self._folding, self._fold, self._side = Folding.of(**folding), fold, side
        super().__init__(dataset_iterator, self._folding.part(dataset_iterator, fold, side) if positions is None else positions)
        self._gives_list = False  # whether positions are kept as a range is nobody's concern

    def _arguments(self) -> dict[str, Any]:
        return {"fold": self._fold, "side": self._side, **self._folding.arguments()}


def tagged(meta: DatasetMetaIF, name: PartName | None) -> DatasetMetaIF:
    """The meta of a part: its name becomes the tag, after the one that there was."""
    if name is None:
        return meta
    tag = str(name) if meta.dataset_tag is None else f"{meta.dataset_tag}/{name}"
    return replace(MetaFactory.copy_dataset_meta(meta), dataset_tag=tag)


@operation
def split(
    iterator: DatasetIteratorIF,
    ratios: Sequence[float] | Mapping[str, float] | None = None,
    *,
    stratify: Any = False,
    **options: Any,
) -> Any:
    """See :meth:`FluentIterator.split`."""
    division = Division.of(ratios, stratify=_stratified_column(iterator, stratify), **options)
    parts = {
        part: iterator._stacked("split", part=part, positions=positions, **division.arguments())
        for part, positions in division.positions(iterator).items()
    }
    return parts if division.has_names else list(parts.values())


@operation
def folds(
    iterator: DatasetIteratorIF, n_folds: SupportsIndex, *, stratify: ColumnKey | bool = False, **options: Any
) -> list[Fold]:
    """See :meth:`FluentIterator.folds`."""
    folding = Folding.of(n_folds, stratify=_stratified_column(iterator, stratify), **options)
    fold_of, arguments = folding.fold_of(iterator), folding.arguments()
    found = []
    for number, positions in enumerate(positions_of_parts(fold_of, folding.n_folds)):
        others = np.flatnonzero(fold_of != number)
        train = iterator._stacked("fold", fold=number, side="train", positions=others, **arguments)
        test = iterator._stacked("fold", fold=number, side="test", positions=positions, **arguments)
        found.append(Fold(train, test, number))
    return found


def _stratified_column(iterator: DatasetIteratorIF, stratify: ColumnKey | bool | None) -> ColumnKey | None:
    # 0 == False and 1 == True, but they name columns
    if stratify is None or isinstance(stratify, (bool, np.bool_)):
        return iterator._class_column(None) if stratify else None
    return stratify
