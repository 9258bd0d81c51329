"""Divisions of an iterator: their arguments, and the positions of the samples in each part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, SupportsIndex, Union

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.contract import ColumnKey, DatasetIteratorIF
from data_stack.dataset.positions import check_integer
from data_stack.dataset.randomness import derive_seed
from data_stack.dataset.splits.class_numbers import ClassNumbers, class_numbers
from data_stack.dataset.splits.group_division import divide_by_group
from data_stack.dataset.splits.shares import Shares, check_sizes
from data_stack.dataset.splits.splitting import divide, divide_by_time, positions_of_parts
from data_stack.exception import ConfigError

_Integers = npt.NDArray[np.integer[Any]]

PositionsOfPart = Union[range, _Integers]
"""The positions of a part's samples, ascending."""

PartName = Any
"""The key of a part: its number, its name, or a value of a column."""


def check_division(
    ratios: Sequence[float] | Mapping[str, float] | None = None,
    *,
    seed: SupportsIndex = 0,
    stratify: ColumnKey | None = None,
    group_by: ColumnKey | None = None,
    time: ColumnKey | None = None,
    by: ColumnKey | None = None,
) -> dict[str, Any]:
    """Check the arguments of :meth:`FluentIterator.split`.

    * Without columns the samples are drawn. The size of each part differs by less than 1 from its
      share; the largest remainders are rounded up. If the sizes are integers of sum 2 or more, they
      are counts of samples, and their sum must be the number of all samples. ``group_by`` and
      ``time`` meet them as nearly as groups and equal times allow.
    * ``stratify``: the members of each class are drawn. The number of members of each class in each
      part, and the size of each part, differ by less than 1 from their shares.
    * ``group_by``: groups are placed as a whole, large ones first, see
      :func:`data_stack.dataset.splits.group_division.divide_by_group`. With ``stratify``, classes
      are mixed as equally as the groups allow.
    * ``time``: the samples are divided in the order of time. A cut that would separate equal times
      is moved to the nearer end of them.
    * ``by``: one part for each value, in the order in which the values appear.

    Every sample is in one part, and every part keeps the iterator's order: ``part.shuffle(seed)``
    shuffles it. A part with ratio 0 is empty, as are all parts of an empty iterator. Labels and
    their one-hot rows give the same split, as do equal values of other dtypes. A split is the same
    in every process, on every machine, with every version of data_stack.

    Returns:
        The arguments, without those that are not used.

    Raises:
        ConfigError: ratios are not a division, or arguments are mutually exclusive.
    """
    columns = _drop_none({"stratify": stratify, "group_by": group_by, "time": time, "by": by})
    if by is not None:
        _check_exclusive("by", columns, ratios=ratios)
        return columns
    if ratios is None:
        raise ConfigError(
            "a split needs sizes, such as [0.8, 0.2], or by=…, "
            "a column that names the part of each sample"
        )
    if time is not None:
        _check_exclusive("time", columns, ratios=None)
        return {"ratios": _check_ratios_or_counts(ratios), **columns}
    checked_seed = check_integer("the seed of a split", seed)
    return {"ratios": _check_ratios_or_counts(ratios), **columns, "seed": checked_seed}


def _drop_none(columns: Mapping[str, ColumnKey | None]) -> dict[str, Any]:
    return {name: key for name, key in columns.items() if key is not None}


def _check_exclusive(name: str, columns: Mapping[str, Any], *, ratios: Any) -> None:
    """Check that an argument that divides by itself is the only one.

    Args:
        name: the name of the argument.
        columns: all arguments that name columns.
        ratios: the sizes, if these are excluded too.

    Raises:
        ConfigError: there is another argument.
    """
    others = {other for other in columns if other != name}
    if ratios is not None:
        others.add("ratios")
    if others:
        advice = ""
        if name == "by" and ratios is not None:
            advice = (
                "; by= is for a column that names the part of each sample. To keep equal values in "
                f"one part, pass group_by={columns[name]!r}"
            )
        raise ConfigError(
            f"{name}={columns[name]!r} and {min(others)}= of a split are mutually exclusive{advice}"
        )


def _check_ratios_or_counts(
    ratios: Sequence[float] | Mapping[str, float],
) -> list[int] | list[float] | dict[str, float]:
    """Return the sizes of parts; a dict if the parts have names.

    Raises:
        ConfigError: they are not a division.
    """
    if not isinstance(ratios, Mapping):
        return check_sizes(ratios)
    if not all(isinstance(name, str) for name in ratios):
        raise ConfigError(f"parts are named by strings, not by {list(ratios)!r:.80}")
    names = tuple(ratios)
    return dict(zip(names, check_sizes(ratios.values(), names), strict=True))


def has_names(division: Mapping[str, Any]) -> bool:
    """Return whether the parts of a division are found by name, not by number."""
    return "by" in division or isinstance(division["ratios"], dict)


def divide_positions(
    dataset_iterator: DatasetIteratorIF, division: Mapping[str, Any]
) -> dict[PartName, PositionsOfPart]:
    """Return the positions of each part, by the name or number of the part.

    The columns that the division names are read, as a whole.

    Args:
        dataset_iterator: what is divided.
        division: as :func:`check_division` returns it.

    Raises:
        ConfigError: a class has fewer members than there are parts, or there are fewer groups than
            parts; a value is missing (NaN, None), or a column does not exist.
    """
    iterator = as_iterator(dataset_iterator)
    if "by" in division:
        return _divide_by_value(iterator, division["by"])

    ratios = division["ratios"]
    size_by_part = ratios if isinstance(ratios, dict) else dict(enumerate(ratios))
    shares = Shares.of_sizes(list(size_by_part.values()), len(iterator))
    part_of = _part_of_samples(iterator, shares, division)
    return dict(zip(size_by_part, positions_of_parts(part_of, len(size_by_part)), strict=True))


def _divide_by_value(iterator: DatasetIteratorIF, key: ColumnKey) -> dict[Any, PositionsOfPart]:
    """Return the positions of each value of a column.

    Raises:
        ConfigError: a value is missing, or not a single value.
    """
    refusal = f"column {key!r} does not name parts"
    column = access_to(iterator).columns([key])[0] if len(iterator) else np.empty(0)
    classes = class_numbers(column, refusal)
    if classes.values.size != len(classes):
        raise ConfigError(
            f"{refusal}: its values have the shape {classes.values.shape[1:]}; "
            "one value names a part"
        )
    names = classes.values.ravel().tolist()
    return dict(zip(names, positions_of_parts(classes.numbers, len(classes)), strict=True))


def _part_of_samples(
    iterator: DatasetIteratorIF, shares: Shares, division: Mapping[str, Any]
) -> _Integers:
    """Return the number of the part of each sample, shape ``(n_samples,)``."""
    if len(iterator) == 0:
        return np.empty(0, dtype=np.uint8)
    if "time" in division:
        key = division["time"]
        times = access_to(iterator).columns([key])[0]
        refusal = f"samples cannot be divided by the times in column {key!r}"
        return divide_by_time(times, shares, refusal)
    seed = derive_seed("split", division["seed"])
    return _draw(iterator, shares, seed, division.get("stratify"), division.get("group_by"))


def check_folding(
    n_folds: Any,
    *,
    seed: SupportsIndex | None = 0,
    stratify: ColumnKey | None = None,
    group_by: ColumnKey | None = None,
) -> dict[str, Any]:
    """Check the arguments of :meth:`FluentIterator.folds`.

    Folds are like the parts of :func:`check_division` with equal ratios: the sizes of two folds,
    and if stratified the numbers of members of a class in them, differ by 1 at most. Without a seed
    folds are consecutive, within each class if stratified, and groups are placed strictly by size.

    Returns:
        The arguments, without those that are not used.

    Raises:
        ConfigError: fewer than 2 folds.
    """
    columns = _drop_none({"stratify": stratify, "group_by": group_by})
    checked_seed = None if seed is None else check_integer("the seed of folds", seed)
    return {"n_folds": check_n_folds(n_folds), "seed": checked_seed, **columns}


def check_n_folds(n_folds: SupportsIndex) -> int:
    """Return a number of folds.

    Raises:
        ConfigError: it is not an integer, or less than 2.
    """
    return check_integer("the number of folds", n_folds, at_least=2)


def fold_of_samples(dataset_iterator: DatasetIteratorIF, folding: Mapping[str, Any]) -> _Integers:
    """Return the fold in whose test part each sample is, shape ``(n_samples,)``.

    The columns that the folding names are read, as a whole.

    Args:
        dataset_iterator: what is divided.
        folding: as :func:`check_folding` returns it.

    Raises:
        ConfigError: more folds than samples, members of a class, or groups.
    """
    iterator = as_iterator(dataset_iterator)
    n_folds = folding["n_folds"]
    if len(iterator) < n_folds:
        raise ConfigError(f"{len(iterator)} samples cannot be divided into {n_folds} folds")
    seed = None if folding["seed"] is None else derive_seed("folds", folding["seed"])
    equal_shares = Shares((1,) * n_folds, n_folds)
    return _draw(iterator, equal_shares, seed, folding.get("stratify"), folding.get("group_by"))


def _draw(
    iterator: DatasetIteratorIF,
    shares: Shares,
    seed: int | None,
    stratify: ColumnKey | None,
    group_by: ColumnKey | None,
) -> _Integers:
    """Return the part of each sample, drawn or, without a seed, in the samples' order.

    Args:
        iterator: what is divided.
        shares: the sizes wanted.
        seed: a :func:`~data_stack.dataset.randomness.derive_seed`; None: nothing is drawn.
        stratify: the column of the classes; None: there are no classes.
        group_by: the column of the groups; None: there are no groups.

    Raises:
        ConfigError: a class has too few members, or there are too few groups.
    """
    # One request reads both columns.
    keys = [key for key in (stratify, group_by) if key is not None]
    columns = access_to(iterator).columns(keys) if keys else []

    classes = None
    if stratify is not None:
        refusal = f"samples cannot be stratified by column {stratify!r}"
        classes = class_numbers(columns[0], refusal)
        _check_class_sizes(classes, shares.n_wanted, refusal)
    if group_by is None:
        return divide(len(iterator), shares, seed, classes)

    groups = class_numbers(columns[-1], f"samples cannot be grouped by column {group_by!r}")
    if len(groups) < shares.n_wanted:
        raise ConfigError(
            f"the {len(groups)} groups of column {group_by!r} "
            f"cannot be divided into {shares.n_wanted} parts"
        )
    return divide_by_group(groups, shares, seed, classes)


def _check_class_sizes(classes: ClassNumbers, n_parts: int, refusal: str) -> None:
    """Check that each class has a member for each part.

    Raises:
        ConfigError: a class has too few members.
    """
    small_classes = np.flatnonzero(classes.counts < n_parts).tolist()
    if small_classes:
        raise ConfigError(
            f"{refusal} into {n_parts} parts: {len(small_classes):,} classes are too small, "
            f"such as {classes.describe(small_classes[0])}. "
            "Merge rare classes (iterator.map_classes), or leave them out"
        )
