"""Filters of rows: expressions of pyarrow and Petastorm's predicates."""

from pyarrow.compute import field as col

from data_stack.formats.parquet.selecting.petastorm_predicates import (
    as_predicate,
    in_intersection,
    in_lambda,
    in_negate,
    in_pseudorandom_split,
    in_reduce,
    in_set,
)
from data_stack.formats.parquet.selecting.predicate import Predicate, PredicateError

__all__ = [
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
]
