"""CSV and JSON lines as sources of conversions, in bounded memory.

A conversion reads its source at any position, and twice. So the text is copied first, block by block, into a temporary Parquet
file, which takes about as much space in the folder of temporary files as the text.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from data_stack.exception import ConfigError
from data_stack.formats.conversion.format import Source
from data_stack.formats.conversion.parquet_columns import columns_of_parquet, open_parquet
from data_stack.formats.parquet import Field, ParquetWriter, Schema
from data_stack.formats.parquet.inference import infer_schema
from data_stack.formats.text_tables.column_errors import UnknownColumnError
from data_stack.formats.text_tables.csv_table import CSVOptions, CSVTable
from data_stack.formats.text_tables.declared_types import types_of, types_of_json
from data_stack.formats.text_tables.json_table import JsonLinesTable, JsonType, arrow_schema
from data_stack.formats.text_tables.text_file import TextFile
from data_stack.io.location import Location, location_of

#: Rows of CSV are copied in blocks of this size.
_BLOCK_BYTES: Final = 32 << 20


def open_text_table(
    location: Location,
    kind: str,
    columns: Sequence[str] | None,
    optional: Collection[str],
    options: Mapping[str, Any],
) -> Source:
    """The rows of a CSV or JSON lines file, with the types that :func:`data_stack.load` gives them.

    Args:
        location: the file.
        kind: ``"csv"`` or ``"jsonl"``.
        columns: the columns to read; None for all.
        optional: further ones, if they exist.
        options: those of :func:`data_stack.from_csv` or :func:`data_stack.from_jsonl`, without ``filters``.

    Raises:
        As these functions.
    """
    if "filters" in options:
        raise ConfigError(
            "a conversion takes no filters=; convert data_stack.load(path, filters=…), which reads the file into memory"
        )
    wanted = None if columns is None else [*columns, *optional]
    copy = _copy_csv if kind == "csv" else _copy_lines
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="data_stack_"))
        try:
            copy(location, wanted, options, f"{folder}/all")
        except UnknownColumnError as error:
            if wanted is None or error.column not in optional:
                raise
            copy(location, columns, options, f"{folder}/all")
        rows = open_parquet(location_of(f"{folder}/all"))
        return Source(
            location.full_name,
            rows,
            columns_of_parquet(rows),
            {name: name for name in rows.schema.fields},
            resources=stack.pop_all(),
        )


def _file_of(location: Location) -> Any:
    return location.local_file() or location.open()


def _copy_csv(
    location: Location, columns: Sequence[str] | None, options: Mapping[str, Any], target: str
) -> None:
    given = dict(options)
    dtypes = given.pop("dtypes", None)
    text = TextFile(_file_of(location), given.pop("encoding", "utf-8"))
    table = CSVTable(text, CSVOptions(**given), types_of(dtypes), columns)
    schema, tables = table.stream(_BLOCK_BYTES)
    _write(target, infer_schema(schema), tables)


def _copy_lines(
    location: Location, columns: Sequence[str] | None, options: Mapping[str, Any], target: str
) -> None:
    text = TextFile(_file_of(location))
    table = JsonLinesTable(text, types_of_json(options.get("dtypes")), columns)
    types, tables = table.stream()
    fields = [
        Field(field.name, object, (), "json", nullable=True)
        if isinstance(types[field.name], JsonType)
        else field
        for field in infer_schema(arrow_schema(types))
    ]
    _write(target, Schema("lines", fields), tables)


def _write(target: str, schema: Schema, tables: Iterable[Any]) -> None:
    with ParquetWriter(target, schema, compression="lz4") as writer:
        for table in tables:
            writer.append_arrow(table)
