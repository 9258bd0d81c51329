"""Petastorm's predicates of rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from data_stack.formats.parquet import (
    Predicate,
    in_intersection,
    in_lambda,
    in_negate,
    in_pseudorandom_split,
    in_reduce,
    in_set,
)

__all__ = [
    "OfFrames",
    "PredicateBase",
    "in_intersection",
    "in_lambda",
    "in_negate",
    "in_pseudorandom_split",
    "in_reduce",
    "in_set",
]


class PredicateBase(ABC):
    """Derive from it for a predicate of your own; the predicates of this module are registered as subclasses."""

    @abstractmethod
    def get_fields(self) -> Any:
        """Return the names of the required fields, at least one."""

    @abstractmethod
    def do_include(self, values: Mapping[str, Any]) -> Any:
        """Return whether to include a row.

        Args:
            values: the values of a row by name; for :func:`~data_stack_petastorm.reader.make_batch_reader` a DataFrame of rows,
                for which the result is a Series or array of bools.
        """


class OfFrames(PredicateBase):
    """Lets a predicate combine DataFrames with lists, ``[True, True] & frame["id"]``, as before pandas 3.

    Args:
        predicate: an object with ``get_fields`` and ``do_include``.
    """

    def __init__(self, predicate: Any) -> None:
        self._predicate = predicate

    def get_fields(self) -> Any:
        """Return the fields of the predicate."""
        return self._predicate.get_fields()

    def do_include(self, values: Any) -> Any:
        """Call the predicate with a row or a DataFrame."""
        if hasattr(values, "columns"):
            from data_stack_petastorm.frames import ListFrame

            values = ListFrame(values)
        return self._predicate.do_include(values)

    def __repr__(self) -> str:
        return repr(self._predicate)


PredicateBase.register(Predicate)  # type: ignore[type-abstract]  # as ABCs may be
