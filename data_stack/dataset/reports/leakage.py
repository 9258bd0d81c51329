"""Finds samples that occur twice: within a split, in two splits (leakage), or under two labels."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.digests import column_digests, row_digests
from data_stack.dataset.iterator.access import access_to
from data_stack.dataset.iterator.blocks import in_blocks
from data_stack.dataset.iterator.contract import ColumnKey, DatasetIteratorIF, adapted
from data_stack.dataset.reports.markup import Block, Heading, Paragraph, Table, as_html, as_markdown, readable
from data_stack.exception import ConfigError

__all__ = ["ConflictingLabels", "DuplicatesReport", "RepeatedSamples", "SharedSamples", "find_duplicates"]

_ROWS_SHOWN = 100
_EXAMPLES_SHOWN = 5

_Words = npt.NDArray[np.uint64]
_Positions = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class RepeatedSamples:
    """Samples that occur more than once in one split.

    Attributes:
        split: its name.
        n_samples: samples in the split.
        n_repeats: how many of them equal an earlier one: what deduplicating would take away.
        positions: of some of these, (first occurrence, repeat), in order.
    """

    split: str
    n_samples: int
    n_repeats: int
    positions: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class SharedSamples:
    """Samples that occur in two splits.

    Attributes:
        first, second: names of the splits.
        n_distinct: how many different samples both splits have.
        n_in_first: how many samples of ``first`` are also in ``second``.
        n_in_second: how many samples of ``second`` are also in ``first``.
        positions: of some of the different samples, (first occurrence in ``first``, first occurrence in ``second``), in order.
    """

    first: str
    second: str
    n_distinct: int
    n_in_first: int
    n_in_second: int
    positions: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class ConflictingLabels:
    """Samples that are equal in the columns compared, but not in their target.

    Attributes:
        n_distinct: how many different samples have more than one target.
        n_samples: how many samples these are, in all splits.
        places: of some of them, two places with different targets: ((split, position), (split, position)).
    """

    n_distinct: int
    n_samples: int
    places: tuple[tuple[tuple[str, int], tuple[str, int]], ...]


@dataclass(frozen=True, slots=True)
class DuplicatesReport:
    """What :func:`find_duplicates` found. It prints as Markdown, and shows as HTML in a notebook.

    Attributes:
        columns: what was compared; None for whole samples.
        within: repeats within each split, in the order given.
        between: what each pair of splits shares.
        conflicts: equal samples of different targets; None where the target was compared too, or is not known.
    """

    columns: tuple[ColumnKey, ...] | None
    within: tuple[RepeatedSamples, ...]
    between: tuple[SharedSamples, ...]
    conflicts: ConflictingLabels | None

    @property
    def is_leaking(self) -> bool:
        """Whether any sample occurs in two splits."""
        return any(pair.n_distinct for pair in self.between)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data, with :attr:`is_leaking`."""
        return {**dataclasses.asdict(self), "is_leaking": self.is_leaking}

    def to_json(self) -> str:
        """The same as JSON text."""
        return json.dumps(self.to_dict(), indent=4)

    def to_markdown(self) -> str:
        """The report for people."""
        return as_markdown(self.document())

    def to_html(self) -> str:
        """The same as HTML that needs nothing else."""
        return as_html(self.document())

    def __str__(self) -> str:
        return self.to_markdown()

    def _repr_html_(self) -> str:
        return self.to_html()

    def document(self, level: int = 1) -> list[Block]:
        """What was found, for people; ``level`` is the heading's, where this is a part of a larger document."""
        what = "whole samples" if self.columns is None else "column " + ", ".join(map(readable, self.columns))
        blocks: list[Block] = [Heading(level, "Duplicates"), Paragraph(f"Compared: {what}.")]
        rows = [
            [readable(each.split), f"{each.n_samples:,}", f"{each.n_repeats:,}", _pairs(each.positions, each.n_repeats)]
            for each in self.within
        ]
        header = ["split", "samples", "repeats", "first and repeat at"]
        blocks += [Heading(level + 1, "Within splits"), Table(header, rows, frozenset({1, 2}))]
        if self.between:
            lengths = {each.split: each.n_samples for each in self.within}
            rows = [
                [
                    f"{readable(pair.first)}, {readable(pair.second)}",
                    f"{pair.n_distinct:,}",
                    _share(pair.n_in_first, lengths[pair.first]),
                    _share(pair.n_in_second, lengths[pair.second]),
                    _pairs(pair.positions, pair.n_distinct),
                ]
                for pair in self.between[:_ROWS_SHOWN]
            ]
            header = ["splits", "shared samples", "of the first", "of the second", "at"]
            blocks += [Heading(level + 1, "Between splits"), Table(header, rows, frozenset({1, 2, 3}))]
            if len(self.between) > _ROWS_SHOWN:
                blocks.append(Paragraph(f"… and {len(self.between) - _ROWS_SHOWN:,} more pairs"))
            blocks.append(Paragraph("There is leakage." if self.is_leaking else "No sample is in two splits."))
        if self.conflicts is not None:
            conflicts = self.conflicts
            found = f"{conflicts.n_distinct:,} different samples have more than one target"
            blocks += [
                Heading(level + 1, "Conflicting targets"),
                Paragraph(f"{found}; they occur {conflicts.n_samples:,} times."),
            ]
            if conflicts.places:
                shown = [[f"{readable(name)}: {position:,}" for name, position in pair] for pair in conflicts.places]
                blocks.append(Table(["one target at", "another at"], shown))
        return blocks


def find_duplicates(
    splits: Mapping[str, DatasetIteratorIF] | DatasetIteratorIF,
    columns: ColumnKey | Sequence[ColumnKey] | None = None,
    *,
    max_positions: int = 20,
) -> DuplicatesReport:
    """Find equal samples within and between ``splits``; exact, by the samples' digests.

    ::

        found = find_duplicates({"train": train, "test": test}, columns=0)  # the same picture, whatever its label
        assert not found.is_leaking

    Every sample is read once, a few thousand at a time; of each, 16 bytes are kept (32 with targets), and as much again
    while they are compared. What equal means, see ``sample_digest``: numbers count by value, not by type.

    Args:
        splits: iterators by name; or one iterator, to be searched for repeats.
        columns: what to compare; None for whole samples. If the first iterator has meta, its target is none of these
            columns, and all samples have one, equal samples of different targets are reported as well.
        max_positions: so many positions are told of each finding; all are counted.

    Raises:
        ConfigError: there are no splits, or their samples have no such column; the split is named.
    """
    by_name = dict(splits) if isinstance(splits, Mapping) else {"all": splits}
    if not by_name:
        raise ConfigError("find_duplicates needs at least one split, e.g. {'train': …, 'test': …}; it was given none")
    if max_positions < 0:
        raise ConfigError(f"max_positions must not be negative, it is {max_positions}")
    keys = _checked_keys(columns)
    iterators = [adapted(iterator) for iterator in by_name.values()]
    target = _target_beside(keys, next(iter(by_name.values())), iterators)
    starts = np.cumsum([0, *map(len, iterators)]).tolist()
    samples = np.empty((starts[-1], 2), dtype=np.uint64)
    targets = np.empty((starts[-1] if target is not None else 0, 2), dtype=np.uint64)
    for name, iterator, start, stop in zip(by_name, iterators, starts, starts[1:], strict=False):
        _digest(name, iterator, keys, target, samples[start:stop], targets[start:stop])
    found = _Groups(samples, starts)
    names = tuple(by_name)
    return DuplicatesReport(
        columns=keys,
        within=tuple(found.within(split, name, max_positions) for split, name in enumerate(names)),
        between=tuple(found.between(a, b, names[a], names[b], max_positions) for a, b in combinations(range(len(names)), 2)),
        conflicts=None if target is None else found.conflicts(targets, names, max_positions),
    )


def _checked_keys(columns: ColumnKey | Sequence[ColumnKey] | None) -> tuple[ColumnKey, ...] | None:
    if columns is None:
        return None
    given: tuple[Any, ...] = (columns,) if isinstance(columns, (str, int, np.integer)) else tuple(columns)
    keys = tuple(int(key) if isinstance(key, np.integer) else key for key in given)
    if not keys:
        raise ConfigError("there are no columns to compare; leave columns out to compare whole samples")
    return keys


def _target_beside(keys: tuple[ColumnKey, ...] | None, first: Any, iterators: Sequence[DatasetIteratorIF]) -> ColumnKey | None:
    """The target's column by the meta of the first iterator, if it is none of ``keys``, and all samples have it."""
    meta = getattr(first, "dataset_meta", None)
    if keys is None or meta is None or meta.target_pos in keys:
        return None
    target: ColumnKey = meta.target_pos
    try:
        for iterator in iterators:
            if len(iterator):
                access_to(iterator).columns([target], np.zeros(1, dtype=np.intp))
    except ConfigError:
        return None
    return target


def _digest(
    name: str,
    iterator: DatasetIteratorIF,
    keys: tuple[ColumnKey, ...] | None,
    target: ColumnKey | None,
    samples: _Words,
    targets: _Words,
) -> None:
    """Digest a split: its samples into ``samples``, shape ``(n, 2)``, its targets into ``targets``, unless there is none."""
    access = access_to(iterator)
    try:
        if keys is None:
            for start, batch in in_blocks(len(samples), access.batch):
                digests = _words(row_digests(batch))
                samples[start : start + len(digests)] = digests
            return
        wanted = [*keys, *([] if target is None else [target])]
        for start, columns in in_blocks(len(samples), lambda positions: access.columns(wanted, positions)):
            digests = _words(row_digests(tuple(columns[: len(keys)])))
            samples[start : start + len(digests)] = digests
            if target is not None:
                targets[start : start + len(digests)] = _words(column_digests(columns[-1]))
    except ConfigError as error:
        raise ConfigError(f"split {name!r} cannot be searched for duplicates: {error}") from error


def _words(digests: npt.NDArray[np.uint8]) -> _Words:
    return np.ascontiguousarray(digests).view(np.uint64)


class _Groups:
    """The samples of all splits, grouped by content; only groups of two and more are kept.

    Attributes of the samples in these groups, in the order of groups, splits and positions: group, split, position.
    """

    def __init__(self, digests: _Words, starts: Sequence[int]) -> None:
        self._starts = np.array(starts, dtype=np.intp)
        self._place, self._group = _groups_of(digests)
        # empty splits share their start with the next one; side="right" passes them by
        self._split = np.searchsorted(self._starts, self._place, side="right") - 1
        self._position = self._place - self._starts[self._split]

    def within(self, split: int, name: str, max_positions: int) -> RepeatedSamples:
        chosen = self._split == split
        groups, positions = self._group[chosen], self._position[chosen]
        is_repeat = np.zeros(len(groups), dtype=bool)
        is_repeat[1:] = groups[1:] == groups[:-1]
        first_of = np.maximum.accumulate(np.where(is_repeat, 0, np.arange(len(groups)))) if len(groups) else groups
        repeats = np.flatnonzero(is_repeat)
        shown = _smallest(positions[repeats], max_positions)
        pairs = [(int(positions[first_of[repeats[at]]]), int(positions[repeats[at]])) for at in shown.tolist()]
        return RepeatedSamples(name, int(self._starts[split + 1] - self._starts[split]), len(repeats), tuple(pairs))

    def between(self, first: int, second: int, first_name: str, second_name: str, max_positions: int) -> SharedSamples:
        in_first, in_second = self._split == first, self._split == second
        # the samples of a group are in the order of their positions, and unique() tells the first of each group
        groups_1, firsts_1, counts_1 = np.unique(self._group[in_first], return_index=True, return_counts=True)
        groups_2, firsts_2, counts_2 = np.unique(self._group[in_second], return_index=True, return_counts=True)
        shared, at_1, at_2 = np.intersect1d(groups_1, groups_2, assume_unique=True, return_indices=True)
        positions_1 = self._position[in_first][firsts_1[at_1]]
        positions_2 = self._position[in_second][firsts_2[at_2]]
        shown = _smallest(positions_1, max_positions)
        return SharedSamples(
            first=first_name,
            second=second_name,
            n_distinct=len(shared),
            n_in_first=int(counts_1[at_1].sum()),
            n_in_second=int(counts_2[at_2].sum()),
            positions=tuple(zip(positions_1[shown].tolist(), positions_2[shown].tolist(), strict=True)),
        )

    def conflicts(self, targets: _Words, names: Sequence[str], max_positions: int) -> ConflictingLabels:
        words = targets[self._place]
        starts = np.flatnonzero(np.diff(self._group, prepend=-1))
        sizes = np.diff(starts, append=len(self._group))
        first_of = np.repeat(starts, sizes)
        differs = (words != words[first_of]).any(axis=1)
        conflicting, others = np.unique(first_of[differs]), np.flatnonzero(differs)
        _, first_others = np.unique(first_of[differs], return_index=True)
        shown = _smallest(self._place[conflicting], max_positions)
        return ConflictingLabels(
            n_distinct=len(conflicting),
            n_samples=int(sizes[np.searchsorted(starts, conflicting)].sum()),
            places=tuple(
                (self._named(conflicting[at], names), self._named(others[first_others[at]], names)) for at in shown.tolist()
            ),
        )

    def _named(self, row: int, names: Sequence[str]) -> tuple[str, int]:
        return names[int(self._split[row])], int(self._position[row])


def _groups_of(words: _Words) -> tuple[_Positions, _Positions]:
    """The rows of ``words``, shape ``(n, 2)``, that occur more than once, equal ones together, and the group of each."""
    order = np.argsort(words[:, 0], kind="stable")
    equals_last = _equals_last(words[order, 0])
    among = order[_has_twin(equals_last)]
    # Two samples that agree in 64 bits are almost surely equal: what is left to compare is as much as there are duplicates.
    among = among[np.lexsort((among, words[among, 1], words[among, 0]))]
    equals_last = _equals_last(words[among, 0]) & _equals_last(words[among, 1])
    is_twin = _has_twin(equals_last)
    return among[is_twin].astype(np.intp), (np.cumsum(~equals_last) - 1)[is_twin].astype(np.intp)


def _equals_last(values: _Words) -> npt.NDArray[np.bool_]:
    equals = np.zeros(len(values), dtype=bool)
    equals[1:] = values[1:] == values[:-1]
    return equals


def _has_twin(equals_last: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """In sorted values: which equal the one before or the one after."""
    has_twin: npt.NDArray[np.bool_] = equals_last.copy()
    has_twin[:-1] |= equals_last[1:]
    return has_twin


def _smallest(positions: npt.NDArray[Any], n_wanted: int) -> _Positions:
    """Where the smallest ``n_wanted`` of ``positions`` are, in ascending order."""
    return np.argsort(positions, kind="stable")[:n_wanted]


def _share(n_samples: int, n_all: int) -> str:
    return f"{n_samples:,} ({100 * n_samples / max(1, n_all):.2f} %)"


def _pairs(positions: Sequence[tuple[int, int]], n_all: int) -> str:
    shown = ", ".join(f"{first:,} and {second:,}" for first, second in positions[:_EXAMPLES_SHOWN])
    return shown + (", …" if n_all > min(len(positions), _EXAMPLES_SHOWN) else "")
