"""Filters of rows: the names that users and plugins import."""

from pyarrow.compute import field as col

from data_stack.formats.parquet.filters import as_predicate
from data_stack.formats.parquet.predicates import (
    Columns,
    Predicate,
    PredicateError,
    RowPredicate,
    TypedColumns,
    as_times,
    column_of,
)

__all__ = [
    "Columns",
    "Predicate",
    "PredicateError",
    "RowPredicate",
    "TypedColumns",
    "as_predicate",
    "as_times",
    "col",
    "column_of",
]
