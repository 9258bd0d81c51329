"""CSV and JSON lines as sources of conversions, in bounded memory.

A conversion reads its source at any position, and twice. So the text is copied first, block by
block, into a temporary Parquet file, which takes about as much space in the folder of temporary
files as the text.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from data_stack.dataset.iterator import ColumnKey
from data_stack.exception import ConfigError
from data_stack.formats.column_source import ColumnSource
from data_stack.formats.conversion.parquet_columns import columns_of_parquet, open_parquet
from data_stack.formats.format import ColumnChoice
from data_stack.formats.parquet import Field, ParquetWriter, Schema
from data_stack.formats.parquet.inference import infer_schema
from data_stack.formats.text_tables.column_errors import UnknownColumnError
from data_stack.formats.text_tables.csv_options import CSVOptions
from data_stack.formats.text_tables.csv_table import CSVTable
from data_stack.formats.text_tables.declared_types import types_of, types_of_json
from data_stack.formats.text_tables.json_table import JsonLinesTable
from data_stack.formats.text_tables.json_types import JsonType, arrow_schema
from data_stack.formats.text_tables.text_file import TextFile
from data_stack.io.location import Location, location_of

#: Rows of CSV are copied in blocks of this size.
_BLOCK_BYTES: Final = 32 << 20

#: Copies some columns of a file into a folder, as
#: :meth:`~data_stack.formats.text_table_format.TextTableFormat.copy` does.
Copy = Callable[[Location, "Sequence[str] | None", Any, str], None]


def open_text_table(
    location: Location, copy: Copy, columns: ColumnChoice, options: Any
) -> ColumnSource:
    """Open a CSV or JSON lines file with the types that :func:`data_stack.load` gives its columns.

    Args:
        location: the file.
        copy: copies the file into a folder of Parquet files.
        columns: the columns to read.
        options: the options of the format, without ``filters``.

    Raises:
        ConfigError: a column does not exist, or there are filters.
        DatasetFileCorruptError: the file is damaged.
    """
    if options.filters is not None:
        raise ConfigError(
            "a conversion takes no filters=; convert data_stack.load(path, filters=…)"
        )
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="data_stack_"))
        target = f"{folder}/all"
        _copy_chosen(location, copy, columns, options, target)
        rows = open_parquet(location_of(target))
        schema = columns_of_parquet(rows)
        keys: dict[str, ColumnKey] = {name: name for name in rows.schema.fields}
        # The temporary folder is removed when the source is closed.
        return ColumnSource(location.full_name, rows, schema, keys, resources=stack.pop_all())


def _copy_chosen(
    location: Location,
    copy: Copy,
    columns: ColumnChoice,
    options: Any,
    target: str,
) -> None:
    """Copy the required columns of a file, and the optional ones if they exist."""
    if columns.required is None:
        copy(location, None, options, target)
        return
    try:
        copy(location, [*columns.required, *columns.optional], options, target)
        return
    except UnknownColumnError as error:
        if error.column not in columns.optional:
            raise
    copy(location, columns.required, options, target)


def copy_csv(
    file: Any,
    columns: Sequence[str] | None,
    target: str,
    *,
    options: CSVOptions,
    dtypes: Mapping[str, Any] | None,
    encoding: str,
) -> None:
    """Copy a CSV file into a folder of Parquet files.

    Args:
        file: the path of the file, or an open resource.
        columns: the columns to copy; None for all.
        target: the path of the folder.
        options: how the file is written.
        dtypes: as for :func:`data_stack.from_csv`.
        encoding: as for :func:`data_stack.from_csv`.
    """
    text = TextFile(file, encoding)
    table = CSVTable(text, options, types_of(dtypes), columns, block_bytes=_BLOCK_BYTES)
    schema, blocks = table.stream()
    _write(target, infer_schema(schema), blocks)


def copy_json_lines(
    file: Any,
    columns: Sequence[str] | None,
    target: str,
    *,
    dtypes: Mapping[str, Any] | None,
) -> None:
    """Copy a file of JSON lines into a folder of Parquet files.

    The arguments are those of :func:`copy_csv`.
    """
    table = JsonLinesTable(TextFile(file), types_of_json(dtypes), columns)
    types, blocks = table.stream()
    fields = []
    for field in infer_schema(arrow_schema(types)):
        if isinstance(types[field.name], JsonType):
            fields.append(Field(field.name, object, (), "json", nullable=True))
        else:
            fields.append(field)
    _write(target, Schema("lines", fields), blocks)


def _write(target: str, schema: Schema, blocks: Iterable[Any]) -> None:
    """Write tables of Arrow into a folder of Parquet files."""
    with ParquetWriter(target, schema, compression="lz4") as writer:
        for block in blocks:
            writer.append_arrow(block)
