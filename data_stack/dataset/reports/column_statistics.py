"""Tells of what shape and type the columns of an iterator are, and, by reading all of it, what numbers lie in them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.access import DeclaredColumn, access_to
from data_stack.dataset.iterator.blocks import in_blocks
from data_stack.dataset.iterator.contract import Batch, DatasetIteratorIF
from data_stack.dataset.iterator.stacking import as_array, stack_values
from data_stack.dataset.meta import DatasetMetaIF
from data_stack.dataset.moments import RunningMoments
from data_stack.dataset.reports.column_report import ColumnReport, ColumnStatistics
from data_stack.util.exact import comparable

__all__ = ["columns_of_samples", "with_statistics"]

_NULLABLE = " or None"

_MOST_DISTINCT = 100_000

_Numbers = npt.NDArray[Any]


def columns_of_samples(
    samples: Sequence[Any],
    meta: DatasetMetaIF | None,
    names: Sequence[str] = (),
    declared: Mapping[str, DeclaredColumn] | None = None,
) -> tuple[ColumnReport, ...]:
    """The columns of which ``samples``, at least one, are rows.

    Args:
        samples: the first one says which columns there are.
        meta: says which are the sample proper, the target and the tag.
        names: of the columns of tuple samples; empty if they have none.
        declared: what a schema says of columns of dict samples; what it says is not looked for in the samples.
    """
    rows = [_fields(sample) for sample in samples]
    roles = {} if meta is None else _roles(meta, len(rows[0]))
    columns = []
    for key in rows[0]:
        told = (declared or {}).get(key) or DeclaredColumn()
        dtype, shape = _layout([row[key] for row in rows if key in row])
        if told.dtype is not None:
            dtype, shape = told.dtype, told.shape
        if told.is_nullable and not dtype.endswith(_NULLABLE):
            dtype += _NULLABLE
        name = names[key] if isinstance(key, int) and key < len(names) else None
        columns.append(ColumnReport(key, roles.get(key), dtype, shape, name=name))
    return tuple(columns)


def with_statistics(iterator: DatasetIteratorIF, columns: Sequence[ColumnReport]) -> tuple[ColumnReport, ...]:
    """``columns`` with the statistics of all samples, which are read once, block by block.

    Args:
        iterator: its samples are read from first to last, about 4 MiB at once.
        columns: see :func:`columns_of_samples`.
    """
    collectors: dict[Any, _Collector] = {column.key: _Collector() for column in columns}
    for _, batch in in_blocks(len(iterator), access_to(iterator).batch):
        for key, column in _fields_of_batch(batch).items():
            if key in collectors:
                collectors[key].add(column)
    return tuple(
        replace(
            column,
            shape=collectors[column.key].shape(column.shape),
            statistics=collectors[column.key].statistics(),
        )
        for column in columns
    )


def _fields(sample: Any) -> dict[Any, Any]:
    if isinstance(sample, Mapping):
        return dict(sample)
    return dict(enumerate(sample)) if isinstance(sample, (tuple, list)) else {None: sample}


def _fields_of_batch(batch: Batch) -> Mapping[Any, _Numbers]:
    if isinstance(batch, dict):
        return batch
    return dict(enumerate(batch)) if isinstance(batch, tuple) else {None: batch}


def _roles(meta: DatasetMetaIF, n_columns: int) -> dict[Any, str]:
    roles: dict[Any, str] = {}
    for role in ("tag", "target", "sample"):  # where positions meet, the last one counts
        key = getattr(meta, f"{role}_pos", None)
        if isinstance(key, int) and -n_columns <= key < 0:
            key += n_columns
        if isinstance(key, (int, str)):
            roles[key] = role
    return roles


def _layout(values: Sequence[Any]) -> tuple[str, tuple[int | None, ...] | None]:
    """The types and the shape of values, of which each is looked at by itself."""
    found = [value for value in values if value is not None]
    columns = [stack_values([value]) for value in found]
    types = {
        type(value).__name__ if column.dtype == object else str(column.dtype): None
        for value, column in zip(found, columns, strict=True)
    }
    dtype = " or ".join(types) + (_NULLABLE if types and len(found) < len(values) else "") or "NoneType"
    return dtype, _shared_shape({column.shape[1:] for column in columns}) if columns else ()


def _shared_shape(shapes: Collection[tuple[int, ...]]) -> tuple[int | None, ...] | None:
    """Shapes as one, with None for an extent that differs; None if they differ in their number of extents."""
    if len({len(shape) for shape in shapes}) > 1:
        return None
    return tuple(extents[0] if len(set(extents)) == 1 else None for extents in zip(*shapes, strict=True))


class _Moments(RunningMoments):
    """The moments of numbers; infinite ones and NaN are counted, and no part of them."""

    def __init__(self) -> None:
        super().__init__()
        self.n_missing = self.n_infinite = 0
        self.extremes: list[Any] = []  # of the numbers' own type: integers stay exact

    def add(self, block: _Numbers) -> None:
        """Numbers of shape ``(n,)``, n > 0."""
        block = block.view(np.uint8) if block.dtype.kind == "b" else block
        low, high = np.fmin.reduce(block), np.fmax.reduce(block)  # these two pass NaN by
        self.extremes = [np.fmin(low, self.extremes[0]), np.fmax(high, self.extremes[1])] if self.extremes else [low, high]
        if block.dtype.kind == "f":
            is_infinite = np.isinf(block)
            self.n_missing += int(np.count_nonzero(np.isnan(block)))
            self.n_infinite += int(np.count_nonzero(is_infinite))
            block = np.where(is_infinite, np.nan, block)
        super().add(block)

    def facts(self) -> dict[str, Any]:
        """What is found, as plain Python values."""
        n_finite = int(self.count)
        n_numbers = n_finite + self.n_infinite
        low, high = map(_plain_number, self.extremes) if n_numbers else (None, None)
        return {
            "n_missing": self.n_missing,
            "n_numbers": n_numbers,
            "n_infinite": self.n_infinite,
            "min": low,
            "max": high,
            "mean": float(self.mean) if n_finite else None,
            "std": math.sqrt(float(self.squares) / n_finite) if n_finite else None,
        }


class _Collector:
    """What is found in the blocks of one column."""

    def __init__(self) -> None:
        self._moments = _Moments()
        self._n_missing = 0  # besides the NaN that the moments count
        self._n_samples_with_missing = 0
        self._times: list[Any] = []
        self._shapes: set[tuple[int, ...]] = set()
        self._distinct: set[Any] | None = set()

    def add(self, column: _Numbers) -> None:
        """The next block, shape ``(n, ...)``, n > 0."""
        if column.dtype == object:
            self._add_objects(column)
            return
        self._shapes.add(column.shape[1:])
        kind = column.dtype.kind
        is_missing = np.isnan(column) if kind in "fc" else np.isnat(column) if kind in "Mm" else np.zeros(column.shape, bool)
        self._n_samples_with_missing += int(np.count_nonzero(is_missing.reshape(len(column), -1).any(axis=1)))
        if kind in "biuf":
            if column.size:
                self._moments.add(column.reshape(-1))
        else:
            self._n_missing += int(np.count_nonzero(is_missing))
        present = column[~is_missing]
        if kind in "Mm" and present.size:
            found = [*self._times, present.min(), present.max()]  # maybe of another unit than those before
            exact = comparable(found)
            self._times = [found[exact.index(min(exact))], found[exact.index(max(exact))]]
        if column.ndim > 1:
            self._distinct = None
        elif self._distinct is not None:
            values = np.unique(present)
            self._count_distinct(comparable(list(values)) if kind in "mM" else values.tolist())

    def shape(self, of_first: tuple[int | None, ...] | None) -> tuple[int | None, ...] | None:
        """The shape of all values: ``of_first`` if none was read."""
        return _shared_shape(self._shapes) if self._shapes else of_first

    def statistics(self) -> ColumnStatistics:
        """What was found."""
        facts = self._moments.facts()
        facts["n_missing"] += self._n_missing
        if self._times:
            facts["min"], facts["max"] = map(str, self._times)
        return ColumnStatistics(
            n_samples_with_missing=self._n_samples_with_missing,
            n_distinct=None if self._distinct is None else len(self._distinct),
            **facts,
        )

    def _add_objects(self, column: _Numbers) -> None:
        numbers: list[Any] = []
        for value in column:
            array = None if isinstance(value, (str, bytes)) else _as_numbers(value)
            if array is not None and (array.ndim or array.dtype.kind in "mM"):
                self.add(array[None])  # a value of its own shape
                continue
            self._shapes.add(())
            value = value if array is None else array.item()
            if _is_missing(value):
                self._n_missing += 1
                self._n_samples_with_missing += 1
                continue
            if isinstance(value, (bool, int, float)):
                numbers.append(value)
            self._count_distinct([value])
        if numbers:
            self._moments.add(_as_block(numbers))

    def _count_distinct(self, values: Sequence[Any]) -> None:
        if self._distinct is None:
            return
        try:
            self._distinct.update(values)
        except TypeError:  # not hashable
            self._distinct = None
            return
        if len(self._distinct) > _MOST_DISTINCT:
            self._distinct = None


def _as_numbers(value: Any) -> _Numbers | None:
    """A number, or an array, tensor or list of numbers, dates or times, as an array; None if it is something else."""
    if isinstance(value, (list, tuple)) and not value:
        return np.empty(0)
    if not (isinstance(value, (list, tuple)) or hasattr(value, "__array__") or hasattr(value, "__array_interface__")):
        return None
    try:
        array = as_array(value)
    except Exception:  # noqa: BLE001  # lists of differing lengths, tensors of foreign kinds: no numbers to us
        return None
    return array if array.dtype.kind in "biufcMm" else None


def _as_block(numbers: Sequence[float | int]) -> _Numbers:
    """Python numbers as an array; integers stay such where they fit."""
    try:
        return np.array(numbers, dtype=float if any(isinstance(number, float) for number in numbers) else np.int64)
    except OverflowError:
        return np.array([_as_float(number) for number in numbers])


def _as_float(number: float | int) -> float:
    try:
        return float(number)
    except OverflowError:  # an integer beyond the largest float
        return math.inf if number > 0 else -math.inf


def _is_missing(value: Any) -> bool:
    """Whether it is None, or differs from itself as NaN, NaT and a decimal's NaN do, or is pandas' NA."""
    if value is None or type(value).__name__ == "NAType":
        return True
    if isinstance(value, (str, bytes, bool, int)):
        return False
    try:
        return bool(value != value)
    except Exception:  # noqa: BLE001  # whatever cannot be compared is there
        return False


def _plain_number(number: Any) -> float | int:
    plain = number.item()
    return float(plain) if isinstance(plain, np.floating) else plain  # longdouble's is no float
