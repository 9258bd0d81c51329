"""Refuses folders of tables whose files only their own log can tell apart: Delta Lake, Iceberg and Hudi.

Such a table deletes or rewrites rows by adding files and a line in its log; the old files stay. Read as plain
Parquet, removed rows come back.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

from data_stack.exception import ManagedTableError
from data_stack.io.folder import Folder, LocalFolder

_HUDI: Final = "Spark with Hudi's package, or the package hudi, reads it"
#: By the folder of the log, or a file in a partition: the kind of the table, and what reads it.
_LOGS: Final = {
    "_delta_log": (
        "Delta Lake",
        "deltalake.DeltaTable(path).to_pyarrow_table() reads it, data_stack.from_arrow() takes that",
    ),
    ".hoodie": ("Apache Hudi", _HUDI),
    ".hoodie_partition_metadata": ("Apache Hudi", _HUDI),
}
_ICEBERG: Final = "pyiceberg's table.scan().to_arrow() reads it, data_stack.from_arrow() takes that"
_ICEBERG_METADATA: Final = "metadata"
#: Levels of folders above a folder that may hold the log of its table: those of its partitions.
_MAX_LEVELS: Final = 8


def refuse_managed_table(folder: Folder, names: Iterable[str]) -> None:
    """Refuse a folder that is a table with a log of its own, or, on this machine, lies in one.

    Args:
        folder: what is to be read as a dataset.
        names: the names, or paths, of what is in it.

    Raises:
        ManagedTableError: it is such a table; the message says what reads it.
    """
    paths = list(names)
    firsts = {path.partition("/")[0] for path in paths}
    _refuse_by_log(firsts, folder.full_name(""))
    if _ICEBERG_METADATA in firsts and "data" in firsts:
        _refuse_iceberg(folder)
    place = folder.path
    for _ in range(_MAX_LEVELS):
        if place is None or place == place.parent:
            return
        is_of_table = "=" in place.name or place.name == "data"
        if not is_of_table:
            return
        place = place.parent
        _refuse_by_log([log for log in _LOGS if os.path.isdir(place / log)], str(place))
        if os.path.isdir(place / _ICEBERG_METADATA):
            _refuse_iceberg(LocalFolder(place))


def _refuse_by_log(names: Iterable[str], place: str) -> None:
    for name in names:
        if name in _LOGS:
            kind, reader = _LOGS[name]
            raise ManagedTableError(_message(place, kind, name, reader))


def _refuse_iceberg(folder: Folder) -> None:
    for name in folder.subfolder(_ICEBERG_METADATA).list_names():
        if name.endswith(".metadata.json"):
            place = folder.full_name("")
            raise ManagedTableError(_message(place, "Apache Iceberg", _ICEBERG_METADATA, _ICEBERG))


def _message(place: str, kind: str, log: str, reader: str) -> str:
    return (
        f"{place.rstrip('/') or 'the store'} is a table of {kind}, as {log} in it says: its log knows which files "
        f"count, and rows that it removed would come back. {reader}. To read certain files all the same, "
        f"pass a list of them to ParquetDataset"
    )
