"""Filters of rows: expressions of pyarrow, and functions."""

from pyarrow.compute import field as col

from data_stack.formats.parquet.selecting.filters import RowPredicate, as_predicate
from data_stack.formats.parquet.selecting.predicate import Columns, Predicate, PredicateError, as_times, column_of

__all__ = ["Columns", "Predicate", "PredicateError", "RowPredicate", "as_predicate", "as_times", "col", "column_of"]
