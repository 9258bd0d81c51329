"""Reads the rows of a document's files: tables, JSON, lines and whole files, also in archives."""

from __future__ import annotations

import fnmatch
import glob
import io
import itertools
import json
import posixpath
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.parquet import ParquetDataset
from data_stack.formats.text_tables.reading import from_csv, from_jsonl
from data_stack.io.archives import open_archive
from data_stack.io.archives.archive import read_within_limit
from data_stack.io.archives.decompression import compression_of, open_decompressed
from data_stack.io.archives.tar import looks_like_tar
from data_stack.repository.croissant.plans import Column, Join, Plan, Plans, globs_of
from data_stack.repository.croissant.values import find_in_json, parse_path

#: Rows that are converted together, and those of whole files.
_BATCH_ROWS, _BATCH_FILES = 4096, 128
#: Limits of a join: rows made of one row, and of all rows.
_MAX_JOINED_PER_ROW, _MAX_JOINED = 1000, 1_000_000
_ARCHIVES: Final = re.compile(r"zip|x-g?tar|x-xz|zstd")
_Files = Iterator[tuple[str, Any]]
#: A row of a record set before it is converted: the path of its file, and values by table and key.
_Row = tuple[str, dict[tuple[str, str], Any]]


class RowReader:
    """Reads the rows of record sets.

    Args:
        plans: of the document.
        raw: the resources.
        places: names and paths of the resources of each FileObject and FileSet that is in no other, by its identifier.
    """

    def __init__(
        self, plans: Plans, raw: Mapping[str, Any], places: Mapping[str, Sequence[tuple[str, str]]]
    ) -> None:
        self._plans, self._raw, self._places = plans, raw, places

    def read(self, plan: Plan) -> Iterator[list[tuple[Any, ...]]]:
        """The rows of a record set in batches; each row has the values of its columns in their order.

        Raises:
            DatasetFileCorruptError: a file differs from its description in the document.
            ArchiveError: an archive is damaged, or unpacks to names outside of it.
        """
        rows = (
            self._rows_of_table(plan, plan.table, _taken(plan, plan.table))
            if plan.table is not None
            else iter(())
        )
        for join in plan.joins:
            rows = self._join(plan, join, rows)
        has_files = any(
            column.key == "file:content" or column.dtype.kind == "S" for column in plan.columns
        )
        n_records = 0
        for batch in _batches(rows, _BATCH_FILES if has_files else _BATCH_ROWS):
            converted = [_convert(column, batch, n_records) for column in plan.columns]
            n_records += len(batch)
            yield list(zip(*converted, strict=True))

    def _join(self, plan: Plan, join: Join, rows: Iterator[_Row]) -> Iterator[_Row]:
        table, matches = str(join.right.table), dict[Any, list[dict[tuple[str, str], Any]]]()
        columns, n_read, n_joined = _taken(plan, table), 0, 0
        for batch in _batches(self._rows_of_table(plan, table, columns)):
            n_read += len(batch)
            for key, (_, row) in zip(_convert(join.right, batch), batch, strict=True):
                if key is not None:
                    matches.setdefault(key, []).append(row)
        nothing = [dict.fromkeys((table, column.key) for column in columns)]
        for batch in _batches(rows):
            n_read += len(batch)
            for key, (path, row) in zip(_convert(join.left, batch), batch, strict=True):
                found = matches.get(key, nothing)
                n_joined += len(found)
                if n_joined > max(_MAX_JOINED, _MAX_JOINED_PER_ROW * n_read):
                    limit = f"more than {n_joined - 1:,} rows, made of {n_read:,}, as its values repeat too often"
                    raise DatasetFileCorruptError(
                        f"the join of {table!r} by {join.left.where} has {limit}; ask its publisher"
                    )
                for each in found:
                    yield path, {**row, **each}

    def _rows_of_table(self, plan: Plan, table: str, columns: Sequence[Column]) -> Iterator[_Row]:
        """The rows of a table with the values of some columns."""
        keys = {column.key for column in columns}
        for path, row in self._rows_by_key(plan, table, columns):
            try:
                yield path, {(table, key): row[key] for key in keys}
            except KeyError as error:
                column = next(each for each in columns if each.key == error.args[0])
                what = column.key.removeprefix("file:")
                raise DatasetFileCorruptError(
                    f"{path!r} has no {what!r:.80}, but {column.where} needs it"
                ) from error

    def _rows_by_key(
        self, plan: Plan, table: str, columns: Sequence[Column]
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        if table == plan.identifier:
            yield from (("the document", row) for row in plan.rows)
        elif table in self._plans.all and table not in self._plans.files:
            other = self._plans.all[table]
            for batch in self.read(other):
                for values in batch:
                    yield (
                        f"record set {table}",
                        {
                            column.uuid: value
                            for column, value in zip(other.columns, values, strict=True)
                        },
                    )
        else:
            node = self._plans.files[table]
            for path, stream in self._files(node):
                about = {
                    "file:filename": posixpath.basename(path),
                    "file:filepath": path,
                    "file:fullpath": path,
                }
                for number, row in enumerate(_rows_of_file(node, columns, path, stream)):
                    yield path, {**about, "file:lineNumbers": number, **row}

    def _files(self, node: Any) -> _Files:
        """Path and stream of each file of a FileObject or FileSet."""
        if node.uuid in self._places:
            for name, path in self._places[node.uuid]:
                with self._raw[name] as resource:
                    yield path, resource
            return
        includes = globs_of(node, "includes") or [
            glob.escape(posixpath.normpath(node.content_url or ""))
        ]
        excludes = globs_of(node, "excludes")
        is_found = False
        for container in containers_of(node, self._plans.files):
            is_archive = _ARCHIVES.search(" ".join(container.encoding_formats or ())) is not None
            for path, stream in self._files(container):
                for member, opened in _members(path, stream) if is_archive else [(path, stream)]:
                    if matches(member, includes) and not matches(member, excludes):
                        is_found = True
                        yield member, opened() if is_archive else opened
        if not is_found:
            raise DatasetFileCorruptError(
                f"no file matches {', '.join(includes)!r:.200} of {node.uuid!r}"
            )


def containers_of(node: Any, files: Mapping[str, Any]) -> list[Any]:
    """The FileObjects and FileSets that contain one."""
    return [files[each if isinstance(each, str) else each.uuid] for each in node.contained_in or ()]


def matches(path: str, patterns: Iterable[str]) -> bool:
    """Whether a path matches one of the globs of a document, whose ``*`` also stands for ``/``."""
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


def _taken(plan: Plan, table: str | None) -> list[Column]:
    """The columns of a table that a record set reads, and its join keys."""
    joined = [column for join in plan.joins for column in (join.left, join.right)]
    return [column for column in (*plan.columns, *joined) if column.table == table]


def _batches(rows: Iterator[_Row], n_rows: int = _BATCH_FILES) -> Iterator[list[_Row]]:
    return iter(lambda: list(itertools.islice(rows, n_rows)), [])


def _convert(column: Column, batch: Sequence[_Row], first_record: int | None = None) -> list[Any]:
    values = [
        row[column.table, column.key] if column.table is not None else column.value
        for _, row in batch
    ]
    return column.convert(values, [path for path, _ in batch], first_record)


def _rows_of_file(
    node: Any, columns: Sequence[Column], path: str, stream: Any
) -> Iterator[Mapping[str, Any]]:
    kinds, keys = (
        " ".join(node.encoding_formats or ()),
        {column.key: column.dtype for column in columns},
    )
    in_json = [key for key in keys if key.startswith("json:")]
    if any(not key.startswith(("file:", "json:")) for key in keys):
        if "parquet" in kinds:
            yield from ParquetDataset(stream)
        elif "json" in kinds:
            yield from from_jsonl(stream)
        else:
            texts = {
                key: str
                for key, dtype in keys.items()
                if dtype.kind == "U" and not key.startswith("file:")
            }
            yield from from_csv(
                stream, delimiter="\t" if "tab-separated" in kinds else ",", dtypes=texts
            )
    elif in_json:
        yield from _rows_of_json(
            in_json, path, stream, is_lines="lines" in kinds or "jsonl" in kinds
        )
    elif keys.keys() & {"file:lines", "file:lineNumbers"}:
        yield from (
            {"file:lines": line}
            for line in read_within_limit(_decompress(stream), repr(path)).splitlines()
        )
    else:
        yield (
            {"file:content": read_within_limit(stream, repr(path))}
            if "file:content" in keys
            else {}
        )


def _rows_of_json(
    keys: Sequence[str], path: str, stream: Any, *, is_lines: bool
) -> Iterator[Mapping[str, Any]]:
    """A row for each match of the paths in a JSON file, or in each of its lines."""
    paths = {key: parse_path(key.removeprefix("json:")) for key in keys}
    data = read_within_limit(_decompress(stream), repr(path))
    try:
        values = (
            [json.loads(line) for line in data.splitlines() if line.strip()]
            if is_lines
            else [json.loads(data)]
        )
    except (ValueError, RecursionError) as error:
        raise DatasetFileCorruptError(f"{path!r} is not valid JSON: {error!s:.200}") from error
    for value in values:
        found = {key: find_in_json(value, steps) for key, steps in paths.items()}
        if len({len(each) for each in found.values()}) > 1:
            counts = ", ".join(
                f"{key.removeprefix('json:')!r:.80} {len(each)} times"
                for key, each in found.items()
            )
            raise DatasetFileCorruptError(
                f"{path!r} has different numbers of values for one record set: {counts}"
            )
        yield from (dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True))


def _decompress(stream: Any) -> Any:
    stream.seek(0)
    head = stream.read(6)
    stream.seek(0)
    return open_decompressed(stream) if compression_of(head) else stream


def _members(path: str, stream: Any) -> _Files:
    """Name of each file of an archive in their order, and a function that reads it.

    A compressed tar can only be read from its start for each file, so it is decompressed first.
    """
    with tempfile.TemporaryFile() as unpacked:
        opened = _decompress(stream)
        if opened is not stream:
            shutil.copyfileobj(opened, unpacked)
            opened = unpacked
            opened.seek(0)
            is_tar = looks_like_tar(opened.read(512))
            opened.seek(0)
            if not is_tar:
                yield posixpath.splitext(posixpath.basename(path))[0], lambda: opened
                return
        with open_archive(opened, strip_parents=True) as archive:
            for name in sorted(archive.names()):
                yield name, lambda name=name: io.BytesIO(archive.read(name))
