"""The columns of several iterators side by side."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from data_stack.dataset.iterator.iterator import (
    Batch,
    Column,
    ColumnKey,
    DatasetIterator,
    DatasetIteratorIF,
    IndexArray,
    IndexArrayOfInts,
    Sample,
    adapted,
    batch_at,
    checked_indices,
    column_names,
    columns_at,
    whole,
)
from data_stack.dataset.iterator.stacking import column_of
from data_stack.dataset.iterator.view import sample_or_view
from data_stack.dataset.meta import DatasetMetaIF, IteratorMeta, MetaFactory
from data_stack.exception import ConfigError

__all__ = ["ZippedDatasetIterator"]

_Place = tuple[int, "ColumnKey | None"]
"""Where a column is: the number of the iterator, and its key there; None: the iterator's samples are bare values."""


class ZippedDatasetIterator(DatasetIterator):
    """Sample ``i`` has the columns of sample ``i`` of the first iterator, then those of the second, and so on.

    Tuples are joined end to end, a bare value being a tuple of one column; dicts are united. Dicts and tuples do not mix:
    name the tuples' columns first, by ``as_dict``. A batch is read by one request to each iterator; a single column by
    one to the iterator that has it, for which sample 0 of all is read once, to know where which column is.

    The meta is that of the first iterator, whose columns keep their positions; columns have names where those of all iterators
    have, and no two the same. If its meta counts from the end, its sample 0 is read when this is made: the end is another now.

    Args:
        iterators: at least one, all of one length, which is taken here; they stay the caller's to close.

    Raises:
        ConfigError: none, or of different lengths. When reading: two have a column of the same key, or some give dicts and
            others do not.
    """

    _layer_name = "zipped"

    def __init__(self, iterators: Sequence[DatasetIteratorIF]) -> None:
        self._iterators = list(iterators)
        if not self._iterators:
            raise ConfigError("there is nothing to zip: give at least one iterator")
        lengths = [len(adapted(iterator)) for iterator in self._iterators]
        if len(set(lengths)) > 1:
            raise ConfigError(f"iterators can be zipped if they are equally long; their lengths are {lengths}")
        self._n_samples = lengths[0]
        self._prepare()

    def _prepare(self) -> None:
        self._parts = [adapted(iterator) for iterator in self._iterators]
        self._readers = [part._unchecked_reader() for part in self._parts]
        self._places: list[_Place] | dict[ColumnKey, _Place] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_iterators": self._iterators, "_n_samples": self._n_samples}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()

    def __len__(self) -> int:
        return self._n_samples

    def __getitem__(self, index: Any) -> Any:
        """A sample for an int; a view for a slice or an index array."""
        if type(index) is int and 0 <= index < self._n_samples:
            return self._sample_at(index)
        return sample_or_view(self, index)

    def __iter__(self) -> Iterator[Sample]:
        for samples in zip(*[islice(part, self._n_samples) for part in self._parts], strict=True):
            yield _side_by_side(samples)

    def __getitems__(self, indices: IndexArray) -> list[Sample]:
        """The samples at ``indices``, in one request to each iterator."""
        positions = checked_indices(indices, self._n_samples).tolist()
        if not positions:
            return []
        return [_side_by_side(samples) for samples in zip(*[part.__getitems__(positions) for part in self._parts], strict=True)]

    def read_batch(self, indices: IndexArray) -> Batch:
        """The samples at ``indices`` as columns, in one request to each iterator."""
        return self._batch_at(checked_indices(indices, self._n_samples))

    def read_column(self, key: ColumnKey, indices: IndexArray | None = None) -> Column:
        """One column, in one request to the iterator that has it."""
        return self._column_at(key, None if indices is None else checked_indices(indices, self._n_samples))

    def _sample_at(self, index: int) -> Sample:
        return _side_by_side([read(index) for read in self._readers])

    def _unchecked_reader(self) -> Callable[[int], Sample]:
        return self._sample_at

    def _batch_at(self, positions: IndexArrayOfInts) -> Batch:
        batches = [batch_at(part, positions) for part in self._parts]
        if self._n_samples == 0:  # () tells nothing of the columns
            batches = [batch for batch in batches if not (isinstance(batch, tuple) and not batch)]
        return _side_by_side(batches) if batches else ()

    def _column_at(self, key: ColumnKey, positions: IndexArrayOfInts | None) -> Column:
        return self._columns_at([key], positions)[0]

    def _columns_at(self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None) -> list[Column]:
        if self._n_samples == 0:
            batch = self._batch_at(np.empty(0, dtype=np.intp))
            if isinstance(batch, tuple) and not batch:  # nobody knows
                return [np.empty(0) for _ in keys]
            return [column_of(batch, key) for key in keys]  # type: ignore[arg-type]  # never a bare column
        wanted: dict[int, list[tuple[int, ColumnKey | None]]] = {}
        for slot, key in enumerate(keys):
            number, key_there = self._place_of(key)
            wanted.setdefault(number, []).append((slot, key_there))
        columns: dict[int, Column] = {}
        for number, slots in wanted.items():
            for (slot, _), column in zip(slots, self._read_from(number, [key for _, key in slots], positions), strict=True):
                columns[slot] = column
        return [columns[slot] for slot in range(len(keys))]

    def _read_from(self, number: int, keys: Sequence[ColumnKey | None], positions: IndexArrayOfInts | None) -> list[Column]:
        part, named = self._parts[number], [key for key in keys if key is not None]
        if named:
            return columns_at(part, named, whole(part, self._n_samples) if positions is None else positions)
        batch = batch_at(part, np.arange(self._n_samples, dtype=np.intp) if positions is None else positions)
        if not isinstance(batch, np.ndarray):
            raise ConfigError(f"iterator {number} gave bare values first, and other samples later; they cannot be zipped")
        return [batch] * len(keys)

    def _place_of(self, key: ColumnKey) -> _Place:
        places = self._places
        if places is None:
            places = self._places = _places_of([read(0) for read in self._readers])
        if isinstance(places, dict):
            if key in places:
                return places[key]
            raise ConfigError(f"samples have no column {key!r}: they have the columns {', '.join(map(repr, places))}")
        if not hasattr(key, "__index__") or not -len(places) <= operator.index(key) < len(places):
            raise ConfigError(f"samples have no column {key!r}: they have the columns 0 to {len(places) - 1}")
        return places[operator.index(key)]

    def _followed(self, meta: DatasetMetaIF) -> DatasetMetaIF:
        positions: list[ColumnKey] = [meta.sample_pos, meta.target_pos, meta.tag_pos]
        if self._n_samples and any(not isinstance(position, str) and position < 0 for position in positions):
            width = len(_places_of([self._readers[0](0)]))
            positions = [
                position if isinstance(position, str) or not -width <= position < 0 else position + width
                for position in positions
            ]
        names = [column_names(iterator) for iterator in self._iterators]
        all_names = tuple(name for each in names for name in each)
        is_named = all(names) and len(set(all_names)) == len(all_names)
        return replace(
            MetaFactory.copy_dataset_meta(meta),
            iterator_meta=IteratorMeta(*positions),
            column_names=all_names if is_named else None,
        )

    @classmethod
    def _rebuilt(cls, underlying: list[Any], arguments: Mapping[str, Any]) -> DatasetIteratorIF:
        return cls(underlying, **arguments)

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        """The iterators given."""
        return self._iterators


def _side_by_side(samples: Sequence[Any]) -> Any:
    """One sample of several, one from each iterator; or one batch of several."""
    if isinstance(samples[0], Mapping):
        united: dict[Any, Any] = {}
        n_columns = 0
        for sample in samples:
            if not isinstance(sample, Mapping):
                raise _mixed(samples)
            united.update(sample)
            n_columns += len(sample)
        if len(united) != n_columns:
            _places_of(samples)  # tells which
        return united
    columns: list[Any] = []
    for sample in samples:
        if isinstance(sample, (tuple, list)):
            columns += sample
        elif isinstance(sample, Mapping):
            raise _mixed(samples)
        else:
            columns.append(sample)
    return tuple(columns)


def _places_of(samples: Sequence[Any]) -> list[_Place] | dict[ColumnKey, _Place]:
    """Where which column is, from a sample of each iterator."""
    if any(isinstance(sample, Mapping) for sample in samples):
        keys: dict[ColumnKey, _Place] = {}
        for number, sample in enumerate(samples):
            if not isinstance(sample, Mapping):
                raise _mixed(samples)
            for key in sample:
                if key in keys:
                    raise ConfigError(
                        f"iterators {keys[key][0]} and {number} both have a column {key!r}; rename or drop one before zipping"
                    )
                keys[key] = (number, key)
        return keys
    places: list[_Place] = []
    for number, sample in enumerate(samples):
        places += [(number, key) for key in range(len(sample))] if isinstance(sample, (tuple, list)) else [(number, None)]
    return places


def _mixed(samples: Sequence[Any]) -> ConfigError:
    numbers = [number for number, sample in enumerate(samples) if isinstance(sample, Mapping)]
    others = [number for number in range(len(samples)) if number not in numbers]
    return ConfigError(
        f"dicts cannot be zipped with tuples or bare values: iterators {numbers} give dicts, {others} do not; "
        f"name the others' columns by as_dict()"
    )
