"""What differs between two datasets, sample by sample."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator import DatasetIteratorView
from data_stack.dataset.iterator.access import access_to
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.blocks import in_blocks
from data_stack.dataset.iterator.contract import ColumnKey, DatasetIteratorIF
from data_stack.dataset.iterator.named_columns import column_key
from data_stack.exception import ConfigError
from data_stack.repository.default_storage import Storage
from data_stack.repository.repository import default_repository
from data_stack.show.markup import Block, Heading, Paragraph, Table, TextDocument, readable
from data_stack.show.page import IteratorPage
from data_stack.show.samples import default_keys
from data_stack.values.digests import DIGEST_BYTES, row_digests

_Positions: TypeAlias = npt.NDArray[np.int64]
_Pairs: TypeAlias = tuple[_Positions, _Positions]
_N_SHOWN = 8
_ROWS_AT_ONCE = 1024
_WHOLE = ""
"""The split of a dataset without splits."""


@dataclass(frozen=True)
class DatasetDiff(TextDocument):
    """What :func:`diff` found. It prints as text, and shows samples in a notebook.

    Positions are arrays of shape ``(n, 2)``: the number of the split, by :attr:`splits`, and the place in it. ``moved``,
    ``relabelled`` and ``changed`` are pairs of such arrays of equal length, of the first and of the second dataset.

    Attributes:
        splits: names of the splits of both datasets; ``("",)`` for iterators.
        n_first: samples of the first dataset, by split.
        n_second: samples of the second one.
        n_equal: samples that are equal and in the same split.
        added: in the second only.
        removed: in the first only.
        moved: equal samples in another split.
        relabelled: samples that differ in target and tag only.
        changed: samples of the same key that differ otherwise; only with a key.
        changed_columns: by column, in how many of ``changed`` it differs.
    """

    splits: tuple[str, ...]
    n_first: tuple[int, ...]
    n_second: tuple[int, ...]
    n_equal: int
    added: _Positions
    removed: _Positions
    moved: _Pairs
    relabelled: _Pairs
    changed: _Pairs
    changed_columns: Mapping[str, int]
    _iterators: tuple[Sequence[Any], Sequence[Any]] = dataclasses.field(repr=False, compare=False)

    @property
    def differs(self) -> bool:
        """Whether any sample differs, or is in another split."""
        return any(self.counts.values())

    @property
    def counts(self) -> dict[str, int]:
        """How many samples were added, removed, moved, relabelled and changed."""
        pairs = {name: len(getattr(self, name)[0]) for name in ("moved", "relabelled", "changed")}
        return {"added": len(self.added), "removed": len(self.removed), **pairs}

    def to_dict(self) -> dict[str, Any]:
        """The figures as plain data."""
        lengths = zip(self.splits, self.n_first, self.n_second, strict=True)
        return {
            "splits": {name: {"first": first, "second": second} for name, first, second in lengths},
            "equal": self.n_equal,
            **self.counts,
            "changed_columns": dict(self.changed_columns),
            "differs": self.differs,
        }

    def document(self, level: int = 1) -> list[Block]:
        rows = [[name or "all", f"{a:,}", f"{b:,}"] for name, a, b in zip(self.splits, self.n_first, self.n_second, strict=True)]
        found = ", ".join(f"{count:,} {name}" for name, count in self.counts.items() if count)
        summary = f"{self.n_equal:,} samples are equal; {found or 'no sample differs'}."
        blocks: list[Block] = [Heading(level, "Difference"), Paragraph(summary)]
        blocks.append(Table(["split", "first", "second"], rows, frozenset({1, 2})))
        if self.changed_columns:
            columns = [[readable(name), f"{count:,}"] for name, count in self.changed_columns.items()]
            blocks.append(Table(["changed column", "samples"], columns, frozenset({1})))
        blocks += self._show(level, "Added", 1, self.added) + self._show(level, "Removed", 0, self.removed)
        for title, pair in (("Moved", self.moved), ("Relabelled", self.relabelled), ("Changed", self.changed)):
            blocks += self._show(level, f"{title}, first", 0, pair[0]) + self._show(level, f"{title}, second", 1, pair[1])
        return blocks

    def _show(self, level: int, title: str, side: int, where: _Positions) -> list[Block]:
        """Some samples, those of one split."""
        if not len(where):
            return []
        split = int(where[0, 0])
        places = where[where[:, 0] == split, 1][:_N_SHOWN]
        page = IteratorPage(DatasetIteratorView(self._iterators[side][split], places), n_samples=_N_SHOWN, n_bytes=30_000)
        at = ", ".join(f"{place:,}" for place in places.tolist()) + (", …" if len(where) > len(places) else "")
        name = self.splits[split]
        said = f"{len(where):,} samples; these are at {at}" + (f" of {name!r}." if name else ".")
        return [Heading(level + 1, title), Paragraph(said), *page.samples()]


def diff(first: Any, second: Any, *, key: ColumnKey | None = None, storage: Storage | None = None) -> DatasetDiff:
    """Compare two datasets, versions, configurations, stores or stacks, sample by sample.

    ::

        data_stack.diff("digits@1.0.0", "digits@1.1.0")
        data_stack.diff(train, again, key="id")

    Every sample is read once. Samples are equal by their digests, as :func:`data_stack.find_duplicates` compares them: numbers
    count by value, not by type. Equal samples are paired one to one. With a key, samples of one key
    correspond; without, a sample that differs in target and tag only is reported as relabelled, and others as removed and added.

    Args:
        first: the name of a dataset, an iterator, or a dict of iterators by split.
        second: the other one.
        key: a column that identifies samples; its values are distinct in each dataset.
        storage: where datasets that are given by name are kept; None for the default store.

    Raises:
        ConfigError: the key does not exist, or two samples have the same key; a sample cannot be compared.
        DatasetNotFoundError, RetrievalError, PreparationError: as for :func:`data_stack.load`.
    """
    splits_of = [_splits_of(each, storage) for each in (first, second)]
    names = tuple(dict.fromkeys([*splits_of[0], *splits_of[1]]))
    sides = [_Side([as_iterator(each.get(name, ())) for name in names], names, key) for each in splits_of]
    pairs = _pair_by_content(*sides) if key is None else _pair_by_key(*sides)
    places = {name: (sides[0].places(pair[0]), sides[1].places(pair[1])) for name, pair in pairs.items()}
    alone = []
    for number, side in enumerate(sides):
        alone.append(np.setdiff1d(np.arange(len(side.contents)), np.concatenate([pair[number] for pair in pairs.values()])))
    return DatasetDiff(
        splits=names,
        n_first=tuple(map(len, sides[0].iterators)),
        n_second=tuple(map(len, sides[1].iterators)),
        n_equal=len(pairs["equal"][0]),
        added=sides[1].places(alone[1]),
        removed=sides[0].places(alone[0]),
        moved=places["moved"],
        relabelled=places["relabelled"],
        changed=places["changed"],
        changed_columns=_changed_columns(sides, pairs["changed"]),
        _iterators=(sides[0].iterators, sides[1].iterators),
    )


def _splits_of(given: Any, storage: Storage | None) -> dict[str, Any]:
    loaded = default_repository().load(given, None, storage) if isinstance(given, str) else given
    return dict(loaded) if isinstance(loaded, Mapping) else {_WHOLE: loaded}


class _Side:
    """The samples of one of both datasets, all splits in a row, by their digests.

    Attributes:
        contents: digests of whole samples, shape ``(n,)`` of 16 bytes.
        inputs: digests without target and tag; None without target.
        keys: digests of the key; None without a key.
        split: number of the split of each sample.
    """

    def __init__(self, iterators: Sequence[DatasetIteratorIF], names: Sequence[str], key: ColumnKey | None) -> None:
        self.iterators, self._names, self._key = iterators, names, key
        lengths = list(map(len, iterators))
        self.split = np.repeat(np.arange(len(iterators)), lengths)
        self._starts = np.cumsum([0, *lengths])
        n_samples = int(self._starts[-1])
        self.contents = np.empty((n_samples, DIGEST_BYTES), np.uint8)
        self.inputs: Any = np.empty_like(self.contents)
        self.keys: Any = None if key is None else np.empty_like(self.contents)
        for number, iterator in enumerate(iterators):
            if lengths[number]:
                self._digest(number, iterator)

    def _digest(self, number: int, iterator: DatasetIteratorIF) -> None:
        sample = access_to(iterator).sample(0)
        columns = _column_keys(sample)
        meta = getattr(iterator, "dataset_meta", None)
        parts = {default_keys(meta, sample)[1], getattr(meta, "tag_pos", None)}
        kept = [column for column in columns if column not in parts]
        if not kept or len(kept) == len(columns):
            self.inputs = None
        key = None if self._key is None else column_key(iterator, self._key)
        if key is not None and key not in columns:
            raise ConfigError(
                f"split {self._names[number]!r} has no column {self._key!r:.80} to compare by; it has {columns!r:.200}"
            )
        batch: Any
        for start, batch in in_blocks(len(iterator), access_to(iterator).batch):
            place = self._starts[number] + start
            digests = row_digests(batch)
            rows = slice(place, place + len(digests))
            self.contents[rows] = digests
            if self.inputs is not None:
                self.inputs[rows] = row_digests(tuple(batch[column] for column in kept))
            if key is not None:
                self.keys[rows] = row_digests((batch[key],))

    def check_keys(self, numbers: _Positions) -> None:
        """Raise ConfigError if two samples have the same key."""
        _, first, counts = np.unique(numbers, return_index=True, return_counts=True)
        if (counts > 1).any():
            split, place = self.places(first[counts > 1][:1])[0].tolist()
            raise ConfigError(
                f"key {self._key!r:.80} does not identify samples: {int(counts.max())} samples have the value of sample {place} "
                f"of split {self._names[split]!r}. Name a column whose values differ, or leave key out"
            )

    def places(self, samples: _Positions) -> _Positions:
        """Split and place of samples that are numbered over all splits."""
        splits = self.split[samples]
        return np.stack([splits, samples - self._starts[splits]], axis=1).astype(np.int64)


def _column_keys(sample: Any) -> list[Any]:
    if isinstance(sample, Mapping):
        return list(sample)
    return list(range(len(sample))) if isinstance(sample, (tuple, list)) else []


def _pair_by_key(first: _Side, second: _Side) -> dict[str, _Pairs]:
    """Pairs of samples with equal keys, by how they differ."""
    sides = first, second
    contents, others, keys = (_number(*(getattr(side, part) for side in sides)) for part in ("contents", "inputs", "keys"))
    for numbers, side in zip(keys, sides, strict=True):
        side.check_keys(numbers)
    pairs = _match(keys[0], keys[1], *map(np.arange, map(len, keys)))
    same = contents[0][pairs[0]] == contents[1][pairs[1]]
    together = first.split[pairs[0]] == second.split[pairs[1]]
    is_label = ~same & (np.False_ if others is None else others[0][pairs[0]] == others[1][pairs[1]])
    masks = {"equal": same & together, "moved": same & ~together, "relabelled": is_label, "changed": ~same & ~is_label}
    return {name: (pairs[0][mask], pairs[1][mask]) for name, mask in masks.items()}


def _pair_by_content(first: _Side, second: _Side) -> dict[str, _Pairs]:
    """The samples that both sides have: equal in the same split, then in others, then equal but for target and tag."""
    contents, others = (_number(getattr(first, part), getattr(second, part)) for part in ("contents", "inputs"))
    n_splits = len(first.iterators)
    in_splits = [number * n_splits + side.split for number, side in zip(contents, (first, second), strict=True)]
    a, b = map(np.arange, map(len, contents))
    pairs: dict[str, _Pairs] = {}
    for name, numbers in (("equal", in_splits), ("moved", contents), ("relabelled", others)):
        pairs[name] = (a[:0], b[:0]) if numbers is None else _match(numbers[0], numbers[1], a, b)
        a, b = (np.setdiff1d(rest, found, assume_unique=True) for rest, found in zip((a, b), pairs[name], strict=True))
    return {**pairs, "changed": (a[:0], b[:0])}


def _number(first: Any, second: Any) -> Any:
    """Numbers for the digests of both sides; equal digests have equal numbers."""
    if first is None or second is None:
        return None
    digests = np.concatenate([first, second]).view(f"S{DIGEST_BYTES}").reshape(-1)
    numbers = np.unique(digests, return_inverse=True)[1]
    return numbers[: len(first)], numbers[len(first) :]


def _match(first: Any, second: Any, a: _Positions, b: _Positions) -> _Pairs:
    """Pairs out of ``a`` and ``b`` that have equal numbers, each sample in one pair at most, in order."""
    ids: list[_Positions] = []
    ranks = [_ranks(first[a]), _ranks(second[b])]
    most = max((int(each.max()) for each in ranks if len(each)), default=0) + 1
    for numbers, rank in zip((first[a], second[b]), ranks, strict=True):
        ids.append(numbers * most + rank)
    _, in_a, in_b = np.intersect1d(ids[0], ids[1], assume_unique=True, return_indices=True)
    order = np.argsort(in_a)
    return a[in_a[order]], b[in_b[order]]


def _ranks(numbers: _Positions) -> _Positions:
    """For each number, the count of equal numbers before it."""
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    is_new = np.r_[True, ordered[1:] != ordered[:-1]] if len(ordered) else np.zeros(0, bool)
    begins = np.maximum.accumulate(np.where(is_new, np.arange(len(ordered)), 0))
    ranks = np.empty(len(numbers), np.int64)
    ranks[order] = np.arange(len(ordered)) - begins
    return ranks


def _changed_columns(sides: Sequence[_Side], changed: _Pairs) -> dict[str, int]:
    """The number of pairs of samples that differ, by column."""
    counts: dict[str, int] = {}
    first, second = (side.places(samples) for side, samples in zip(sides, changed, strict=True))
    for splits in np.unique(np.stack([first[:, 0], second[:, 0]], axis=1), axis=0):
        chosen = (first[:, 0] == splits[0]) & (second[:, 0] == splits[1])
        places = first[chosen, 1], second[chosen, 1]
        accesses = [access_to(side.iterators[split]) for side, split in zip(sides, splits, strict=True)]
        for start in range(0, len(places[0]), _ROWS_AT_ONCE):
            parts = [access.batch(each[start : start + _ROWS_AT_ONCE]) for access, each in zip(accesses, places, strict=True)]
            keys = [_column_keys(part) for part in parts]
            for column in dict.fromkeys(keys[0] + keys[1]):
                if column in keys[0] and column in keys[1]:
                    differs = (row_digests((parts[0][column],)) != row_digests((parts[1][column],))).any(axis=1)
                    count = int(differs.sum())
                else:
                    count = len(places[0][start : start + _ROWS_AT_ONCE])
                if count:
                    counts[str(column)] = counts.get(str(column), 0) + count
    return counts
