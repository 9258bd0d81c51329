"""Petastorm's transforms of rows: a function, and the fields that it edits, removes and selects.

A program declares a :class:`TransformSpec`, of which a reader makes a :class:`BatchTransform`.
Fingerprints of transformed datasets name both classes by this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from data_stack.exception import ConfigError
from data_stack.formats.parquet import Field, Schema
from data_stack.util.functions import has_parameter
from data_stack.util.program_lines import warn_program
from data_stack_petastorm.schemas import as_unischema
from data_stack_petastorm.transform_calls import Columns, Form, call_transform, missing_field
from data_stack_petastorm.transform_values import check_column, with_nulls
from data_stack_petastorm.unischema import Unischema, UnischemaField, schema_name

__all__ = ["TransformSpec", "edit_field", "transform_schema"]


def edit_field(
    name: str, numpy_dtype: Any, shape: Sequence[int | None], nullable: bool = False
) -> tuple[Any, ...]:
    """Return a tuple for the ``edit_fields`` of a :class:`TransformSpec`.

    Args:
        name: name of the field.
        numpy_dtype: dtype of its values, or of the elements of arrays.
        shape: shape of each value; None for a size that varies.
        nullable: whether a value may be None.
    """
    return name, numpy_dtype, shape, nullable


class TransformSpec:
    """A transform of the rows of a dataset, with the fields of its result.

    ::

        def add_mean(row):
            return {**row, "mean": row["image"].mean(dtype="f4")}

        TransformSpec(add_mean, [("mean", "float32", (), False)], removed_fields=["image"])

        # a function of {"speed": array, …}
        TransformSpec(normalise, [("speed", "float32", (), False)], on="numpy")

    Args:
        func: takes a row or a batch, see ``on``, and returns the same kind with all fields of the
            result. Fields that it received and that are not in the result are dropped; a new field
            that is not in ``edit_fields`` is an error. It may change its argument. A parameter
            ``rng`` receives a ``numpy.random.Generator`` that depends on the seed, the epoch and
            the position of the (first) row. None: fields are only removed and reordered.
        edit_fields: fields that ``func`` adds: ``(name, dtype, shape, nullable)``, UnischemaFields
            or :class:`~data_stack.formats.parquet.schema.Field`. They come after the others. Fields
            whose dtype or shape the function changes need not be named: a reader tries it on the
            first row, and checks the others against the result.
        removed_fields: names of fields to remove; unknown names cause a warning.
        selected_fields: names of the fields of the result, in this order; not together with
            ``removed_fields``.
        on: the argument of ``func``: "rows" (a dict), "numpy" (a dict of arrays of shape
            ``(n, …)``) or "pandas" (a DataFrame, arrays as objects). A batch has at least one row,
            and ``func`` returns as many rows; a function of DataFrames may drop rows of
            ``make_batch_reader``. None: "rows", or "pandas" for ``make_batch_reader``.

    Raises:
        ConfigError: an argument is invalid.

    Attributes:
        func: as given.
        on: as given.
        edit_fields: as fields of data_stack.
        removed_fields: as a list.
        selected_fields: as a list; None if not given.
    """

    func: Callable[..., Any] | None
    on: Form | None
    edit_fields: list[Field]
    removed_fields: list[str]
    selected_fields: list[str] | None

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
        self.func = func
        self.on = on
        self.edit_fields = [_edited_field(field) for field in edit_fields or ()]
        self.removed_fields = _field_names("removed_fields", removed_fields or ())
        self.selected_fields = None
        if selected_fields is not None:
            self.selected_fields = _field_names("selected_fields", selected_fields)

    @property
    def draws(self) -> bool:
        """Whether the function takes a random generator."""
        return self.func is not None and has_parameter(self.func, "rng")

    def known(self, names: Iterable[str], on: Any = None) -> TransformSpec:
        """Return a copy of the spec without the removed and selected fields that do not exist.

        Args:
            names: the names of the fields of the rows.
            on: the ``on`` of the copy, if this spec has none.

        Warns:
            UserWarning: a removed or selected field does not exist.
        """
        edited_names = {field.name for field in self.edit_fields}
        known_names = edited_names.union(names)
        removed = [name for name in self.removed_fields if name in known_names]
        selected = None
        if self.selected_fields is not None:
            selected = [name for name in self.selected_fields if name in known_names]

        mentioned = self.removed_fields + (self.selected_fields or [])
        unknown = [name for name in mentioned if name not in known_names]
        if unknown:
            argument = "removed_fields" if self.removed_fields else "selected_fields"
            warn_program(
                f"{argument} specified some field names that are not part of the schema. These "
                f'field names will be ignored "{", ".join(unknown)}".',
                package=__package__,
            )
        return TransformSpec(
            self.func, self.edit_fields, removed or None, selected, on=self.on or on
        )

    def schema_of(self, schema: Schema) -> Schema:
        """Return the fields of the result for rows with the fields of ``schema``.

        Raises:
            ConfigError: a selected field does not exist, or a new one has no function that makes
                it.
        """
        edited = {field.name: field for field in self.edit_fields}
        if self.func is None:
            for name in edited:
                schema[name]  # raises if the field does not exist
        unedited = {field.name: field for field in schema if field.name not in edited}
        all_fields = Schema(f"{schema.name}_transformed", [*unedited.values(), *edited.values()])
        names = self._result_names(all_fields.fields)
        return Schema(all_fields.name, [all_fields[name] for name in names])

    def _result_names(self, names: Iterable[str]) -> list[str]:
        """Return the names of the fields of the result, in their order.

        Args:
            names: the names of all fields, the edited ones last.
        """
        if self.selected_fields is not None:
            return self.selected_fields
        return [name for name in names if name not in self.removed_fields]


def _edited_field(given: Any) -> Field:
    """Return one of ``edit_fields`` as a field of data_stack.

    Raises:
        ConfigError: it is neither a field nor a tuple of four parts.
    """
    if isinstance(given, Field):
        return given
    is_unischema_field = isinstance(given, tuple) and len(given) == 5
    try:
        if is_unischema_field:
            name, dtype, shape, _, nullable = given
        else:
            name, dtype, shape, nullable = given
    except (TypeError, ValueError):
        raise ConfigError(
            f"edit_fields must be (name, dtype, shape, nullable) or Fields, got {given!r:.80}"
        ) from None
    return Field(name, dtype, shape, None, nullable)


def _field_names(argument: str, given: Iterable[str]) -> list[str]:
    """Return names of fields as a list.

    Args:
        argument: the name of the argument that has them, for the message.
        given: the names, or a single one.

    Raises:
        ConfigError: a name is not text.
    """
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
    for name, field in edited.items():
        fields[name] = UnischemaField(
            field.name, field.numpy_dtype, field.shape, None, field.nullable
        )
    names = spec._result_names(fields)
    return Unischema(f"{schema_name(schema)}_transformed", [fields[name] for name in names])


class BatchTransform:
    """Calls the function of a spec for batches, and checks what the function returns.

    A reader passes it to ``iterator.map(…, batched=True)``.

    Args:
        spec: the spec; it has a function.
        schema: the fields of the result.
        may_drop: whether the function may drop rows.
        zones: the time zones of columns of instants, by name, for a function of DataFrames.
    """

    _spec: TransformSpec
    _schema: Schema
    _may_drop: bool
    _zones: dict[str, str]

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
            # Raises here if pandas is missing, not in a worker.
            import data_stack_petastorm.frames  # noqa: F401

    def __call__(
        self, batch: Columns, rngs: Sequence[np.random.Generator] = ()
    ) -> dict[str, npt.NDArray[Any]]:
        """Transform the columns of a batch.

        Args:
            batch: the columns, shape ``(n, ...)``, n > 0.
            rngs: a generator for each row, if the function takes one.

        Raises:
            ConfigError: a returned value does not fit its field, or its field is not declared; the
                message names the field.
        """
        n_rows = len(next(iter(batch.values())))
        columns = call_function(
            self._spec, batch, rngs, names=list(self._schema.fields), zones=self._zones
        )
        for name in self._schema.fields:
            if not isinstance(columns, Mapping) or name not in columns:
                raise missing_field(name, columns)
            self._check_n_values(name, columns[name], n_rows)

        checked = {}
        for field in self._schema:
            column = check_column(field, columns[field.name])
            if self._spec.on == "pandas":
                column = with_nulls(field, column)
            checked[field.name] = column
        return checked

    def _check_n_values(self, name: str, values: Any, n_rows: int) -> None:
        """Check that there is one value of a field per row, unless the function may drop rows.

        Raises:
            ConfigError: there are more or fewer values, or a single one instead of a column.
        """
        try:
            n_values = len(values)
        except TypeError:
            raise ConfigError(
                f"the transform returned {values!r:.80} as the column of field {name!r}; it must "
                "return an array or list with one value per row"
            ) from None
        if n_values != n_rows and not self._may_drop:
            raise ConfigError(
                f"the transform returned {n_values} values of field {name!r} for {n_rows} rows; it "
                "must return one per row. Drop rows by a predicate"
            )


def call_function(
    spec: TransformSpec,
    batch: Columns,
    rngs: Sequence[np.random.Generator],
    *,
    names: list[str] | None,
    zones: Mapping[str, str],
) -> Any:
    """Call the function of a spec, which has one, as :func:`call_transform` describes it."""
    function: Any = spec.func
    return call_transform(
        function,
        batch,
        on=spec.on,
        rngs=rngs,
        names=names,
        removed_names=spec.removed_fields,
        zones=zones,
    )
