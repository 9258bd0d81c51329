"""The columns of several iterators side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.class_lists import check_class_lists
from data_stack.dataset.iterator.access import ColumnKey, SampleAccess, access_to
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.contract import AccessedDatasetIterator, DatasetIteratorIF, Sample
from data_stack.dataset.iterator.layer import layer
from data_stack.dataset.meta import DatasetMeta, IteratorMeta, column_names
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import ConfigError
from data_stack.values.stacking import Batch, ColumnArray, SampleForm, value_of


@layer("zipped")
class ZippedDatasetIterator(AccessedDatasetIterator):
    """Sample ``i`` has the columns of sample ``i`` of the first iterator, of the second, and so on.

    Tuples are joined end to end, a bare value being a tuple of one column; dicts are united. Dicts
    and tuples do not mix: name the tuples' columns first, by ``as_dict``. A batch is read by one
    request to each iterator; a single column by one request to the iterator that has it. To know
    which iterator has it, sample 0 of all is read once.

    The meta is that of the first iterator, whose columns keep their positions. Columns have names if
    those of all iterators have, and no two the same. If a position in the meta counts from the end,
    sample 0 of the first iterator is read when this is made: the end is another now.

    Args:
        iterators: at least one, all of one length, which is taken here; they are not closed.

    Raises:
        ConfigError: there are no iterators, or they have different lengths or different
            ``class_names``. When reading: two have a column of the same key, or some return dicts
            and others do not.
    """

    #: The length of each iterator.
    _n_samples: int

    def __init__(self, iterators: Sequence[DatasetIteratorIF]) -> None:
        self._stacked_on = list(iterators)
        if not self._stacked_on:
            raise ConfigError("zip() needs at least one iterator")
        check_class_lists(self._stacked_on, "zip")
        lengths = [len(as_iterator(iterator)) for iterator in self._stacked_on]
        if len(set(lengths)) > 1:
            raise ConfigError(f"iterators must have one length to be zipped, got {lengths}")
        self._n_samples = lengths[0]

    @classmethod
    def _from_arguments(
        cls, underlying: list[Any], arguments: Mapping[str, Any]
    ) -> DatasetIteratorIF:
        return cls(underlying, **arguments)

    def make_access(self) -> SampleAccess:
        parts = [access_to(as_iterator(iterator)) for iterator in self._stacked_on]
        return _ZippedAccess(parts, self._n_samples)

    def _derive_meta(self, meta: DatasetMeta) -> DatasetMeta:
        names_of_each = [column_names(iterator) for iterator in self._stacked_on]
        names: list[str] = []
        for names_of_one in names_of_each:
            names.extend(names_of_one)
        have_names = all(names_of_each) and len(set(names)) == len(names)
        return replace(
            meta,
            iterator_meta=self._find_positions(meta),
            column_names=tuple(names) if have_names else None,
        )

    def _find_positions(self, meta: DatasetMeta) -> IteratorMeta:
        """Return where sample, target and tag are, counted from the start."""
        positions: list[ColumnKey] = [meta.sample_pos, meta.target_pos, meta.tag_pos]
        is_any_from_end = any(
            not isinstance(position, str) and position < 0 for position in positions
        )
        if is_any_from_end and self._n_samples:
            first = access_to(as_iterator(self._stacked_on[0]))
            form = SampleForm.of(first.sample(0))
            if form.kind == "bare":
                form = SampleForm.tuples(1)
            positions = [form.normal(position) for position in positions]
        return IteratorMeta(*positions)


@dataclass(frozen=True)
class _ColumnOfPart:
    """Where a column of the stack is read.

    Attributes:
        part: the number of the iterator.
        key: of the column in that iterator; None: its samples are bare values.
    """

    part: int
    key: ColumnKey | None


@dataclass(frozen=True)
class _SideBySide:
    """What samples of several iterators are side by side.

    Attributes:
        form: of a sample of the stack.
        columns: where each column of ``form`` is read.
    """

    form: SampleForm
    columns: list[_ColumnOfPart]

    @classmethod
    def of(cls, samples: Sequence[Any]) -> _SideBySide:
        """Find it by one sample of each iterator.

        Raises:
            ConfigError: two have a column of the same key, or some are dicts and others are not.
        """
        forms = [SampleForm.of(sample) for sample in samples]
        are_dicts = [form.kind == "dict" for form in forms]
        if any(are_dicts) and not all(are_dicts):
            raise ConfigError(
                f"dicts are zipped with dicts: name the columns of iterator "
                f"{are_dicts.index(False)} by as_dict() first"
            )
        columns: list[_ColumnOfPart] = []
        for part, form in enumerate(forms):
            keys = [None] if form.kind == "bare" else form.keys
            columns.extend(_ColumnOfPart(part, key) for key in keys)
        if not all(are_dicts):
            return cls(SampleForm.tuples(len(columns)), columns)
        part_of: dict[Any, int] = {}
        for column in columns:
            if column.key in part_of:
                raise ConfigError(
                    f"iterators {part_of[column.key]} and {column.part} both have a column "
                    f"{column.key!r}; rename or drop one first"
                )
            part_of[column.key] = column.part
        return cls(SampleForm("dict", tuple(part_of)), columns)

    def find(self, key: ColumnKey) -> _ColumnOfPart:
        """Return where the column ``key`` of the stack is read.

        Raises:
            ConfigError: there is no such column.
        """
        return self.columns[self.form.keys.index(self.form.find(key))]


class _ZippedAccess(SampleAccess):
    """Access to the columns of several side by side.

    Args:
        parts: the accesses.
        n_samples: how many samples of each are read; it may have grown since they were counted.
    """

    #: What samples look like; None until a column is read.
    _side_by_side: _SideBySide | None

    def __init__(self, parts: Sequence[SampleAccess], n_samples: int) -> None:
        self._parts = parts
        self._readers = [part.make_sample_reader() for part in parts]
        self._side_by_side = None
        self.n_samples = n_samples
        self.releases_gil = any(part.releases_gil for part in parts)
        self.prefers_blocks = any(part.prefers_blocks for part in parts)

    # ------------------------------------------------------------------ samples

    def sample(self, position: int) -> Sample:
        return _join([read(position) for read in self._readers])

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        if len(positions) == 0:
            return []
        samples_of_parts = [part.samples(positions) for part in self._parts]
        return [_join(samples) for samples in zip(*samples_of_parts, strict=True)]

    def iterate(self, start: int, stop: int) -> Iterator[Sample]:
        parts = [part.iterate(start, stop) for part in self._parts]
        return map(_join, zip(*parts, strict=True))

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        batches = [part.batch(positions) for part in self._parts]
        if self.n_samples == 0:
            # () is the batch of an iterator whose columns are unknown
            batches = [batch for batch in batches if len(batch) or not isinstance(batch, tuple)]
            if not batches:
                return ()
        batch: Batch = _join(batches)
        return batch

    def columns(
        self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None
    ) -> list[ColumnArray]:
        if self.n_samples == 0:
            return self._empty_columns(keys)
        if self._side_by_side is None:
            self._side_by_side = _SideBySide.of([read(0) for read in self._readers])
        wanted = [self._side_by_side.find(key) for key in keys]
        column_of: dict[_ColumnOfPart, ColumnArray] = {}
        for part in sorted({column.part for column in wanted}):
            # one request to each iterator
            of_part = [column for column in wanted if column.part == part]
            read = self._read_columns(part, [column.key for column in of_part], positions)
            column_of.update(zip(of_part, read, strict=True))
        return [column_of[column] for column in wanted]

    def _empty_columns(self, keys: Sequence[ColumnKey]) -> list[ColumnArray]:
        batch: Any = self.batch(np.empty(0, dtype=np.intp))
        if len(batch) == 0:
            # the columns are unknown
            return [np.empty(0) for _ in keys]
        return [value_of(batch, key) for key in keys]

    def _read_columns(
        self, part: int, keys: Sequence[ColumnKey | None], positions: IndexArrayOfInts | None
    ) -> list[ColumnArray]:
        """Read columns of one iterator; with the key None its samples, which are bare values."""
        access = self._parts[part]
        named = [key for key in keys if key is not None]
        if named and positions is None:
            return [column[: self.n_samples] for column in access.columns(named)]
        if named:
            return access.columns(named, positions)
        if positions is None:
            positions = np.arange(self.n_samples, dtype=np.intp)
        batch = access.batch(positions)
        if not isinstance(batch, np.ndarray):
            raise ConfigError(
                f"iterator {part} returned bare values first and other samples later; they cannot "
                f"be zipped"
            )
        return [batch] * len(keys)

    # ------------------------------------------------------------------ what is known of them

    @property
    def n_at_once(self) -> int:  # type: ignore[override]  # read-only here
        return min(part.n_at_once for part in self._parts)

    def blocks(self) -> npt.NDArray[np.int64] | None:
        """Return the blocks of the first iterator that has blocks."""
        for part in self._parts:
            blocks = part.blocks()
            if blocks is not None:
                return blocks
        return None

    def prefetch(
        self, positions: IndexArrayOfInts, keys: Sequence[int | str] | None = None
    ) -> None:
        for part in self._parts:
            part.prefetch(positions)

    def locate(self, position: int) -> str | None:
        places = [part.locate(position) for part in self._parts]
        known = [place for place in places if place is not None]
        return " and ".join(known) or None


def _join(samples: Sequence[Any]) -> Any:
    """Make one sample of several, one from each iterator; or one batch of several.

    Raises:
        ConfigError: two have a column of the same key, or some are dicts and others are not.
    """
    if any(isinstance(sample, Mapping) for sample in samples):
        united: dict[Any, Any] = {}
        for sample in samples:
            if not isinstance(sample, Mapping) or not united.keys().isdisjoint(sample):
                _SideBySide.of(samples)  # raises
            united.update(sample)
        return united
    columns: list[Any] = []
    for sample in samples:
        if isinstance(sample, (tuple, list)):
            columns += sample
        else:
            columns.append(sample)
    return tuple(columns)
