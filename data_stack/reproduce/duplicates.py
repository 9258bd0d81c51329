"""Finds equal samples within and between the splits of a dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.contract import ColumnKey, DatasetIteratorIF
from data_stack.dataset.iterator.layers.deduplicated import iterator_digests
from data_stack.exception import ConfigError
from data_stack.show.markup import Block, Document, Heading, Paragraph, Table, readable
from data_stack.values.digests import DIGEST_BYTES, Digests
from data_stack.values.stacking import keys_of

#: Positions that a row of the printed report shows.
_MAX_SHOWN_POSITIONS = 5


@dataclass(frozen=True, slots=True)
class RepeatedSamples:
    """Samples that occur more than once in one split.

    Attributes:
        split: the name of the split.
        n_samples: number of samples in the split.
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
        first: name of one split.
        second: name of the other split.
        n_distinct: number of different samples that are in both splits.
        n_in_first: number of samples of ``first`` that are also in ``second``.
        n_in_second: number of samples of ``second`` that are also in ``first``.
        positions: (first occurrence in ``first``, first occurrence in ``second``) of some of these
            samples, in order.
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
        """Return the report as plain data, with :attr:`is_leaking`."""
        return {**asdict(self), "is_leaking": self.is_leaking}

    def document(self, level: int = 1) -> list[Block]:
        """Return the report as a document."""
        compared = "whole samples"
        if self.columns is not None:
            compared = "column " + ", ".join(readable(column) for column in self.columns)
        blocks: list[Block] = [
            Heading(level, "Duplicates"),
            Paragraph(f"Compared: {compared}."),
            Heading(level + 1, "Within splits"),
            self._table_within(),
        ]
        if self.between:
            conclusion = "No sample is in two splits."
            if self.is_leaking:
                conclusion = "There is leakage."
            blocks.append(Heading(level + 1, "Between splits"))
            blocks.append(self._table_between())
            blocks.append(Paragraph(conclusion))
        return blocks

    def _table_within(self) -> Table:
        rows = []
        for split in self.within:
            rows.append(
                [
                    readable(split.split),
                    f"{split.n_samples:,}",
                    f"{split.n_repeats:,}",
                    _show_positions(split.positions, split.n_repeats),
                ]
            )
        header = ["split", "samples", "repeats", "first and repeat at"]
        return Table(header, rows, right=frozenset({1, 2}))

    def _table_between(self) -> Table:
        n_samples = {split.split: split.n_samples for split in self.within}
        rows = []
        for pair in self.between:
            rows.append(
                [
                    f"{readable(pair.first)}, {readable(pair.second)}",
                    f"{pair.n_distinct:,}",
                    _show_share(pair.n_in_first, n_samples[pair.first]),
                    _show_share(pair.n_in_second, n_samples[pair.second]),
                    _show_positions(pair.positions, pair.n_distinct),
                ]
            )
        header = ["splits", "shared samples", "of the first", "of the second", "at"]
        return Table(header, rows, right=frozenset({1, 2, 3}))


def find_duplicates(
    splits: Mapping[str, DatasetIteratorIF] | DatasetIteratorIF,
    columns: ColumnKey | Sequence[ColumnKey] | None = None,
    *,
    max_positions: int = 20,
) -> DuplicatesReport:
    """Find equal samples within and between ``splits``.

    ::

        # the same picture, with any label
        report = find_duplicates({"train": train, "test": test}, columns=0)
        assert not report.is_leaking

    Every sample is read once, a few thousand at a time. The digest of each sample is kept, which
    takes about 200 bytes. Samples are equal if all of their values are (their ``sample_digest``);
    numbers of different types may be equal.

    Args:
        splits: iterators by name, or one iterator to search for repeats.
        columns: the columns to compare; None for whole samples.
        max_positions: maximum number of positions to list for each finding; all are counted.

    Raises:
        ConfigError: ``splits`` is empty, or a split lacks a column.
    """
    iterators = dict(splits) if isinstance(splits, Mapping) else {"all": splits}
    keys = None if columns is None else tuple(keys_of(columns))
    if not iterators or keys == ():
        raise ConfigError(
            "find_duplicates needs a split, as in {'train': …}, and columns; None compares whole "
            "samples"
        )
    max_positions = max(0, max_positions)

    digests = {}
    for name, iterator in iterators.items():
        digests[name] = _digest_split(name, as_iterator(iterator), keys)

    within = []
    for name in digests:
        within.append(_find_repeats(name, digests[name], max_positions))
    between = []
    for first, second in combinations(digests, 2):
        between.append(_find_shared(first, digests[first], second, digests[second], max_positions))
    return DuplicatesReport(keys, tuple(within), tuple(between))


def list_digests(digests: Digests) -> list[bytes]:
    """Return digests, of shape ``(n, 16)``, as ``n`` values that can be keys of a dict."""
    return list(digests.view(f"V{DIGEST_BYTES}").ravel().tolist())


def _digest_split(
    name: str, iterator: DatasetIteratorIF, keys: tuple[ColumnKey, ...] | None
) -> list[bytes]:
    """Return the digests of the samples of a split."""
    try:
        return list_digests(iterator_digests(iterator, keys))
    except ConfigError as error:
        raise ConfigError(f"split {name!r} cannot be searched for duplicates: {error}") from error


def _find_repeats(split: str, digests: Sequence[bytes], max_positions: int) -> RepeatedSamples:
    """Find the samples of a split that equal an earlier one."""
    first_positions = _first_positions(digests)
    repeats = []
    for position, digest in enumerate(digests):
        if first_positions[digest] != position:
            repeats.append((first_positions[digest], position))
    return RepeatedSamples(split, len(digests), len(repeats), tuple(repeats[:max_positions]))


def _find_shared(
    first: str,
    first_digests: Sequence[bytes],
    second: str,
    second_digests: Sequence[bytes],
    max_positions: int,
) -> SharedSamples:
    """Find the samples that are in both of two splits."""
    positions_in_first = _first_positions(first_digests)
    positions_in_second = _first_positions(second_digests)
    shared_digests = positions_in_first.keys() & positions_in_second.keys()
    positions = sorted(
        (positions_in_first[digest], positions_in_second[digest]) for digest in shared_digests
    )
    return SharedSamples(
        first,
        second,
        n_distinct=len(shared_digests),
        n_in_first=sum(digest in shared_digests for digest in first_digests),
        n_in_second=sum(digest in shared_digests for digest in second_digests),
        positions=tuple(positions[:max_positions]),
    )


def _first_positions(digests: Sequence[bytes]) -> dict[bytes, int]:
    """Return the position of the first sample with each digest."""
    positions: dict[bytes, int] = {}
    for position, digest in enumerate(digests):
        positions.setdefault(digest, position)
    return positions


def _show_positions(positions: Sequence[tuple[int, int]], n_findings: int) -> str:
    """Return the first pairs of positions as text, with an ellipsis if there are more findings."""
    shown = positions[:_MAX_SHOWN_POSITIONS]
    text = ", ".join(f"{first:,} and {second:,}" for first, second in shown)
    if n_findings > len(shown):
        text += ", …"
    return text


def _show_share(n_shared: int, n_samples: int) -> str:
    percentage = 100 * n_shared / max(1, n_samples)
    return f"{n_shared:,} ({percentage:.2f} %)"
