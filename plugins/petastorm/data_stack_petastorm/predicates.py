"""Which rows are read, in Petastorm's spelling."""

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

__all__ = ["PredicateBase", "in_intersection", "in_lambda", "in_negate", "in_pseudorandom_split", "in_reduce", "in_set"]


class PredicateBase(ABC):
    """Derive from it for a predicate of your own; those of this module count as derived from it."""

    @abstractmethod
    def get_fields(self) -> Any:
        """The names of the fields that are needed, at least one."""

    @abstractmethod
    def do_include(self, values: Mapping[str, Any]) -> Any:
        """Whether a row is wanted.

        Args:
            values: of a row, by name; for :func:`~data_stack_petastorm.reader.make_batch_reader` a DataFrame of rows, of which
                a Series or array of bools is expected.
        """


PredicateBase.register(Predicate)  # type: ignore[type-abstract]  # as ABCs may be
