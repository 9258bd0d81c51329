"""A sink of Ray Data: each task writes files of its own, which become visible together."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from ray.data.datasource import Datasink, WriteResult

from data_stack import StorageConnector
from data_stack.codecs import ColumnType
from data_stack.exception import ConfigError
from data_stack.formats.column_types import column_of_rows
from data_stack.formats.parquet import ParquetWriter
from data_stack.formats.records import RecordWriter
from data_stack_ray.blocks import columns_of_block
from data_stack_ray.unfinished_dataset import UnfinishedDataset

Format = Literal["records", "parquet"]

#: The columns of a block, as arrays of shape ``(n, ...)``, by name.
_Columns = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class WrittenPart:
    """What a task has written.

    Attributes:
        task_number: number of the task, in Ray's order of the blocks.
        folder: where its files are, in the store.
        n_rows: number of rows.
        columns: names and types, as text.
    """

    task_number: int
    folder: str
    n_rows: int
    columns: str


class DatasetSink(Datasink[Any]):
    """Writes blocks into a store; it pickles with its connector.

    Args:
        dataset: where the blocks are written.
        file_format: "records" or "parquet".
        schema: the types of the columns, see :func:`data_stack_ray.write`; None to infer them.
        min_rows: number of rows that a task takes at least; None: those of a block of Ray.

    Attributes:
        n_rows: number of rows that were published.
    """

    n_rows: int
    _dataset: UnfinishedDataset
    _file_format: Format
    _schema: Any
    _min_rows: int | None

    def __init__(
        self,
        dataset: UnfinishedDataset,
        file_format: Format,
        schema: Any,
        min_rows: int | None,
    ) -> None:
        self.n_rows = 0
        self._dataset = dataset
        self._file_format = file_format
        self._schema = schema
        self._min_rows = min_rows

    def get_name(self) -> str:
        """Return the name of this sink in Ray's interface."""
        return "DataStack"

    @property
    def min_rows_per_write(self) -> int | None:
        """Number of rows that a task takes at least; None: those of a block."""
        return self._min_rows

    # ------------------------------------------------------------------ in a task

    def write(self, blocks: Iterable[Any], ctx: Any) -> WrittenPart | None:
        """Write the rows of a task; return None if it has none."""
        # The first block tells the types of the columns, and whether there is one at all.
        filled_blocks = _iterate_filled_blocks(blocks)
        first_columns = next(filled_blocks, None)
        if first_columns is None:
            return None
        all_columns = itertools.chain([first_columns], filled_blocks)

        folder = self._dataset.new_attempt_folder(ctx.task_idx)
        connector = self._dataset.connector
        if self._file_format == "records":
            spec = self._schema or _infer_spec(first_columns)
            n_rows = _write_records(connector, folder, spec, all_columns)
            columns = _describe_spec(spec)
        else:
            n_rows, columns = _write_parquet(connector, folder, self._schema, all_columns)

        # If the driver has given up, nobody else removes these files.
        if not self._dataset.is_being_written():
            self._dataset.remove(folder)
        return WrittenPart(ctx.task_idx, folder, n_rows, columns)

    # ------------------------------------------------------------------ in the driver

    def on_write_complete(self, write_result: WriteResult[Any]) -> None:
        """Publish what the tasks have written, when all have succeeded.

        Raises:
            ConfigError: there are no rows, or blocks differ in their columns.
        """
        parts = [part for part in write_result.write_returns if part is not None]
        parts.sort(key=lambda part: part.task_number)
        if not parts:
            raise ConfigError(
                f"there are no rows to write to {self._dataset.name!r}, so its columns are unknown"
            )
        for part in parts:
            if part.columns != parts[0].columns:
                raise ConfigError(
                    f"the rows of {self._dataset.name!r} differ in their columns: "
                    f"{parts[0].columns} in one block, {part.columns} in another. "
                    "Pass schema=, or convert them"
                )

        folders = [part.folder for part in parts]
        if self._file_format == "records":
            self._dataset.publish_records(folders)
        else:
            self._dataset.publish_parquet(folders, self._schema)
        self.n_rows = sum(part.n_rows for part in parts)


def _iterate_filled_blocks(blocks: Iterable[Any]) -> Iterator[_Columns]:
    """Yield the columns of the blocks that have rows."""
    for block in blocks:
        columns = columns_of_block(block)
        if columns:
            yield columns


def _write_records(
    connector: StorageConnector,
    folder: str,
    spec: Mapping[str, str | ColumnType],
    all_columns: Iterable[_Columns],
) -> int:
    """Write blocks as a record dataset; return the number of rows."""
    with RecordWriter(connector, spec, prefix=folder) as writer:
        for columns in all_columns:
            writer.extend(columns)
        return len(writer)


def _write_parquet(
    connector: StorageConnector, folder: str, schema: Any, all_columns: Iterable[_Columns]
) -> tuple[int, str]:
    """Write blocks as Parquet; return the number of rows, and the schema as text."""
    with ParquetWriter(connector, schema, prefix=folder) as writer:
        for columns in all_columns:
            writer.append_columns(columns)
        fields = list(writer.schema or ())  # known, as there are rows
        return len(writer), str(fields)


def _infer_spec(columns: _Columns) -> dict[str, ColumnType]:
    """Return the types of records for the columns of a block.

    Arrays have no shape: those of later blocks may have another one.
    """
    spec = {}
    for name, values in columns.items():
        column_type = column_of_rows(values)
        if column_type.shape:
            column_type = replace(column_type, shape=None)
        spec[name] = column_type
    return spec


def _describe_spec(spec: Mapping[str, str | ColumnType]) -> str:
    """Return names and types of columns as text, in the order of the names."""
    types = {}
    for name in sorted(spec):
        declared = spec[name]
        types[name] = declared.type if isinstance(declared, ColumnType) else str(declared)
    return str(types)
