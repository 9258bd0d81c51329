"""Replaces missing floats by NaN, as loaders of Petastorm's row groups do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from data_stack.formats.parquet import Field
from data_stack.util.functions import has_parameter
from data_stack.values.stacked_values import stack_values
from data_stack_petastorm.any_reader import fills_nulls
from data_stack_petastorm.batches import map_columns
from data_stack_petastorm.schemas import as_schema


class NanForNull:
    """Replaces missing floats by NaN in columns, also of n-grams, and in single values.

    An instance is a transform of a loader, and pickles for its workers.

    Args:
        fields: fields of the rows.
        transform: a function that is applied to the columns afterwards; it may have a parameter
            ``rng``. None: no function.
    """

    #: The dtype of each field that can have missing floats, by name.
    _dtypes: dict[str, np.dtype[Any]]
    #: The names of those fields whose values are lists of floats.
    _lists: frozenset[str]
    #: What is applied afterwards.
    _transform: Callable[..., Any] | None
    #: Whether ``_transform`` takes a random generator.
    _transform_draws: bool

    def __init__(
        self, fields: Iterable[Field], transform: Callable[..., Any] | None = None
    ) -> None:
        self._dtypes = {}
        lists = set()
        for field in fields:
            if not isinstance(field.dtype, np.dtype) or field.dtype.kind != "f":
                continue
            if not field.nullable or len(field.shape) > 1:
                continue
            self._dtypes[field.name] = field.dtype
            if field.shape:
                lists.add(field.name)
        self._lists = frozenset(lists)
        self._transform = transform
        self._transform_draws = transform is not None and has_parameter(transform, "rng")

    @staticmethod
    def of_reader(reader: Any) -> NanForNull:
        """Return what fills the rows of a reader; it changes nothing if its adapters fill none."""
        if not fills_nulls(reader):
            return NanForNull(())
        return NanForNull(as_schema(reader.schema))

    def __bool__(self) -> bool:
        """Return whether any field can have missing floats."""
        return bool(self._dtypes)

    def __call__(self, columns: Mapping[Any, Any], rng: np.random.Generator) -> Any:
        """Convert the columns of a batch."""
        filled = map_columns(columns, self.fill_column)
        if self._transform is None:
            return filled
        if self._transform_draws:
            return self._transform(filled, rng=rng)
        return self._transform(filled)

    def fill_column(self, name: str, column: Any) -> Any:
        """Convert a column of a field, shape ``(n, ...)``.

        A column without missing values has the dtype of its field already, and stays as it is.
        """
        if name not in self._dtypes or column.dtype != object:
            return column
        if name in self._lists:
            return stack_values([self.fill_value(name, value) for value in column])
        return column.astype(self._dtypes[name])

    def fill_value(self, name: str, value: Any) -> Any:
        """Convert the value of a field in one row. A missing list stays None."""
        if name not in self._dtypes:
            return value
        dtype = self._dtypes[name]
        if value is None and name in self._lists:
            return None
        if value is None:
            return dtype.type("nan")
        if isinstance(value, np.ndarray) and value.dtype == object:
            return value.astype(dtype)
        return value
