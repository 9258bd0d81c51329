"""Tables of Arrow as dict samples."""

from data_stack.exception import MissingDependencyError

try:  # Checked once for all modules of the package.
    import pyarrow  # noqa: F401
except ImportError as error:
    raise MissingDependencyError("reading tables of Arrow", "pyarrow", "parquet") from error

from data_stack.formats.arrow_tables.arrow_column import ArrowColumn
from data_stack.formats.arrow_tables.json_column import JSON_TEXT, JsonColumn
from data_stack.formats.arrow_tables.origin import IndexLevel, Origin
from data_stack.formats.arrow_tables.plain_column import PlainColumn
from data_stack.formats.arrow_tables.table_iterator import (
    READERS,
    TableIterator,
    check_names,
    iterator_of_rows,
    iterator_of_table,
)
from data_stack.formats.arrow_tables.table_rows import ChosenRows, TableRows
from data_stack.formats.arrow_tables.values import (
    ARROW_ERRORS,
    cells_of_tensors,
    field_of,
    unshifted,
    values_of,
)

__all__ = [
    "ARROW_ERRORS",
    "JSON_TEXT",
    "READERS",
    "ArrowColumn",
    "ChosenRows",
    "IndexLevel",
    "JsonColumn",
    "Origin",
    "PlainColumn",
    "TableIterator",
    "TableRows",
    "cells_of_tensors",
    "check_names",
    "field_of",
    "iterator_of_rows",
    "iterator_of_table",
    "unshifted",
    "values_of",
]
