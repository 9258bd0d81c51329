"""Which rows are read: predicates over columns, the statistics that spare reading them, and the filters of pyarrow."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from data_stack.formats.parquet.selecting.errors import PredicateError
from data_stack.formats.parquet.selecting.expressions import Expression, col
from data_stack.formats.parquet.selecting.filters import as_predicate, predicate_of_filters
from data_stack.formats.parquet.selecting.petastorm_predicates import (
    in_intersection,
    in_lambda,
    in_negate,
    in_pseudorandom_split,
    in_reduce,
    in_set,
)
from data_stack.formats.parquet.selecting.predicate import ColumnStatistics, Predicate

if TYPE_CHECKING:
    from data_stack.formats.parquet.selecting.arrow import ArrowPredicate

__all__ = [
    "ArrowPredicate",
    "ColumnStatistics",
    "Expression",
    "Predicate",
    "PredicateError",
    "as_predicate",
    "col",
    "in_intersection",
    "in_lambda",
    "in_negate",
    "in_pseudorandom_split",
    "in_reduce",
    "in_set",
    "predicate_of_filters",
]


def __getattr__(name: str) -> Any:
    if name == "ArrowPredicate":  # of the module that imports pyarrow
        return importlib.import_module(f"{__name__}.arrow").ArrowPredicate
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
