"""Reads the rows of one file."""

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
    """Return what the path of a file says, by the keys of columns that read it."""
    return {
        f"{FILE_PREFIX}filename": posixpath.basename(path),
        f"{FILE_PREFIX}filepath": path,
        f"{FILE_PREFIX}fullpath": path,
    }


def iterate_rows(
    node: Any, columns: Sequence[RecordColumn], path: str, stream: Any
) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a file: of a table, of JSON, of lines of text, or one row for a whole file.

    The columns decide which of these. The caller has checked that they agree.

    Args:
        node: the FileObject or FileSet, which says the format.
        columns: the columns that are read.
        path: path of the file, for messages.
        stream: the file, at its start.

    Yields:
        The values of a row by the keys of the columns, without those of :func:`file_properties`.

    Raises:
        DatasetFileCorruptError: the file is damaged, or of another format.
    """
    formats = " ".join(node.encoding_formats or ())
    keys = [column.key for column in columns]
    json_keys = [key for key in keys if key.startswith(JSON_PREFIX)]
    table_keys = [key for key in keys if not key.startswith((FILE_PREFIX, JSON_PREFIX))]
    if table_keys:
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
    """Yield the rows of a Parquet, JSON Lines, TSV or CSV file.

    Args:
        formats: the media types of the file.
        columns: the columns that are read.
        stream: the file, at its start.
    """
    if "parquet" in formats:
        yield from ParquetDataset(stream)
        return
    if "json" in formats:
        yield from data_stack.from_jsonl(stream)
        return
    # A column that is declared as text has no numbers, even if all its values look so.
    text_columns = {}
    for column in columns:
        if column.dtype.kind == "U" and not column.key.startswith(FILE_PREFIX):
            text_columns[column.key] = str
    delimiter = "\t" if "tab-separated" in formats else ","
    yield from data_stack.from_csv(stream, delimiter=delimiter, dtypes=text_columns)


def _rows_of_json(
    keys: Sequence[str], path: str, stream: Any, *, is_lines: bool
) -> Iterator[Mapping[str, Any]]:
    """Yield a row for each match of the paths in a JSON file, or in each of its lines.

    Args:
        keys: keys of columns, which contain the paths.
        path: path of the file, for messages.
        stream: the file, at its start.
        is_lines: whether each line of the file is a JSON document.

    Raises:
        DatasetFileCorruptError: the file is not JSON, or its paths have different numbers of
            matches.
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
        for values_of_row in zip(*matches.values(), strict=True):
            yield dict(zip(matches, values_of_row, strict=True))


def _check_equal_numbers(matches: Mapping[str, Sequence[Any]], path: str) -> None:
    """Check that the columns of a JSON document have equal numbers of values.

    Args:
        matches: the values of each column by its key.
        path: path of the file, for messages.

    Raises:
        DatasetFileCorruptError: the numbers differ.
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
