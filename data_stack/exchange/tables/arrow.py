"""Arrow tables, CSV files, JSON lines as samples."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import os
import re
from collections.abc import Collection, Iterator, Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.exchange.arrays import with_target
from data_stack.exchange.tables.table import (
    READERS,
    ArrowColumn,
    NamedColumns,
    Origin,
    TableIterator,
    cells_of,
    check_names,
)
from data_stack.formats.parquet.types import arrow_type_named, arrow_type_of_dtype, check_dtype
from data_stack.io.archives.streams import compression_of, open_decompressed
from data_stack.io.location import is_path
from data_stack.io.positional import PositionalFile
from data_stack.io.url import scheme_of
from data_stack.util.program_lines import warn_program
from data_stack.util.suggestions import did_you_mean
from data_stack.util.untrusted_text import parse_json

_HEXADECIMAL = re.compile(rb"0\0{0,3}[xX]")  # zeros between them in UTF-16 and UTF-32
_UNREADABLE = (pa.ArrowException, TypeError, ValueError, LookupError, OverflowError, RecursionError)


def from_arrow(table: Any, *, target: str | None = None) -> DatasetIteratorIF:
    """The rows of a table of Arrow as dict samples; values are made when they are read.

    Nothing is copied, except lists of fixed size within such lists if the table is a slice.

    Numbers, bools, dates and times keep their dtype; a time with a zone is the instant in UTC. Text, bytes, decimals, structs
    (dicts) and lists of lists become Python objects. A list of numbers is an array; a tensor or list of fixed size is an array of
    that shape. A null is None, and its column an array of objects. Dictionary columns return their values; as the target, they
    return the indices, and the values are the meta's ``class_names``.

    Args:
        table: a ``pyarrow.Table`` or ``RecordBatch``; or an object with ``__arrow_c_stream__``, such as a ``RecordBatchReader``
            or a relation of DuckDB, which is read to its end.
        target: the column of the target.

    Raises:
        ConfigError: ``table`` is not a table, a column does not exist or has an unsupported type, or two have the same name.
    """
    try:
        read = table if isinstance(table, pa.Table) else pa.table(table)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"from_arrow() expects an Arrow table, got {type(table).__name__}: {error!s:.200}"
        ) from error
    return iterator_of_table(read, "arrow", target)


def iterator_of_table(
    table: pa.Table, source: str, target: str | None, read_from: Mapping[str, Any] | None = None
) -> DatasetIteratorIF:
    """The rows of a table as dict samples, with a meta if there is a target; ``read_from`` as for TableIterator."""
    check_names(table.column_names)
    columns = {
        each.name: ArrowColumn(table.column(each.name), each, as_codes=each.name == target)
        for each in table.schema
    }
    class_names = columns[target].class_names if target in columns else None
    return with_target(
        TableIterator(columns, read_from), source, list(columns), target, class_names
    )


def to_arrow(
    iterator: Any, *, lazy: bool = False, schema: pa.Schema | None = None
) -> pa.Table | pa.RecordBatchReader:
    """All samples as a ``pyarrow.Table``.

    Columns keep the types of their Arrow, Parquet, pandas or polars source if only rows and columns were selected since;
    otherwise types are inferred from the values. Arrays of numbers of one shape become (nested) lists of fixed size, arrays of
    different shapes, without elements or of text lists; complex numbers and matrices of times become bytes of ``.npy``. None and
    NaT become null, NaN stays.

    Args:
        iterator: any iterator; see :class:`~data_stack.exchange.tables.table.NamedColumns` for the names of its columns.
        lazy: return a ``pyarrow.RecordBatchReader`` that reads a few MiB at a time, for ``pyarrow.dataset.write_dataset``, DuckDB
            and others. Types are then inferred from the first few MiB.
        schema: a ``pyarrow.Schema`` with the types of columns, instead of inferred ones. No value changes: one that does not fit
            its type, such as 1.5 as int64, noon as date32 or text as bytes, is an error.

    Raises:
        ConfigError: a column holds values of several types, or of one that Arrow lacks, or a value does not fit its type; lazily,
            while the reader is read.
    """
    columns = NamedColumns(iterator)
    known = {**columns.origins, **{field.name: Origin(field) for field in schema or ()}}
    if not lazy:
        return _encode(columns.read(), known, 0)
    blocks = columns.blocks()
    first = _encode(next(blocks), known, 0)
    known = {field.name: known.get(field.name) or Origin(field) for field in first.schema}

    def batches() -> Iterator[pa.RecordBatch]:
        yield from first.to_batches()
        n_rows = first.num_rows
        for block in blocks:
            table = _encode(block, known, n_rows)
            n_rows += table.num_rows
            yield from table.to_batches()

    return pa.RecordBatchReader.from_batches(first.schema, batches())


def _encode(columns: dict[str, Any], origins: dict[str, Origin | None], first_row: int) -> pa.Table:
    cells = {}
    fields = []
    for name, values in columns.items():
        origin = origins.get(name)
        cells[name] = cells_of(values, name, origin, first_row=first_row)
        known = None if origin is None else origin.field
        metadata = None if known is None else known.metadata
        fields.append(pa.field(name, cells[name].type, metadata=metadata))
    return pa.table(cells, pa.schema(fields))


def from_csv(
    file: Any,
    *,
    target: str | None = None,
    dtypes: Mapping[str, Any] | None = None,
    delimiter: str = ",",
    encoding: str = "utf-8",
    missing: Collection[str] = ("",),
) -> DatasetIteratorIF:
    """The rows of a CSV file with a header as dict samples; the file is read whole, now.

    The dtype of a column is inferred from all rows: int64, uint64, float64, bool, dates, times, or text; the repr of the table
    and ``column_types`` show it. Integers with a plus sign are float64. A column stays text if numbers would change it: integers
    that int64, uint64 and float64 cannot hold exactly, and ``0x10``. An empty cell is None. Quoted values may have line breaks.

    Args:
        file: a path or URL, a resource, or an open binary file; uncompressed, or compressed by gzip, bzip2, xz or zstd.
        target: the column of the target.
        dtypes: dtypes of some columns, instead of inferred ones: a numpy dtype, or ``"decimal(10,2)"``, ``"timestamp"`` and the
            other type names of Parquet columns. ``str`` keeps ``007`` unchanged.
        delimiter: one character.
        encoding: encoding of the file.
        missing: texts that mean None. Any other text makes a column of numbers a column of text.

    Raises:
        DatasetFileCorruptError: rows differ in their number of columns, a text does not fit its dtype, or the encoding is wrong.
        ConfigError: a column or dtype does not exist, or two columns have the same name.

    Warns:
        UserWarning: the file has one column, whose name contains another delimiter.
    """
    options = {
        "dtypes": dtypes,
        "delimiter": delimiter,
        "encoding": encoding,
        "missing": list(missing),
    }
    name, data, types, read_from = _load(file, dtypes, "from_csv", options)

    hint, read = (
        _delimiter_hint(data, delimiter, encoding),
        functools.partial(_read_csv, data, options),
    )
    try:
        table = read(types)
    except MemoryError:  # Arrow's, which is an ArrowException too
        raise
    except _UNREADABLE as error:
        advice = (
            "; pass another dtype: dtypes={'name': 'str'}" if "conversion" in str(error) else ""
        )
        advice += f"; {hint}" if hint else ""
        raise DatasetFileCorruptError(
            f"{name!r} cannot be read as CSV: {error!s:.300}{advice}"
        ) from error
    check_names(table.column_names)
    if hint:
        warn_program(f"{name!r} has one column, {table.column_names[0]!r:.80}; {hint}")
    if inexact := [
        each
        for each in table.column_names
        if each not in types and _may_be_inexact(table[each], data)
    ]:
        texts = read(dict.fromkeys(inexact, pa.string()), inexact)
        for each in inexact:
            table = table.set_column(
                table.column_names.index(each), each, _exact(table[each], texts[each])
            )
    for field in table.schema:
        if pa.types.is_binary(field.type) and field.name not in types:
            raise DatasetFileCorruptError(
                f"{name!r}, column {field.name!r:.80} is not text in {encoding}"
            )
    return _iterator_of(table, name, target, types, read_from)


def _read_csv(
    data: bytes,
    options: Mapping[str, Any],
    types: Mapping[str, pa.DataType],
    columns: list[str] | None = None,
) -> pa.Table:
    delimiter, encoding, nulls = (options[name] for name in ("delimiter", "encoding", "missing"))
    # types that pyarrow casts from text, but does not read
    cast = {
        name: type_
        for name, type_ in types.items()
        if pa.types.is_decimal256(type_) or pa.types.is_float16(type_)
    }
    table = pa.csv.read_csv(
        pa.BufferReader(data),
        pa.csv.ReadOptions(
            block_size=max(1, len(data)), encoding=encoding
        ),  # pyarrow infers types from the first block
        pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        pa.csv.ConvertOptions(
            column_types={**types, **dict.fromkeys(cast, pa.string())},
            null_values=nulls,
            strings_can_be_null=True,
            include_columns=columns,
        ),
    )
    for name in cast.keys() & {*table.column_names}:
        table = table.set_column(table.column_names.index(name), name, table[name].cast(cast[name]))
    return table


def _delimiter_hint(data: bytes, delimiter: str, encoding: str) -> str:
    """Advice if the only column of the header contains another delimiter; empty otherwise."""
    header = data[: 1 << 16].decode(encoding, "replace").partition("\n")[0]
    other = next((each for each in ",;\t|" if each in header), None)
    return (
        ""
        if delimiter in header or other is None
        else f"if {other!r} separates its values, pass delimiter={other!r}"
    )


def _may_be_inexact(numbers: pa.ChunkedArray, data: bytes) -> bool:
    """Whether pyarrow may have changed numbers of a column."""
    if pa.types.is_floating(numbers.type):
        return pc.any(pc.greater_equal(pc.abs(numbers), float(1 << 53))).as_py() or False
    return pa.types.is_integer(numbers.type) and _HEXADECIMAL.search(data) is not None


def _exact(numbers: pa.ChunkedArray, texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """``numbers`` if they equal the texts, otherwise the texts as uint64 if possible, otherwise the texts."""
    trimmed = pc.utf8_trim_whitespace(texts)
    if pa.types.is_integer(numbers.type):
        return (
            texts if pc.any(pc.match_substring_regex(trimmed, "^[+-]?0[xX]")).as_py() else numbers
        )
    integers = trimmed.filter(pc.match_substring_regex(trimmed, "^[+-]?[0-9]+$"))
    if len(integers) == len(texts) - texts.null_count:
        with contextlib.suppress(pa.ArrowInvalid):
            return trimmed.cast(pa.uint64())
    is_exact = all(
        Decimal(text) == float(text) for text in pc.unique(integers).to_pylist() if len(text) > 15
    )
    return numbers if is_exact else texts


def from_jsonl(
    file: Any, *, target: str | None = None, dtypes: Mapping[str, Any] | None = None
) -> DatasetIteratorIF:
    """The lines of a file of JSON objects as dict samples; the file is read whole, now.

    Columns and dtypes are inferred from all lines: int64, float64, bool, text; lists of numbers are arrays, other lists and
    objects are lists and dicts. A null or missing key is None. Text that looks like a time stays text.

    Args:
        file: as for :func:`data_stack.from_csv`.
        target: the column of the target.
        dtypes: as for :func:`data_stack.from_csv`, for integers beyond int64 (``"uint64"``), and times (``"timestamp_ntz"``).

    Raises:
        DatasetFileCorruptError: a line is not a JSON object, or a key has values of several types.
        ConfigError: a column or dtype does not exist.
    """
    name, data, types, read_from = _load(file, dtypes, "from_jsonl", {"dtypes": dtypes})
    # pyarrow's reader crashes on deeply nested values, and converts text to times and large integers to floats
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(data.split(b"\n"), 1):
        try:
            rows += [parse_json(line, max_bytes=None)] if line.strip() else []
        except _UNREADABLE as error:
            raise DatasetFileCorruptError(
                f"{name!r}, line {number}: invalid JSON: {error!s:.200}"
            ) from error
        if rows and not isinstance(rows[-1], dict):
            raise DatasetFileCorruptError(
                f"{name!r}, line {number}: expected an object {{…}}, got {line[:80]!r}"
            )
    keys = list(dict.fromkeys(key for row in rows for key in row))
    table = pa.table({key: _column(name, key, rows, types.get(key)) for key in keys})
    return _iterator_of(table, name, target, types, read_from)


def _column(name: str, key: str, rows: list[dict[str, Any]], type_: pa.DataType | None) -> pa.Array:
    values = [row.get(key) for row in rows]
    try:
        is_converted = type_ is not None and (
            pa.types.is_temporal(type_) or pa.types.is_string(type_)
        )
        return pa.array(values).cast(type_) if is_converted else pa.array(values, type_)
    except MemoryError:
        raise
    except _UNREADABLE as error:
        why = f"{'are not of one type' if type_ is None else f'do not fit {type_}'}: {error!s:.200}"
        raise DatasetFileCorruptError(
            f"{name!r}, key {key!r:.80}: its values {why}; pass dtypes={{'name': 'uint64'}}"
        ) from error


def _load(
    file: Any, dtypes: Mapping[str, Any] | None, function: str, options: dict[str, Any]
) -> tuple[str, bytes, dict[str, pa.DataType], dict[str, Any] | None]:
    """Name and contents of a file, the types of columns, and the entry of a recipe if ``file`` is a path."""
    opened = PositionalFile(file)
    raw = opened.open_buffered().read()
    data = raw if compression_of(raw[:6]) is None else open_decompressed(io.BytesIO(raw)).read()
    types: dict[str, pa.DataType] = {}
    for name, dtype in (dtypes or {}).items():
        try:
            types[name] = arrow_type_of_dtype(check_dtype(dtype))
        except ConfigError:
            types[name] = arrow_type_named(dtype)
    if not is_path(file) or scheme_of(file) is not None:
        return opened.name, data, types, None
    options["dtypes"] = {
        name: each if isinstance(each, str) else np.dtype(each).name
        for name, each in (dtypes or {}).items()
    }
    sha256 = hashlib.sha256(raw).hexdigest()
    return (
        opened.name,
        data,
        types,
        {"path": os.fspath(file), "sha256": sha256, "function": function, "options": options},
    )


def _iterator_of(
    table: pa.Table, name: str, target: str | None, types: Mapping[str, Any], read_from: Any
) -> DatasetIteratorIF:
    for unknown in types.keys() - {*table.column_names}:
        near, known = did_you_mean(unknown, table.column_names), ", ".join(table.column_names)
        raise ConfigError(
            f"{name!r} has no column {unknown!r:.80} for dtypes{near}; it has {known}"
        )
    return iterator_of_table(table, name, target, read_from)


READERS.update(from_csv=from_csv, from_jsonl=from_jsonl)
