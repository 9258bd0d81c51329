"""Tries the function of a transform on the first rows, to see which fields it changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from data_stack_petastorm.nested_columns import nested_names
from data_stack_petastorm.transform import TransformSpec, call_function
from data_stack_petastorm.transform_inference import changed_fields

#: The number of rows on which a function of batches is tried; a function of rows is tried on one.
_MAX_ROWS_TRIED: Final = 16


def complete_spec(spec: TransformSpec, rows: Any, on: Any) -> tuple[TransformSpec, bool]:
    """Complete a spec by what its function does to the first rows.

    Args:
        spec: the spec of the user.
        rows: the rows; their schema is ``rows.schema``.
        on: the kind of argument of the function, if the spec does not say it.

    Returns:
        The spec with all fields that the function changes; and whether the function dropped a row.
        The spec is not completed if the function fails: reading a row raises its error again.
    """
    spec = spec.known(rows.schema.fields, on)
    schema = spec.schema_of(rows.schema)
    if spec.func is None or not len(rows):
        return spec, False

    takes_rows = spec.on in (None, "rows")
    max_tried = 1 if takes_rows else _MAX_ROWS_TRIED
    n_tried = min(len(rows), max_tried)
    try:
        columns = _transform_first_rows(spec, rows, n_tried)
        # The function may also return something without columns, or columns without a length.
        drops_rows = any(len(column) < n_tried for column in columns.values())
        first_values = {name: column[0] for name, column in columns.items() if len(column)}
    except Exception:  # noqa: BLE001  # of the user's function
        return spec, False

    declared_names = [field.name for field in spec.edit_fields]
    changed = changed_fields(schema, first_values, except_names=declared_names)
    dropped_names: set[str] | frozenset[str] = frozenset()
    if spec.on == "pandas" and first_values:
        # Petastorm's readers have no nested columns. So a function of DataFrames that was written
        # for Petastorm drops them, and does not name them in removed_fields.
        dropped_names = nested_names(schema.fields).difference(first_values)
    if changed or dropped_names:
        kept_names = [name for name in schema.fields if name not in dropped_names]
        spec = TransformSpec(
            spec.func, [*spec.edit_fields, *changed], selected_fields=kept_names, on=spec.on
        )
    return spec, drops_rows


def _transform_first_rows(spec: TransformSpec, rows: Any, n_tried: int) -> Mapping[str, Any]:
    """Return the columns that the function of a spec makes of the first rows."""
    rngs: list[np.random.Generator] = []
    if spec.draws:
        rngs = [np.random.default_rng(0)] * n_tried
    first_rows = rows.read_batch(np.arange(n_tried))
    columns: Mapping[str, Any] = call_function(
        spec, first_rows, rngs, names=None, zones=rows.time_zones
    )
    return columns
