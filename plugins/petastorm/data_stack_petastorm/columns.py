"""Columns without tensors: the adapters leave them out, or fill in NaN."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from data_stack.exception import ConfigError
from data_stack.formats.parquet import Field
from data_stack.values.stacked_values import stack_values
from data_stack_petastorm.schemas import as_schema


def check_reader(reader: Any) -> None:
    """Refuse values that are not readers, such as URLs.

    Raises:
        ConfigError: the value is not a reader.
    """
    if not hasattr(reader, "batched_output"):
        raise ConfigError(
            f"expected a reader, got {type(reader).__name__} {reader!r:.80}; make one with make_reader(url)"
        )


def nested_names(fields: Mapping[str, Field]) -> frozenset[str]:
    """Return the names of structs, maps and nested lists."""
    return frozenset(
        name
        for name, field in fields.items()
        if isinstance(field.dtype, np.dtype) and field.dtype.kind == "O"
    )


def names_left_out(reader: Any, *, warns: bool = False) -> frozenset[str]:
    """Return the names of structs, maps and nested lists of a reader of row groups, unless it has no other columns.

    Petastorm does not read such columns.

    Args:
        reader: any reader.
        warns: whether to warn of the names.
    """
    if not reader.batched_output or reader.ngram is not None:
        return frozenset()
    fields = as_schema(reader.schema).fields
    names = nested_names(fields)
    if not names or len(names) == len(fields):
        return frozenset()
    if warns:
        warnings.warn(
            f"columns {', '.join(map(repr, sorted(names)))} are left out: structs, maps and nested lists have no tensors. "
            f"To not even read them, name the other columns in schema_fields=",
            stacklevel=4,
        )
    return names


class NanForNull:
    """Replaces missing floats by NaN, in columns, also of n-grams, and in single values; it pickles.

    Args:
        fields: fields of the rows.
        transform: a function that is applied to the columns afterwards; it may have a parameter ``rng``. None: no function.
    """

    def __init__(
        self, fields: Iterable[Field], transform: Callable[..., Any] | None = None
    ) -> None:
        floats = [
            field
            for field in fields
            if isinstance(field.dtype, np.dtype)
            and field.dtype.kind == "f"
            and field.nullable
            and len(field.shape) <= 1
        ]
        self._dtypes: dict[str, Any] = {field.name: field.dtype for field in floats}
        self._lists = frozenset(field.name for field in floats if field.shape)
        self._transform, self._draws = (
            transform,
            transform is not None and has_parameter(transform, "rng"),
        )

    def __bool__(self) -> bool:
        """Whether any field can have missing floats."""
        return bool(self._dtypes)

    def __call__(self, columns: Mapping[Any, Any], rng: np.random.Generator) -> Any:
        """Convert the columns of a batch."""
        filled = {
            key: {name: self.column(name, part) for name, part in value.items()}
            if isinstance(value, dict)
            else self.column(key, value)
            for key, value in columns.items()
        }
        if self._transform is None:
            return filled
        return self._transform(filled, rng=rng) if self._draws else self._transform(filled)

    def column(self, name: str, values: Any) -> Any:
        """Convert a column of a field, shape ``(n, ...)``."""
        if name not in self._dtypes or values.dtype != object:
            return values
        if name in self._lists:
            return stack_values([self.value(name, value) for value in values])
        return values.astype(self._dtypes[name])

    def value(self, name: str, value: Any) -> Any:
        """Convert the value of a field in one row."""
        if name not in self._dtypes:
            return value
        if value is None:
            return None if name in self._lists else self._dtypes[name].type("nan")
        return (
            value.astype(self._dtypes[name])
            if isinstance(value, np.ndarray) and value.dtype == object
            else value
        )


def has_parameter(function: Callable[..., Any], name: str) -> bool:
    """Whether a function has a parameter of this name."""
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):  # of C
        return False
