"""Samples with some columns replaced by what is made of these columns."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from data_stack.dataset.iterator.access import ColumnKey, SampleAccess, split_positions
from data_stack.dataset.iterator.access_bases import OneToOneAccess
from data_stack.dataset.iterator.contract import Sample
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.values.stacked_values import stack_values
from data_stack.values.stacking import (
    Batch,
    ColumnArray,
    SampleForm,
    join_batches,
    join_columns,
    replace_values,
    value_of,
)

ColumnTransform = Callable[[ColumnKey, ColumnArray, IndexArrayOfInts | None], ColumnArray]
"""Makes a column of as many rows from a column.

It takes the key of the column, for messages; the values below, shape ``(n_rows, ...)``; and the
positions of these rows, None for all samples in order.
"""


@dataclass(frozen=True)
class ColumnTransforms:
    """The transforms of the columns of samples of a form.

    Attributes:
        form: the form of the samples.
        transforms: the transforms by column, where a column is written as in ``form.keys``.
    """

    form: SampleForm
    transforms: Mapping[Any, ColumnTransform]


class TransformedColumnsAccess(OneToOneAccess):
    """Access to samples in which a transform makes new values for some columns.

    Other columns pass through untouched. Reading one column reads only that one. Samples keep their
    form: tuples, lists, named tuples or dicts.

    Args:
        below: the samples.
        transforms: the transforms by column: a position, which may count from the end, or a key.
        max_rows: how many rows to read and transform at once.
    """

    #: The transforms by column, as they were given.
    _transforms: Mapping[ColumnKey, ColumnTransform]

    #: How many rows to read and transform at once.
    _max_rows: int

    #: The transforms by the columns of the samples; None until a sample or a batch was read.
    _layout: ColumnTransforms | None

    def __init__(
        self,
        below: SampleAccess,
        transforms: Mapping[ColumnKey, ColumnTransform],
        *,
        max_rows: int = sys.maxsize,
    ) -> None:
        super().__init__(below)
        self._transforms = transforms
        self._max_rows = max_rows
        self._layout = None

    # ------------------------------------------------------------------ samples

    def sample(self, position: int) -> Sample:
        return self.samples(np.array([position], dtype=np.intp))[0]

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        samples = self.below.samples(positions)
        if not samples:
            return []
        layout = self._find_layout(samples[0])
        columns: dict[Any, ColumnArray] = {}
        for key, transform in layout.transforms.items():
            values = stack_values([value_of(sample, key) for sample in samples])
            columns[key] = transform(key, values, positions)
        transformed: list[Sample] = []
        for row, sample in enumerate(samples):
            row_values = {key: column[row] for key, column in columns.items()}
            transformed.append(replace_values(sample, row_values))
        return transformed

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        parts = split_positions(positions, self._max_rows)
        return join_batches([self._transform_batch(part) for part in parts])

    def _transform_batch(self, positions: IndexArrayOfInts) -> Any:
        batch: Any = self.below.batch(positions)
        has_no_columns = self.n_samples == 0 and len(batch) == 0
        if has_no_columns:
            return batch
        layout = self._find_layout(batch)
        transformed: dict[Any, ColumnArray] = {}
        for key, transform in layout.transforms.items():
            column = value_of(batch, key)
            transformed[key] = self._transform_column(transform, key, column, positions)
        form = layout.form
        return form.make([transformed.get(key, batch[key]) for key in form.keys])

    # ------------------------------------------------------------------ columns

    def columns(
        self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None
    ) -> list[ColumnArray]:
        if self._layout is None and self.n_samples:
            # Only a sample tells which column a position that counts from the end is.
            count_from_end = [_counts_from_end(key) for key in (*self._transforms, *keys)]
            if any(count_from_end):
                self._find_layout(self.below.sample(0))
        if positions is None and self.n_samples <= self._max_rows:
            return self._transform_columns(keys, None)
        if positions is None:
            positions = np.arange(self.n_samples, dtype=np.intp)
        parts = split_positions(positions, self._max_rows)
        columns_of_parts = [self._transform_columns(keys, part) for part in parts]
        return [join_columns(pieces) for pieces in zip(*columns_of_parts, strict=True)]

    def _transform_columns(
        self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None
    ) -> list[ColumnArray]:
        columns: list[ColumnArray] = []
        for key, column in zip(keys, self.below.columns(keys, positions), strict=True):
            transform = self._find_transform(key)
            if transform is None:
                columns.append(column)
            else:
                columns.append(self._transform_column(transform, key, column, positions))
        return columns

    def iterate_column(self, key: ColumnKey, positions: IndexArrayOfInts) -> Iterator[Any] | None:
        # A position may be a transformed column whose own position counts from the end.
        passes_through = isinstance(key, str) and key not in self._transforms
        return self.below.iterate_column(key, positions) if passes_through else None

    # ------------------------------------------------------------------ transforms

    def _transform_column(
        self,
        transform: ColumnTransform,
        key: ColumnKey,
        column: ColumnArray,
        positions: IndexArrayOfInts | None,
    ) -> ColumnArray:
        """Return a transformed column, stacked as ``read_batch`` stacks samples."""
        transformed = transform(key, column, positions)
        if transformed.dtype.kind != "O":
            return transformed
        if len(transformed):
            return stack_objects(transformed)
        if self.n_samples == 0:
            return transformed
        # Only a transformed sample tells the shape and dtype.
        first = np.zeros(1, dtype=np.intp)
        [first_column] = self.below.columns([key], first)
        return self._transform_column(transform, key, first_column, first)[:0]

    def _find_transform(self, key: ColumnKey) -> ColumnTransform | None:
        """Return the transform of a column; None where the column passes through."""
        if self._layout is None:
            return self._transforms.get(key)
        return self._layout.transforms.get(self._layout.form.normal(key))

    def _find_layout(self, sample: Any) -> ColumnTransforms:
        """Return the transforms by the columns of the samples.

        Args:
            sample: any sample or batch; the first one decides.
        """
        layout = self._layout
        if layout is None:
            form = SampleForm.of(sample)
            layout = ColumnTransforms(form, normalize_keys(form, self._transforms))
            self._layout = layout
        return layout


def _counts_from_end(key: ColumnKey) -> bool:
    return not isinstance(key, str) and key < 0


def normalize_keys(form: SampleForm, values: Mapping[ColumnKey, Any]) -> dict[Any, Any]:
    """Return ``values`` by the columns as ``form`` writes them: by positions from 0 on, or keys.

    Raises:
        ConfigError: samples have no such column, or two keys are one column.
    """
    columns = form.find_all(list(values))
    return dict(zip(columns, values.values(), strict=True))


def stack_objects(column: ColumnArray) -> ColumnArray:
    """Stack the values of a column of objects, unless they are text or bytes."""
    types = set(map(type, column.tolist()))
    are_texts = types <= {str, bytes, type(None)}
    return column if are_texts else stack_values(list(column))
