"""Finds the Arrow cells that samples are read from, to hand them on without a copy."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.exception import ConfigError
from data_stack.formats.arrow_ipc.arrow_dataset import ArrowAccess
from data_stack.formats.arrow_tables import ArrowColumn, TableIterator
from data_stack.formats.columns import ColumnsAccess


def table_of_cells(samples: Any) -> pa.Table | None:
    """Return all rows of a table in memory or of mapped Arrow files, without a copy of the cells.

    Args:
        samples: an iterator.

    Returns:
        None for other samples, for some rows of a table, and if the cells are not of the type that
        the samples come from.

    Raises:
        ConfigError: text of a file is not valid UTF-8.
    """
    access, positions = access_to(as_iterator(samples)).unwrap()
    if positions is not None or not isinstance(access, ColumnsAccess):
        return None
    if isinstance(access, ArrowAccess):
        return _table_of_files(access)
    if isinstance(access.source, TableIterator):
        return _table_in_memory(access)
    return None


def _table_of_files(access: ArrowAccess) -> pa.Table | None:
    """Return the cells of mapped files."""
    table = access.source.stored_table()
    if table is None:
        return None
    for name, column in zip(table.column_names, table.columns, strict=True):
        if not pa.types.is_string(column.type) and not pa.types.is_large_string(column.type):
            continue
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            raise ConfigError(f"column {name!r} cannot be read: {error!s:.200}") from error
    return table


def _table_in_memory(access: ColumnsAccess) -> pa.Table | None:
    """Return the cells of a table in memory."""
    declared = access.declare_columns()
    if declared is None:
        return None
    names = list(declared)
    cells = []
    fields = []
    for name, reader in zip(names, access.readers_of(names), strict=True):
        # A subclass may read other cells than its own.
        if type(reader) is not ArrowColumn or not reader.has_cells_of_origin:
            return None
        cells.append(reader.cells)
        metadata = None if reader.origin.field is None else reader.origin.field.metadata
        fields.append(pa.field(name, reader.cells.type, metadata=metadata))
    return pa.Table.from_arrays(cells, schema=pa.schema(fields))
