"""The columns of several iterators side by side."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.class_lists import check_class_lists
from data_stack.dataset.iterator.access import ColumnKey, SampleAccess, access_to
from data_stack.dataset.iterator.contract import (
    AccessedDatasetIterator,
    DatasetIteratorIF,
    Sample,
    as_iterator,
)
from data_stack.dataset.iterator.layer import layer
from data_stack.dataset.meta import DatasetMeta, IteratorMeta, column_names
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import ConfigError
from data_stack.values.stacking import Batch, Column, SampleForm, value_of

_Place = tuple[int, "ColumnKey | None"]
"""Where a column is: the number of the iterator, and its key there; None: the iterator's samples are bare values."""


@layer("zipped")
class ZippedDatasetIterator(AccessedDatasetIterator):
    """Sample ``i`` has the columns of sample ``i`` of the first iterator, then those of the second, and so on.

    Tuples are joined end to end, a bare value being a tuple of one column; dicts are united. Dicts and tuples do not mix:
    name the tuples' columns first, by ``as_dict``. A batch is read by one request to each iterator; a single column by
    one to the iterator that has it, for which sample 0 of all is read once, to know where which column is.

    The meta is that of the first iterator, whose columns keep their positions; columns have names where those of all iterators
    have, and no two the same. If its meta counts from the end, its sample 0 is read when this is made: the end is another now.

    Args:
        iterators: at least one, all of one length, which is taken here; they stay the caller's to close.

    Raises:
        ConfigError: none, of different lengths, or of different ``class_names``. When reading: two have a
            column of the same key, or some return dicts and others do not.
    """

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
        return _ZippedAccess(
            [access_to(as_iterator(iterator)) for iterator in self._stacked_on], self._n_samples
        )

    def _derive_meta(self, meta: DatasetMeta) -> DatasetMeta:
        positions: list[ColumnKey] = [meta.sample_pos, meta.target_pos, meta.tag_pos]
        if self._n_samples and any(
            not isinstance(position, str) and position < 0 for position in positions
        ):
            form = SampleForm.of(access_to(as_iterator(self._stacked_on[0])).sample(0))
            positions = [
                (form if form.keys else SampleForm.tuples(1)).normal(position)
                for position in positions
            ]
        names = [column_names(iterator) for iterator in self._stacked_on]
        all_names = tuple(name for each in names for name in each)
        is_named = all(names) and len(set(all_names)) == len(all_names)
        return replace(
            meta,
            iterator_meta=IteratorMeta(*positions),
            column_names=all_names if is_named else None,
        )


class _ZippedAccess(SampleAccess):
    """Access to the columns of several side by side; ``n_samples`` of each."""

    def __init__(self, parts: Sequence[SampleAccess], n_samples: int) -> None:
        self._parts, self.n_samples = parts, n_samples
        self.releases_gil = any(part.releases_gil for part in parts)
        self.prefers_blocks = any(part.prefers_blocks for part in parts)
        self._places: tuple[SampleForm, list[_Place]] | None = None

    n_at_once = property(
        lambda self: min((part.n_at_once for part in self._parts), default=sys.maxsize)
    )

    def blocks(self) -> npt.NDArray[np.int64] | None:
        return next((blocks for part in self._parts if (blocks := part.blocks()) is not None), None)

    def prefetch(
        self, positions: IndexArrayOfInts, keys: Sequence[int | str] | None = None
    ) -> None:
        for part in self._parts:
            part.prefetch(positions)

    def locate(self, position: int) -> str | None:
        return (
            " and ".join(
                place for part in self._parts if (place := part.locate(position)) is not None
            )
            or None
        )

    def sample(self, position: int) -> Sample:
        return _side_by_side([part.sample(position) for part in self._parts])

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        if not len(positions):
            return []
        return [
            _side_by_side(samples)
            for samples in zip(*[part.samples(positions) for part in self._parts], strict=True)
        ]

    def iterate(self, start: int, stop: int) -> Iterator[Sample]:
        return map(
            _side_by_side, zip(*[part.iterate(start, stop) for part in self._parts], strict=True)
        )

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        batches = [part.batch(positions) for part in self._parts]
        if self.n_samples == 0:  # () has no columns
            batches = [batch for batch in batches if not (isinstance(batch, tuple) and not batch)]
        return _side_by_side(batches) if batches else ()

    def columns(
        self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None
    ) -> list[Column]:
        if self.n_samples == 0:
            batch: Any = self.batch(np.empty(0, dtype=np.intp))
            # the columns of () are unknown
            return (
                [value_of(batch, key) for key in keys]
                if len(batch)
                else [np.empty(0) for _ in keys]
            )
        if self._places is None:
            self._places = _places_of([part.sample(0) for part in self._parts])
        form, places = self._places
        wanted = [places[form.keys.index(form.find(key))] for key in keys]
        found: dict[_Place, Column] = {}
        for number in {number for number, _ in wanted}:
            own = [place for place in wanted if place[0] == number]
            found.update(
                zip(own, self._read_from(number, [key for _, key in own], positions), strict=True)
            )
        return [found[place] for place in wanted]

    def _read_from(
        self, number: int, keys: Sequence[ColumnKey | None], positions: IndexArrayOfInts | None
    ) -> list[Column]:
        part, named = self._parts[number], [key for key in keys if key is not None]
        if named:
            columns = part.columns(named, positions)
            return (
                [column[: self.n_samples] for column in columns] if positions is None else columns
            )
        batch = part.batch(
            np.arange(self.n_samples, dtype=np.intp) if positions is None else positions
        )
        if not isinstance(batch, np.ndarray):
            raise ConfigError(
                f"iterator {number} returned bare values first and other samples later; they cannot be zipped"
            )
        return [batch] * len(keys)


def _side_by_side(samples: Sequence[Any]) -> Any:
    """One sample of several, one from each iterator; or one batch of several."""
    if any(isinstance(sample, Mapping) for sample in samples):
        united: dict[Any, Any] = {}
        for sample in samples:
            if not isinstance(sample, Mapping) or not united.keys().isdisjoint(sample):
                _places_of(samples)  # raises
            united.update(sample)
        return united
    columns: list[Any] = []
    for sample in samples:
        if isinstance(sample, (tuple, list)):
            columns += sample
        else:
            columns.append(sample)
    return tuple(columns)


def _places_of(samples: Sequence[Any]) -> tuple[SampleForm, list[_Place]]:
    """What the samples are side by side, and where each column is, from a sample of each iterator."""
    forms = [SampleForm.of(sample) for sample in samples]
    are_dicts = [form.kind == "dict" for form in forms]
    if any(are_dicts) and not all(are_dicts):
        raise ConfigError(
            f"dicts are zipped with dicts: name the columns of iterator {are_dicts.index(False)} by as_dict() first"
        )
    places = [
        (number, key)
        for number, form in enumerate(forms)
        for key in (form.keys if form.kind != "bare" else [None])
    ]
    if not all(are_dicts):
        return SampleForm.tuples(len(places)), places
    first: dict[Any, int] = {}
    for number, key in places:
        if first.setdefault(key, number) != number:
            raise ConfigError(
                f"iterators {first[key]} and {number} both have a column {key!r}; rename or drop one first"
            )
    return SampleForm("dict", tuple(first)), places
