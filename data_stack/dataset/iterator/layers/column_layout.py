"""Samples whose columns are some of those below, in another order or under other names."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from data_stack.dataset.iterator.access import (
    ColumnKey,
    DeclaredColumn,
    DistinctValues,
    SampleAccess,
)
from data_stack.dataset.iterator.access_bases import OneToOneAccess
from data_stack.dataset.iterator.contract import Sample
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.values.stacking import Batch, ColumnArray, SampleForm, value_of


@dataclass(frozen=True)
class ColumnLayout:
    """Where the columns of a layer come from.

    Attributes:
        form_below: the form of the samples below.
        keys_below: for each column of the layer the column below.
        form: the form of the samples of the layer.
    """

    form_below: SampleForm
    keys_below: tuple[ColumnKey, ...]
    form: SampleForm

    @cached_property
    def n_columns_below(self) -> int:
        """The number of columns below."""
        return len(self.form_below.keys)

    @cached_property
    def makes_dicts(self) -> bool:
        """Whether samples of the layer are dicts."""
        return self.form.kind == "dict"

    @cached_property
    def leaves_out_columns(self) -> bool:
        """Whether the layer lacks some columns of the samples below."""
        return len(self.keys_below) < self.n_columns_below

    def find_below(self, keys: Sequence[ColumnKey]) -> list[ColumnKey]:
        """Return the columns below of some columns of the layer.

        Raises:
            ConfigError: there is no such column.
        """
        keys_below: list[ColumnKey] = []
        for key in keys:
            number = self.form.keys.index(self.form.find(key))
            keys_below.append(self.keys_below[number])
        return keys_below


#: The number of samples that are read to find one that is not damaged.
_MAX_DAMAGED = 100

LayoutMaker = Callable[[SampleForm], ColumnLayout]
"""Makes the layout for the form of the samples below."""


def find_form(samples: SampleAccess) -> SampleForm:
    """Return the form of samples: by a schema, by the first intact sample, or by the empty batch.

    Of an empty iterator whose columns are unknown, it is the form of an empty tuple.
    """
    declared = samples.declare_columns()
    if declared is not None:
        return SampleForm("dict", tuple(declared))
    if samples.n_samples:
        return SampleForm.of(read_first_intact(samples.sample, samples.n_samples))
    return SampleForm.of(samples.batch(np.empty(0, dtype=np.intp)))


def read_first_intact(read: Callable[[int], Any], n_samples: int) -> Any:
    """Return the first sample that is not damaged.

    Args:
        read: reads a sample.
        n_samples: the number of samples, at least 1.

    Raises:
        DatasetFileCorruptError: the first 100 samples are damaged; the error is that of sample 0.
    """
    try:
        return read(0)
    except DatasetFileCorruptError:
        for position in range(1, min(n_samples, _MAX_DAMAGED)):
            with contextlib.suppress(DatasetFileCorruptError):
                return read(position)
        raise


class ColumnLayoutAccess(OneToOneAccess):
    """Access to some columns of the same samples, under other names.

    Args:
        below: the samples, which all have the same columns.
        make_layout: makes the layout for the form of the samples below.
    """

    #: Reads a sample below.
    _read_below: Callable[[int], Any]

    #: Makes the layout for the form of the samples below.
    _make_layout: LayoutMaker

    #: Where the columns come from; None until it is found out.
    _layout: ColumnLayout | None

    #: Whether an access below may read only some values of a sample. To ask an access that always
    #: reads whole samples would take a quarter of the time of a sample.
    _may_read_parts: bool

    def __init__(self, below: SampleAccess, make_layout: LayoutMaker) -> None:
        super().__init__(below, keeps_values=True)
        self._read_below = below.make_sample_reader()
        self._make_layout = make_layout
        self._layout = None
        if isinstance(below, ColumnLayoutAccess):
            self._may_read_parts = below._may_read_parts
        else:
            reads_whole_samples = type(below).values_of_sample is SampleAccess.values_of_sample
            self._may_read_parts = not reads_whole_samples

    @property
    def stacks_samples(self) -> bool:  # type: ignore[override]  # read-only here
        return self.below.stacks_samples

    # ------------------------------------------------------------------ samples

    def sample(self, position: int) -> Sample:
        if self._may_read_parts:
            layout = self._layout
            if layout is not None and layout.leaves_out_columns:
                values = self.below.values_of_sample(position, layout.keys_below)
                if values is not None:
                    return layout.form.make(values)
        return self._rearrange(self._read_below(position))

    def make_sample_reader(self) -> Callable[[int], Any]:
        if self._may_read_parts:
            return self.sample
        read_below = self._read_below
        rearrange = self._rearrange
        return lambda position: rearrange(read_below(position))

    def values_of_sample(self, position: int, keys: Sequence[ColumnKey]) -> list[Any] | None:
        layout = self._find_layout()
        if layout is None:
            return None
        return self.below.values_of_sample(position, layout.find_below(keys))

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        if len(positions) == 0:
            return []
        return list(map(self._rearrange, self.below.samples(positions)))

    def iterate(self, start: int, stop: int) -> Iterator[Sample]:
        return map(self._rearrange, self.below.iterate(start, stop))

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        layout = self._layout or self._find_layout()
        if layout is None:
            return ()
        if layout.leaves_out_columns and self.n_samples:
            batch: Batch = layout.form.make(self.below.columns(layout.keys_below, positions))
        else:
            batch = self._rearrange(self.below.batch(positions))
        return batch

    # ------------------------------------------------------------------ columns

    def columns(
        self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None
    ) -> list[ColumnArray]:
        layout = self._find_layout()
        if layout is None:
            return [np.empty(0) for _ in keys]
        if self.n_samples == 0:
            batch: Any = self.batch(np.empty(0, dtype=np.intp))
            return [value_of(batch, key) for key in keys]
        return self.below.columns(layout.find_below(keys), positions)

    def iterate_column(self, key: ColumnKey, positions: IndexArrayOfInts) -> Iterator[Any] | None:
        layout = self._find_layout()
        if layout is None or key not in layout.form.keys:
            return None
        [key_below] = layout.find_below([key])
        return self.below.iterate_column(key_below, positions)

    def distinct_values(
        self, key: ColumnKey, positions: IndexArrayOfInts | None = None
    ) -> DistinctValues | None:
        layout = self._find_layout()
        if layout is None:
            return None
        [key_below] = layout.find_below([key])
        return self.below.distinct_values(key_below, positions)

    def runs(
        self, starts: IndexArrayOfInts, length: int, keys: Sequence[ColumnKey] | None = None
    ) -> Batch | None:
        layout = self._find_layout()
        if layout is None:
            return None
        if keys is not None:
            return self.below.runs(starts, length, layout.find_below(keys))
        if layout.keys_below == layout.form_below.keys:
            whole_runs = self.below.runs(starts, length)
            return None if whole_runs is None else self._rearrange(whole_runs)
        columns: Any = self.below.runs(starts, length, layout.keys_below)
        return None if columns is None else layout.form.make(columns)

    def declare_columns(self) -> Mapping[str, DeclaredColumn] | None:
        declared_below = self.below.declare_columns()
        layout = self._find_layout()
        if declared_below is None or layout is None or layout.form.kind == "tuple":
            return None
        declared: dict[str, DeclaredColumn] = {}
        for name, key_below in zip(layout.form.keys, layout.keys_below, strict=True):
            declared[str(name)] = declared_below[str(key_below)]
        return declared

    # ------------------------------------------------------------------ the layout

    def _find_layout(self) -> ColumnLayout | None:
        """Return where the columns come from; None if there are no samples and no known columns."""
        if self._layout is not None:
            return self._layout
        form = find_form(self.below)
        if form.kind == "bare" and self.n_samples:
            raise ConfigError(
                "samples have no columns to choose from or to name: they are bare values"
            )
        if form.keys or self.n_samples:
            self._layout = self._make_layout(form)
        return self._layout

    def _rearrange(self, sample: Any) -> Any:
        """Return a sample (or a batch) of this layer, made of one below."""
        layout: Any = self._layout or self._find_layout()
        try:
            if len(sample) == layout.n_columns_below:
                values = [sample[key] for key in layout.keys_below]
                # The same as form.make(), without a call for each sample.
                if layout.makes_dicts:
                    return dict(zip(layout.form.keys, values, strict=True))
                return tuple(values)
        except (LookupError, TypeError):
            # It has other columns than sample 0.
            pass
        raise ConfigError(
            f"samples differ in their columns: of the first one, {layout.form_below.describe()}; "
            f"of this one, {SampleForm.of(sample).describe()}. Give all the same columns by map(), "
            "or leave some out by filter()"
        )
