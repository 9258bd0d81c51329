"""Describes transforms of rows: a function, and the fields that it edits, removes and selects."""

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
    """A transform of the rows of a dataset, with the fields of its result.

    ::

        TransformSpec(lambda row: {**row, "mean": row["image"].mean(dtype="f4")}, [("mean", "float32", (), False)], ["image"])
        TransformSpec(normalise, [("speed", "float32", (), False)], on="numpy")      # a function of {"speed": array, …}

    Args:
        func: takes a row or a batch, see ``on``, and returns the same kind with all fields of the result; other fields are
            dropped. It may change its argument. A parameter ``rng`` receives a ``numpy.random.Generator`` that depends on the
            seed, the epoch and the position of the (first) row. None: fields are only removed and reordered.
        edit_fields: fields that ``func`` adds, or whose dtype or shape it changes: ``(name, dtype, shape, nullable)`` or
            :class:`~data_stack.formats.parquet.schema.Field`. They come after the others.
        removed_fields: names of fields to remove.
        selected_fields: names of the fields of the result, in this order; not together with ``removed_fields``.
        on: the argument of ``func``: "rows" (a dict), "numpy" (a dict of arrays of shape ``(n, …)``) or "pandas" (a DataFrame,
            arrays as objects). A batch has at least one row, and ``func`` returns as many rows. None: "rows", or the default of
            the reader.

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
            raise ConfigError(f"func must be a function or None, got {self.func!r:.80}")
        if self.removed_fields is not None and self.selected_fields is not None:
            raise ConfigError("pass removed_fields or selected_fields, not both")
        if self.on not in (None, "rows", "numpy", "pandas"):
            raise ConfigError(f"on must be 'rows', 'numpy' or 'pandas', got {self.on!r:.40}")
        self.edit_fields = [_field(each) for each in self.edit_fields or ()]
        self.removed_fields = _names("removed_fields", self.removed_fields) or []
        self.selected_fields = _names("selected_fields", self.selected_fields)

    def schema_of(self, schema: Schema) -> Schema:
        """The fields of the result for rows with the fields of ``schema``.

        Raises:
            ConfigError: a removed or selected field does not exist, or a new field has no function that makes it.
        """
        edited = {field.name: field for field in self.edit_fields}
        for name in self.removed_fields:
            if name not in edited:
                schema[name]  # raises if the field does not exist
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


def _field(given: Any) -> Field:
    if isinstance(given, Field):
        return given
    try:
        name, dtype, shape, nullable = given
    except (TypeError, ValueError):
        raise ConfigError(f"edit_fields must be (name, dtype, shape, nullable) or Fields, got {given!r:.80}") from None
    return Field(name, dtype, shape, None, nullable)


def _names(argument: str, given: Iterable[str] | None) -> list[str] | None:
    if given is None:
        return None
    names = [given] if isinstance(given, str) else list(given)
    if not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{argument} must be names of fields, got {given!r:.80}")
    return names
