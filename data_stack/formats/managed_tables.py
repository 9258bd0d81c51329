"""Refuses folders of tables that plain Parquet readers read wrong: Delta Lake, Iceberg and Hudi.

Such a table deletes or rewrites rows by adding files and a line in its log; the old files stay.
Only the log tells which files count. Read as plain Parquet, removed rows come back.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from data_stack.exception import ManagedTableError
from data_stack.io.folder import Folder, LocalFolder


@dataclass(frozen=True)
class _TableKind:
    """A kind of table with a log.

    Attributes:
        name: the name of the kind.
        advice: what reads such a table.
    """

    name: str
    advice: str


_DELTA_LAKE: Final = _TableKind(
    "Delta Lake",
    "deltalake.DeltaTable(path).to_pyarrow_table() reads it, data_stack.from_arrow() takes that",
)
_HUDI: Final = _TableKind("Apache Hudi", "Spark with Hudi's package, or the package hudi, reads it")
_ICEBERG: Final = _TableKind(
    "Apache Iceberg",
    "pyiceberg's table.scan().to_arrow() reads it, data_stack.from_arrow() takes that",
)

#: The kinds of tables by the folder of the log, or by a file in a partition.
_KIND_BY_LOG: Final = {
    "_delta_log": _DELTA_LAKE,
    ".hoodie": _HUDI,
    ".hoodie_partition_metadata": _HUDI,
}

#: The folder of Iceberg's log. Other datasets may have one of this name: its files decide.
_ICEBERG_LOG: Final = "metadata"

#: How many folders above a folder may be those of partitions, with the log of the table above them.
_MAX_LEVELS: Final = 8


def refuse_managed_table(folder: Folder, names: Iterable[str]) -> None:
    """Refuse a folder that is a table with a log, or, on this machine, lies in one.

    Args:
        folder: what is to be read as a dataset.
        names: the names, or paths, of the files and folders in it.

    Raises:
        ManagedTableError: the folder is such a table; the message says what reads it.
    """
    names_at_top = {path.partition("/")[0] for path in names}
    for name in names_at_top:
        if name in _KIND_BY_LOG:
            raise _error(folder.full_name(""), _KIND_BY_LOG[name], name)
    if _ICEBERG_LOG in names_at_top and "data" in names_at_top:
        _refuse_iceberg(folder)
    _refuse_part_of_table(folder)


def _refuse_part_of_table(folder: Folder) -> None:
    """Refuse a local folder of partitions, or of data, whose table lies above it."""
    path = folder.path
    for _ in range(_MAX_LEVELS):
        if path is None or path == path.parent:
            return
        # A partition is called ``year=2024``; Iceberg keeps its files in ``data``.
        may_be_part_of_table = "=" in path.name or path.name == "data"
        if not may_be_part_of_table:
            return
        path = path.parent
        for log, kind in _KIND_BY_LOG.items():
            if os.path.isdir(path / log):
                raise _error(str(path), kind, log)
        if os.path.isdir(path / _ICEBERG_LOG):
            _refuse_iceberg(LocalFolder(path))


def _refuse_iceberg(folder: Folder) -> None:
    """Refuse a folder whose ``metadata`` is the log of Iceberg."""
    for name in folder.subfolder(_ICEBERG_LOG).list_names():
        if name.endswith(".metadata.json"):
            raise _error(folder.full_name(""), _ICEBERG, _ICEBERG_LOG)


def _error(place: str, kind: _TableKind, log: str) -> ManagedTableError:
    """Return the error to raise for a table.

    Args:
        place: the full name of its folder.
        kind: its kind.
        log: the name of the log in the folder.
    """
    return ManagedTableError(
        f"{place.rstrip('/') or 'the store'} is a table of {kind.name}, as {log} in it says: "
        "its log knows which files count, and rows that it removed would come back. "
        f"{kind.advice}. To read certain files all the same, pass a list of them to ParquetDataset"
    )
