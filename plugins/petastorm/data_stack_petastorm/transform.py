"""Petastorm's transforms of rows."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import numpy as np

from data_stack.codecs.fitting import fits_shape
from data_stack.dataset.iterator import InMemoryDatasetIterator
from data_stack.dataset.iterator.ownership import copy_value
from data_stack.exception import ConfigError
from data_stack.formats import parquet
from data_stack.formats.parquet import Field, Schema
from data_stack.formats.parquet.transform import edit_field
from data_stack.formats.parquet.transformed import TransformedDatasetIterator
from data_stack.util.functions import has_parameter
from data_stack_petastorm.columns import nested_names
from data_stack_petastorm.schemas import as_unischema
from data_stack_petastorm.unischema import Unischema, UnischemaField

__all__ = ["FrameTransform", "TransformSpec", "edit_field", "resolve", "transform_schema"]

#: Number of rows on which a function of batches is tried.
_ROWS_TRIED = 16


class TransformSpec(parquet.TransformSpec):
    """A function of rows, and the fields that it edits, removes and selects.

    As :class:`data_stack.formats.parquet.TransformSpec`, but ``edit_fields`` may also be UnischemaFields, and need not name
    fields whose dtype or shape the function changes: a reader tries the function on the first row, and checks the others against
    the result. Unknown names of removed or selected fields cause a warning. A function of DataFrames may drop rows.

    Raises:
        ConfigError: an argument is invalid.
    """

    def __post_init__(self) -> None:
        self.edit_fields = [
            (*each[:3], each[4]) if isinstance(each, tuple) and len(each) == 5 else each for each in self.edit_fields or ()
        ]
        super().__post_init__()


def transform_schema(schema: Unischema, transform_spec: parquet.TransformSpec) -> Unischema:
    """Return the schema of transformed rows.

    Warns:
        UserWarning: a removed or selected field does not exist.
    """
    spec = _known(transform_spec, schema.fields)
    edited = as_unischema(Schema("", spec.edit_fields)).fields
    fields = {name: field for name, field in schema.fields.items() if name not in edited}
    fields.update((name, UnischemaField(*field[:3], None, field.nullable)) for name, field in edited.items())
    names = spec.selected_fields
    if names is None:
        names = [name for name in fields if name not in spec.removed_fields]
    return Unischema(f"{vars(schema)['_name']}_transformed", [fields[name] for name in names])


def resolve(spec: parquet.TransformSpec, rows: Any, on: Any) -> tuple[parquet.TransformSpec, bool]:
    """Try the function on the first rows; return the spec with all fields that it changes, and whether it dropped a row.

    Args:
        spec: the spec of the user.
        rows: the rows; their schema is ``rows.schema``.
        on: the kind of argument of the function, if the spec does not say it.
    """
    spec = _known(spec, rows.schema.fields, on)
    schema = spec.schema_of(rows.schema)
    edited = {field.name for field in spec.edit_fields}
    if spec.func is None or not len(rows):
        return spec, False
    try:
        made, drops = _first_values(spec, rows)
    except Exception:  # noqa: BLE001  # an error of the user's function; reading the row raises it again
        return spec, False
    found = [_inferred(field, made[field.name]) for field in schema if field.name not in edited and field.name in made]
    changed = [field for field in found if field != schema[field.name]]
    # Petastorm's readers have no nested columns, so a function of DataFrames drops them without saying so.
    dropped = nested_names(schema.fields).difference(made) if spec.on == "pandas" and made else frozenset()
    if changed or dropped:
        kept = [name for name in schema.fields if name not in dropped]
        spec = parquet.TransformSpec(spec.func, [*spec.edit_fields, *changed], selected_fields=kept, on=spec.on)
    return spec, drops


class FrameTransform:
    """Transforms columns by a function of DataFrames, which may drop rows.

    Args:
        func: function of a DataFrame.
        schema: schema of the result.
    """

    def __init__(self, func: Any, schema: Schema) -> None:
        self._func, self._schema = func, schema

    def __call__(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        """Return the transformed columns, checked against their fields; without rows, arrays of shape ``(0,)``.

        Raises:
            ConfigError: a column does not fit its field, or is missing.
        """
        from data_stack.formats.parquet.transform_pandas import as_frame, columns_of_frame

        names = list(self._schema.fields)
        made = columns_of_frame(self._func(as_frame(columns)), names)
        if len(made) < len(names):
            raise ConfigError(
                f"Transformed result columns ({', '.join(made)}) do not match required schema columns ({', '.join(names)}): "
                f"list fields that the function drops in removed_fields"
            )
        rows = [dict(zip(names, row, strict=True)) for row in zip(*(made[name] for name in names), strict=True)]
        if not rows:
            return {name: np.empty(0, object) for name in names}
        checked = TransformedDatasetIterator(InMemoryDatasetIterator(rows), parquet.TransformSpec(), schema=self._schema)
        return checked.read_batch(np.arange(len(rows)))


def _known(spec: parquet.TransformSpec, names: Iterable[str], on: Any = None) -> parquet.TransformSpec:
    """Return the spec without removed or selected fields that do not exist."""
    known = {*names, *(field.name for field in spec.edit_fields)}
    kept = {}
    for argument in ("removed_fields", "selected_fields"):
        given = getattr(spec, argument)
        unknown = [name for name in given or () if name not in known]
        if unknown:
            warnings.warn(
                f"{argument} specified some field names that are not part of the schema. These field names will be ignored "
                f'"{", ".join(unknown)}".',
                stacklevel=3,
            )
        kept[argument] = None if given is None else [name for name in given if name in known]
    return parquet.TransformSpec(
        spec.func, spec.edit_fields, kept["removed_fields"] or None, kept["selected_fields"], on=spec.on or on
    )


def _first_values(spec: parquet.TransformSpec, rows: Any) -> tuple[Mapping[str, Any], bool]:
    """Return the transformed first row by name, and whether the function drops rows."""
    func: Any = spec.func
    draws = {"rng": np.random.default_rng(0)} if has_parameter(func, "rng") else {}
    if spec.on in (None, "rows"):
        return func(copy_value(rows[0]), **draws), False
    n_tried = min(len(rows), _ROWS_TRIED)
    batch = rows.read_batch(np.arange(n_tried))
    if spec.on == "pandas":
        from data_stack.formats.parquet.transform_pandas import as_frame, columns_of_frame

        frame = func(as_frame(batch), **draws)
        columns = columns_of_frame(frame, list(frame.columns))
    else:
        columns = func(copy_value(batch), **draws)
    drops = any(len(column) < n_tried for column in columns.values())
    return {name: column[0] for name, column in columns.items() if len(column)}, drops


def _inferred(field: Field, value: Any) -> Field:
    """Return the field, or a new one if the value has another dtype or shape."""
    if value is None:
        return field
    array = np.asarray(value)
    shape, dtype = field.shape, field.dtype
    if not fits_shape(array.shape, shape):  # sizes that varied may still vary
        fixed = [size is not None for size in shape] if len(shape) == array.ndim else [None not in shape] * array.ndim
        shape = tuple(size if is_fixed else None for size, is_fixed in zip(array.shape, fixed, strict=True))
    if isinstance(value, Decimal):
        dtype = Decimal
    elif array.dtype.kind in "US":
        dtype = np.dtype(str if array.dtype.kind == "U" else bytes)
    elif array.dtype.kind in "biufc" and not (type(value) in (int, float) and _holds(dtype, array.dtype.kind)):
        dtype = array.dtype
    if (dtype, shape) == (field.dtype, field.shape):
        return field
    try:
        return Field(field.name, dtype, shape, None, field.nullable)
    except ConfigError:  # no column has this dtype
        return field


def _holds(dtype: Any, kind: str) -> bool:
    """Whether a field of this dtype takes Python's numbers of this kind: any takes ints, floats take floats."""
    return isinstance(dtype, np.dtype) and dtype.kind in ("iuf" if kind == "i" else "f")
