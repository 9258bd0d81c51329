"""Reads CSV and JSON lines files as dict samples."""

from __future__ import annotations

import csv
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.iterator.layers.columns_layer import list_columns
from data_stack.exception import ConfigError
from data_stack.formats.arrow_tables import (
    READERS,
    ArrowColumn,
    ChosenRows,
    TableRows,
    iterator_of_rows,
    iterator_of_table,
)
from data_stack.formats.parquet.selecting import Predicate, as_predicate
from data_stack.formats.parquet.types import describe_type
from data_stack.formats.text_tables.csv_options import CSVOptions
from data_stack.formats.text_tables.csv_rows import open_csv_rows
from data_stack.formats.text_tables.declared_types import types_of_json
from data_stack.formats.text_tables.indexed_text import IndexedText
from data_stack.formats.text_tables.json_rows import open_json_rows
from data_stack.io.location import is_path_or_url
from data_stack.io.url import scheme_of
from data_stack.util.suggestions import did_you_mean

#: The rows of a file whose text is smaller are parsed once, and kept in memory as a table: then an
#: epoch of a loader takes a fortieth of the time.
MAX_TABLE_BYTES: Final = 16 << 20

#: Rows that are read at once to filter them.
_ROWS_TO_FILTER: Final = 4096


def from_csv(
    file: Any,
    *,
    target: str | None = None,
    dtypes: Mapping[str, Any] | None = None,
    delimiter: str = ",",
    encoding: str = "utf-8",
    missing: Collection[str] = ("",),
    header: bool | None = None,
    names: Sequence[str] | None = None,
    quoting: Any = csv.QUOTE_MINIMAL,
    filters: Any = None,
    columns: Sequence[str] | None = None,
) -> DatasetIteratorIF:
    """Return the rows of a CSV file as dict samples.

    The file may be larger than memory. It is read once, now, to find its rows and their dtypes,
    and a second time if the parts of a column look like several dtypes. A table of up to 16 MiB of
    text is kept in memory. A row of a larger one is parsed each time it is read as a sample: a file
    that is written to meanwhile is an error; the text of a compressed file, or of one in another
    encoding than UTF-8, is copied once to a folder of this machine, where ``data-stack cache``
    lists it; and the text of an open file that only the program can read is kept in memory.

    The dtype of a column is inferred from all rows: int64, uint64, float64, bool, dates, times, or
    text; the repr of the table and ``column_types`` show it. Integers with a plus sign are float64.
    Truth values are ``true`` and ``false``. A column stays text if numbers would change it:
    integers that int64, uint64 and float64 cannot hold exactly, ``1e400``, and ``0x10``. An empty
    cell is None.

    A quote at the start of a field opens a quoted field, which may have delimiters and line breaks,
    and in which two quotes are one. The field ends with a quote before a delimiter or at the end of
    the line. Other quotes are ordinary characters.

    Args:
        file: a path or URL, a resource, or an open binary file; uncompressed, or compressed by
            gzip, bzip2, xz or zstd.
        target: the column of the target.
        dtypes: dtypes of some columns, instead of inferred ones: a numpy dtype, or
            ``"decimal(10,2)"``, ``"timestamp"`` and the other type names of Parquet columns.
            ``str`` keeps ``007`` unchanged; a column of bool may also have ``1`` and ``0``.
        delimiter: one ASCII character.
        encoding: the encoding of the file.
        missing: texts that mean None. Any other text makes a column of numbers a column of text.
        header: whether the first row holds the names of the columns; None: it does, with a warning
            if it holds a number or date.
        names: the names of all columns in their order, instead of those of the header; without a
            header and names, columns are ``column_0``, ``column_1`` …
        quoting: ``csv.QUOTE_MINIMAL`` as above; ``csv.QUOTE_NONE`` if quotes are ordinary
            characters everywhere.
        filters: which rows: an expression of pyarrow, or filters such as ``[("speed", ">", 3)]``,
            as of :class:`~data_stack.formats.parquet.ParquetDataset`.
        columns: the columns to read, in the order of the file, beside the target; None for all.

    Raises:
        DatasetFileCorruptError: rows differ in their number of columns, a quoted field has no end
            or something behind it, a row is larger than 256 MiB, a text does not fit its dtype, or
            the encoding is wrong; the message names the line.
        ConfigError: a column or dtype does not exist, or two columns have the same name.

    Warns:
        UserWarning: the first row holds a number; the file has one column, whose name contains
            another delimiter; a quoted field goes over several lines that are rows by themselves;
            empty lines in a table of one column.
    """
    options = CSVOptions(
        delimiter=delimiter, missing=list(missing), header=header, names=names, quoting=quoting
    )
    selection = _Selection(columns, target, filters)
    rows = open_csv_rows(file, options, dtypes, selection.columns_to_read, encoding=encoding)

    # A recipe names only options that differ from their defaults, and those that it always named:
    # the fingerprint of a table must stay as it was before an option existed.
    recipe_options: dict[str, Any] = {
        "delimiter": delimiter,
        "encoding": encoding,
        "missing": list(missing),
    }
    if header is not None:
        recipe_options["header"] = header
    if names is not None:
        recipe_options["names"] = list(names)
    if not options.has_quotes:
        recipe_options["quoting"] = options.csv_quoting
    if columns is not None:
        recipe_options["columns"] = selection.columns_of_samples
    read_from = None
    if selection.predicate is None:
        read_from = _recipe_of(file, rows.text.sha256, "from_csv", recipe_options, dtypes)

    chosen_rows = selection.apply(rows, rows.text.name)
    return _present(chosen_rows, rows.text, target, read_from)


def from_jsonl(
    file: Any,
    *,
    target: str | None = None,
    dtypes: Mapping[str, Any] | None = None,
    filters: Any = None,
    columns: Sequence[str] | None = None,
) -> DatasetIteratorIF:
    """Return the lines of a file of JSON objects as dict samples.

    The file may be larger than memory. It is read once, now, to find its lines and the types of
    their values. A table of up to 16 MiB of text is kept in memory. A line of a larger one is
    parsed each time it is read as a sample: a file that is written to meanwhile is an error; the
    text of a compressed file is copied once to a folder of this machine, where ``data-stack cache``
    lists it; and the text of an open file that only the program can read is kept in memory.

    Columns and dtypes are inferred from all lines: int64, float64, bool, text; lists of numbers are
    arrays, other lists and objects are lists and dicts. Lists and objects whose keys or types
    differ from line to line are as they are in the file: no key is added, no number changed. A null
    or missing key of a line is None. Text that looks like a time stays text.

    Args:
        file: as for :func:`data_stack.from_csv`.
        target: the column of the target.
        dtypes: as for :func:`data_stack.from_csv`, for integers beyond int64 (``"uint64"``), and
            times (``"timestamp_ntz"``). ``str`` makes text of numbers, with the digits of the file,
            and of other values; ``"json"`` keeps values of any types as they are.
        filters: as for :func:`data_stack.from_csv`.
        columns: as for :func:`data_stack.from_csv`. Other keys may have values of any types.

    Raises:
        DatasetFileCorruptError: a line is not a JSON object or has a key twice, a key has values of
            several types, or a value does not fit its dtype; the message names the line.
        ConfigError: a column or dtype does not exist.
        RequestLimitError: a line, or the table of all different keys, would take more memory than a
            request may.
    """
    types = types_of_json(dtypes)
    selection = _Selection(columns, target, filters)
    rows = open_json_rows(file, types, selection.columns_to_read)

    recipe_options: dict[str, Any] = {}
    if columns is not None:
        recipe_options["columns"] = selection.columns_of_samples
    read_from = None
    if selection.predicate is None:
        read_from = _recipe_of(file, rows.text.sha256, "from_jsonl", recipe_options, dtypes)

    chosen_rows = selection.apply(rows, rows.text.name)
    return _present(chosen_rows, rows.text, target, read_from)


# A recipe names the function that reads its table; these are the ones that it may name.
READERS.update(from_csv=from_csv, from_jsonl=from_jsonl)


# ---------------------------------------------------------------------- columns and rows


def _present(
    rows: TableRows, text: IndexedText, target: str | None, read_from: Mapping[str, Any] | None
) -> DatasetIteratorIF:
    """Return the rows of a file as dict samples: those of a small file as a table in memory.

    Args:
        rows: the chosen rows.
        text: the file.
        target: the column of the target.
        read_from: what a recipe says of the table.
    """
    if text.n_bytes > MAX_TABLE_BYTES:
        return iterator_of_rows(rows, text.name, target, read_from)
    cells = rows.read(None, rows.schema.names)
    table = pa.table(cells, schema=rows.schema)
    return iterator_of_table(
        table, text.name, target, read_from, rows.json_columns, rows.stored_rows
    )


class _Selection:
    """The columns and rows of a table that a user chose.

    Args:
        columns: the columns that the user chose; None for all.
        target: the column of the target.
        filters: which rows, as of :func:`from_csv`.

    Attributes:
        columns_of_samples: the columns that samples have; None for all.
        columns_to_read: the columns that samples have, and those that the filters need; None for
            all.
        predicate: which rows to keep; None for all.

    Raises:
        ConfigError: the filters are invalid, or ``columns`` is no list of names.
    """

    def __init__(self, columns: Sequence[str] | None, target: str | None, filters: Any) -> None:
        self.predicate: Predicate | None = None
        if filters is not None:
            self.predicate = as_predicate(filters)
        self.columns_of_samples: list[str] | None = None
        self.columns_to_read: list[str] | None = None
        if columns is None:
            return
        names = list_columns(columns)
        if not all(isinstance(name, str) for name in names):
            raise ConfigError(f"columns must be a list of names, got {columns!r:.80}")
        if target is not None:
            names.append(target)
        if not names:
            raise ConfigError("samples need at least one column; columns=[] selects none")
        self.columns_of_samples = list(dict.fromkeys(names))
        if self.predicate is not None:
            names.extend(self.predicate.fields)
        self.columns_to_read = list(dict.fromkeys(names))

    def apply(self, rows: TableRows, name: str) -> TableRows:
        """Return the chosen rows and columns of a table.

        Args:
            rows: the table, with the columns to read.
            name: the name of the table for messages.
        """
        if self.predicate is None:
            # The columns that were read are those of the samples.
            return rows
        names = rows.schema.names
        if self.columns_of_samples is not None:
            names = [column for column in names if column in self.columns_of_samples]
        return _filter_rows(rows, names, name, self.predicate)


def _filter_rows(
    rows: TableRows, columns: Sequence[str], name: str, predicate: Predicate
) -> TableRows:
    """Return the rows of a table in a file for which a predicate holds; all rows are read once.

    Args:
        rows: the table.
        columns: the columns that samples have.
        name: the name of the table for messages.
        predicate: which rows.

    Raises:
        ConfigError: the table lacks a column of the predicate.
    """
    names = rows.schema.names
    _check_fields(predicate, name, names)
    chosen_positions = []
    nullable: set[str] = set()
    for start in range(0, len(rows), _ROWS_TO_FILTER):
        positions = np.arange(start, min(start + _ROWS_TO_FILTER, len(rows)))
        cells = rows.read(positions, names)
        values = {
            field: ArrowColumn(cells[field], rows.schema.field(field)).read(None)
            for field in predicate.fields
        }
        mask = predicate.mask(values)
        chosen_positions.append(positions[mask])
        for column in set(rows.nullable) - nullable:
            if cells[column].filter(pa.array(mask)).null_count:
                nullable.add(column)
    positions = np.concatenate([np.empty(0, np.int64), *chosen_positions])
    return ChosenRows(rows, positions, nullable, columns)


def _check_fields(predicate: Predicate, name: str, columns: Sequence[str]) -> None:
    """Check that a table has the columns of a predicate.

    Raises:
        ConfigError: it lacks one.
    """
    for field in predicate.fields:
        if field not in columns:
            suggestion = did_you_mean(field, columns)
            raise ConfigError(
                f"{name!r} has no column {field!r:.80} for filters{suggestion}; "
                f"it has {', '.join(columns)!s:.1000}"
            )


# ---------------------------------------------------------------------- recipes


def _recipe_of(
    file: Any,
    sha256: str | None,
    function: str,
    options: dict[str, Any],
    dtypes: Mapping[str, Any] | None,
) -> dict[str, Any] | None:
    """Return what a recipe says of a table; None if ``file`` is no path.

    Args:
        file: the argument of the function.
        sha256: the digest of the file.
        function: the name of the function.
        options: its other arguments.
        dtypes: its argument ``dtypes``.
    """
    if not is_path_or_url(file) or scheme_of(file) is not None:
        return None
    names_of_dtypes = {name: _name_of_dtype(dtype) for name, dtype in (dtypes or {}).items()}
    return {
        "path": os.fspath(file),
        "sha256": sha256,
        "function": function,
        "options": {"dtypes": names_of_dtypes, **options},
    }


def _name_of_dtype(dtype: Any) -> Any:
    """Return a dtype as plain data."""
    if isinstance(dtype, pa.DataType):
        return describe_type(dtype)
    if isinstance(dtype, (str, Mapping)):
        return dtype
    return np.dtype(dtype).name
