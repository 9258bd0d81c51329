"""Ray Datasets as datasets in a store: each task writes files of its own, which become visible together."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import ray.data
from ray.data.block import BlockAccessor
from ray.data.datasource import Datasink, WriteResult

from data_stack import (
    FileStorageConnector,
    StorageConnector,
    default_storage,
    storage_connector_from_url,
)
from data_stack.codecs import ColumnType
from data_stack.exception import ConfigError, DataStackError, StorageConflictError
from data_stack.exchange.tables.arrow import from_arrow
from data_stack.formats.column_types import column_of_rows
from data_stack.formats.parquet import ParquetWriter, generate_metadata
from data_stack.formats.parquet.metadata import PARQUET_MANIFEST, PROGRESS_FOLDER
from data_stack.formats.records import RecordWriter
from data_stack.formats.records.layout import SPEC, shard_name
from data_stack.io.storage_connectors.memory import InMemoryStorageConnector

Format = Literal["records", "parquet"]

#: While this resource exists, the dataset is not complete; what tasks write lies in the folder beside it, which readers ignore.
_MARK = f"{PROGRESS_FOLDER}/ray"
_ATTEMPTS = "_data_stack_attempts"


def write(
    dataset: ray.data.Dataset,
    *,
    name: str,
    storage: Any = None,
    format: Format = "records",  # noqa: A002  # what load() calls it
    schema: Any = None,
    min_rows_per_file: int | None = None,
    **options: Any,
) -> int:
    """Write a Ray Dataset into a store, from where :func:`data_stack.load` loads it; tasks of Ray write, all at once.

    ::

        write(frames, storage="s3://bucket/sets", name="frames/train")
        data_stack.load("s3://bucket/sets/frames", split="train")

    Each write task makes a shard of records, or Parquet files. What a task writes is durable and invisible; when all have
    succeeded, this process renames it, and writes the manifest last. A task that fails, or that Ray repeats, leaves nothing. Of a
    process that is killed the next ``write`` of the name removes what it left; until then nothing is visible.

    Rows are in the order of Ray's blocks: the dataset's if ``ExecutionOptions.preserve_order`` is set.

    Args:
        dataset: rows with a value for each column.
        name: of the dataset in the store; with a slash that of a split, as in ``"frames/train"``. Nothing is overwritten.
        storage: a connector, URL or path that all nodes reach; None for the default store.
        format: "records" for random access to any values, "parquet" for nulls, and for tools that read tables.
        schema: None to infer it in each task, from the first rows; otherwise for records a type for each column
            (``{"image": "jpg", "label": "i64"}``, see ``RecordWriter``), for Parquet a ``Schema``.
        min_rows_per_file: rows that a task takes at least; None: those of a block of Ray.
        options: of ``write_datasink``: ``concurrency``, ``ray_remote_args``.

    Returns:
        The number of rows.

    Raises:
        ConfigError: there is a dataset of that name, the store is in the memory of this process, there are no rows, or a value
            fits no column.
        StorageConflictError: another process is writing it.
        StorageError: it cannot be written.
    """
    connector = default_storage() if storage is None else storage
    if not isinstance(connector, StorageConnector):
        connector = storage_connector_from_url(connector)
    if format not in ("records", "parquet"):
        raise ConfigError(f"format must be 'records' or 'parquet', got {format!r:.40}")
    if isinstance(connector, InMemoryStorageConnector):
        raise ConfigError(
            f"Ray's workers cannot reach {connector!r}, which is in the memory of this process: use a folder or a server"
        )
    sink = _Sink(connector, name.strip("/"), format, schema, min_rows_per_file)
    with sink.begun():
        try:
            dataset.write_datasink(sink, **options)
        except ray.exceptions.RayTaskError as error:
            raise error.cause if isinstance(error.cause, DataStackError) else error from None
    return sink.n_rows


@dataclass(frozen=True)
class _Part:
    """What a task has written.

    Attributes:
        task: its number, in Ray's order of the blocks.
        folder: where its files are, in the store.
        n_rows: number of rows.
        columns: names and types, as text.
    """

    task: int
    folder: str
    n_rows: int
    columns: str


class _Sink(Datasink[Any]):
    """Writes blocks into a store; it pickles with its connector.

    Args:
        connector: the store.
        name: of the dataset.
        kind: the format.
        schema: see :func:`write`.
        min_rows: of a file.
    """

    n_rows = 0

    def __init__(
        self,
        connector: StorageConnector,
        name: str,
        kind: Format,
        schema: Any,
        min_rows: int | None,
    ) -> None:
        self._connector, self._name, self._kind, self._schema, self._min_rows = (
            connector,
            name,
            kind,
            schema,
            min_rows,
        )

    def get_name(self) -> str:
        return "DataStack"

    @property
    def min_rows_per_write(self) -> int | None:
        return self._min_rows

    # ------------------------------------------------------------------ in the driver

    @contextlib.contextmanager
    def begun(self) -> Iterator[None]:
        """Mark the dataset as incomplete for the block; afterwards it is complete, or nothing is left."""
        connector = self._connector
        with connector.lease(f"{self._name}/{_MARK}.lease") as lease:
            if not lease.acquire():
                raise StorageConflictError(
                    f"another process is writing {self._name!r} to {connector!r}: wait until it has ended"
                )
            there = [
                each
                for each in connector.list_resources(f"{self._name}/")
                if f"/{_ATTEMPTS}/" not in each
            ]
            is_left_over = self._full(_MARK) in there and self._full(PARQUET_MANIFEST) not in there
            if there and not is_left_over:
                raise ConfigError(
                    f"{self._name!r} exists already in {connector!r}; remove it, or choose another name"
                )
            self._remove()
            with connector.create(self._full(_MARK)) as file:
                file.write(b"{}")
            try:
                yield
            except BaseException:
                with contextlib.suppress(DataStackError):  # the first error is raised
                    self._remove()
                raise
            connector.delete_resource(self._full(_MARK))
            self._remove(_ATTEMPTS)

    def on_write_complete(self, write_result: WriteResult[Any]) -> None:
        parts = sorted(
            (part for part in write_result.write_returns if part is not None),
            key=lambda part: part.task,
        )
        if not parts:
            raise ConfigError(
                f"there are no rows to write to {self._name!r}, so its columns are unknown"
            )
        for part in parts:
            if part.columns != parts[0].columns:
                raise ConfigError(
                    f"the rows of {self._name!r} differ in their columns: {parts[0].columns} in one block, {part.columns} in "
                    f"another. Pass schema=, or convert them"
                )
        self._publish_records(parts) if self._kind == "records" else self._publish_parquet(parts)
        self.n_rows = sum(part.n_rows for part in parts)

    def _publish_records(self, parts: Sequence[_Part]) -> None:
        """Rename the shards, the first one last: readers see none without it."""
        for number, part in reversed([*enumerate(parts)]):
            files = [
                name[len(part.folder) + 1 :]
                for name in self._connector.list_resources(f"{part.folder}/")
            ]
            for file in sorted(
                files, key=lambda file: file == SPEC
            ):  # last: without it a shard is none
                self._connector.move_resource(
                    f"{part.folder}/{file}", self._full(f"{shard_name(number)}/{file}")
                )

    def _publish_parquet(self, parts: Sequence[_Part]) -> None:
        """Gather the files, make their manifest, and rename them; readers see none while there is a mark and no manifest."""
        written = (
            each for part in parts for each in self._connector.list_resources(f"{part.folder}/")
        )
        files = [
            each
            for each in written
            if each.endswith(".parquet") and not each.endswith(PARQUET_MANIFEST)
        ]
        gathered = self._full(f"{_ATTEMPTS}/all")
        names = [f"part-{number:06d}.parquet" for number in range(len(files))]
        for file, name in zip(files, names, strict=True):
            self._connector.move_resource(file, f"{gathered}/{name}")
        generate_metadata(self._connector, prefix=gathered, schema=self._schema)
        for name in [*names, PARQUET_MANIFEST]:
            self._connector.move_resource(f"{gathered}/{name}", self._full(name))

    def _full(self, file: str) -> str:
        return f"{self._name}/{file}"

    def _remove(self, folder: str = "") -> None:
        """Remove resources, the mark first, so that a task that goes on removes its own."""
        found = self._connector.list_resources(self._full(folder).rstrip("/") + "/")
        for identifier in sorted(found, key=lambda each: each != self._full(_MARK)):
            with contextlib.suppress(LookupError):  # a task has removed its own
                self._connector.delete_resource(identifier)
        self._connector.remove_abandoned(f"{self._name}/")  # of tasks that were killed
        if isinstance(self._connector, FileStorageConnector):
            for path, _, _ in os.walk(
                os.path.join(self._connector.root_path, self._name), topdown=False
            ):
                with contextlib.suppress(OSError):  # it is not empty
                    os.rmdir(path)

    # ------------------------------------------------------------------ in a task

    def write(self, blocks: Iterable[Any], ctx: Any) -> _Part | None:
        filled = (columns for columns in map(_columns, blocks) if columns)
        if (first := next(filled, None)) is None:
            return None
        folder = self._full(f"{_ATTEMPTS}/{ctx.task_idx:06d}-{secrets.token_hex(8)}")
        writer: Any
        if self._kind == "records":
            spec = self._schema or {
                name: _any_shape(column_of_rows(rows)) for name, rows in first.items()
            }
            writer = RecordWriter(self._connector, spec, prefix=folder)
            add, described = (
                writer.extend,
                str({name: str(getattr(spec[name], "type", spec[name])) for name in sorted(spec)}),
            )
        else:
            writer = ParquetWriter(self._connector, self._schema, prefix=folder)
            add, described = writer.append_columns, ""
        with writer:
            for columns in itertools.chain([first], filled):
                add(columns)
            n_rows, described = len(writer), described or str(list(writer.schema))
        if not self._connector.has_resource(
            self._full(_MARK)
        ):  # the driver has given up, and nobody else removes this
            self._remove(folder[len(self._name) + 1 :])
        return _Part(ctx.task_idx, folder, n_rows, described)


def _any_shape(column: ColumnType) -> ColumnType:
    """The column without the shape of its arrays: those of later blocks may have another one."""
    return replace(column, shape=None) if column.shape else column


def _columns(block: Any) -> dict[str, Any]:
    """The columns of a block as arrays of shape ``(n, ...)``, nulls as None; empty without rows."""
    table: pa.Table = BlockAccessor.for_block(block).to_arrow()
    if not len(table):
        return {}
    tensors = [field.name for field in table.schema if isinstance(field.type, pa.BaseExtensionType)]
    others = table.drop_columns(tensors)
    found: Any = from_arrow(others).read_batch(np.arange(len(table))) if others.column_names else {}
    found |= {
        name: BlockAccessor.for_block(table.select([name])).to_numpy(name) for name in tensors
    }
    return {name: found[name] for name in table.column_names}
