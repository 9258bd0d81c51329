"""Copies Parquet datasets, or some of their fields and rows, without decoding cells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.parquet.files import find_files, partition_names
from data_stack.formats.parquet.footers import Footers, reading_parquet
from data_stack.formats.parquet.indexes import read_indexes
from data_stack.formats.parquet.inference import read_schema
from data_stack.formats.parquet.petastorm_metadata import UNISCHEMA_KEY
from data_stack.formats.parquet.row_groups import RowGroups
from data_stack.formats.parquet.schema import Schema
from data_stack.formats.parquet.writer import ParquetWriter
from data_stack.io.folder import folder_of


@dataclass(frozen=True)
class CopyOfDataset:
    """The result of a copy.

    Attributes:
        n_rows: rows of the copy.
        n_there: rows that an interrupted attempt had copied before.
        n_left_out: rows of the source that ``not_null`` excluded.
        fields: fields of the copy.
        indexes: names of the row-group indexes that were rebuilt.
        dropped_indexes: names of the other indexes, whose fields were not copied; ``"?"`` if they were out of date.
    """

    n_rows: int
    n_there: int
    n_left_out: int
    fields: tuple[str, ...]
    indexes: tuple[str, ...]
    dropped_indexes: tuple[str, ...]


def copy_dataset(
    source: Any,
    target: Any,
    *,
    fields: Iterable[Any] | None = None,
    not_null: Sequence[str] = (),
    partition_by: Sequence[str] | None = None,
    row_group_mb: float = 32.0,
    file_mb: float = 512.0,
    compression: str = "zstd",
    petastorm: bool | None = None,
    overwrite: bool = False,
) -> CopyOfDataset:
    """Copy a dataset without decoding or encoding its cells.

    An interrupted copy is resumed. Row-group indexes are rebuilt for the row groups of the copy.

    Args:
        source: as for :class:`ParquetDataset`.
        target: as for :class:`ParquetWriter`.
        fields: names, regular expressions or fields; None for all.
        not_null: names of fields; rows with a null in one of them are not copied.
        partition_by: columns that become folders; None for those of the source that are copied.
        row_group_mb: as for the writer.
        file_mb: as for the writer.
        compression: as for the writer.
        petastorm: write the metadata that Petastorm needs; None: if the source has it.
        overwrite: remove an existing dataset at the target first.

    Raises:
        ConfigError: a field does not exist; source and target are the same; or the target holds another dataset.
        DatasetFileCorruptError: the source is damaged.
        StorageError: the source cannot be read, or the copy cannot be written.
    """
    footers = Footers(find_files(source))
    whole, goal = read_schema(footers), folder_of(target)
    for name in not_null:
        whole[name]  # raises if the field does not exist
    schema = whole if fields is None else whole.view(fields)
    if goal.path is not None and goal.path == footers.files.folder.path:
        raise ConfigError(f"source and target are both {goal.name!r}")
    in_folders = partition_names(footers.files.partitions)
    indexes, dropped = _indexes(footers, schema)
    with ParquetWriter(
        goal,
        schema,
        partition_by=[name for name in in_folders if name in schema] if partition_by is None else partition_by,
        row_group_mb=row_group_mb,
        file_mb=file_mb,
        compression=compression,
        indexes=indexes,
        petastorm=UNISCHEMA_KEY in footers.metadata if petastorm is None else petastorm,
        overwrite=overwrite,
    ) as writer:
        n_there = len(writer)
        n_copied = _append_rows(writer, goal.name, _tables(RowGroups(footers, whole), schema, not_null, in_folders))
    n_left_out = int(footers.n_rows.sum()) - n_copied
    names, index_names = tuple(field.name for field in schema), tuple(index.name for index in indexes)
    return CopyOfDataset(n_copied, n_there, n_left_out, names, index_names, dropped)


def _append_rows(writer: ParquetWriter, name: str, tables: Iterable[pa.Table]) -> int:
    """Append the rows that the writer does not have yet; return the number of its rows."""
    n_there = missing = len(writer)
    for table in tables:
        skipped = min(missing, len(table))
        missing -= skipped
        if skipped < len(table):
            writer.append_arrow(table.slice(skipped))
    if missing:
        raise ConfigError(f"{name!r} has {n_there:,} rows, more than the source: it holds another dataset")
    return len(writer)


def _tables(row_groups: RowGroups, schema: Schema, not_null: Sequence[str], in_folders: Sequence[str]) -> Iterator[pa.Table]:
    """The selected rows of each row group, with partition columns."""
    footers, names = row_groups.footers, [field.name for field in schema]
    for group in range(len(footers)):
        file = int(footers.file_of[group])
        wanted = [name for name in dict.fromkeys([*names, *not_null]) if name not in in_folders]
        with reading_parquet(footers.name_of(group)), footers.files.open(file) as opened:
            reader = pq.ParquetFile(opened, metadata=footers.of(file), pre_buffer=True, page_checksum_verification=True)
            there = set(reader.schema_arrow.names)
            table = reader.read_row_group(int(footers.index_of[group]), columns=[name for name in wanted if name in there])
        n_rows = int(footers.n_rows[group])
        for name in dict.fromkeys([*names, *not_null]):
            if name in in_folders:
                value = row_groups.read(group, [name])[name].value(0) if n_rows else None
                table = table.append_column(name, pa.array([value] * n_rows))
        for name in not_null:
            valid = pc.is_valid(table.column(name)) if name in table.column_names else pa.array([False] * n_rows)
            table = table.filter(valid)
            n_rows = len(table)
        yield table.select([name for name in names if name in table.column_names])


def _indexes(footers: Footers, schema: Schema) -> tuple[list[Any], tuple[str, ...]]:
    try:
        found = read_indexes(footers)
    except (ConfigError, DatasetFileCorruptError):  # out of date, or damaged: their fields are unknown
        return [], ("?",)
    kept = [type(index)(index.name, index.field) for index in found.values() if index.field in schema]
    return kept, tuple(index.name for index in found.values() if index.field not in schema)
