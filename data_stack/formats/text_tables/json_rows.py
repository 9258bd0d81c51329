"""The lines of a file of JSON objects, as rows that are parsed when they are read."""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from data_stack.exception import ConfigError
from data_stack.formats.text_tables.indexed_rows import IndexedRows, error_of_change
from data_stack.formats.text_tables.indexed_text import IndexedText
from data_stack.formats.text_tables.json_cells import MISFIT_ERRORS, NumberWithText, convert_values
from data_stack.formats.text_tables.json_columns import spread_cells
from data_stack.formats.text_tables.json_lines import BLOCK_BYTES
from data_stack.formats.text_tables.json_table import (
    JsonColumns,
    JsonLinesTable,
    has_digits_of_file,
)
from data_stack.formats.text_tables.json_types import JSON, CellType, arrow_schema
from data_stack.formats.text_tables.line_scanner import LineScanner


class JsonRows(IndexedRows):
    """The lines of a file of JSON objects, as rows that are parsed when they are read.

    Args:
        text: the file, whose rows are its lines.
        columns: the columns that all lines have.
        declared: the columns whose types the user has declared.
    """

    block_bytes = BLOCK_BYTES

    #: The type of each column.
    _types: Mapping[str, CellType]

    #: The columns whose values are converted to a declared type, or to JSON text.
    _converted: frozenset[str]

    #: Whether floats keep their text, as a declared type needs it.
    _needs_texts_of_numbers: bool

    def __init__(
        self, text: IndexedText, columns: JsonColumns, declared: Collection[str] = ()
    ) -> None:
        self.schema = arrow_schema(columns.types)
        self.nullable = columns.nullable
        self.json_columns = frozenset(
            name for name, type_ in columns.types.items() if type_ == JSON
        )
        self.text = text
        self._types = columns.types
        self._converted = self.json_columns.union(declared)
        self._needs_texts_of_numbers = any(
            has_digits_of_file(columns.types[name]) for name in self._converted
        )

    def parse(self, rows: Sequence[bytes], names: Sequence[str]) -> dict[str, list[pa.Array]]:
        objects = self._parse_objects(rows)
        return {name: [self._cells_of(objects, name)] for name in names}

    def _parse_objects(self, lines: Sequence[bytes]) -> list[dict[str, Any]]:
        """Return the objects of lines.

        Raises:
            DatasetFileCorruptError: a line is not an object now.
        """
        # As one array: a call for each line takes twice the time. Without further checks, which
        # all lines have passed when the columns were inferred.
        text = b"[" + b",".join(lines) + b"]"
        parse_float = None
        if self._needs_texts_of_numbers:
            parse_float = NumberWithText.parse
        try:
            objects: Any = json.loads(str(text, "utf-8"), parse_float=parse_float)
        except (ValueError, RecursionError) as error:
            raise error_of_change(self.text.name) from error
        if len(objects) != len(lines) or not all(type(row) is dict for row in objects):
            raise error_of_change(self.text.name)
        return objects  # type: ignore[no-any-return]  # a list of dicts

    def _cells_of(self, objects: Sequence[dict[str, Any]], name: str) -> pa.Array:
        """Return the cells of a column in some rows."""
        positions = None
        try:
            values = [row[name] for row in objects]
        except KeyError:
            # Some rows lack the key.
            positions = np.array([name in row for row in objects]).nonzero()[0]
            values = [row[name] for row in objects if name in row]
        type_ = self._types[name]
        try:
            if name in self._converted:
                cells = convert_values(values, type_)
            else:
                cells = pa.array(values, type_)
            return spread_cells(cells, positions, len(objects))
        except MemoryError:
            raise
        except MISFIT_ERRORS as error:
            raise error_of_change(self.text.name) from error


def open_json_rows(
    file: Any,
    types: Mapping[str, CellType],
    columns: Collection[str] | None,
    *,
    block_bytes: int = BLOCK_BYTES,
) -> JsonRows:
    """Open a file of JSON lines by an index of its lines, and infer the types of its columns.

    Args:
        file: as for :func:`data_stack.from_csv`.
        types: types of some columns, instead of inferred ones.
        columns: the columns to read; None for all.
        block_bytes: the size of the text that is parsed at once.

    Raises:
        DatasetFileCorruptError, ConfigError, RequestLimitError: as for
            :meth:`JsonLinesTable.infer`.
    """
    text = IndexedText(file, LineScanner)
    options = _describe_options(types, columns)
    inferred = None
    if text.kept is not None and text.index is not None:
        inferred = _load_columns(text, text.kept.load_columns(options))
    if inferred is None:
        inferred = JsonLinesTable(text, types, columns, block_bytes=block_bytes).infer()
        if text.kept is not None:
            text.kept.store_columns(options, _describe_columns(text, inferred))
    if not inferred.types:
        raise ConfigError(
            f"{text.name!r} has no columns: it needs a line with a JSON object that has a key"
        )
    return JsonRows(text, inferred, types)


# ---------------------------------------------------------------------- kept columns


def _describe_options(types: Mapping[str, CellType], columns: Collection[str] | None) -> Any:
    """Return the options that the columns of a file depend on, as plain data."""
    chosen_columns = None if columns is None else sorted(columns)
    return ["jsonl", {name: str(type_) for name, type_ in types.items()}, chosen_columns]


def _describe_columns(text: IndexedText, columns: JsonColumns) -> Any:
    """Return columns as plain data, with the digest of the file."""
    schema = arrow_schema(columns.types)
    return {
        "sha256": text.sha256,
        "n_rows": columns.n_rows,
        "schema": base64.b64encode(schema.serialize()).decode(),
        "json": [name for name, type_ in columns.types.items() if type_ == JSON],
        "nullable": sorted(columns.nullable),
    }


def _load_columns(text: IndexedText, description: Any) -> JsonColumns | None:
    """Return the columns that :func:`_describe_columns` described, and note the digest of the file.

    Returns:
        None if the description is None, or not that of the rows of the text.
    """
    if description is None or description["n_rows"] != text.n_rows:
        return None
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(description["schema"])))
    types: dict[str, CellType] = {}
    for field in schema:
        types[field.name] = JSON if field.name in description["json"] else field.type
    text.sha256 = description["sha256"]
    return JsonColumns(types, frozenset(description["nullable"]), description["n_rows"])
