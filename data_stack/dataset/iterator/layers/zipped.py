"""The columns of several iterators side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.class_lists import check_class_lists
from data_stack.dataset.iterator.access import ColumnKey, SampleAccess
from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.contract import AccessedDatasetIterator, DatasetIteratorIF, Sample
from data_stack.dataset.iterator.layer import layer
from data_stack.dataset.iterator.layers.column_layout import read_first_intact
from data_stack.dataset.iterator.origins import Origin
from data_stack.dataset.meta import DatasetMeta, IteratorMeta, column_names
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import ConfigError
from data_stack.values.stacking import Batch, ColumnArray, SampleForm, value_of


@layer("zipped")
class ZippedDatasetIterator(AccessedDatasetIterator):
    """Sample ``i`` has the columns of sample ``i`` of the first iterator, of the second, and so on.

    Tuples are joined end to end, where a bare value is a tuple of one column; dicts are united.
    Dicts and tuples do not mix: name the columns of the tuples first, by ``as_dict``. A batch is
    read by one request to each iterator, a column by one request to the iterator that has it. To
    know which iterator that is, sample 0 of all iterators is read once.

    The meta is that of the first iterator, whose columns keep their positions. Columns have names
    if those of all iterators have names, no two the same. If a position in the meta counts from the
    end, sample 0 of the first iterator is read when this is made, as a tuple has another end now.

    Args:
        iterators: at least one, all of one length, which is taken when this is made; they are not
            closed.

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
        names: list[str] = []
        all_have_names = True
        for iterator in self._stacked_on:
            names_of_iterator = column_names(iterator)
            if not names_of_iterator:
                all_have_names = False
            names.extend(names_of_iterator)
        have_names = all_have_names and len(set(names)) == len(names)
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
        key: the column in that iterator; None if its samples are bare values.
    """

    part: int
    key: ColumnKey | None


@dataclass(frozen=True)
class _JoinedColumns:
    """The columns of several iterators, side by side.

    Attributes:
        form: the form of a sample of the stack.
        columns: where each column of ``form`` is read.
    """

    form: SampleForm
    columns: list[_ColumnOfPart]

    @classmethod
    def of(cls, samples: Sequence[Any]) -> _JoinedColumns:
        """Find the columns by one sample of each iterator.

        Raises:
            ConfigError: two samples have a column of the same key, or only some are dicts.
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
            if form.kind == "bare":
                columns.append(_ColumnOfPart(part, None))
            for key in form.keys:
                columns.append(_ColumnOfPart(part, key))
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
    """Access to samples with the columns of several accesses side by side.

    Args:
        parts: the accesses.
        n_samples: how many samples of each are read. An iterator may have more, if it has grown
            since it was zipped.
    """

    #: For each access a function that reads one sample.
    _readers: list[Callable[[int], Any]]

    #: Which columns there are; None until a column is read.
    _joined_columns: _JoinedColumns | None

    def __init__(self, parts: Sequence[SampleAccess], n_samples: int) -> None:
        self._parts = parts
        self._readers = [part.make_sample_reader() for part in parts]
        self._joined_columns = None
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
            # The batch of an empty iterator whose columns are unknown is an empty tuple.
            known: list[Batch] = []
            for batch_of_part in batches:
                if len(batch_of_part) or not isinstance(batch_of_part, tuple):
                    known.append(batch_of_part)
            if not known:
                return ()
            batches = known
        batch: Batch = _join(batches)
        return batch

    def columns(
        self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None
    ) -> list[ColumnArray]:
        if self.n_samples == 0:
            return self._empty_columns(keys)
        if self._joined_columns is None:
            self._joined_columns = _JoinedColumns.of(
                [read_first_intact(read, self.n_samples) for read in self._readers]
            )
        wanted = [self._joined_columns.find(key) for key in keys]
        column_of: dict[_ColumnOfPart, ColumnArray] = {}
        # One request to each iterator that has a wanted column.
        for part in sorted({column.part for column in wanted}):
            of_part = [column for column in wanted if column.part == part]
            read = self._read_columns(part, [column.key for column in of_part], positions)
            column_of.update(zip(of_part, read, strict=True))
        return [column_of[column] for column in wanted]

    def _empty_columns(self, keys: Sequence[ColumnKey]) -> list[ColumnArray]:
        batch: Any = self.batch(np.empty(0, dtype=np.intp))
        if len(batch) == 0:
            # Nothing tells which columns there are.
            return [np.empty(0) for _ in keys]
        return [value_of(batch, key) for key in keys]

    def _read_columns(
        self, part: int, keys: Sequence[ColumnKey | None], positions: IndexArrayOfInts | None
    ) -> list[ColumnArray]:
        """Read columns of one iterator. The key None stands for the bare values of its samples."""
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
    def fixed_columns(self) -> bool:  # type: ignore[override]  # read-only here
        return all(part.fixed_columns for part in self._parts)

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

    def origins(self, position: int) -> Sequence[Origin]:
        origins = []
        for number, part in enumerate(self._parts):
            for origin in part.origins(position):
                origins.append(origin.in_source(str(number)))
        return origins


def _join(samples: Sequence[Any]) -> Any:
    """Make one sample of several, one from each iterator; or one batch of several.

    Raises:
        ConfigError: two have a column of the same key, or only some are dicts.
    """
    if any(isinstance(sample, Mapping) for sample in samples):
        return _unite(samples)
    columns: list[Any] = []
    for sample in samples:
        if isinstance(sample, (tuple, list)):
            columns += sample
        else:
            columns.append(sample)
    return tuple(columns)


def _unite(samples: Sequence[Any]) -> dict[Any, Any]:
    """Make one dict of several, of which each has other keys."""
    united: dict[Any, Any] = {}
    for sample in samples:
        if not isinstance(sample, Mapping) or not united.keys().isdisjoint(sample):
            # They cannot be united. What finds the columns of samples raises the error that says
            # why.
            _JoinedColumns.of(samples)
        united.update(sample)
    return united
