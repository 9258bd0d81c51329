"""Presents the rows of a table in memory as samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

import pyarrow as pa

from data_stack.dataset.iterator import DatasetIteratorIF, SampleAccess
from data_stack.dataset.iterator.access import DeclaredColumn
from data_stack.dataset.iterator.layer import layer
from data_stack.dataset.recipes.nodes import TABLE_FILE
from data_stack.exception import ConfigError
from data_stack.formats.arrow_tables.arrow_column import ArrowColumn
from data_stack.formats.arrow_tables.json_column import JsonColumn
from data_stack.formats.arrow_tables.plain_column import PlainColumn
from data_stack.formats.arrow_tables.table_rows import (
    JsonRowsColumn,
    RowsAccess,
    RowsColumn,
    StoredRows,
    TableRows,
    columns_of_rows,
    digests_of_rows,
)
from data_stack.formats.column_reader import ColumnReader
from data_stack.formats.columns import ColumnsDatasetIterator, of_files_only
from data_stack.formats.targets import with_target
from data_stack.io.content import content_of_resource
from data_stack.io.positional import PositionalFile
from data_stack.io.url import scheme_of

TableColumn: TypeAlias = ArrowColumn | JsonColumn | PlainColumn | RowsColumn | JsonRowsColumn

#: The functions that read a file as a table, by their names in recipes.
READERS: dict[str, Callable[..., DatasetIteratorIF]] = {}


@layer(TABLE_FILE)
class TableIterator(ColumnsDatasetIterator):
    """Samples ``{column: value}`` of a table in memory, which is not copied, or in a file.

    Args:
        columns: columns of one length by name.
        read_from: the file of the table for recipes: ``path``, ``sha256``, ``function`` and
            ``options``; None if no recipe can make the table.
        rows: the table, if its rows stay in a file, from which the columns read; otherwise None.
        stored_rows: the rows in their file, if the table in memory was read from one; otherwise
            None.

    Raises:
        ConfigError: there are no columns, or two have the same name, or a name is not text.
    """

    #: The columns by name.
    _table_columns: Mapping[str, TableColumn]

    #: The file of the table for recipes; None without one.
    _read_from: Mapping[str, Any] | None

    #: The table, if its rows stay in a file.
    _rows: TableRows | None

    #: The rows in their file, if the table in memory was read from one. Pickles of earlier versions
    #: lack it.
    _stored_rows: StoredRows | None = None

    def __init__(
        self,
        columns: Mapping[str, TableColumn],
        read_from: Mapping[str, Any] | None = None,
        rows: TableRows | None = None,
        stored_rows: StoredRows | None = None,
    ) -> None:
        super().__init__({name: name for name in columns})
        self._table_columns = columns
        self._read_from = read_from
        self._rows = rows
        self._stored_rows = stored_rows

    def make_access(self) -> SampleAccess:
        if self._rows is not None:
            return RowsAccess(self, self._rows, self._table_columns)
        return super().make_access()

    # The samples depend on nothing but the values, whose digests take the place of files.
    @of_files_only
    def _open_columns(self) -> list[ColumnReader]:
        return list(self._table_columns.values())

    def _locate_row(self, position: int) -> str | None:
        stored_rows = self._stored_rows
        if self._rows is not None:
            stored_rows = self._rows.stored_rows
        return None if stored_rows is None else stored_rows.locate(position)

    def _content_of_files(self) -> list[str]:
        if self._rows is not None:
            return digests_of_rows(self._rows, columns_of_rows(self._rows))
        return [column.digest() for column in self._table_columns.values()]

    def _arguments(self) -> dict[str, Any]:
        return {"columns": self.column_types}

    @classmethod
    def _from_arguments(
        cls, underlying: list[Any], arguments: Mapping[str, Any]
    ) -> DatasetIteratorIF:
        path = arguments["path"]
        function = arguments["function"]
        options = arguments["options"]
        is_known = function in READERS and "target" not in options
        # A recipe of a stranger must not make this program open a URL.
        if not is_known or scheme_of(path) is not None:
            raise ConfigError(
                f"tables are read by {' or '.join(READERS)} from a path, "
                f"not {path!r:.200} by {function!r:.80}"
            )
        sha256 = content_of_resource(PositionalFile(path).resource)
        if sha256 != arguments["sha256"]:
            raise ConfigError(
                f"file {path!r:.200} has changed: its SHA-256 is {sha256}; "
                "restore it, or create the recipe again"
            )
        return READERS[function](path, **options)

    @property
    def column_types(self) -> dict[str, str]:
        """Dtype and shape of each column as text, such as ``float32(3,)``.

        A column whose dtype varies is an ``array``. ``or None`` follows if values are missing.
        """
        return {
            name: _type_as_text(column.declare()) for name, column in self._table_columns.items()
        }

    def __repr__(self) -> str:
        types = ", ".join(f"{name}: {type_}" for name, type_ in self.column_types.items())
        text = super().__repr__().removesuffix(">")
        return f"{text}, {types:.1000}>"


def _type_as_text(declared: DeclaredColumn) -> str:
    """Return dtype and shape of a column; an unknown size is shown as ``…``."""
    text = declared.dtype or "array"
    if declared.shape:
        text += str(declared.shape).replace("None", "…")
    if declared.is_nullable:
        text += " or None"
    return text


def check_names(names: list[Any]) -> None:
    """Check the names of columns.

    Raises:
        ConfigError: there are no names, or one is not text, or two are equal.
    """
    if not names:
        raise _error_of_names("no columns")
    # Only text is counted: other values may not hash.
    counts = Counter(name for name in names if isinstance(name, str))
    for name in names:
        if not isinstance(name, str) or counts[name] > 1:
            raise _error_of_names([name])


def _error_of_names(names: Any) -> ConfigError:
    """Return the error for names of columns: ``names`` are those that are wrong."""
    return ConfigError(
        f"the columns of a table need different names of text, got {names}; rename them"
    )


def iterator_of_table(
    table: pa.Table,
    source: str,
    target: str | None,
    read_from: Mapping[str, Any] | None = None,
    json_columns: Collection[str] = (),
    stored_rows: StoredRows | None = None,
) -> DatasetIteratorIF:
    """Return the rows of a table as dict samples, with a meta if there is a target.

    Args:
        table: the table.
        source: the name of the table for messages.
        target: the column of the target; None without one.
        read_from: see :class:`TableIterator`.
        json_columns: columns of JSON text, whose parsed values are the values of samples.
        stored_rows: see :class:`TableIterator`.

    Raises:
        ConfigError: the names of the columns are not text, or not distinct; or a type is
            unsupported, or the target does not exist.
    """
    check_names(table.column_names)
    columns: dict[str, TableColumn] = {}
    class_names = None
    for field, cells in zip(table.schema, table.columns, strict=True):
        if field.name in json_columns:
            columns[field.name] = JsonColumn(cells, field.name)
            continue
        is_target = field.name == target
        column = ArrowColumn(cells, field, as_codes=is_target)
        columns[field.name] = column
        if is_target:
            class_names = column.class_names
    return with_target(
        TableIterator(columns, read_from, stored_rows=stored_rows),
        source,
        list(columns),
        target,
        class_names,
    )


def iterator_of_rows(
    rows: TableRows,
    source: str,
    target: str | None,
    read_from: Mapping[str, Any] | None = None,
) -> DatasetIteratorIF:
    """Return the rows of a table in a file as dict samples, with a meta if there is a target.

    The arguments and errors are those of :func:`iterator_of_table`.
    """
    names = rows.schema.names
    check_names(names)
    columns = columns_of_rows(rows)
    return with_target(TableIterator(columns, read_from, rows), source, names, target)
