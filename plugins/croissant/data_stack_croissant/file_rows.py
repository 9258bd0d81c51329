"""Reads the rows of one file: of a table, of JSON, lines of text, or the whole file."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import data_stack
from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.parquet import ParquetDataset
from data_stack.io.archives import read_within_limit
from data_stack_croissant.decompression import decompress_if_needed
from data_stack_croissant.json_path import find_in_json, parse_path
from data_stack_croissant.record_column import FILE_PREFIX, JSON_PREFIX, RecordColumn

_LINES = f"{FILE_PREFIX}lines"
_LINE_NUMBERS = f"{FILE_PREFIX}lineNumbers"
_CONTENT = f"{FILE_PREFIX}content"


def file_properties(path: str) -> dict[str, str]:
    """Return the values of a file's path by the keys of columns."""
    return {
        f"{FILE_PREFIX}filename": posixpath.basename(path),
        f"{FILE_PREFIX}filepath": path,
        f"{FILE_PREFIX}fullpath": path,
    }


def iterate_rows(
    node: Any, columns: Sequence[RecordColumn], path: str, stream: Any
) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a file.

    That the columns read the file in one way is checked before.

    Args:
        node: the FileObject or FileSet, which says the format.
        columns: that are read.
        path: of the file, for messages.
        stream: the file, at its start.

    Yields:
        Values by the keys of the columns; :func:`file_properties` are not among them.

    Raises:
        DatasetFileCorruptError: the file is damaged, or of another format.
    """
    formats = " ".join(node.encoding_formats or ())
    keys = [column.key for column in columns]
    json_keys = [key for key in keys if key.startswith(JSON_PREFIX)]
    has_table_keys = any(not key.startswith((FILE_PREFIX, JSON_PREFIX)) for key in keys)
    if has_table_keys:
        yield from _rows_of_table(formats, columns, stream)
    elif json_keys:
        is_lines = "lines" in formats or "jsonl" in formats
        yield from _rows_of_json(json_keys, path, stream, is_lines=is_lines)
    elif _LINES in keys or _LINE_NUMBERS in keys:
        text = read_within_limit(decompress_if_needed(stream), repr(path))
        for line in text.splitlines():
            yield {_LINES: line}
    elif _CONTENT in keys:
        yield {_CONTENT: read_within_limit(stream, repr(path))}
    else:
        # Only properties of the file are read: a row for each file.
        yield {}


def _rows_of_table(
    formats: str, columns: Sequence[RecordColumn], stream: Any
) -> Iterator[Mapping[str, Any]]:
    rows: Any
    if "parquet" in formats:
        rows = ParquetDataset(stream)
    elif "json" in formats:
        rows = data_stack.from_jsonl(stream)
    else:
        # A column that is declared as text has no numbers, even if all its values look so.
        dtypes = {column.key: column.dtype for column in columns}
        text_columns = {
            key: str
            for key, dtype in dtypes.items()
            if dtype.kind == "U" and not key.startswith(FILE_PREFIX)
        }
        delimiter = "\t" if "tab-separated" in formats else ","
        rows = data_stack.from_csv(stream, delimiter=delimiter, dtypes=text_columns)
    yield from rows


def _rows_of_json(
    keys: Sequence[str], path: str, stream: Any, *, is_lines: bool
) -> Iterator[Mapping[str, Any]]:
    """Yield a row for each match of the paths in a JSON file, or in each of its lines.

    Args:
        keys: of columns, with the paths.
        path: of the file, for messages.
        stream: the file.
        is_lines: whether each line of the file is a JSON document.

    Raises:
        DatasetFileCorruptError: it is not JSON, or the paths have different numbers of matches.
    """
    steps_by_key = {key: parse_path(key.removeprefix(JSON_PREFIX)) for key in keys}
    data = read_within_limit(decompress_if_needed(stream), repr(path))
    try:
        if is_lines:
            values = [json.loads(line) for line in data.splitlines() if line.strip()]
        else:
            values = [json.loads(data)]
    except (ValueError, RecursionError) as error:
        raise DatasetFileCorruptError(f"{path!r} is not valid JSON: {error!s:.200}") from error
    for value in values:
        matches = {key: find_in_json(value, steps) for key, steps in steps_by_key.items()}
        _check_equal_numbers(matches, path)
        for row in zip(*matches.values(), strict=True):
            yield dict(zip(matches, row, strict=True))


def _check_equal_numbers(matches: Mapping[str, Sequence[Any]], path: str) -> None:
    """Check that the columns of a JSON document have equal numbers of values.

    Args:
        matches: the values by the keys of columns.
        path: of the file, for messages.
    """
    numbers_of_values = {len(values) for values in matches.values()}
    if len(numbers_of_values) > 1:
        counts = ", ".join(
            f"{key.removeprefix(JSON_PREFIX)!r:.80} {len(values)} times"
            for key, values in matches.items()
        )
        raise DatasetFileCorruptError(
            f"{path!r} has different numbers of values for one record set: {counts}"
        )
