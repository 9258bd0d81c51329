"""Transforms of rows: a function, and the fields that it edits, removes and selects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

from data_stack.exception import ConfigError
from data_stack.formats.parquet.schema import Field, Schema

Form = Literal["rows", "numpy", "pandas"]


def edit_field(name: str, numpy_dtype: Any, shape: Sequence[int | None], nullable: bool = False) -> tuple[Any, ...]:
    """One of the ``edit_fields`` of a :class:`TransformSpec`."""
    return name, numpy_dtype, shape, nullable


@dataclass(eq=False)
class TransformSpec:
    """What is made of the rows of a dataset, and which fields they have then.

    ::

        TransformSpec(lambda row: {**row, "mean": row["image"].mean(dtype="f4")}, [("mean", "float32", (), False)], ["image"])
        TransformSpec(normalise, [("speed", "float32", (), False)], on="numpy")      # a function of {"speed": array, …}

    Args:
        func: of a row, or of a batch, see ``on``; it gives the same kind of thing, with all fields that shall be there (others
            that it gives are left out). It may change what it is given. If it has a parameter ``rng``, that is a
            ``numpy.random.Generator`` which seed, epoch and position of the row (of a batch: of its first row) decide. None:
            fields are only left out and put in order.
        edit_fields: fields that ``func`` makes, or changes in dtype or shape: ``(name, dtype, shape, nullable)`` or
            :class:`~data_stack.formats.parquet.schema.Field`. They stand behind the others.
        removed_fields: names of fields that are left out.
        selected_fields: names of the fields of the result, in this order; not together with ``removed_fields``.
        on: what ``func`` is a function of: "rows" (a dict), "numpy" (a dict of arrays of shape ``(n, …)``) or "pandas" (a
            DataFrame, arrays as objects). A batch has any number of rows, at least one, and as many come out. None: "rows", or
            what the reader that it is given to has.

    Raises:
        ConfigError: an argument is invalid.
    """

    func: Callable[..., Any] | None = None
    edit_fields: Any = None
    removed_fields: Any = None
    selected_fields: Any = None
    _: KW_ONLY
    on: Form | None = None

    def __post_init__(self) -> None:
        if self.func is not None and not callable(self.func):
            raise ConfigError(f"func is a function of a row, or None, not {self.func!r:.80}")
        if self.removed_fields is not None and self.selected_fields is not None:
            raise ConfigError("give removed_fields or selected_fields, not both: what is not selected is removed")
        if self.on not in (None, "rows", "numpy", "pandas"):
            raise ConfigError(f"on is 'rows', 'numpy' or 'pandas', not {self.on!r:.40}")
        self.edit_fields = [_field(each) for each in self.edit_fields or ()]
        self.removed_fields = _names("removed_fields", self.removed_fields) or []
        self.selected_fields = _names("selected_fields", self.selected_fields)

    def schema_of(self, schema: Schema) -> Schema:
        """The fields that come out, of rows with the fields of ``schema``.

        Raises:
            ConfigError: a field that is removed or selected is not there, or one is edited without a function that makes it.
        """
        edited = {field.name: field for field in self.edit_fields}
        for name in self.removed_fields:
            if name not in edited:
                schema[name]  # raises, with the names that there are
        if self.func is None:
            for name in edited:
                schema[name]
        gone = {*self.removed_fields, *edited}
        fields = {field.name: field for field in schema if field.name not in gone}
        fields.update((name, field) for name, field in edited.items() if name not in self.removed_fields)
        found = Schema(f"{schema.name}_transformed", fields.values())
        if self.selected_fields is None:
            return found
        return Schema(found.name, [found[name] for name in self.selected_fields])


def transform_schema(schema: Schema, transform_spec: TransformSpec) -> Schema:
    """:meth:`TransformSpec.schema_of`, by Petastorm's name."""
    return transform_spec.schema_of(schema)


def _field(given: Any) -> Field:
    if isinstance(given, Field):
        return given
    try:
        name, dtype, shape, nullable = given
    except (TypeError, ValueError):
        raise ConfigError(f"edit_fields are (name, dtype, shape, nullable) or Fields, not {given!r:.80}") from None
    return Field(name, dtype, shape, None, nullable)


def _names(argument: str, given: Iterable[str] | None) -> list[str] | None:
    if given is None:
        return None
    names = [given] if isinstance(given, str) else list(given)
    if not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{argument} are names of fields, not {given!r:.80}")
    return names
