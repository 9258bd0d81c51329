"""Compares two datasets sample by sample."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator import DatasetIteratorView
from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.blocks import in_blocks
from data_stack.dataset.iterator.contract import ColumnKey, DatasetIteratorIF
from data_stack.dataset.meta import column_key
from data_stack.exception import ConfigError
from data_stack.repository.default_storage import Storage
from data_stack.repository.repository import default_repository
from data_stack.reproduce.duplicates import list_digests
from data_stack.reproduce.pairing import DatasetDigests, Pair, pair_by_content, pair_by_key
from data_stack.show.column_report import fields_of
from data_stack.show.markup import Block, Document, Heading, Paragraph, Table, readable
from data_stack.show.page import IteratorPage
from data_stack.show.sample_parts import default_keys
from data_stack.values.digests import row_digests, sample_digest

#: Samples that the document shows of each kind of difference.
_MAX_SHOWN_SAMPLES = 8

#: Bytes of the pictures that the document shows of each kind of difference.
_MAX_SHOWN_BYTES = 30_000

_Positions: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class DatasetDiff(Document):
    """The differences that :func:`diff` found. It prints as text, and shows samples in a notebook.

    A sample is named by two numbers: the index of its split in :attr:`splits`, and its position in
    the split. ``added`` and ``removed`` are arrays of such pairs, int64 of shape ``(n, 2)``.
    ``moved``, ``relabelled`` and ``changed`` are two such arrays each: row ``i`` of the first array
    is a sample of the first dataset, and row ``i`` of the second one its counterpart.

    Attributes:
        splits: the names of the splits of both datasets; ``("",)`` for iterators.
        n_first: the number of samples of the first dataset, in each of ``splits``.
        n_second: the number of samples of the second dataset, in each of ``splits``.
        n_equal: the number of samples that are equal and in the same split.
        added: samples that only the second dataset has.
        removed: samples that only the first dataset has.
        moved: equal samples in another split.
        relabelled: samples that differ in target and tag only.
        changed: samples of the same key that differ otherwise; only with a key.
        changed_columns: for each column, in how many of ``changed`` it differs.
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
    #: The iterators of the first and of the second dataset, one for each of ``splits``.
    _iterators: tuple[Sequence[Any], Sequence[Any]] = field(repr=False, compare=False)

    @property
    def differs(self) -> bool:
        """Whether any sample differs, or is in another split."""
        return any(self.counts.values())

    @property
    def counts(self) -> dict[str, int]:
        """How many samples were added, removed, moved, relabelled and changed."""
        return {
            "added": len(self.added),
            "removed": len(self.removed),
            "moved": len(self.moved[0]),
            "relabelled": len(self.relabelled[0]),
            "changed": len(self.changed[0]),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain data."""
        splits = {}
        for name, n_first, n_second in zip(self.splits, self.n_first, self.n_second, strict=True):
            splits[name] = {"first": n_first, "second": n_second}
        return {
            "splits": splits,
            "equal": self.n_equal,
            **self.counts,
            "changed_columns": dict(self.changed_columns),
            "differs": self.differs,
        }

    def document(self, level: int = 1) -> list[Block]:
        """Return the figures as a document, with some samples of each kind of difference."""
        blocks: list[Block] = [
            Heading(level, "Difference"),
            Paragraph(self._summary()),
            self._table_of_splits(),
        ]
        if self.changed_columns:
            blocks.append(self._table_of_columns())
        blocks += self._show_samples(level, "Added", 1, self.added)
        blocks += self._show_samples(level, "Removed", 0, self.removed)
        blocks += self._show_pairs(level, "Moved", self.moved)
        blocks += self._show_pairs(level, "Relabelled", self.relabelled)
        blocks += self._show_pairs(level, "Changed", self.changed)
        return blocks

    def _show_pairs(
        self, level: int, title: str, positions: tuple[_Positions, _Positions]
    ) -> list[Block]:
        """Return blocks that show some samples of the first dataset, and their counterparts."""
        first_positions, second_positions = positions
        blocks = self._show_samples(level, f"{title}, first", 0, first_positions)
        blocks += self._show_samples(level, f"{title}, second", 1, second_positions)
        return blocks

    def _summary(self) -> str:
        differences = [f"{count:,} {name}" for name, count in self.counts.items() if count]
        if not differences:
            differences = ["no sample differs"]
        return f"{self.n_equal:,} samples are equal; {', '.join(differences)}."

    def _table_of_splits(self) -> Table:
        rows = []
        for name, n_first, n_second in zip(self.splits, self.n_first, self.n_second, strict=True):
            rows.append([name or "all", f"{n_first:,}", f"{n_second:,}"])
        return Table(["split", "first", "second"], rows, right=frozenset({1, 2}))

    def _table_of_columns(self) -> Table:
        rows = []
        for column, count in self.changed_columns.items():
            rows.append([readable(column), f"{count:,}"])
        return Table(["changed column", "samples"], rows, right=frozenset({1}))

    def _show_samples(
        self, level: int, title: str, side: int, positions: _Positions
    ) -> list[Block]:
        """Return blocks that show some of these samples, those of one split.

        Args:
            level: the level of the document's heading.
            title: the heading of the samples.
            side: 0 for samples of the first dataset, 1 for those of the second.
            positions: the samples, each as split and position, shape ``(n, 2)``.
        """
        if len(positions) == 0:
            return []
        split = int(positions[0, 0])
        positions_in_split = positions[positions[:, 0] == split, 1]
        shown_positions = positions_in_split[:_MAX_SHOWN_SAMPLES]
        samples = DatasetIteratorView(self._iterators[side][split], shown_positions)
        page = IteratorPage(samples, n_samples=_MAX_SHOWN_SAMPLES, n_bytes=_MAX_SHOWN_BYTES)

        where = ", ".join(f"{position:,}" for position in shown_positions.tolist())
        if len(positions) > len(shown_positions):
            where += ", …"
        if self.splits[split]:
            where += f" of {self.splits[split]!r}"
        sentence = f"{len(positions):,} samples; these are at {where}."
        return [Heading(level + 1, title), Paragraph(sentence), *page.samples()]


def diff(
    first: Any, second: Any, *, key: ColumnKey | None = None, storage: Storage | None = None
) -> DatasetDiff:
    """Compare two datasets, versions, configurations, stores or stacks, sample by sample.

    ::

        data_stack.diff("digits@1.0.0", "digits@1.1.0")
        data_stack.diff(train, again, key="id")

    Every sample is read once. Samples are equal by their digests, as
    :func:`data_stack.find_duplicates` compares them: numbers count by value, not by type. Equal
    samples are paired one to one. With a key, samples of one key correspond; without, a sample that
    differs in target and tag only is reported as relabelled, and others as removed and added.

    Args:
        first: the name of a dataset, an iterator, or a dict of iterators by split.
        second: the dataset to compare with, in one of the same forms.
        key: a column that identifies samples; its values are distinct in each dataset.
        storage: where datasets that are given by name are kept; None for the default store.

    Raises:
        ConfigError: the key does not exist, or two samples have the same key; a sample cannot be
            compared.
        DatasetNotFoundError, RetrievalError, PreparationError: as for :func:`data_stack.load`.
    """
    first_splits = _load_splits(first, storage)
    second_splits = _load_splits(second, storage)
    names = tuple(dict.fromkeys([*first_splits, *second_splits]))
    first_samples = _NumberedSamples(first_splits, names)
    second_samples = _NumberedSamples(second_splits, names)

    first_digests = first_samples.digest(key)
    second_digests = second_samples.digest(key)
    if key is None:
        pairs = pair_by_content(first_digests, second_digests)
    else:
        pairs = pair_by_key(first_digests, second_digests)

    def positions_of(matches: Sequence[Pair]) -> tuple[_Positions, _Positions]:
        return (
            first_samples.positions_of(number for number, _ in matches),
            second_samples.positions_of(number for _, number in matches),
        )

    n_first = len(first_digests.contents)
    n_second = len(second_digests.contents)
    return DatasetDiff(
        splits=names,
        n_first=tuple(len(iterator) for iterator in first_samples.iterators),
        n_second=tuple(len(iterator) for iterator in second_samples.iterators),
        n_equal=len(pairs.equal),
        added=second_samples.positions_of(pairs.unpaired_second(n_second)),
        removed=first_samples.positions_of(pairs.unpaired_first(n_first)),
        moved=positions_of(pairs.moved),
        relabelled=positions_of(pairs.relabelled),
        changed=positions_of(pairs.changed),
        changed_columns=_count_changed_columns(first_samples, second_samples, pairs.changed),
        _iterators=(first_samples.iterators, second_samples.iterators),
    )


def _load_splits(dataset: Any, storage: Storage | None) -> dict[str, Any]:
    """Return the splits of a dataset by name; an iterator is one split with an empty name."""
    if isinstance(dataset, str):
        dataset = default_repository().load(dataset, None, storage)
    if isinstance(dataset, Mapping):
        return dict(dataset)
    return {"": dataset}


def _count_changed_columns(
    first_samples: _NumberedSamples, second_samples: _NumberedSamples, pairs: Iterable[Pair]
) -> dict[str, int]:
    """Return for each column in how many pairs of samples it differs, or only one sample has it."""
    counts: Counter[str] = Counter()
    for first_number, second_number in pairs:
        first_columns = _column_digests(first_samples.sample(first_number))
        second_columns = _column_digests(second_samples.sample(second_number))
        for column in {**first_columns, **second_columns}:
            if first_columns.get(column) != second_columns.get(column):
                counts[str(column)] += 1
    return dict(counts)


def _column_digests(columns: Mapping[Any, Any]) -> dict[Any, bytes]:
    return {column: sample_digest((value,)) for column, value in columns.items()}


class _NumberedSamples:
    """The samples of a dataset, numbered over all of its splits.

    Args:
        splits: iterators by name.
        names: the splits to number, in this order; a missing one has no samples.
    """

    #: The iterator of each split.
    iterators: list[DatasetIteratorIF]

    #: The name of each split.
    _names: Sequence[str]

    #: For each sample the number of its split and its position in it.
    _positions: list[tuple[int, int]]

    def __init__(self, splits: Mapping[str, Any], names: Sequence[str]) -> None:
        self.iterators = [as_iterator(splits.get(name, ())) for name in names]
        self._names = names
        self._positions = []
        for split, iterator in enumerate(self.iterators):
            for position in range(len(iterator)):
                self._positions.append((split, position))

    def positions_of(self, numbers: Iterable[int]) -> _Positions:
        """Return split and position of samples, shape ``(n, 2)``, int64."""
        positions = [self._positions[number] for number in numbers]
        return np.array(positions, np.int64).reshape(-1, 2)

    def sample(self, number: int) -> dict[Any, Any]:
        """Return the columns of a sample."""
        split, position = self._positions[number]
        return fields_of(self.iterators[split][position])

    def digest(self, key: ColumnKey | None) -> DatasetDigests:
        """Read all samples once, and return their digests.

        Raises:
            ConfigError: the key does not exist, or two samples have the same key; or a sample
                cannot be compared.
        """
        contents: list[bytes] = []
        inputs: list[bytes] = []
        keys: list[bytes] = []
        for split, iterator in enumerate(self.iterators):
            if len(iterator) == 0:
                continue
            access = access_to(iterator)
            first_sample = access.sample(0)
            key_column = self._key_column(split, first_sample, key)
            input_columns = _input_columns(iterator, first_sample)
            batch: Any
            for _, batch in in_blocks(len(iterator), access.batch):
                contents += list_digests(row_digests(batch))
                if input_columns is not None:
                    input_batch = tuple(batch[column] for column in input_columns)
                    inputs += list_digests(row_digests(input_batch))
                if key_column is not None:
                    keys += list_digests(row_digests((batch[key_column],)))
        self._check_distinct(keys, key)
        # Samples of a split without a target have no inputs of their own.
        have_all_inputs = len(inputs) == len(contents)
        return DatasetDigests(
            splits=[split for split, _ in self._positions],
            contents=contents,
            inputs=inputs if have_all_inputs else None,
            keys=keys if key is not None else None,
        )

    def _key_column(self, split: int, sample: Any, key: ColumnKey | None) -> Any:
        """Return where the samples of a split have the key; None without a key."""
        if key is None:
            return None
        column = column_key(self.iterators[split], key)
        columns = [name for name in fields_of(sample) if name is not None]
        if column not in columns:
            raise ConfigError(
                f"split {self._names[split]!r} has no column {key!r:.80} to compare by, but "
                f"{columns!r:.200}"
            )
        return column

    def _check_distinct(self, keys: Sequence[bytes], key: ColumnKey | None) -> None:
        """Check that no two samples have the same key.

        Raises:
            ConfigError: two have.
        """
        for digest, count in Counter(keys).most_common(1):
            if count > 1:
                split, position = self._positions[keys.index(digest)]
                raise ConfigError(
                    f"key {key!r:.80} does not identify samples: {count} samples have the value of "
                    f"sample {position} of split {self._names[split]!r}. Name another column, or "
                    f"leave key out"
                )


def _input_columns(iterator: DatasetIteratorIF, sample: Any) -> list[Any] | None:
    """Return the columns of a sample without those of the target and the tag.

    None: a sample has only these two, or neither of them, so that it cannot be relabelled.
    """
    meta = getattr(iterator, "dataset_meta", None)
    _, target_column = default_keys(meta, sample)
    tag_column = getattr(meta, "tag_pos", None)
    columns = [column for column in fields_of(sample) if column is not None]
    input_columns = [column for column in columns if column not in (target_column, tag_column)]
    if not input_columns or len(input_columns) == len(columns):
        return None
    return input_columns
