"""Finds the dtypes, shapes, statistics of columns; counts targets."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.access import DeclaredColumn, access_to
from data_stack.dataset.iterator.blocks import in_blocks
from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.meta import column_names
from data_stack.show.markup import readable
from data_stack.values.missing import is_null, missing_in, present_values
from data_stack.values.moments import RunningMoments
from data_stack.values.stacked_values import exact_array, one_hot_positions, stack_values
from data_stack.values.times import comparable

MAX_VALUES_OF_A_TARGET = 64
"""Targets with more values, such as masks, are not counted unless they are one-hot."""

# More distinct numbers are reported as ranges.
_MAX_CLASSES = 1000
_NULLABLE = " or None"

_Numbers = npt.NDArray[Any]


def target_distribution(targets: npt.NDArray[Any]) -> dict[Any, int]:
    """Count the targets, as plain Python values in order; see ``DatasetIteratorReportGenerator``.

    Args:
        targets: a column, shape ``(n, ...)``.
    """
    if len(targets) == 0:
        return {}
    if (ones := one_hot_positions(targets)) is not None:
        targets = ones
    elif targets.ndim > 1 and targets[0].size == 1:
        targets = targets.reshape(len(targets))
    if n_values_of(targets[0]) > MAX_VALUES_OF_A_TARGET:
        return {}
    if targets.ndim == 1 and targets.dtype.kind in "biuf":
        return _distribution_of_numbers(targets)
    if targets.ndim == 1 and targets.dtype == object:
        present, missing = present_values(targets)
        if present.ndim == 1 and present.dtype.kind in "biuf" and len(present):
            others = Counter(map(plain_value, targets[missing]))
            return _distribution_of_numbers(present) | {
                other: others[other] for other in sorted(others, key=_order)
            }
    if targets.dtype.kind in "Mm" and targets.ndim > 1:
        targets = targets.astype(np.str_)  # Python has no time in nanoseconds
    values = targets if targets.dtype.kind in "Mm" else targets.tolist()
    counts = Counter(map(plain_value, values))
    if (n_all := counts.total()) and len(counts) > _MAX_CLASSES:
        counts = Counter(dict(counts.most_common(_MAX_CLASSES)))
        counts["(others)"] += n_all - counts.total()
    return {target: counts[target] for target in sorted(counts, key=_order)}


def plain_value(value: Any) -> Any:
    """Convert a target to a hashable Python value: None, bool, int, float, str, or a tuple of these.

    Numbers of numpy and tensors become Python numbers; bytes and other objects become text; arrays and lists become tuples.
    """
    if is_null(value):
        return None
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return None if np.isnat(value) else str(value).replace("T", " ")
    if hasattr(
        value, "tolist"
    ):  # a number or an array of its own shape in a ragged column, or a tensor
        try:
            value = value.tolist()
        except Exception:  # noqa: BLE001  # foreign code
            return str(value)
    if isinstance(value, (list, tuple)):
        return tuple(plain_value(item) for item in value)
    if isinstance(value, (bytes, bytearray)):
        return value.decode("utf-8", errors="backslashreplace")
    # YAML and JSON do not know subclasses such as enumerations.
    if isinstance(value, int):
        return value if type(value) is bool else int(value)
    if isinstance(value, (float, np.floating)):
        return float(value) if value == value else "nan"  # nan does not equal itself
    return str.__str__(value) if isinstance(value, str) else str(value)


def class_name(target: Any, names: Sequence[Any] | None, kind: str | None) -> str | None:
    """The name of the class with this number; None if the target itself is the name.

    Args:
        target: a key of :func:`target_distribution`.
        names: of the classes in the order of their numbers; None if unknown.
        kind: ``"label"``, ``"one_hot"``, ``"real"`` or None.
    """
    if names is None or type(target) is not int or not 0 <= target < len(names):
        return None
    are_names = kind != "one_hot" and any(
        isinstance(name, int) for name in names
    )  # the numbers themselves
    return None if are_names else readable(plain_value(names[target]))


def n_values_of(target: Any) -> int:
    """The number of values in an array, tensor, list or tuple; 1 for other objects."""
    shape = getattr(target, "shape", None)
    if isinstance(shape, tuple):
        return math.prod(shape)
    return len(target) if isinstance(target, (list, tuple)) else 1


def _distribution_of_numbers(targets: npt.NDArray[Any]) -> dict[Any, int]:
    is_fractional = targets.dtype.kind == "f"
    values, counts = np.unique(targets, return_counts=True)
    if len(values) > (100 if is_fractional else _MAX_CLASSES):
        return _distribution_of_ranges(targets.astype(np.float64))
    return dict(zip(map(plain_value, values.tolist()), counts.tolist(), strict=True))


def _distribution_of_ranges(targets: npt.NDArray[np.float64]) -> dict[Any, int]:
    finite = targets[np.isfinite(targets)]
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            counts, edges = np.histogram(finite, bins=10)
    except ValueError:  # the range is too wide or too narrow to divide
        counts, edges = np.array([len(finite)]), np.array([finite.min(), finite.max()])
    texts = [f"{edge:.6g}" for edge in edges.tolist()]
    if len(set(texts)) < len(texts):
        texts = [f"{edge:.17g}" for edge in edges.tolist()]
    names = [
        f"[{low}, {high}{')' if high != texts[-1] else ']'}"
        for low, high in itertools.pairwise(texts)
    ]
    ranges = dict(zip(names, counts.tolist(), strict=True))
    others = Counter(str(target) for target in targets[~np.isfinite(targets)].tolist())
    return ranges | dict(sorted(others.items()))


def _order(target: Any) -> tuple[int, Any]:
    """Numbers by size, then text, then tuples by their values, then None."""
    if isinstance(target, (int, float)):
        return 0, target
    if isinstance(target, str):
        return 1, target
    return (2, tuple(map(_order, target))) if isinstance(target, tuple) else (3, 0)


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """Statistics of all values of a column; the values inside arrays and lists count, too.

    Attributes:
        n_missing: number of values that are None, NaN or NaT.
        n_numbers: number of numbers (bools are 0 and 1).
        n_infinite: number of infinite ones.
        min, max: of the numbers; of dates and times as text; None without values.
        mean, std: of the finite numbers, ``std`` of the population (divided by n); None without values.
        n_distinct: number of distinct values; None for arrays, and for more than 100,000.
    """

    n_missing: int
    n_numbers: int
    n_infinite: int
    min: float | int | str | None
    max: float | int | str | None
    mean: float | None
    std: float | None
    n_distinct: int | None


@dataclass(frozen=True, slots=True)
class ColumnReport:
    """A column of an iterator.

    Attributes:
        key: position in tuple samples, key of dict samples; None of bare samples.
        role: ``"sample"``, ``"target"`` or ``"tag"``, by the meta.
        dtype: that of the schema, e.g. ``"utf8[]"``; without a schema that of the column in a batch, e.g. ``"uint8"``, or the
            types of its objects. It ends with ``" or None"`` if values may be missing.
        shape: of one value, ``()`` for a number or text. None stands for an extent that varies; the shape is None if the number
            of dimensions varies.
        statistics: None unless requested.
        name: the column's name in tuple samples, if it has one.
    """

    key: int | str | None
    role: str | None
    dtype: str
    shape: tuple[int | None, ...] | None
    statistics: ColumnStatistics | None = None
    name: str | None = None


def columns_of(iterator: DatasetIteratorIF, samples: Sequence[Any]) -> tuple[ColumnReport, ...]:
    """The columns of ``iterator``, from its schema if it has one, and from some of its samples.

    Args:
        iterator: its meta names the columns of sample, target and tag.
        samples: at least one; the first one has all columns.
    """
    meta, names = getattr(iterator, "dataset_meta", None), column_names(iterator)
    declared = access_to(iterator).unwrap()[0].declare_columns() or {}
    rows = [fields_of(sample) for sample in samples]
    roles: dict[Any, str] = {}
    for role in ("tag", "target", "sample"):  # the last role wins if positions are equal
        position = getattr(meta, f"{role}_pos", None)
        roles[
            position + len(rows[0])
            if isinstance(position, int) and -len(rows[0]) <= position < 0
            else position
        ] = role
    columns = []
    for key in rows[0]:
        of_schema = declared.get(key) or DeclaredColumn()
        values = [row[key] for row in rows if key in row]
        found = [value for value in values if not is_null(value)]
        stacked = [
            value[None] if type(value) is np.ndarray else stack_values([value]) for value in found
        ]
        pairs = zip(found, stacked, strict=True)
        types = dict.fromkeys(
            type(value).__name__ if each.dtype == object else str(each.dtype)
            for value, each in pairs
        )
        dtype = (
            " or ".join(types) + (_NULLABLE if types and len(found) < len(values) else "")
            or "NoneType"
        )
        shape = _common_shape({each.shape[1:] for each in stacked}) if stacked else ()
        if of_schema.dtype is not None:
            dtype, shape = of_schema.dtype, of_schema.shape
        if of_schema.is_nullable and not dtype.endswith(_NULLABLE):
            dtype += _NULLABLE
        name = names[key] if isinstance(key, int) and key < len(names) else None
        columns.append(
            ColumnReport(key, None if key is None else roles.get(key), dtype, shape, name=name)
        )
    return tuple(columns)


def with_statistics(
    iterator: DatasetIteratorIF, columns: Sequence[ColumnReport]
) -> tuple[ColumnReport, ...]:
    """Add the statistics of all samples to ``columns``; reads all samples once, in blocks of about 4 MiB."""
    collectors: dict[Any, _Collector] = {column.key: _Collector() for column in columns}
    for _, batch in in_blocks(len(iterator), access_to(iterator).batch):
        for key, column in fields_of(batch).items():
            if key in collectors:
                collectors[key].add(column)
    found = [replace(column, statistics=collectors[column.key].statistics()) for column in columns]
    shapes = {key: _common_shape(each.shapes) for key, each in collectors.items() if each.shapes}
    return tuple(replace(column, shape=shapes.get(column.key, column.shape)) for column in found)


def fields_of(sample: Any) -> dict[Any, Any]:
    """The columns of a sample, or of a batch, by their keys."""
    if isinstance(sample, Mapping):
        return dict(sample)
    return dict(enumerate(sample)) if isinstance(sample, (tuple, list)) else {None: sample}


def _common_shape(shapes: Collection[tuple[int, ...]]) -> tuple[int | None, ...] | None:
    """The common shape, None for an extent that differs; None if the numbers of dimensions differ."""
    common = (
        extents[0] if len(set(extents)) == 1 else None for extents in zip(*shapes, strict=False)
    )
    return tuple(common) if len({len(shape) for shape in shapes}) == 1 else None


class _Collector:
    """Collects statistics of one column block by block."""

    def __init__(self) -> None:
        self._moments = RunningMoments()  # of the finite numbers
        self._n_missing = self._n_infinite = 0
        self._extremes: list[Any] = []  # of the same type as the values, so integers stay exact
        self.shapes: set[tuple[int, ...]] = set()
        self._distinct: set[Any] | None = set()

    def add(self, column: _Numbers) -> None:
        """Add a block of shape ``(n, ...)``, n > 0."""
        if column.dtype == object:
            self._add_objects(column)
            return
        self.shapes.add(column.shape[1:])
        values, kind = column.reshape(-1), column.dtype.kind
        missing = missing_in(values)
        self._n_missing += int(np.count_nonzero(missing))
        present = values[~missing]
        if kind in "biuf":
            self._add_numbers(present)
        elif kind in "Mm" and present.size:
            self._add_extremes([present.min(), present.max()])
        if column.ndim > 1:
            self._distinct = None
        elif self._distinct is not None:
            found = np.unique(present)
            self._count_distinct(comparable(list(found)) if kind in "mM" else found.tolist())

    def statistics(self) -> ColumnStatistics:
        """The statistics of all blocks."""
        n_finite, n_infinite, extremes = (
            int(self._moments.count),
            self._n_infinite,
            self._extremes or (None, None),
        )
        low, high = (
            str(each) if isinstance(each, (np.datetime64, np.timedelta64)) else each
            for each in extremes
        )
        mean, std = (
            (float(self._moments.mean), float(self._moments.deviation))
            if n_finite
            else (None, None)
        )
        n_distinct = None if self._distinct is None else len(self._distinct)
        return ColumnStatistics(
            self._n_missing, n_finite + n_infinite, n_infinite, low, high, mean, std, n_distinct
        )

    def _add_numbers(self, numbers: _Numbers) -> None:
        """Numbers without NaN, shape ``(n,)``."""
        finite = numbers[np.isfinite(numbers)].astype(np.float64)
        self._n_infinite += len(numbers) - len(finite)
        if len(finite):
            self._moments.add(finite)
        if len(numbers):
            self._add_extremes(
                [
                    (float if numbers.dtype.kind == "f" else int)(each)
                    for each in (numbers.min(), numbers.max())
                ]
            )

    def _add_extremes(self, found: list[Any]) -> None:
        found = [*self._extremes, *found]  # times may have another unit than earlier ones
        exact = comparable(found)
        self._extremes = [found[exact.index(min(exact))], found[exact.index(max(exact))]]

    def _add_objects(self, column: _Numbers) -> None:
        present, missing = present_values(column)
        self._n_missing += int(np.count_nonzero(missing))
        if missing.any():
            self.shapes.add(())
        if present.dtype != object and len(present):
            self.add(present)
        numbers: list[Any] = []
        for value in present if present.dtype == object else ():
            array = exact_array(value)
            if array is not None and array.dtype.kind in ("biufcMm" if array.ndim else "Mm"):
                self.add(array[None])  # a value of its own shape
                continue
            self.shapes.add(())
            value = array.item() if array is not None and array.dtype.kind in "biufc" else value
            if isinstance(value, (bool, int, float)):
                is_too_large = isinstance(value, int) and abs(value) >= 2**1023
                numbers.append(
                    math.copysign(math.inf, int(value > 0) - 0.5) if is_too_large else value
                )
            self._count_distinct([value])
        are_floats = any(isinstance(number, float) or abs(number) >= 2**63 for number in numbers)
        self._add_numbers(np.array(numbers, dtype=np.float64 if are_floats else np.int64))

    def _count_distinct(self, values: Sequence[Any]) -> None:
        try:
            if self._distinct is not None:
                self._distinct.update(values)
        except TypeError:  # not hashable
            self._distinct = None
        if self._distinct is not None and len(self._distinct) > 100_000:
            self._distinct = None
