"""Parts and folds of an iterator: layers that know how they were divided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, SupportsIndex

import numpy as np

from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.contract import ColumnKey, DatasetIteratorIF
from data_stack.dataset.iterator.fold import Fold
from data_stack.dataset.iterator.layer import layer
from data_stack.dataset.iterator.layers.view import DatasetIteratorView
from data_stack.dataset.meta import DatasetMetaIF, MetaFactory
from data_stack.dataset.splits.divisions import (
    PartName,
    PositionsOfPart,
    check_division,
    check_folding,
    divide_positions,
    fold_of_samples,
    has_names,
)
from data_stack.dataset.splits.shares import warn_of_empty_parts
from data_stack.dataset.splits.splitting import positions_of_parts
from data_stack.exception import ConfigError
from data_stack.util.suggestions import did_you_mean


@layer("split", columns=["stratify", "group_by", "time", "by"])
class SplitPartIterator(DatasetIteratorView):
    """One part of a divided iterator, its samples in the iterator's order.

    ``iterator.split(...)`` returns such parts.

    A recipe describes a part by the division, so it takes a few words however many samples the part
    has. A part that is made from a recipe reads the columns that the division needs. A pickled part
    carries its positions, 4 bytes a sample, and reads nothing again.

    Divide first, shuffle afterwards. A part of a shuffled iterator has other samples in each epoch,
    so a sample of the test part would be in the training part at another epoch.

    Where the iterator has a meta, a named part's ``dataset_tag`` is its name, or ``"tag/name"`` if
    there was a tag already.

    Args:
        dataset_iterator: what is divided.
        part: the number of the part, or its name where parts have names.
        positions: the positions of the part, if they are known already.
        ratios, seed, stratify, group_by, time, by: as for :meth:`FluentIterator.split`.

    Raises:
        ConfigError: the part does not exist, or ``iterator.split`` raises this error.
    """

    #: The arguments that decide the parts, as :func:`check_division` returns them.
    _division: dict[str, Any]

    #: The name or number of the part.
    _part: PartName

    def __init__(
        self,
        dataset_iterator: DatasetIteratorIF,
        *,
        part: PartName,
        positions: PositionsOfPart | None = None,
        ratios: Sequence[float] | Mapping[str, float] | None = None,
        seed: SupportsIndex = 0,
        stratify: ColumnKey | None = None,
        group_by: ColumnKey | None = None,
        time: ColumnKey | None = None,
        by: ColumnKey | None = None,
    ) -> None:
        division = check_division(
            ratios, seed=seed, stratify=stratify, group_by=group_by, time=time, by=by
        )
        if positions is None:
            positions = _positions_of_part(dataset_iterator, division, part)
        super().__init__(dataset_iterator, positions)
        self._division = division
        self._part = part
        # ``indices`` is an array, also where positions are kept as a range.
        self._has_list_of_indices = False
        self._made_with = {"part": part, **division}

    def _derive_meta(self, meta: DatasetMetaIF) -> DatasetMetaIF:
        return add_tag(meta, self._part) if has_names(self._division) else meta


def _positions_of_part(
    dataset_iterator: DatasetIteratorIF, division: Mapping[str, Any], part: PartName
) -> PositionsOfPart:
    positions_by_part = divide_positions(dataset_iterator, division)
    if part not in positions_by_part:
        names = ", ".join(repr(name) for name in positions_by_part)
        suggestion = did_you_mean(part, positions_by_part)
        raise ConfigError(f"there is no part {part!r}{suggestion}; the parts are {names}")
    return positions_by_part[part]


@layer("fold", columns=["stratify", "group_by"])
class FoldPartIterator(DatasetIteratorView):
    """The training or the test part of one fold, its samples in the iterator's order.

    ``iterator.folds(...)`` returns such parts. Recipes and pickles hold them as they hold a
    :class:`SplitPartIterator`. The meta is that of the iterator.

    Args:
        dataset_iterator: what is divided.
        fold: the number of the fold.
        side: ``"train"`` for the samples of all other folds, ``"test"`` for its own.
        positions: the positions of the part, if they are known already.
        n_folds, seed, stratify, group_by: as for :meth:`FluentIterator.folds`.

    Raises:
        ConfigError: the fold or side does not exist, or ``iterator.folds`` raises this error.
    """

    def __init__(
        self,
        dataset_iterator: DatasetIteratorIF,
        *,
        fold: int,
        side: str,
        positions: PositionsOfPart | None = None,
        n_folds: SupportsIndex,
        seed: SupportsIndex | None = 0,
        stratify: ColumnKey | None = None,
        group_by: ColumnKey | None = None,
    ) -> None:
        folding = check_folding(n_folds, seed=seed, stratify=stratify, group_by=group_by)
        if positions is None:
            if not 0 <= fold < folding["n_folds"] or side not in ("train", "test"):
                raise ConfigError(
                    f"there is no part {side!r} of fold {fold!r}; "
                    "there are 'train' and 'test' of each fold"
                )
            is_in_fold = fold_of_samples(dataset_iterator, folding) == fold
            positions = np.flatnonzero(is_in_fold if side == "test" else ~is_in_fold)
        super().__init__(dataset_iterator, positions)
        # ``indices`` is an array, also where positions are kept as a range.
        self._has_list_of_indices = False
        self._made_with = {"fold": fold, "side": side, **folding}


def add_tag(meta: DatasetMetaIF, name: PartName) -> DatasetMetaIF:
    """Return the meta of a part: its name becomes the tag, after the tag that there was."""
    tag = str(name)
    if meta.dataset_tag is not None:
        tag = f"{meta.dataset_tag}/{name}"
    return replace(MetaFactory.copy_dataset_meta(meta), dataset_tag=tag)


def split(
    iterator: DatasetIteratorIF,
    ratios: Sequence[float] | Mapping[str, float] | None = None,
    *,
    seed: SupportsIndex = 0,
    stratify: ColumnKey | bool | None = False,
    group_by: ColumnKey | None = None,
    time: ColumnKey | None = None,
    by: ColumnKey | None = None,
) -> Any:
    """Divide an iterator, see :meth:`FluentIterator.split`.

    Returns:
        The parts, in a dict if they have names, otherwise in a list.
    """
    division = check_division(
        ratios,
        seed=seed,
        stratify=_column_to_stratify(iterator, stratify),
        group_by=group_by,
        time=time,
        by=by,
    )
    positions_by_part = divide_positions(iterator, division)
    _warn_of_empty_parts(iterator, division, positions_by_part)
    parts = {}
    for part, positions in positions_by_part.items():
        parts[part] = iterator._stack_layer(
            SplitPartIterator, part=part, positions=positions, **division
        )
    return parts if has_names(division) else list(parts.values())


def _warn_of_empty_parts(
    iterator: DatasetIteratorIF,
    division: Mapping[str, Any],
    positions_by_part: Mapping[PartName, PositionsOfPart],
) -> None:
    if "ratios" not in division:
        return
    ratios = division["ratios"]
    ratio_by_part = ratios if isinstance(ratios, dict) else dict(enumerate(ratios))
    sizes = {part: len(positions) for part, positions in positions_by_part.items()}
    advice = "give counts, such as [8, 1, 1], or more samples"
    if "time" in division:
        advice = "equal times stay together, or there are too few samples"
    warn_of_empty_parts(sizes, ratio_by_part, len(as_iterator(iterator)), advice)


def folds(
    iterator: DatasetIteratorIF,
    n_folds: SupportsIndex,
    *,
    seed: SupportsIndex | None = 0,
    stratify: ColumnKey | bool | None = False,
    group_by: ColumnKey | None = None,
) -> list[Fold]:
    """Divide an iterator for cross validation, see :meth:`FluentIterator.folds`."""
    stratify_column = _column_to_stratify(iterator, stratify)
    folding = check_folding(n_folds, seed=seed, stratify=stratify_column, group_by=group_by)
    fold_of = fold_of_samples(iterator, folding)

    def make_part(
        number: int, side: Literal["train", "test"], positions: PositionsOfPart
    ) -> DatasetIteratorIF:
        return iterator._stack_layer(
            FoldPartIterator, fold=number, side=side, positions=positions, **folding
        )

    all_folds = []
    for number, positions in enumerate(positions_of_parts(fold_of, folding["n_folds"])):
        train = make_part(number, "train", np.flatnonzero(fold_of != number))
        test = make_part(number, "test", positions)
        all_folds.append(Fold(train, test, number))
    return all_folds


def _column_to_stratify(
    iterator: DatasetIteratorIF, stratify: ColumnKey | bool | None
) -> ColumnKey | None:
    """Return the column to stratify by; True stands for the target.

    0 and 1 are columns, though they equal False and True.
    """
    if stratify is None:
        return None
    if isinstance(stratify, (bool, np.bool_)):
        return iterator._class_column(None) if stratify else None
    return stratify
