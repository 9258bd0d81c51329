"""Petastorm's transforms of rows: a function, and the fields that it edits, removes and selects."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from data_stack.codecs.fitting import as_dtype, check_shape, fits_shape
from data_stack.dataset.iterator.access import copy_value
from data_stack.exception import ConfigError
from data_stack.formats.parquet import Field, Schema
from data_stack.formats.parquet.types import dtype_name
from data_stack.util.functions import has_parameter
from data_stack.values.stacked_values import objects
from data_stack_petastorm.nested_columns import nested_names
from data_stack_petastorm.plain_times import as_numpy_time
from data_stack_petastorm.schemas import as_unischema
from data_stack_petastorm.unischema import Unischema, UnischemaField

__all__ = ["TransformSpec", "edit_field", "transform_schema"]

Columns = Mapping[str, npt.NDArray[Any]]
#: Number of rows on which a function of batches is tried.
_ROWS_TRIED: Final = 16
_KINDS: Final[dict[str, type]] = {"U": str, "S": bytes, "O": object}


def edit_field(
    name: str, numpy_dtype: Any, shape: Sequence[int | None], nullable: bool = False
) -> tuple[Any, ...]:
    """One of the ``edit_fields`` of a :class:`TransformSpec`."""
    return name, numpy_dtype, shape, nullable


class TransformSpec:
    """A transform of the rows of a dataset, with the fields of its result.

    ::

        TransformSpec(lambda row: {**row, "mean": row["image"].mean(dtype="f4")}, [("mean", "float32", (), False)], ["image"])
        TransformSpec(normalise, [("speed", "float32", (), False)], on="numpy")      # a function of {"speed": array, …}

    Args:
        func: takes a row or a batch, see ``on``, and returns the same kind with all fields of the result. Fields that it
            received and that are not in the result are dropped; a new field that is not in ``edit_fields`` is an error. It may
            change its argument. A parameter ``rng`` receives a ``numpy.random.Generator`` that depends on the seed, the epoch and
            the position of the (first) row. None: fields are only removed and reordered.
        edit_fields: fields that ``func`` adds: ``(name, dtype, shape, nullable)``, UnischemaFields or
            :class:`~data_stack.formats.parquet.schema.Field`. They come after the others. Fields whose dtype or shape the
            function changes need not be named: a reader tries it on the first row, and checks the others against the result.
        removed_fields: names of fields to remove; unknown names cause a warning.
        selected_fields: names of the fields of the result, in this order; not together with ``removed_fields``.
        on: the argument of ``func``: "rows" (a dict), "numpy" (a dict of arrays of shape ``(n, …)``) or "pandas" (a DataFrame,
            arrays as objects). A batch has at least one row, and ``func`` returns as many rows; a function of DataFrames may drop
            rows of ``make_batch_reader``. None: "rows", or "pandas" for ``make_batch_reader``.

    Raises:
        ConfigError: an argument is invalid.
    """

    def __init__(
        self,
        func: Callable[..., Any] | None = None,
        edit_fields: Iterable[Any] | None = None,
        removed_fields: Iterable[str] | None = None,
        selected_fields: Iterable[str] | None = None,
        *,
        on: Literal["rows", "numpy", "pandas"] | None = None,
    ) -> None:
        if func is not None and not callable(func):
            raise ConfigError(f"func must be a function or None, got {func!r:.80}")
        if removed_fields is not None and selected_fields is not None:
            raise ConfigError("pass removed_fields or selected_fields, not both")
        if on not in (None, "rows", "numpy", "pandas"):
            raise ConfigError(f"on must be 'rows', 'numpy' or 'pandas', got {on!r:.40}")
        self.func, self.on = func, on
        self.edit_fields = [_edited(each) for each in edit_fields or ()]
        self.removed_fields = _names("removed_fields", removed_fields or ())
        self.selected_fields = (
            None if selected_fields is None else _names("selected_fields", selected_fields)
        )

    @property
    def draws(self) -> bool:
        """Whether the function takes a random generator."""
        return self.func is not None and has_parameter(self.func, "rng")

    def known(self, names: Iterable[str], on: Any = None) -> TransformSpec:
        """Return the spec without removed and selected fields that do not exist; ``on`` is the default argument of ``func``."""
        known = {*names, *(field.name for field in self.edit_fields)}
        unknown = [
            name
            for name in (*self.removed_fields, *(self.selected_fields or ()))
            if name not in known
        ]
        if unknown:
            argument = "removed_fields" if self.removed_fields else "selected_fields"
            warnings.warn(
                f"{argument} specified some field names that are not part of the schema. These field names will be ignored "
                f'"{", ".join(unknown)}".',
                stacklevel=4,
            )
        removed = [name for name in self.removed_fields if name in known]
        selected = (
            None
            if self.selected_fields is None
            else [name for name in self.selected_fields if name in known]
        )
        return TransformSpec(
            self.func, self.edit_fields, removed or None, selected, on=self.on or on
        )

    def schema_of(self, schema: Schema) -> Schema:
        """The fields of the result for rows with the fields of ``schema``.

        Raises:
            ConfigError: a field is removed or selected that does not exist, or a new one has no function that makes it.
        """
        edited = {field.name: field for field in self.edit_fields}
        if self.func is None:
            for name in edited:
                schema[name]  # raises if the field does not exist
        fields = {field.name: field for field in schema if field.name not in edited} | edited
        names = self.selected_fields
        if names is None:
            names = [name for name in fields if name not in self.removed_fields]
        found = Schema(f"{schema.name}_transformed", fields.values())
        return Schema(found.name, [found[name] for name in names])


def _edited(given: Any) -> Field:
    if isinstance(given, Field):
        return given
    if isinstance(given, tuple) and len(given) == 5:
        given = (*given[:3], given[4])
    try:
        name, dtype, shape, nullable = given
    except (TypeError, ValueError):
        raise ConfigError(
            f"edit_fields must be (name, dtype, shape, nullable) or Fields, got {given!r:.80}"
        ) from None
    return Field(name, dtype, shape, None, nullable)


def _names(argument: str, given: Iterable[str]) -> list[str]:
    names = [given] if isinstance(given, str) else list(given)
    if not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{argument} must be names of fields, got {given!r:.80}")
    return names


def transform_schema(schema: Unischema, transform_spec: TransformSpec) -> Unischema:
    """Return the schema of transformed rows.

    Warns:
        UserWarning: a removed or selected field does not exist.
    """
    spec = transform_spec.known(schema.fields)
    edited = as_unischema(Schema("", spec.edit_fields)).fields
    fields = {name: field for name, field in schema.fields.items() if name not in edited}
    fields.update(
        (name, UnischemaField(*field[:3], None, field.nullable)) for name, field in edited.items()
    )
    names = spec.selected_fields
    if names is None:
        names = [name for name in fields if name not in spec.removed_fields]
    return Unischema(f"{vars(schema)['_name']}_transformed", [fields[name] for name in names])


# ---------------------------------------------------------------------- of batches


class BatchTransform:
    """The function of a spec, as a function of batches that checks what it returns; for ``iterator.map(…, batched=True)``.

    Numbers of another dtype are cast if the field's dtype holds them exactly, or if both are floats.

    Args:
        spec: the spec.
        schema: the fields of the result.
        may_drop: whether the function may drop rows.
        zones: the time zones of columns of instants, by name, for a function of DataFrames.
    """

    def __init__(
        self,
        spec: TransformSpec,
        schema: Schema,
        *,
        may_drop: bool = False,
        zones: Mapping[str, str] | None = None,
    ) -> None:
        self._spec = spec
        self._schema = schema
        self._may_drop = may_drop
        self._zones = dict(zones or {})
        if spec.on == "pandas":
            import data_stack_petastorm.frames  # noqa: F401  # raises here if pandas is missing, not in a worker

    def __call__(
        self, batch: Columns, rngs: Sequence[np.random.Generator] = ()
    ) -> dict[str, npt.NDArray[Any]]:
        """Transform the columns of a batch.

        Raises:
            ConfigError: a returned value does not fit its field, or its field is not declared; the message names the field.
        """
        names, n_rows = list(self._schema.fields), len(next(iter(batch.values())))
        columns = apply(self._spec, batch, rngs, names, self._zones)
        for name in names:
            if not isinstance(columns, Mapping) or name not in columns:
                raise _lacks(name, columns)
            if len(columns[name]) != n_rows and not self._may_drop:
                raise ConfigError(
                    f"the transform returned {len(columns[name])} values of field {name!r} for {n_rows} rows; it must return one "
                    f"per row. Drop rows by a predicate"
                )
        checked = {field.name: _check(field, columns[field.name]) for field in self._schema}
        if self._spec.on == "pandas":
            for field in self._schema:
                checked[field.name] = _with_none(field, checked[field.name])
        return checked


def _with_none(field: Field, column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The times of a DataFrame, where NaT stands for null, with None as in the column that was read."""
    if column.dtype.kind not in "mM" or column.ndim != 1 or not field.nullable:
        return column
    is_missing = np.isnat(column)
    if getattr(field.codec, "nulls", "none") != "none" or not is_missing.any():
        return column
    values = objects(list(column))
    values[is_missing] = None
    return values


def apply(
    spec: TransformSpec,
    batch: Columns,
    rngs: Sequence[np.random.Generator],
    names: Sequence[str] | None,
    zones: Mapping[str, str] = MappingProxyType({}),
) -> Any:
    """Call the function of a spec for a batch of rows.

    Args:
        spec: has a function.
        batch: columns; they are copied.
        rngs: a generator for each row, if the function takes one.
        names: the fields that each row must have; None for those of the first row.
        zones: the time zones of columns of instants, by name, for a function of DataFrames.

    Raises:
        ConfigError: the function returned a field that is not declared; or a field of ``names`` is missing.
    """
    function: Any = spec.func
    declared = None if names is None else {*names, *batch, *spec.removed_fields}
    draws = [{"rng": rng} for rng in rngs]
    if spec.on == "pandas":
        from data_stack_petastorm.frames import as_frame, columns_of_frame

        frame = function(as_frame(batch, zones), **(draws[0] if draws else {}))
        _refuse_undeclared(frame, declared)
        return columns_of_frame(frame, list(frame) if names is None else names)
    batch = copy_value(batch)
    if spec.on == "numpy":
        made = function(batch, **(draws[0] if draws else {}))
        _refuse_undeclared(made, declared)
        return made
    rows = [dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True)]
    made = [function(row, **(draws[number] if draws else {})) for number, row in enumerate(rows)]
    for row in made:
        _refuse_undeclared(row, declared)
        for name in names or ():
            if not isinstance(row, Mapping) or name not in row:
                raise _lacks(name, row)
    return {name: [row[name] for row in made] for name in (made[0] if names is None else names)}


def _refuse_undeclared(made: Any, declared: set[Any] | None) -> None:
    """Refuse a row or columns with fields that are not declared: they would be lost.

    Args:
        made: what the function of a spec returned.
        declared: the fields of the result, and those that the function received; None for any.

    Raises:
        ConfigError: a field is not declared.
    """
    if declared is None or not hasattr(made, "keys"):
        return
    undeclared = [name for name in made.keys() if name not in declared]  # noqa: SIM118  # also of a DataFrame
    if undeclared:
        raise ConfigError(
            f"Transformed result columns ({', '.join(map(str, made.keys()))}) do not match required schema columns: "
            f"{undeclared[0]!r} is not declared. Add it to edit_fields, as in "
            f"edit_fields=[({undeclared[0]!r}, np.float32, (), False)], or do not return it"
        )


def _lacks(name: str, found: Any) -> ConfigError:
    returned = (
        ", ".join(map(str, found)) if isinstance(found, Mapping) else f"a {type(found).__name__}"
    )
    return ConfigError(
        f"Transformed result columns ({returned}) do not match required schema columns: {name!r} is missing. The function must "
        f"return a dict (or DataFrame) of all fields; list dropped fields in removed_fields"
    )


def _check(field: Field, values: Any) -> npt.NDArray[Any]:
    """Check the values of a field, and return them as a column."""
    dtype = field.dtype
    is_plain = isinstance(dtype, np.dtype) and dtype.kind not in "USO"
    if is_plain and len(values):
        with contextlib.suppress(
            TypeError, ValueError, RuntimeError
        ):  # of different shapes; tensors of a device
            together = values if isinstance(values, np.ndarray) else np.array(values)
            if together.dtype == dtype and fits_shape(together.shape[1:], field.shape):
                return together
    found = []
    for number, value in enumerate(values):
        try:
            found.append(_value(field, value))
        except (TypeError, ValueError, RuntimeError) as error:
            raise ConfigError(
                f"the transform returned an invalid value of field {field.name!r} for row {number} of a batch: {error}. Declare "
                f"changed fields in edit_fields, or convert values by astype()"
            ) from error
    if not found or not is_plain or any(value is None for value in found):
        return objects(found)
    if not field.shape:
        return np.array(found, dtype)
    return np.stack(found) if len({value.shape for value in found}) == 1 else objects(found)


def _value(field: Field, value: Any) -> Any:
    """Check a value of a field.

    Raises:
        TypeError, ValueError: it does not fit.
    """
    dtype = field.dtype
    if value is None:
        if not field.nullable:
            raise TypeError("it is None, but the field is not nullable")
        return None
    if isinstance(dtype, np.dtype) and dtype.kind not in "USO":
        if dtype.kind == "M" and isinstance(value, date):  # also datetimes, and those of pandas
            value = as_numpy_time(value)
        array = np.asarray(value)
        check_shape(array.shape, field.shape)
        array = as_dtype(array, dtype, rounds=array.dtype.kind in "fc")
        return array if field.shape else array[()]
    kind = _KINDS[dtype.kind] if isinstance(dtype, np.dtype) else Decimal
    cells = objects([value.item() if isinstance(value, np.generic) else value])
    if field.shape:
        cells = np.array(value, dtype=object)
        check_shape(cells.shape, field.shape)
    for cell in cells.flat:
        if not isinstance(cell, kind) and not (cell is None and field.shape):
            raise TypeError(f"{cell!r:.40} is not of dtype {dtype_name(dtype)}")
    return cells if field.shape else cells[0]


# ---------------------------------------------------------------------- fields that the function changes


def resolve(spec: TransformSpec, rows: Any, on: Any) -> tuple[TransformSpec, bool]:
    """Try the function on the first rows; return the spec with all fields that it changes, and whether it dropped a row.

    Args:
        spec: the spec of the user.
        rows: the rows; their schema is ``rows.schema``.
        on: the kind of argument of the function, if the spec does not say it.
    """
    spec = spec.known(rows.schema.fields, on)
    schema = spec.schema_of(rows.schema)
    if spec.func is None or not len(rows):
        return spec, False
    n_tried = min(len(rows), 1 if spec.on in (None, "rows") else _ROWS_TRIED)
    try:
        rngs = [np.random.default_rng(0)] * (n_tried if spec.draws else 0)
        columns = apply(spec, rows.read_batch(np.arange(n_tried)), rngs, None, rows.time_zones)
    except Exception:  # noqa: BLE001  # an error of the user's function; reading the row raises it again
        return spec, False
    drops = any(len(column) < n_tried for column in columns.values())
    made = {name: column[0] for name, column in columns.items() if len(column)}
    edited = {field.name for field in spec.edit_fields}
    found = [
        _inferred(field, made[field.name])
        for field in schema
        if field.name not in edited and field.name in made
    ]
    changed = [field for field in found if field != schema[field.name]]
    # Petastorm's readers have no nested columns, so a function of DataFrames drops them without saying so.
    dropped = (
        nested_names(schema.fields).difference(made)
        if spec.on == "pandas" and made
        else frozenset()
    )
    if changed or dropped:
        kept = [name for name in schema.fields if name not in dropped]
        spec = TransformSpec(
            spec.func, [*spec.edit_fields, *changed], selected_fields=kept, on=spec.on
        )
    return spec, drops


def _inferred(field: Field, value: Any) -> Field:
    """Return the field, or a new one if the value has another dtype or shape."""
    if value is None:
        return field
    array = np.asarray(value)
    shape, dtype = field.shape, field.dtype
    if not fits_shape(array.shape, shape):  # sizes that varied may still vary
        fixed = (
            [size is not None for size in shape]
            if len(shape) == array.ndim
            else [None not in shape] * array.ndim
        )
        shape = tuple(
            size if is_fixed else None for size, is_fixed in zip(array.shape, fixed, strict=True)
        )
    if isinstance(value, Decimal):
        dtype = Decimal
    elif array.dtype.kind in "US":
        dtype = np.dtype(str if array.dtype.kind == "U" else bytes)
    elif array.dtype.kind in "biufc" and not (
        type(value) in (int, float) and _holds(dtype, array.dtype.kind)
    ):
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
