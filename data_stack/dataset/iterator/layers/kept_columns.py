"""Samples that are kept in memory as columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from data_stack.codecs.plain_data import json_digest
from data_stack.dataset.iterator.access import ColumnKey, DeclaredColumn, SampleAccess
from data_stack.dataset.iterator.blocks import in_blocks
from data_stack.dataset.iterator.contract import Sample
from data_stack.dataset.iterator.origins import Origin
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.dataset.recipes.recipe_values import content_of
from data_stack.io.progress import with_bar
from data_stack.values.copies import copy_array, copy_objects, copy_value
from data_stack.values.stacked_values import keeps_dtype
from data_stack.values.stacking import (
    Batch,
    ColumnArray,
    list_columns,
    map_columns,
    take_runs,
    value_of,
)

#: Types of numbers that are made again of a value of a column.
_NUMBER_TYPES = (bool, int, float)


@dataclass(frozen=True)
class KeptColumns:
    """Samples as columns.

    Attributes:
        first_sample: sample 0, whose values have the types of the values of all samples. If there
            are no samples, the empty columns.
        batch: the columns, in the form of a batch.
        declared: the columns by a schema; None if the arrays tell as much.
    """

    first_sample: Any
    batch: Any
    declared: Mapping[str, DeclaredColumn] | None = None


def read_columns(
    source: SampleAccess, progress: bool | None, *, description: str
) -> KeptColumns | None:
    """Read all samples as columns.

    Args:
        source: the samples.
        progress: whether to show a progress bar; None: if stderr is a terminal, or in a notebook.
        description: the text of the progress bar.

    Returns:
        The columns. None where samples may differ in dtype or shape, and where the values of
        samples cannot be made again of columns.
    """
    if source.n_samples == 0:
        no_samples: Any = source.batch(np.empty(0, dtype=np.intp))
        has_columns = bool(list_columns(no_samples))
        if not has_columns:
            return None
        return KeptColumns(no_samples, no_samples, source.declare_columns())
    if not source.fixed_columns:
        return None
    first_sample = source.sample(0)
    kept_types = (np.ndarray, np.generic, *_NUMBER_TYPES)
    if not all(isinstance(value, kept_types) for value in _list_values(first_sample)):
        return None
    empty_batch = source.empty_batch()
    if any(column.dtype == object for column in list_columns(empty_batch)):
        # Whether a value of such a column is an array differs from sample to sample.
        return None

    def make_column(column: ColumnArray) -> ColumnArray:
        return np.empty((source.n_samples, *column.shape[1:]), column.dtype)

    kept: Any = map_columns(make_column, empty_batch)
    blocks = in_blocks(source.n_samples, source.batch)
    for start, batch in with_bar(blocks, progress, desc=description):
        for column, values in zip(list_columns(kept), list_columns(batch), strict=True):
            column[start : start + len(values)] = values
    return KeptColumns(first_sample, kept)


class KeptColumnsAccess(SampleAccess):
    """Access to copies of samples that are kept as columns.

    Args:
        kept: the columns, whose arrays are made read-only.
        source: what the samples were read from, in the same order; None if that is unknown.
    """

    fixed_columns = True

    #: The columns.
    _batch: Any

    #: The columns by a schema; None if the arrays tell as much.
    _declared: Mapping[str, DeclaredColumn] | None

    #: For each column a function that reads one value.
    _value_readers: list[Callable[[int], Any]]

    #: What the samples were read from; None if that is unknown.
    _source: SampleAccess | None

    def __init__(self, kept: KeptColumns, source: SampleAccess | None = None) -> None:
        self._source = source
        self._batch = kept.batch
        self._declared = kept.declared
        columns = list_columns(kept.batch)
        self.n_samples = len(columns[0])
        self._value_readers = []
        self.stacks_samples = True
        for column, value in zip(columns, _list_values(kept.first_sample), strict=True):
            column.flags.writeable = False
            self._value_readers.append(_make_value_reader(column, value))
            has_dtype_of_value = np.asarray(value).dtype == column.dtype
            if not has_dtype_of_value or not keeps_dtype(column):
                self.stacks_samples = False

    # ------------------------------------------------------------------ samples

    def sample(self, position: int) -> Sample:
        values = [read_value(position) for read_value in self._value_readers]
        if isinstance(self._batch, dict):
            return dict(zip(self._batch, values, strict=True))
        if isinstance(self._batch, tuple):
            return tuple(values)
        return values[0]

    def make_sample_reader(self) -> Callable[[int], Any]:
        if not isinstance(self._batch, tuple):
            return self.sample
        value_readers = self._value_readers
        return lambda position: tuple([read_value(position) for read_value in value_readers])

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        def take_rows(column: ColumnArray) -> ColumnArray:
            return column.take(positions, axis=0)

        batch: Batch = copy_objects(map_columns(take_rows, self._batch))
        return batch

    def columns(
        self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None
    ) -> list[ColumnArray]:
        if isinstance(self._batch, np.ndarray):
            # The samples are bare values, which may have parts, but no columns.
            return super().columns(keys, positions)
        columns = [value_of(self._batch, key) for key in keys]
        if positions is None:
            return [lend_column(column) for column in columns]
        return [copy_objects(column.take(positions, axis=0)) for column in columns]

    def runs(
        self, starts: IndexArrayOfInts, length: int, keys: Sequence[ColumnKey] | None = None
    ) -> Batch | None:
        if any(column.dtype.hasobject for column in list_columns(self._batch)):
            return None
        if keys is not None:
            if isinstance(self._batch, np.ndarray):
                # The samples are bare values, which have no columns.
                return None
            columns = [value_of(self._batch, key) for key in keys]
            return tuple([take_runs(column, starts, length) for column in columns])

        def take_runs_of(column: ColumnArray) -> ColumnArray:
            return take_runs(column, starts, length)

        runs: Batch = map_columns(take_runs_of, self._batch)
        return runs

    # ------------------------------------------------------------------ what is known of them

    def locate(self, position: int) -> str | None:
        if self._source is None:
            return None
        return self._source.locate(position)

    def origins(self, position: int) -> Sequence[Origin]:
        if self._source is None:
            return super().origins(position)
        return self._source.origins(position)

    def declare_columns(self) -> Mapping[str, DeclaredColumn] | None:
        return self._declared

    def content_fingerprint(self) -> Any:
        names: Any = type(self._batch).__name__
        if isinstance(self._batch, dict):
            names = list(self._batch)
        content = [names, *list_columns(self._batch)]
        return json_digest(content_of(content, of_samples=True))


def _list_values(sample: Any) -> Sequence[Any]:
    """Return the values of a sample, or the columns of a batch."""
    if type(sample) is dict:
        return list(sample.values())
    if type(sample) is tuple:
        return sample
    return [sample]


def _make_value_reader(column: ColumnArray, first_value: Any) -> Callable[[int], Any]:
    """Return a function that reads a value of a column by its position.

    Args:
        column: the values.
        first_value: the value of sample 0. The values that are read have its type.
    """
    number_type = type(first_value)
    if number_type in _NUMBER_TYPES:
        return lambda position: number_type(column[position])
    if isinstance(first_value, np.ndarray):
        if column.dtype.hasobject:
            return lambda position: copy_array(column[position, ...])
        return lambda position: column[position, ...].copy()
    if isinstance(first_value, np.void):
        # A record is a view of the column.
        return lambda position: copy_value(column[position])
    return column.__getitem__


def lend_column(column: ColumnArray) -> ColumnArray:
    """Return a whole column for reading: a view that is read-only, or with objects a copy."""
    if column.dtype.hasobject:
        copied: ColumnArray = copy_array(column)
        return copied
    view: ColumnArray = column.view()
    view.flags.writeable = False
    return view
