"""Predicates of whole columns, which are identified by their class and arguments."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from data_stack.codecs.plain_data import canonical_json, shorten
from data_stack.dataset.recipes.functions import code_content
from data_stack.dataset.recipes.functions import shorten as shorten_function
from data_stack.dataset.recipes.recipe_values import content_if_known, content_of
from data_stack.exception import ConfigError
from data_stack.formats.parquet.selecting import Columns, Predicate, TypedColumns, column_of
from data_stack.values.stacked_values import objects

#: A message shows this many members of a set.
_MAX_SHOWN = 8


class IdentifiedPredicate:
    """A predicate that is identified by its class and the arguments of its constructor."""

    #: The arguments. Those with a default that has no effect are left out.
    _arguments: tuple[Any, ...]

    def content(self) -> Any:
        """Return plain JSON data that identifies this predicate."""
        return {type(self).__name__: [_content_of_argument(value) for value in self._arguments]}

    def __repr__(self) -> str:
        shown = [_shorten_argument(value) for value in self._arguments]
        return f"{type(self).__name__}({', '.join(shown)})"


def _content_of_argument(argument: Any) -> Any:
    if isinstance(argument, Predicate):
        return argument.content()
    if isinstance(argument, frozenset):
        # Sets have no order, and values of several types cannot be compared; texts can.
        return sorted(canonical_json(content_of(value)) for value in argument)
    if isinstance(argument, list):
        return [_content_of_argument(value) for value in argument]
    if callable(argument):  # a function has a name or content, and its code
        return [content_of(argument), code_content(argument, content_if_known)]
    return content_of(argument)


def _shorten_argument(argument: Any) -> str:
    if isinstance(argument, list):
        return _shorten_list([_shorten_argument(value) for value in argument])
    if isinstance(argument, frozenset):
        shown = sorted(_shorten_argument(value) for value in argument)
        return _shorten_list(shown[:_MAX_SHOWN])
    if callable(argument):
        return shorten_function(argument)
    return shorten(argument)


def _shorten_list(shown: list[str]) -> str:
    return f"[{', '.join(shown)}]"


class ColumnPredicate(IdentifiedPredicate, Predicate):
    """A predicate of whole columns, with the methods that Petastorm's predicates have for rows.

    Args:
        fields: the columns that the predicate needs.
        arguments: the arguments of the class.
        bound: an expression of pyarrow that is true of each selected row; None without one.
    """

    def __init__(
        self, fields: Iterable[str], *arguments: Any, bound: pc.Expression | None = None
    ) -> None:
        super().__init__(fields, bound)
        self._arguments = arguments

    def get_fields(self) -> set[str]:
        """Return the names of the required fields."""
        return set(self.fields)

    def do_include(self, values: Mapping[str, Any]) -> bool:
        """Return whether to include a row."""
        columns = {name: objects([values[name]]) for name in self.fields}
        return bool(self.mask(columns)[0])


class OneColumnPredicate(ColumnPredicate):
    """A predicate of the values of one field, which is the last argument of its class.

    Args:
        field: the name of the field.
        arguments: the arguments before the field.
        bound: an expression of pyarrow that is true of each selected row; None without one.

    Raises:
        ConfigError: the name of the field is not text, or empty.
    """

    def __init__(self, field: Any, *arguments: Any, bound: pc.Expression | None = None) -> None:
        name = check_field_name(field, type(self).__name__)
        super().__init__([name], *arguments, field, bound=bound)

    def mask(self, columns: Columns) -> npt.NDArray[np.bool_]:
        (name,) = self.fields
        dtype = None
        if isinstance(columns, TypedColumns):
            dtype = columns.dtypes.get(name)
        return self._select(column_of(columns, name), dtype)

    @abstractmethod
    def _select(self, column: npt.NDArray[Any], dtype: Any) -> npt.NDArray[np.bool_]:
        """Return which values are selected: bools, shape ``(n,)``.

        Args:
            column: the values, shape ``(n, ...)``.
            dtype: the dtype of the field; None if only the values tell it.
        """


def check_field_name(name: Any, what: str) -> str:
    """Return the name of a field.

    Args:
        name: the name.
        what: the name of the predicate, for the message.

    Raises:
        ConfigError: it is not text, or empty.
    """
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{what} needs the name of a field, got {shorten(name)}")
    return name
