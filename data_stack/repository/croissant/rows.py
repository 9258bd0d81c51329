"""Reads the rows of record sets, and joins them."""

from __future__ import annotations

import glob
import itertools
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from data_stack.exception import DatasetFileCorruptError
from data_stack.repository.croissant.column import Column
from data_stack.repository.croissant.file_rows import iterate_members, iterate_rows
from data_stack.repository.croissant.globs import excludes_of, includes_of, matches
from data_stack.repository.croissant.plans import Join, Plan, Plans

#: Rows that are converted together.
_BATCH_ROWS: Final = 4096
#: Rows of whole files that are converted together, and rows that are joined together.
_BATCH_FILES: Final = 128

#: A join may make so many rows of all rows that it reads, or so many of each, whichever is more.
_MAX_JOINED: Final = 1_000_000
_MAX_JOINED_PER_ROW: Final = 1000

_ARCHIVES: Final = re.compile(r"zip|x-g?tar|x-xz|zstd")

_Values: TypeAlias = dict[tuple[str, str], Any]
"""The values of a row by table and key."""


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of a record set before it is converted.

    Attributes:
        path: of its file, for messages.
        values: by table and key.
    """

    path: str
    values: _Values


class RowReader:
    """Reads the rows of record sets.

    Args:
        plans: of the document.
        raw: the resources.
        places: names and paths of the resources of each FileObject and FileSet that is in no other,
            by its identifier.
    """

    def __init__(
        self, plans: Plans, raw: Mapping[str, Any], places: Mapping[str, Sequence[tuple[str, str]]]
    ) -> None:
        self._plans = plans
        self._raw = raw
        self._places = places

    def read(self, plan: Plan) -> Iterator[list[tuple[Any, ...]]]:
        """Yield the rows of a record set in batches.

        Each row has the values of its columns in their order.

        Raises:
            DatasetFileCorruptError: a file differs from its description in the document.
            ArchiveError: an archive is damaged, or unpacks to names outside of it.
        """
        rows: Iterator[_Row] = iter(())
        if plan.table is not None:
            rows = self._rows_of_table(plan, plan.table, _columns_of_table(plan, plan.table))
        for join in plan.joins:
            rows = self._join(plan, join, rows)

        has_files = any(column.reads_files for column in plan.columns)
        n_records = 0
        for batch in _batches(rows, _BATCH_FILES if has_files else _BATCH_ROWS):
            columns = [_convert(column, batch, n_records) for column in plan.columns]
            n_records += len(batch)
            yield list(zip(*columns, strict=True))

    # ------------------------------------------------------------------ joins

    def _join(self, plan: Plan, join: Join, rows: Iterator[_Row]) -> Iterator[_Row]:
        """Yield the rows with the values of the rows of another table that have the same key.

        A row without a partner gets None for these values.
        """
        table = str(join.right.table)
        columns = _columns_of_table(plan, table)
        partners_by_key: dict[Any, list[_Values]] = {}
        n_read = 0
        for batch in _batches(self._rows_of_table(plan, table, columns), _BATCH_FILES):
            n_read += len(batch)
            for key, row in zip(_convert(join.right, batch), batch, strict=True):
                if key is not None:
                    partners_by_key.setdefault(key, []).append(row.values)

        no_partner: list[_Values] = [dict.fromkeys((table, column.key) for column in columns)]
        n_joined = 0
        for batch in _batches(rows, _BATCH_FILES):
            n_read += len(batch)
            for key, row in zip(_convert(join.left, batch), batch, strict=True):
                partners = partners_by_key.get(key, no_partner)
                n_joined += len(partners)
                if n_joined > max(_MAX_JOINED, _MAX_JOINED_PER_ROW * n_read):
                    raise DatasetFileCorruptError(
                        f"the join of {table!r} by {join.left.where} has more than "
                        f"{n_joined - 1:,} rows, made of {n_read:,}, as its values repeat too "
                        f"often; ask its publisher"
                    )
                for partner in partners:
                    yield _Row(row.path, {**row.values, **partner})

    # ------------------------------------------------------------------ tables

    def _rows_of_table(self, plan: Plan, table: str, columns: Sequence[Column]) -> Iterator[_Row]:
        """Yield the rows of a table with the values of some columns.

        Raises:
            DatasetFileCorruptError: a row lacks one.
        """
        keys = {column.key for column in columns}
        for path, values in self._values_of_table(plan, table, columns):
            try:
                yield _Row(path, {(table, key): values[key] for key in keys})
            except KeyError as error:
                column = next(column for column in columns if column.key == error.args[0])
                missing = column.key.removeprefix("file:")
                raise DatasetFileCorruptError(
                    f"{path!r} has no {missing!r:.80}, but {column.where} needs it"
                ) from error

    def _values_of_table(
        self, plan: Plan, table: str, columns: Sequence[Column]
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the rows of a table as the path of their file, and their values by key."""
        if table == plan.identifier:
            for row in plan.rows:
                yield "the document", row
        elif table in self._plans.all and table not in self._plans.files:
            yield from self._values_of_record_set(self._plans.all[table])
        else:
            yield from self._values_of_files(self._plans.files[table], columns)

    def _values_of_record_set(self, plan: Plan) -> Iterator[tuple[str, Mapping[str, Any]]]:
        identifiers = [column.uuid for column in plan.columns]
        for batch in self.read(plan):
            for values in batch:
                by_identifier = dict(zip(identifiers, values, strict=True))
                yield f"record set {plan.identifier}", by_identifier

    def _values_of_files(
        self, node: Any, columns: Sequence[Column]
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for path, stream in self._open_files(node):
            properties = {
                "file:filename": posixpath.basename(path),
                "file:filepath": path,
                "file:fullpath": path,
            }
            for number, values in enumerate(iterate_rows(node, columns, path, stream)):
                yield path, {**properties, "file:lineNumbers": number, **values}

    # ------------------------------------------------------------------ files

    def _open_files(self, node: Any) -> Iterator[tuple[str, Any]]:
        """Yield path and stream of each file of a FileObject or FileSet.

        A stream is closed when the next one is asked for.
        """
        if node.uuid not in self._places:
            yield from self._open_contained_files(node)
            return
        for name, path in self._places[node.uuid]:
            with self._raw[name] as resource:
                yield path, resource

    def _open_contained_files(self, node: Any) -> Iterator[tuple[str, Any]]:
        """Yield the files of a node that is contained in archives or other FileSets.

        Raises:
            DatasetFileCorruptError: these have no such file.
        """
        includes = includes_of(node)
        if not includes:
            includes = [glob.escape(posixpath.normpath(node.content_url or ""))]
        excludes = excludes_of(node)
        has_files = False
        for container in containers_of(node, self._plans.files):
            formats = " ".join(container.encoding_formats or ())
            is_archive = _ARCHIVES.search(formats) is not None
            for container_path, container_stream in self._open_files(container):
                if not is_archive:
                    if _is_selected(container_path, includes, excludes):
                        has_files = True
                        yield container_path, container_stream
                    continue
                for member in iterate_members(container_path, container_stream):
                    if _is_selected(member.name, includes, excludes):
                        has_files = True
                        yield member.name, member.open()
        if not has_files:
            raise DatasetFileCorruptError(
                f"no file matches {', '.join(includes)!r:.200} of {node.uuid!r}"
            )


def containers_of(node: Any, files: Mapping[str, Any]) -> list[Any]:
    """Return the FileObjects and FileSets that contain one."""
    containers = []
    for container in node.contained_in or ():
        identifier = container if isinstance(container, str) else container.uuid
        containers.append(files[identifier])
    return containers


def _is_selected(path: str, includes: Sequence[str], excludes: Sequence[str]) -> bool:
    return matches(path, includes) and not matches(path, excludes)


def _columns_of_table(plan: Plan, table: str) -> list[Column]:
    """Return the columns of a table that a record set reads, and its join keys."""
    columns = list(plan.columns)
    for join in plan.joins:
        columns += [join.left, join.right]
    return [column for column in columns if column.table == table]


def _batches(rows: Iterator[_Row], n_rows: int) -> Iterator[list[_Row]]:
    while True:
        batch = list(itertools.islice(rows, n_rows))
        if not batch:
            return
        yield batch


def _convert(column: Column, batch: Sequence[_Row], first_record: int | None = None) -> list[Any]:
    """Return the values of a column in some rows; see :meth:`Column.convert`."""
    values = [column.value] * len(batch)
    if column.table is not None:
        values = [row.values[column.table, column.key] for row in batch]
    return column.convert(values, [row.path for row in batch], first_record)
