"""Describes the columns of an iterator: their dtypes, shapes and roles."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.access import DeclaredColumn
from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.meta import column_names
from data_stack.values.missing import is_null
from data_stack.values.stacked_values import stack_values

#: What a dtype ends with if values may be missing.
_NULLABLE = " or None"

Shape = tuple[int | None, ...] | None
"""The shape of the values of a column; None for a size that varies.

None instead of a tuple: the number of dimensions varies.
"""


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """Statistics of all values of a column; the values inside arrays and lists count, too.

    Attributes:
        n_missing: number of values that are None, NaN or NaT.
        n_numbers: number of numbers (bools are 0 and 1).
        n_infinite: number of infinite numbers.
        min: the smallest number, or the earliest date or time as text; None without values.
        max: the largest number, or the latest date or time as text; None without values.
        mean: the mean of the finite numbers; None without any.
        std: the standard deviation of the finite numbers, as a population (divided by n); None
            without any.
        n_distinct: number of distinct values; None for arrays, and for more than 100,000 values.
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
        dtype: the type of the values as text. It is the type in the schema, such as ``"utf8[]"``.
            Without a schema it is the dtype of a batch of the column, such as ``"uint8"``; for a
            column of objects, the names of their types. It ends with ``" or None"`` if values may
            be missing.
        shape: the shape of one value, ``()`` for a number or text. None stands for a size that
            varies; the shape is None if the number of dimensions varies.
        statistics: statistics of all values; None unless requested.
        name: the name of the column in tuple samples, if it has one.
    """

    key: int | str | None
    role: str | None
    dtype: str
    shape: tuple[int | None, ...] | None
    statistics: ColumnStatistics | None = None
    name: str | None = None


def columns_of(iterator: DatasetIteratorIF, samples: Sequence[Any]) -> tuple[ColumnReport, ...]:
    """Return the columns of an iterator, from its schema if it has one, and from some samples.

    Args:
        iterator: its meta names the columns of sample, target and tag.
        samples: at least one; the first one has all columns.
    """
    meta = getattr(iterator, "dataset_meta", None)
    names = column_names(iterator)
    source, _ = access_to(iterator).unwrap()
    declared_columns = source.declare_columns() or {}
    rows = [fields_of(sample) for sample in samples]
    roles = _roles_of_columns(meta, n_columns=len(rows[0]))

    columns = []
    for key in rows[0]:
        values = [row[key] for row in rows if key in row]
        declared = declared_columns.get(key) or DeclaredColumn()
        dtype, shape = _describe_values(values, declared)
        name = None
        if isinstance(key, int) and key < len(names):
            name = names[key]
        # A bare sample is no column of the meta.
        role = None if key is None else roles.get(key)
        columns.append(ColumnReport(key, role, dtype, shape, name=name))
    return tuple(columns)


def fields_of(sample: Any) -> dict[Any, Any]:
    """Return the columns of a sample, or of a batch, by their keys."""
    if isinstance(sample, Mapping):
        return dict(sample)
    if isinstance(sample, (tuple, list)):
        return dict(enumerate(sample))
    return {None: sample}


def common_shape(shapes: Collection[tuple[int, ...]]) -> Shape:
    """Return the shape that all values have, with None for a dimension in which they differ.

    Returns None if they differ in the number of dimensions.
    """
    n_dimensions = {len(shape) for shape in shapes}
    if len(n_dimensions) != 1:
        return None
    dimensions = []
    for sizes in zip(*shapes, strict=True):
        are_equal = len(set(sizes)) == 1
        dimensions.append(sizes[0] if are_equal else None)
    return tuple(dimensions)


def _roles_of_columns(meta: Any, *, n_columns: int) -> dict[Any, str]:
    """Return the roles of columns by key.

    If several roles name one column, ``"sample"`` takes precedence over ``"target"``, and
    ``"target"`` over ``"tag"``.
    """
    roles: dict[Any, str] = {}
    for role in ("tag", "target", "sample"):
        key = getattr(meta, f"{role}_pos", None)
        if isinstance(key, int) and -n_columns <= key < 0:
            key += n_columns
        roles[key] = role
    return roles


def _describe_values(values: Sequence[Any], declared: DeclaredColumn) -> tuple[str, Shape]:
    """Return dtype and shape of a column: those of the schema, otherwise those of its values."""
    present_values = [value for value in values if not is_null(value)]
    if declared.dtype is not None:
        dtype = declared.dtype
        shape: Shape = declared.shape
        is_nullable = declared.is_nullable
    else:
        dtype, shape = _describe_present_values(present_values)
        has_missing = len(present_values) < len(values)
        is_nullable = declared.is_nullable or (has_missing and bool(present_values))
    if is_nullable and not dtype.endswith(_NULLABLE):
        dtype += _NULLABLE
    return dtype, shape


def _describe_present_values(values: Sequence[Any]) -> tuple[str, Shape]:
    if not values:
        return "NoneType", ()
    types = []
    shapes = set()
    for value in values:
        array = _as_batch_of_one(value)
        types.append(type(value).__name__ if array.dtype == object else str(array.dtype))
        shapes.add(array.shape[1:])
    different_types = dict.fromkeys(types)
    return " or ".join(different_types), common_shape(shapes)


def _as_batch_of_one(value: Any) -> npt.NDArray[Any]:
    """Return a value as an array of shape ``(1, ...)``."""
    if type(value) is np.ndarray:
        return value[np.newaxis]
    return stack_values([value])
