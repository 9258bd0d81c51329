"""Collects the names for filters of rows that users and plugins import.

``col("speed") > 3`` is an expression of pyarrow: ``col`` is ``pyarrow.compute.field``.
"""

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
