"""Compares samples by their digests: of one dataset, or of two."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator import DatasetIteratorView
from data_stack.dataset.iterator.access import access_to
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.blocks import in_blocks
from data_stack.dataset.iterator.contract import ColumnKey, DatasetIteratorIF
from data_stack.dataset.iterator.layers.deduplicated import iterator_digests
from data_stack.dataset.meta import column_key
from data_stack.exception import ConfigError
from data_stack.repository.default_storage import Storage
from data_stack.repository.repository import default_repository
from data_stack.show.column_statistics import fields_of
from data_stack.show.markup import Block, Document, Heading, Paragraph, Table, readable
from data_stack.show.page import IteratorPage
from data_stack.show.sample_parts import default_keys
from data_stack.values.digests import DIGEST_BYTES, Digests, row_digests, sample_digest
from data_stack.values.stacking import keys_of

_EXAMPLES_SHOWN = 5
_N_SHOWN = 8


@dataclass(frozen=True, slots=True)
class RepeatedSamples:
    """Samples that occur more than once in one split.

    Attributes:
        split: its name.
        n_samples: samples in the split.
        n_repeats: number of samples that equal an earlier one.
        positions: (first occurrence, repeat) of some repeats, in order.
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
        n_distinct: number of different samples that are in both splits.
        n_in_first: number of samples of ``first`` that are also in ``second``.
        n_in_second: number of samples of ``second`` that are also in ``first``.
        positions: (first occurrence in ``first``, first occurrence in ``second``) of some of these samples, in order.
    """

    first: str
    second: str
    n_distinct: int
    n_in_first: int
    n_in_second: int
    positions: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class DuplicatesReport(Document):
    """The result of :func:`find_duplicates`. It prints as text, and shows as HTML in a notebook.

    Attributes:
        columns: the compared columns; None for whole samples.
        within: repeats within each split, in the order given.
        between: shared samples of each pair of splits.
    """

    columns: tuple[ColumnKey, ...] | None
    within: tuple[RepeatedSamples, ...]
    between: tuple[SharedSamples, ...]

    @property
    def is_leaking(self) -> bool:
        """Whether any sample occurs in two splits."""
        return any(pair.n_distinct for pair in self.between)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data, with :attr:`is_leaking`."""
        return {**asdict(self), "is_leaking": self.is_leaking}

    def document(self, level: int = 1) -> list[Block]:
        """The report as a document."""
        what = (
            "whole samples"
            if self.columns is None
            else "column " + ", ".join(map(readable, self.columns))
        )
        blocks: list[Block] = [Heading(level, "Duplicates"), Paragraph(f"Compared: {what}.")]
        repeats = [_pairs(each.positions, each.n_repeats) for each in self.within]
        found = zip(self.within, repeats, strict=True)
        rows = [
            [readable(each.split), f"{each.n_samples:,}", f"{each.n_repeats:,}", at]
            for each, at in found
        ]
        within = Table(
            ["split", "samples", "repeats", "first and repeat at"], rows, frozenset({1, 2})
        )
        blocks += [Heading(level + 1, "Within splits"), within]
        if self.between:
            lengths = {each.split: each.n_samples for each in self.within}
            rows = []
            for pair in self.between:
                sides = (
                    (pair.n_in_first, lengths[pair.first]),
                    (pair.n_in_second, lengths[pair.second]),
                )
                shares = [
                    f"{n_samples:,} ({100 * n_samples / max(1, n_all):.2f} %)"
                    for n_samples, n_all in sides
                ]
                names, at = (
                    f"{readable(pair.first)}, {readable(pair.second)}",
                    _pairs(pair.positions, pair.n_distinct),
                )
                rows.append([names, f"{pair.n_distinct:,}", *shares, at])
            header = ["splits", "shared samples", "of the first", "of the second", "at"]
            blocks += [
                Heading(level + 1, "Between splits"),
                Table(header, rows, frozenset({1, 2, 3})),
            ]
            blocks.append(
                Paragraph("There is leakage." if self.is_leaking else "No sample is in two splits.")
            )
        return blocks


def find_duplicates(
    splits: Mapping[str, DatasetIteratorIF] | DatasetIteratorIF,
    columns: ColumnKey | Sequence[ColumnKey] | None = None,
    *,
    max_positions: int = 20,
) -> DuplicatesReport:
    """Find equal samples within and between ``splits``; exact, by the samples' digests.

    ::

        found = find_duplicates({"train": train, "test": test}, columns=0)  # the same picture, with any label
        assert not found.is_leaking

    Reads every sample once, a few thousand at a time; each takes some 200 bytes of memory. Samples are equal if their
    ``sample_digest`` is equal: numbers of different types are equal if their values are.

    Args:
        splits: iterators by name, or one iterator to search for repeats.
        columns: the columns to compare; None for whole samples.
        max_positions: maximum number of positions to list for each finding; all are counted.

    Raises:
        ConfigError: ``splits`` is empty, or a split lacks a column.
    """
    by_name = dict(splits) if isinstance(splits, Mapping) else {"all": splits}
    keys = None if columns is None else tuple(keys_of(columns))
    if not by_name or keys == ():
        raise ConfigError(
            "find_duplicates needs a split, as in {'train': …}, and columns; None compares whole samples"
        )
    digests = {
        name: _digest(name, as_iterator(iterator), keys) for name, iterator in by_name.items()
    }
    firsts = {
        name: {digest: at for at, digest in reversed(list(enumerate(found)))}
        for name, found in digests.items()
    }
    within, between = [], []
    for name, found in digests.items():
        repeats = [
            (firsts[name][digest], at)
            for at, digest in enumerate(found)
            if firsts[name][digest] != at
        ]
        within.append(
            RepeatedSamples(name, len(found), len(repeats), tuple(repeats[: max(0, max_positions)]))
        )
    for first, second in combinations(digests, 2):
        shared = firsts[first].keys() & firsts[second].keys()
        positions = sorted((firsts[first][digest], firsts[second][digest]) for digest in shared)
        n_first, n_second = (
            sum(digest in shared for digest in digests[name]) for name in (first, second)
        )
        between.append(
            SharedSamples(
                first,
                second,
                len(shared),
                n_first,
                n_second,
                tuple(positions[: max(0, max_positions)]),
            )
        )
    return DuplicatesReport(keys, tuple(within), tuple(between))


def _digest(
    name: str, iterator: DatasetIteratorIF, keys: tuple[ColumnKey, ...] | None
) -> list[bytes]:
    """The digests of the samples of a split."""
    try:
        return _list_digests(iterator_digests(iterator, keys))
    except ConfigError as error:
        raise ConfigError(f"split {name!r} cannot be searched for duplicates: {error}") from error


def _list_digests(digests: Digests) -> list[bytes]:
    return list(digests.view(f"V{DIGEST_BYTES}").ravel().tolist())


def _pairs(positions: Sequence[tuple[int, int]], n_all: int) -> str:
    shown = ", ".join(f"{first:,} and {second:,}" for first, second in positions[:_EXAMPLES_SHOWN])
    return shown + (", …" if n_all > min(len(positions), _EXAMPLES_SHOWN) else "")


_Positions: TypeAlias = npt.NDArray[np.int64]
_Pairs: TypeAlias = list[tuple[int, int]]


@dataclass(frozen=True)
class DatasetDiff(Document):
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
    moved: tuple[_Positions, _Positions]
    relabelled: tuple[_Positions, _Positions]
    changed: tuple[_Positions, _Positions]
    changed_columns: Mapping[str, int]
    _iterators: tuple[Sequence[Any], Sequence[Any]] = field(repr=False, compare=False)

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
        rows = [
            [name or "all", f"{a:,}", f"{b:,}"]
            for name, a, b in zip(self.splits, self.n_first, self.n_second, strict=True)
        ]
        found = ", ".join(f"{count:,} {name}" for name, count in self.counts.items() if count)
        summary = f"{self.n_equal:,} samples are equal; {found or 'no sample differs'}."
        blocks: list[Block] = [Heading(level, "Difference"), Paragraph(summary)]
        blocks.append(Table(["split", "first", "second"], rows, frozenset({1, 2})))
        if self.changed_columns:
            columns = [
                [readable(name), f"{count:,}"] for name, count in self.changed_columns.items()
            ]
            blocks.append(Table(["changed column", "samples"], columns, frozenset({1})))
        blocks += self._show(level, "Added", 1, self.added) + self._show(
            level, "Removed", 0, self.removed
        )
        for title, pair in (
            ("Moved", self.moved),
            ("Relabelled", self.relabelled),
            ("Changed", self.changed),
        ):
            blocks += self._show(level, f"{title}, first", 0, pair[0]) + self._show(
                level, f"{title}, second", 1, pair[1]
            )
        return blocks

    def _show(self, level: int, title: str, side: int, where: _Positions) -> list[Block]:
        """Some samples, those of one split."""
        if not len(where):
            return []
        split = int(where[0, 0])
        places = where[where[:, 0] == split, 1][:_N_SHOWN]
        page = IteratorPage(
            DatasetIteratorView(self._iterators[side][split], places),
            n_samples=_N_SHOWN,
            n_bytes=30_000,
        )
        at = ", ".join(f"{place:,}" for place in places.tolist()) + (
            ", …" if len(where) > len(places) else ""
        )
        name = self.splits[split]
        said = f"{len(where):,} samples; these are at {at}" + (f" of {name!r}." if name else ".")
        return [Heading(level + 1, title), Paragraph(said), *page.samples()]


def diff(
    first: Any, second: Any, *, key: ColumnKey | None = None, storage: Storage | None = None
) -> DatasetDiff:
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
    loaded = [
        default_repository().load(each, None, storage) if isinstance(each, str) else each
        for each in (first, second)
    ]
    splits_of = [dict(each) if isinstance(each, Mapping) else {"": each} for each in loaded]
    names = tuple(dict.fromkeys([*splits_of[0], *splits_of[1]]))
    one, other = (
        _Side([as_iterator(each.get(name, ())) for name in names], names, key) for each in splits_of
    )
    pairs = _pair_by_content(one, other) if key is None else _pair_by_key(one, other)
    places: dict[str, Any] = {}
    for name in ("moved", "relabelled", "changed"):
        places[name] = (
            one.places(pair[0] for pair in pairs[name]),
            other.places(pair[1] for pair in pairs[name]),
        )
    counts: Counter[str] = Counter()  # of pairs of samples that differ, by column
    for a, b in pairs["changed"]:
        then, now = one.sample(a), other.sample(b)
        digests = [
            {column: sample_digest((value,)) for column, value in sample.items()}
            for sample in (then, now)
        ]
        counts.update(
            str(column)
            for column in {**then, **now}
            if digests[0].get(column) != digests[1].get(column)
        )
    paired = [{pair[side] for found in pairs.values() for pair in found} for side in (0, 1)]
    return DatasetDiff(
        splits=names,
        n_first=tuple(map(len, one.iterators)),
        n_second=tuple(map(len, other.iterators)),
        n_equal=len(pairs["equal"]),
        added=other.places(each for each in range(len(other.contents)) if each not in paired[1]),
        removed=one.places(each for each in range(len(one.contents)) if each not in paired[0]),
        changed_columns=dict(counts),
        _iterators=(one.iterators, other.iterators),
        **places,
    )


class _Side:
    """The samples of one of both datasets, all splits in a row, by their digests.

    Attributes:
        contents: digests of whole samples.
        inputs: digests without target and tag; empty without target.
        keys: digests of the key; empty without a key.
        where: split and place of each sample.
    """

    def __init__(
        self, iterators: Sequence[DatasetIteratorIF], names: Sequence[str], key: ColumnKey | None
    ) -> None:
        self.iterators, self._names, self._key = iterators, names, key
        self.contents, self.inputs, self.keys = list[bytes](), list[bytes](), list[bytes]()
        self.where = [
            (split, place)
            for split, iterator in enumerate(iterators)
            for place in range(len(iterator))
        ]
        for split, iterator in enumerate(iterators):
            if len(iterator):
                self._digest(split, iterator)
        if len(self.inputs) < len(self.contents):
            self.inputs = []
        repeated = Counter(self.keys).most_common(1)
        if repeated and repeated[0][1] > 1:
            split, place = self.where[self.keys.index(repeated[0][0])]
            problem = f"{repeated[0][1]} samples have the value of sample {place} of split {names[split]!r}"
            raise ConfigError(
                f"key {key!r:.80} does not identify samples: {problem}. Name another column, or leave key out"
            )

    def _digest(self, split: int, iterator: DatasetIteratorIF) -> None:
        access, meta = access_to(iterator), getattr(iterator, "dataset_meta", None)
        sample = access.sample(0)
        columns = [column for column in fields_of(sample) if column is not None]
        kept = [
            each
            for each in columns
            if each not in (default_keys(meta, sample)[1], getattr(meta, "tag_pos", None))
        ]
        key = None if self._key is None else column_key(iterator, self._key)
        if key is not None and key not in columns:
            raise ConfigError(
                f"split {self._names[split]!r} has no column {self._key!r:.80} to compare by, but {columns!r:.200}"
            )
        batch: Any
        for _, batch in in_blocks(len(iterator), access.batch):
            self.contents += _list_digests(row_digests(batch))
            if kept and len(kept) < len(columns):
                self.inputs += _list_digests(row_digests(tuple(batch[column] for column in kept)))
            if key is not None:
                self.keys += _list_digests(row_digests((batch[key],)))

    def places(self, samples: Iterable[int]) -> _Positions:
        """Split and place of samples that are numbered over all splits."""
        return np.array([self.where[each] for each in samples], np.int64).reshape(-1, 2)

    def sample(self, number: int) -> dict[Any, Any]:
        """The columns of a sample."""
        split, place = self.where[number]
        return fields_of(self.iterators[split][place])


def _pair_by_key(one: _Side, other: _Side) -> dict[str, _Pairs]:
    """Pairs of samples with equal keys, by how they differ."""
    pairs = defaultdict[str, _Pairs](list)
    for a, b in _match(one.keys, other.keys, range(len(one.keys)), range(len(other.keys))):
        if one.contents[a] == other.contents[b]:
            kind = "equal" if one.where[a][0] == other.where[b][0] else "moved"
        else:
            kind = (
                "relabelled"
                if one.inputs and other.inputs and one.inputs[a] == other.inputs[b]
                else "changed"
            )
        pairs[kind].append((a, b))
    return pairs


def _pair_by_content(one: _Side, other: _Side) -> dict[str, _Pairs]:
    """The samples that both sides have: equal in the same split, then in others, then equal but for target and tag."""
    a, b = list(range(len(one.contents))), list(range(len(other.contents)))
    in_splits = [
        [(where[0], content) for where, content in zip(side.where, side.contents, strict=True)]
        for side in (one, other)
    ]
    inputs = (
        (one.inputs, other.inputs)
        if one.inputs and other.inputs
        else ([None] * len(a), range(len(b)))
    )
    pairs = defaultdict[str, _Pairs](list)
    for name, values in (
        ("equal", in_splits),
        ("moved", (one.contents, other.contents)),
        ("relabelled", inputs),
    ):
        pairs[name] = _match(values[0], values[1], a, b)
        matched = [{pair[side] for pair in pairs[name]} for side in (0, 1)]
        a, b = (
            [each for each in rest if each not in found]
            for rest, found in zip((a, b), matched, strict=True)
        )
    return pairs


def _match(
    first: Sequence[Any], second: Sequence[Any], a: Iterable[int], b: Iterable[int]
) -> _Pairs:
    """Pairs out of ``a`` and ``b`` that have equal values, each sample in one pair at most, in order."""
    waiting: defaultdict[Any, deque[int]] = defaultdict(deque)
    for place in b:
        waiting[second[place]].append(place)
    return [(place, waiting[first[place]].popleft()) for place in a if waiting.get(first[place])]
