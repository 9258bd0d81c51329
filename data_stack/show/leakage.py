"""Finds samples that occur twice: within a split, or in two splits (leakage)."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from data_stack.dataset.iterator.access import access_to
from data_stack.dataset.iterator.blocks import in_blocks
from data_stack.dataset.iterator.contract import ColumnKey, DatasetIteratorIF, as_iterator
from data_stack.exception import ConfigError
from data_stack.show.markup import Block, Document, Heading, Paragraph, Table, readable
from data_stack.values.digests import DIGEST_BYTES, row_digests
from data_stack.values.stacking import keys_of

_EXAMPLES_SHOWN = 5


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
        return {**dataclasses.asdict(self), "is_leaking": self.is_leaking}

    def to_json(self) -> str:
        """The same as JSON text."""
        return json.dumps(self.to_dict(), indent=4)

    def document(self, level: int = 1) -> list[Block]:
        """The report as a document."""
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
                for pair in self.between
            ]
            header = ["splits", "shared samples", "of the first", "of the second", "at"]
            blocks += [Heading(level + 1, "Between splits"), Table(header, rows, frozenset({1, 2, 3}))]
            blocks.append(Paragraph("There is leakage." if self.is_leaking else "No sample is in two splits."))
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
    if not by_name:
        raise ConfigError("find_duplicates needs at least one split, e.g. {'train': …, 'test': …}")
    if max_positions < 0:
        raise ConfigError(f"max_positions must be at least 0, got {max_positions}")
    keys = None if columns is None else tuple(keys_of(columns))
    if keys == ():
        raise ConfigError("columns is empty; leave it out to compare whole samples")
    digests = {name: _digest(name, as_iterator(iterator), keys) for name, iterator in by_name.items()}
    firsts = {name: {digest: at for at, digest in reversed(list(enumerate(found)))} for name, found in digests.items()}
    within, between = [], []
    for name, found in digests.items():
        repeats = [(firsts[name][digest], at) for at, digest in enumerate(found) if firsts[name][digest] != at]
        within.append(RepeatedSamples(name, len(found), len(repeats), tuple(repeats[:max_positions])))
    for first, second in combinations(digests, 2):
        shared = firsts[first].keys() & firsts[second].keys()
        positions = sorted((firsts[first][digest], firsts[second][digest]) for digest in shared)[:max_positions]
        n_first, n_second = (sum(digest in shared for digest in digests[name]) for name in (first, second))
        between.append(SharedSamples(first, second, len(shared), n_first, n_second, tuple(positions)))
    return DuplicatesReport(keys, tuple(within), tuple(between))


def _digest(name: str, iterator: DatasetIteratorIF, keys: tuple[ColumnKey, ...] | None) -> list[bytes]:
    """The digests of the samples of a split."""
    access = access_to(iterator)
    read = access.batch if keys is None else lambda positions: tuple(access.columns(keys, positions))
    try:
        return [digest for _, batch in in_blocks(len(iterator), read) for digest in digests_of(batch)]
    except ConfigError as error:
        raise ConfigError(f"split {name!r} cannot be searched for duplicates: {error}") from error


def digests_of(batch: Any) -> list[bytes]:
    """The digests of the samples in a batch."""
    digests: list[bytes] = row_digests(batch).view(f"V{DIGEST_BYTES}").ravel().tolist()
    return digests


def _share(n_samples: int, n_all: int) -> str:
    return f"{n_samples:,} ({100 * n_samples / max(1, n_all):.2f} %)"


def _pairs(positions: Sequence[tuple[int, int]], n_all: int) -> str:
    shown = ", ".join(f"{first:,} and {second:,}" for first, second in positions[:_EXAMPLES_SHOWN])
    return shown + (", …" if n_all > min(len(positions), _EXAMPLES_SHOWN) else "")
