"""Base classes of Petastorm's predicates, which select rows from whole columns."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, Final

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

#: The maximum number of members of a set that the text of a predicate shows.
_MAX_MEMBERS_SHOWN: Final = 8


class IdentifiedPredicate:
    """A predicate that is identified by its class and the arguments of its constructor."""

    #: The arguments. Optional ones that were not given are left out.
    _arguments: tuple[Any, ...]

    def content(self) -> Any:
        """Return plain JSON data that identifies this predicate."""
        return {type(self).__name__: [_content_of_argument(value) for value in self._arguments]}

    def __repr__(self) -> str:
        shown = [_shorten_argument(value) for value in self._arguments]
        return f"{type(self).__name__}({', '.join(shown)})"


def _content_of_argument(argument: Any) -> Any:
    """Return plain JSON data that identifies an argument of a predicate."""
    if isinstance(argument, Predicate):
        return argument.content()
    if isinstance(argument, frozenset):
        # Sets have no order, and values of several types cannot be compared; texts can.
        return sorted(canonical_json(content_of(value)) for value in argument)
    if isinstance(argument, list):
        return [_content_of_argument(value) for value in argument]
    if callable(argument):
        # A function is identified by its name or content, and also by its code.
        return [content_of(argument), code_content(argument, content_if_known)]
    return content_of(argument)


def _shorten_argument(argument: Any) -> str:
    """Return a short text for an argument of a predicate."""
    if isinstance(argument, list):
        return _shorten_list([_shorten_argument(value) for value in argument])
    if isinstance(argument, frozenset):
        shown = sorted(_shorten_argument(value) for value in argument)
        return _shorten_list(shown[:_MAX_MEMBERS_SHOWN])
    if callable(argument):
        return shorten_function(argument)
    return shorten(argument)


def _shorten_list(shown: list[str]) -> str:
    """Return the text of a list of the texts of its items."""
    return f"[{', '.join(shown)}]"


class ColumnPredicate(IdentifiedPredicate, Predicate):
    """A predicate of whole columns, with the methods that Petastorm's predicates have for rows.

    Args:
        fields: the names of the columns that the predicate needs.
        *arguments: the arguments of the derived class, which identify the predicate.
        bound: an expression of pyarrow that is true of each selected row; None if there is none.
    """

    def __init__(
        self, fields: Iterable[str], *arguments: Any, bound: pc.Expression | None = None
    ) -> None:
        super().__init__(fields, bound)
        self._arguments = arguments

    def get_fields(self) -> set[str]:
        """Return the names of the columns that the predicate needs."""
        return set(self.fields)

    def do_include(self, values: Mapping[str, Any]) -> bool:
        """Return whether the predicate selects a row, given by the values of its fields."""
        columns = {name: objects([values[name]]) for name in self.fields}
        return bool(self.mask(columns)[0])


class OneColumnPredicate(ColumnPredicate):
    """A predicate of the values of one field, which is the last argument of the derived class.

    Args:
        field: the name of the field.
        *arguments: the arguments of the derived class before the field.
        bound: an expression of pyarrow that is true of each selected row; None if there is none.

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
        """Return which rows are selected: bools, shape ``(n,)``.

        Args:
            column: the values of the field, shape ``(n, ...)``.
            dtype: the dtype of the field; None if it is not known.
        """


def check_field_name(name: Any, what: str) -> str:
    """Return the name of a field if it is a text.

    Args:
        name: the name.
        what: the name of the predicate, for the message.

    Raises:
        ConfigError: the name is not text, or is empty.
    """
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{what} needs the name of a field, got {shorten(name)}")
    return name
