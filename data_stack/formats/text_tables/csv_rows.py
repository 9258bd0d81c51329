"""The rows of a CSV file, which are parsed when they are read."""

from __future__ import annotations

import base64
import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from data_stack.formats.text_tables.csv_options import CSVOptions
from data_stack.formats.text_tables.csv_parsing import ColumnTypes, CSVParser, MisfitError
from data_stack.formats.text_tables.csv_scanner import CSVRowScanner
from data_stack.formats.text_tables.csv_table import BLOCK_BYTES, CSVTable
from data_stack.formats.text_tables.csv_types import MISFIT_ERRORS
from data_stack.formats.text_tables.declared_types import types_of
from data_stack.formats.text_tables.indexed_rows import IndexedRows, error_of_change
from data_stack.formats.text_tables.indexed_text import IndexedText
from data_stack.util.program_lines import warn_program

_LINE_BREAKS: Final = (b"\n", b"\r")


class CSVRows(IndexedRows):
    """The rows of a CSV file, which are parsed when they are read.

    Args:
        text: the file, whose first row may be a header.
        parser: parses its rows.
        types: the types of its columns, which hold all values of all rows.
        has_header: whether the first row holds names.
    """

    json_columns: Collection[str] = ()
    block_bytes = BLOCK_BYTES

    #: Parses rows.
    _parser: CSVParser

    #: The types of the columns.
    _types: ColumnTypes

    def __init__(
        self, text: IndexedText, parser: CSVParser, types: ColumnTypes, *, has_header: bool
    ) -> None:
        self.schema = types.schema
        self.nullable = types.nullable
        self.text = text
        self._parser = parser
        self._types = types
        if has_header:
            self.n_header_rows = 1

    def parse(self, rows: Sequence[bytes], names: Sequence[str]) -> dict[str, list[pa.Array]]:
        try:
            cells = self._parser.cells(_join_rows(rows), self._types, names)
        except MemoryError:
            # MISFIT_ERRORS would catch it.
            raise
        except (*MISFIT_ERRORS, MisfitError) as error:
            raise error_of_change(self.text.name) from error
        if any(len(column) != len(rows) for column in cells.values()):
            raise error_of_change(self.text.name)
        return {name: cells[name].chunks for name in names}


def _join_rows(rows: Sequence[bytes]) -> bytes:
    """Return the text of rows; the last row of a file may lack a line break."""
    if all(row.endswith(_LINE_BREAKS) for row in rows):
        return b"".join(rows)
    return b"\n".join(rows)


def open_csv_rows(
    file: Any,
    options: CSVOptions,
    dtypes: Mapping[str, Any] | None,
    columns: Collection[str] | None,
    *,
    encoding: str = "utf-8",
    block_bytes: int = BLOCK_BYTES,
) -> CSVRows:
    """Open a CSV file by an index of its rows, and infer the types of its columns.

    Args:
        file: as for :func:`data_stack.from_csv`.
        options: how the file is written.
        dtypes: as for :func:`data_stack.from_csv`.
        columns: the columns to read; None for all.
        encoding: the encoding of the file.
        block_bytes: the size of the text that is parsed at once.

    Raises:
        DatasetFileCorruptError, ConfigError: as for :meth:`CSVTable.infer`.
    """
    make_scanner = functools.partial(
        CSVRowScanner, options.delimiter, has_quotes=options.has_quotes
    )
    text = IndexedText(file, make_scanner, encoding)
    types = types_of(dtypes)
    description_of_options = _describe_options(options, types, columns)
    if text.kept is not None and text.index is not None:
        rows = _load_rows(text, options, text.kept.load_columns(description_of_options))
        if rows is not None:
            return rows

    table = CSVTable(text, options, types, columns, block_bytes=block_bytes)
    inferred = table.infer()
    rows = CSVRows(text, table.parser, inferred, has_header=options.has_header)
    if len(rows) != table.n_rows:
        # The rows that were found are not those that were parsed.
        raise error_of_change(text.name)
    if text.kept is not None:
        text.kept.store_columns(description_of_options, _describe_rows(rows, table, inferred))
    return rows


# ---------------------------------------------------------------------- kept columns


def _describe_options(
    options: CSVOptions, types: Mapping[str, pa.DataType], columns: Collection[str] | None
) -> Any:
    """Return what the columns of a file depend on, as plain data."""
    return [
        "csv",
        options.delimiter,
        sorted(options.missing),
        options.header,
        None if options.names is None else list(options.names),
        options.has_quotes,
        {name: str(type_) for name, type_ in types.items()},
        None if columns is None else sorted(columns),
    ]


def _describe_rows(rows: CSVRows, table: CSVTable, types: ColumnTypes) -> Any:
    """Return what was found in a file, as plain data."""
    return {
        "sha256": rows.text.sha256,
        "n_rows": len(rows),
        "column_names": table.column_names,
        "schema": base64.b64encode(types.schema.serialize()).decode(),
        "converted": sorted(types.converted),
        "nullable": sorted(types.nullable),
        "warnings": table.warnings,
    }


def _load_rows(text: IndexedText, options: CSVOptions, description: Any) -> CSVRows | None:
    """Return the rows that :func:`_describe_rows` described, and repeat the warnings of the file.

    Returns:
        None if the description is None, or not that of the rows of the text.
    """
    if description is None:
        return None
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(description["schema"])))
    types = ColumnTypes(
        schema, frozenset(description["converted"]), frozenset(description["nullable"])
    )
    parser = CSVParser(options, description["column_names"])
    rows = CSVRows(text, parser, types, has_header=options.has_header)
    if len(rows) != description["n_rows"]:
        return None
    text.sha256 = description["sha256"]
    for message in description["warnings"]:
        warn_program(message)
    return rows
