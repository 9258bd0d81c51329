"""Reads the rows of one file: of a table, of JSON, lines of text, or the whole file."""

from __future__ import annotations

import functools
import io
import json
import posixpath
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.parquet import ParquetDataset
from data_stack.formats.text_tables.reading import from_csv, from_jsonl
from data_stack.io.archives import Archive, open_archive
from data_stack.io.archives.archive import read_within_limit
from data_stack.io.archives.decompression import compression_of, open_decompressed
from data_stack.io.archives.tar import looks_like_tar
from data_stack.repository.croissant.column import FILE_PREFIX, JSON_PREFIX, Column
from data_stack.repository.croissant.json_path import find_in_json, parse_path

#: The beginning of a file that tells its compression, and of a tar archive its first header.
_COMPRESSION_BYTES = 6
_TAR_HEADER_BYTES = 512

_LINES = FILE_PREFIX + "lines"
_LINE_NUMBERS = FILE_PREFIX + "lineNumbers"
_CONTENT = FILE_PREFIX + "content"


def iterate_rows(
    node: Any, columns: Sequence[Column], path: str, stream: Any
) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a file; the plan has checked that it is read in one way.

    Args:
        node: the FileObject or FileSet, which says the format.
        columns: that are read.
        path: of the file, for messages.
        stream: the file, at its start.

    Yields:
        Values by the keys of the columns; properties of the file, such as its name, are not among
        them.

    Raises:
        DatasetFileCorruptError: the file is damaged, or of another format.
    """
    formats = " ".join(node.encoding_formats or ())
    keys = [column.key for column in columns]
    json_keys = [key for key in keys if key.startswith(JSON_PREFIX)]
    if any(not key.startswith((FILE_PREFIX, JSON_PREFIX)) for key in keys):
        yield from _rows_of_table(formats, columns, stream)
    elif json_keys:
        is_lines = "lines" in formats or "jsonl" in formats
        yield from _rows_of_json(json_keys, path, stream, is_lines=is_lines)
    elif _LINES in keys or _LINE_NUMBERS in keys:
        text = read_within_limit(_decompress(stream), repr(path))
        for line in text.splitlines():
            yield {_LINES: line}
    elif _CONTENT in keys:
        yield {_CONTENT: read_within_limit(stream, repr(path))}
    else:
        # Only properties of the file are read: a row for each file.
        yield {}


def _rows_of_table(
    formats: str, columns: Sequence[Column], stream: Any
) -> Iterator[Mapping[str, Any]]:
    rows: Any
    if "parquet" in formats:
        rows = ParquetDataset(stream)
    elif "json" in formats:
        rows = from_jsonl(stream)
    else:
        # A column that is declared as text has no numbers, even if all its values look so.
        dtypes = {column.key: column.dtype for column in columns}
        texts = {
            key: str
            for key, dtype in dtypes.items()
            if dtype.kind == "U" and not key.startswith(FILE_PREFIX)
        }
        delimiter = "\t" if "tab-separated" in formats else ","
        rows = from_csv(stream, delimiter=delimiter, dtypes=texts)
    yield from rows


def _rows_of_json(
    keys: Sequence[str], path: str, stream: Any, *, is_lines: bool
) -> Iterator[Mapping[str, Any]]:
    """Yield a row for each match of the paths in a JSON file, or in each of its lines.

    Raises:
        DatasetFileCorruptError: it is not JSON, or the paths have different numbers of matches.
    """
    steps_by_key = {key: parse_path(key.removeprefix(JSON_PREFIX)) for key in keys}
    data = read_within_limit(_decompress(stream), repr(path))
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
    if len({len(of_key) for of_key in matches.values()}) > 1:
        counts = ", ".join(
            f"{key.removeprefix(JSON_PREFIX)!r:.80} {len(of_key)} times"
            for key, of_key in matches.items()
        )
        raise DatasetFileCorruptError(
            f"{path!r} has different numbers of values for one record set: {counts}"
        )


def _decompress(stream: Any) -> Any:
    """Return a stream of the decompressed bytes; the stream itself if it is not compressed."""
    stream.seek(0)
    head = stream.read(_COMPRESSION_BYTES)
    stream.seek(0)
    return open_decompressed(stream) if compression_of(head) else stream


# ---------------------------------------------------------------------- archives


@dataclass(frozen=True, slots=True)
class Member:
    """A file of an archive.

    Attributes:
        name: in the archive.
        open: returns its bytes as a stream, as long as no other member is asked for.
    """

    name: str
    open: Callable[[], Any]


def iterate_members(path: str, stream: Any) -> Iterator[Member]:
    """Yield the files of an archive, sorted by name; a compressed file that is no archive as one.

    A compressed tar can only be read from its start for each file, so it is decompressed first.

    Args:
        path: of the archive.
        stream: the archive.

    Raises:
        ArchiveError: it is damaged, or unpacks to names outside of it.
    """
    with tempfile.TemporaryFile() as unpacked:
        archive_stream: Any = _decompress(stream)
        if archive_stream is not stream:
            shutil.copyfileobj(archive_stream, unpacked)
            archive_stream = unpacked
            unpacked.seek(0)
            is_tar = looks_like_tar(unpacked.read(_TAR_HEADER_BYTES))
            unpacked.seek(0)
            if not is_tar:
                name, _ = posixpath.splitext(posixpath.basename(path))
                yield Member(name, lambda: unpacked)
                return
        with open_archive(archive_stream, strip_parents=True) as archive:
            for name in sorted(archive.names()):
                yield Member(name, functools.partial(_open_member, archive, name))


def _open_member(archive: Archive, name: str) -> io.BytesIO:
    return io.BytesIO(archive.read(name))
