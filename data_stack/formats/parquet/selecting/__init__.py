"""Which rows are read: predicates over columns, the statistics that spare reading them, and the filters of pyarrow."""

from data_stack.formats.parquet.selecting.expressions import Expression, col
from data_stack.formats.parquet.selecting.filters import ArrowPredicate, as_predicate, predicate_of_filters
from data_stack.formats.parquet.selecting.petastorm_predicates import (
    in_intersection,
    in_lambda,
    in_negate,
    in_pseudorandom_split,
    in_reduce,
    in_set,
)
from data_stack.formats.parquet.selecting.predicate import ColumnStatistics, Predicate, PredicateError

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
