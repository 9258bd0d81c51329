"""Writes Parquet datasets from rows, columns or the samples of an iterator."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.iterator.adapted import Indexable, as_iterator
from data_stack.exception import ConfigError, StorageConflictError
from data_stack.formats.dataset_writer import DatasetWriter
from data_stack.formats.parquet.files import has_suffix, is_hidden
from data_stack.formats.parquet.inference import schema_of_columns
from data_stack.formats.parquet.metadata import (
    INDEXES_KEY,
    RECREATE,
    ParquetFileRecord,
    ParquetManifest,
    add_foreign_metadata,
    find_metadata,
    read_metadata,
    write_metadata,
)
from data_stack.formats.parquet.schema import Schema
from data_stack.formats.parquet.writer_cells import MAX_ROWS, CellBatch, Cells, column_values
from data_stack.formats.parquet.writer_part import (
    COMPRESSIONS,
    PROGRESS_NOTE,
    FileFormat,
    WriterPart,
    clear_progress,
)
from data_stack.formats.sample_columns import by_name, samples_at_once
from data_stack.io.folder import Folder, folder_of
from data_stack.io.progress import with_bar
from data_stack.io.storage_connectors.unfinished import TEMPORARY
from data_stack.util.suggestions import did_you_mean

#: The name of a file of a part, with the number of the part.
_PART_FILE: Final = re.compile(r"(?:.*/)?part-(\d{6,})(?:-\d{3,})?\.parquet")
_MEGABYTE: Final = 1 << 20
_NO_LIMIT: Final = 1 << 62


class ParquetWriter(DatasetWriter):
    """Writes a Parquet dataset: files and row groups of a given size, and finally a manifest that lists the files.

    ::

        schema = Schema("frames", [Field("id", "int64"), Field("day", str), Field("image", "uint8", (None, None, 3), PngCodec())])
        with ParquetWriter("s3://bucket/frames", schema, partition_by=["day"]) as writer:
            writer.append({"id": 0, "day": "2024-01-01", "image": image})
            writer.append_columns({"id": ids, "day": days, "image": images})

    A file is invisible until it is complete, and a complete dataset has a manifest. A writer that is opened again after an
    interruption resumes after the rows of all complete files: ``len(writer)`` is their number, and the caller appends the rows
    from there on. A writer that is opened on a complete dataset appends to it; until it is closed, readers see the dataset
    unchanged.

    Threads and processes do not share a writer, and a dataset has at most one writer at a time. Nothing is resumed in a store
    that cannot list and delete, nor among the resources of ``preprocess()``, whose steps are repeated as a whole.

    Args:
        target: a folder, a storage connector or the URL of one (``"s3://bucket/frames"``), or the PreparedResources that
            ``preprocess()`` gets.
        schema: of the rows; None to use the schema of the dataset, or to infer it from the first row or the first columns:
            integers become int64, floats float64, arrays arrays of their dtype and number of dimensions (in columns: of their
            shape), images of Pillow PNG, dicts structs; all fields are nullable. Each field needs a value there.
        prefix: folder below ``target``.
        row_group_mb: size of a row group in MiB before compression, which is its size in a reader's memory; small row groups suit
            random access.
        row_group_rows: maximum rows per row group.
        file_mb: approximate size of a file in MiB; a file ends with a row group.
        rows_per_file: maximum rows per file.
        partition_by: columns that become folders (``day=2024-01-01``) instead of columns of the files.
        compression: ``"zstd"``, ``"snappy"``, ``"gzip"``, ``"lz4"``, ``"brotli"`` or ``"none"``. Compressed cells such as images
            are not compressed again.
        petastorm: also write the metadata that Petastorm's ``make_reader`` needs; this requires the package
            ``lazy-data-stack-petastorm``.
        resume: continue the dataset in the folder; False to raise if the folder has one.
        overwrite: remove an existing dataset first.

    Attributes:
        schema: of the rows; None until it is known.

    Raises:
        ConfigError: an argument is invalid; or the folder has a dataset with another schema or of another writer.
        StorageConflictError: another writer is open.
        DatasetFileCorruptError: files of an earlier writer are damaged.
        StorageError: the dataset cannot be written.
    """

    def __init__(
        self,
        target: Any,
        schema: Schema | None = None,
        *,
        prefix: str = "",
        row_group_mb: float = 32.0,
        row_group_rows: int | None = None,
        file_mb: float = 512.0,
        rows_per_file: int | None = None,
        partition_by: Sequence[str] | None = None,
        compression: str = "zstd",
        petastorm: bool = False,
        resume: bool = True,
        overwrite: bool = False,
    ) -> None:
        if schema is not None and not isinstance(schema, Schema):
            raise ConfigError(f"schema must be a Schema, got {schema!r:.80}")
        if isinstance(partition_by, str):
            raise ConfigError(f"partition_by must be a list of columns, such as [{partition_by!r}]")
        if compression not in COMPRESSIONS:
            known, near = ", ".join(COMPRESSIONS), did_you_mean(compression, COMPRESSIONS)
            raise ConfigError(f"unknown compression {compression!r:.40}{near}; known: {known}")
        self._format = FileFormat(
            int(_at_least("row_group_mb", row_group_mb, 0) * _MEGABYTE) or 1,
            int(_at_least("row_group_rows", row_group_rows, 1)),
            compression,
            int(_at_least("file_mb", file_mb, 0) * _MEGABYTE),
            int(_at_least("rows_per_file", rows_per_file, 1)),
        )
        self._petastorm = bool(petastorm)
        self._folder = folder_of(target, prefix)
        self._name = self._folder.name or "the root of the store"
        self._short_name = self._folder.name.rpartition("/")[2] or "dataset"
        self._pid, self._state = os.getpid(), ""
        self.schema, self._asked_partition_by = (
            schema,
            None if partition_by is None else tuple(partition_by),
        )
        self._part: WriterPart | None = None
        self._stack = contextlib.ExitStack()
        with self._stack:
            lease = self._stack.enter_context(self._folder.lease("_data_stack.lock"))
            if not lease.acquire():
                raise StorageConflictError(
                    f"another writer has opened {self._name!r}: wait until it is closed"
                )
            self._resume_from(resume, overwrite)
            if self.schema is not None:
                self._prepare(self.schema)
            self._stack = self._stack.pop_all()

    def __len__(self) -> int:
        """Number of rows, including rows that are not durable yet; all rows of a newly opened writer are durable."""
        return self._n_before + (
            0 if self._part is None else self._part.n_rows + self._cells.n_rows
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._name!r}: {len(self):,} rows{', ' + self._state if self._state else ''}>"

    # ------------------------------------------------------------------ writing

    def append(self, row: Mapping[str, Any]) -> int:
        """Append a row: a value for each field, None for null. Nullable fields may be left out.

        Values may be objects of Python or numpy, tensors, or images of Pillow. The caller may change them afterwards.

        Returns:
            The position of the row.

        Raises:
            ConfigError: a value does not fit its field, or a field is missing or unknown. The row was not appended.
            StorageError: writing failed, for example on a full disk; the writer cannot be used any more.
        """
        self._check_usable()
        number = len(self)
        if not isinstance(row, Mapping):
            raise ConfigError(
                f"row {number} of {self._name!r} is a {type(row).__name__}, not a dict of its fields"
            )
        if self._part is None:
            self._prepare(
                schema_of_columns(self._short_name, {name: [value] for name, value in row.items()})
            )
        if self._cells.append(row, number):
            self._flush_rows()
        return number

    def append_columns(self, columns: Mapping[str, Any], *, encoded: Collection[str] = ()) -> None:
        """Append many rows, given as columns: arrays of shape ``(n, ...)``, lists of n values, or a DataFrame of pandas.

        Args:
            columns: values by name; nullable fields may be left out.
            encoded: names of columns with encoded cells instead of values, such as the bytes of image files; they are not
                decoded.

        Raises:
            ConfigError: as for :meth:`append`, or the columns differ in length. ``len(writer)`` counts the appended rows.
            StorageError: as for :meth:`append`.
        """
        self._check_usable()
        self._flush_rows()
        if not hasattr(columns, "keys"):
            raise ConfigError(
                f"columns must be a dict or a DataFrame, got {type(columns).__name__}"
            )
        if self._part is None:
            self._prepare(
                schema_of_columns(
                    self._short_name, {name: column_values(columns[name]) for name in columns}
                )
            )
        n_rows, arrays = self._cells.check_columns(columns, encoded)
        for start in range(0, n_rows, MAX_ROWS):
            self._spread(
                self._cells.encode(arrays, start, min(n_rows, start + MAX_ROWS), len(self), encoded)
            )

    def append_arrow(self, table: pa.Table | pa.RecordBatch) -> None:
        """Append rows with encoded cells, such as those of another dataset with the same schema; nothing is decoded.

        Args:
            table: columns by name, partition columns included, of the stored types, or of types that can be cast without loss.

        Raises:
            ConfigError, StorageError: as for :meth:`append_columns`.
        """
        self._flush_rows()
        if self._part is None:
            raise ConfigError("encoded cells do not determine a schema: pass schema=")
        columns = dict(zip(table.column_names, table.columns, strict=True))
        self.append_columns(columns, encoded=columns)

    def write(
        self,
        iterator: DatasetIteratorIF | Indexable,
        *,
        names: Sequence[str] | None = None,
        progress: bool | None = None,
    ) -> int:
        """Write the samples of an iterator from ``len(writer)`` on: samples of an earlier run are not written again.

        Args:
            iterator: dicts, or tuples with ``names``; bare samples are tuples of one. A sequence such as a list is allowed.
            names: names of the fields of tuples, by position.
            progress: show a progress bar; None to show it on a terminal and in a notebook.

        Returns:
            Number of rows in the dataset.

        Raises:
            ConfigError: as for :meth:`append`; or the dataset is longer than the iterator.
            StorageError: as for :meth:`append`.
        """
        self._check_usable()
        iterator = as_iterator(iterator)
        n_samples, start = len(iterator), len(self)
        if start > n_samples:
            raise ConfigError(
                f"{self!r} has more rows than the {n_samples} samples to write: it holds another dataset"
            )
        if start == n_samples:
            return start
        size = samples_at_once(by_name(iterator[start], names))
        for first in with_bar(
            range(start, n_samples, size), progress, desc="writing Parquet", unit="batch"
        ):
            self.append_columns(
                by_name(iterator.read_batch(range(first, min(n_samples, first + size))), names)
            )
        return len(self)

    def checkpoint(self) -> None:
        """Complete the open files: the rows so far become durable, and the next writer resumes after them.

        Raises:
            StorageError: as for :meth:`append`.
        """
        self._check_usable()
        self._flush_rows()
        if self._part is not None:
            with self._broken_by_errors():
                self._part.complete(is_noted=True)

    def close(self) -> None:
        """Complete the dataset: all files, then the manifest. Closing again does nothing.

        Raises:
            ConfigError: the writer has neither a schema nor rows.
            StorageError: writing failed. Complete files stay, and the next writer resumes after them.
        """
        if self._state in ("closed", "abandoned"):
            return
        try:
            self._check_usable()
            self._flush_rows()
            if self._part is None:
                raise ConfigError(f"{self._name!r} has neither rows nor a schema: pass schema=")
            self._finish(self._part)
        except BaseException:
            self.abandon()
            raise
        self._leave("closed")

    def abandon(self) -> None:
        """Discard rows that are not durable; the next writer resumes after the others."""
        if self._state in ("closed", "abandoned"):
            return
        try:
            if os.getpid() == self._pid and self._part is not None:
                self._part.discard()
        finally:
            self._leave("abandoned")

    # ------------------------------------------------------------------ resuming

    def _resume_from(self, resume: bool, overwrite: bool) -> None:
        """Read the manifest and the notes in the folder, and continue from there."""
        can_resume = self._folder.can_delete
        if overwrite and can_resume:
            _remove_dataset(self._folder)
        self._manifest = ParquetManifest.read(self._folder)
        if self._manifest is not None and not can_resume:
            raise ConfigError(
                f"{self._name!r} holds a Parquet dataset; this store can neither append to it nor remove it"
            )
        has_note = can_resume and self._folder.has_file(PROGRESS_NOTE)
        noted = (
            ParquetManifest.from_json(self._folder.read(PROGRESS_NOTE), PROGRESS_NOTE)
            if has_note
            else None
        )
        there = [each for each in (self._manifest, noted) if each is not None]
        for each in there:
            if not resume:
                what = (
                    "a Parquet dataset"
                    if each is self._manifest
                    else "files of an interrupted writer"
                )
                raise ConfigError(
                    f"{self._name!r} has {what}: choose another folder, or pass resume=True or overwrite=True"
                )
            _check_same(self._folder, each, self.schema, self._asked_partition_by)
            self.schema, self._asked_partition_by = each.schema, each.partition_by
        self._before = () if self._manifest is None else self._manifest.files
        listed = {file.name for file in self._before}
        # a writer that died at the very end has noted files that the manifest lists
        self._noted = tuple(
            file for file in (() if noted is None else noted.files) if file.name not in listed
        )
        numbers = [
            int(match[1]) + 1 for file in self._before if (match := _PART_FILE.fullmatch(file.name))
        ]
        self._n_parts = max([*numbers, *(each.n_parts for each in there)], default=0)
        self._n_before = sum(file.n_rows for file in (*self._before, *self._noted))
        if can_resume:
            _clear_left_over(self._folder, (*self._before, *self._noted), was_begun=has_note)

    def _prepare(self, schema: Schema) -> None:
        """Prepare to write rows of a schema."""
        partition_by = self._asked_partition_by or ()
        self._cells = Cells(schema, partition_by, self._name, self._format.file_rows)
        if self._petastorm:
            add_foreign_metadata(
                {}, schema, (), always=True
            )  # raises for fields that Petastorm lacks before it writes
        noted = ParquetManifest(schema, self._noted, partition_by, self._n_parts)
        self._part = WriterPart(self._folder, noted, self._cells.arrow_schema, self._format)
        self.schema = schema

    # ------------------------------------------------------------------ rows into files

    def _flush_rows(self) -> None:
        if self._part is not None and self._cells.n_rows:
            self._spread(self._cells.take())

    def _spread(self, cells: CellBatch) -> None:
        part: Any = self._part
        with self._broken_by_errors():
            part.add(cells)

    @contextlib.contextmanager
    def _broken_by_errors(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._state = f"broken by an error ({error!s:.200}); open a new writer, which resumes after the last complete file"
            raise

    # ------------------------------------------------------------------ the end

    def _finish(self, part: WriterPart) -> None:
        """Complete all files, and write the metadata files, the manifest last."""
        with self._broken_by_errors():
            # other tools need a file to see the columns
            part.complete(
                is_noted=True,
                needs_file=not (self._before or part.noted.files or part.noted.partition_by),
            )
        if self._manifest is None or part.noted.files or self._petastorm:
            manifest = replace(part.noted, files=(*self._before, *part.noted.files))
            before = read_metadata(self._folder) if self._folder.can_delete else None
            metadata = {
                **(before.metadata if before is not None else {}),
                **manifest.schema.metadata(),
            }
            metadata.pop(INDEXES_KEY, None)  # they are out of date
            made = add_foreign_metadata(
                metadata, manifest.schema, manifest.files, always=self._petastorm
            )
            names = [file.name for file in manifest.files]
            write_metadata(
                self._folder, self._cells.arrow_schema.with_metadata(made), names, manifest
            )
        clear_progress(self._folder)

    def _check_usable(self) -> None:
        if os.getpid() != self._pid:
            raise ConfigError(f"the writer of {self._name!r} belongs to the parent process")
        if self._state:
            raise ConfigError(f"cannot append to {self._name!r}: its writer is {self._state}")

    def _leave(self, state: str) -> None:
        self._state = state
        self._stack.close()


def _at_least(name: str, value: Any, least: float) -> float:
    if value is None:
        return _NO_LIMIT
    if not isinstance(value, (int, float, np.number)) or not value >= least or value <= 0:
        raise ConfigError(
            f"{name} must be a number {f'of at least {least}' if least else 'above 0'}, got {value!r:.40}"
        )
    return float(value)


def _is_data_file(path: str) -> bool:
    """Whether tools read a file as rows of the dataset, by its path."""
    return not is_hidden(path) and (has_suffix(path) or "." not in path.rpartition("/")[2])


def _clear_left_over(
    folder: Folder, known: Iterable[ParquetFileRecord], *, was_begun: bool
) -> None:
    """Delete files of parts that were not completed.

    Args:
        folder: of the dataset.
        known: the files that a manifest or notes list.
        was_begun: whether notes exist; only then such files may exist.

    Raises:
        ConfigError: a listed file is missing; or a file is neither listed nor of such a part.
    """
    there, names = folder.list_files(), {file.name for file in known}
    for name in sorted(names.difference(there)):
        raise ConfigError(
            f"{folder.full_name(name)!r} is in the manifest, but missing. Restore it. {RECREATE}"
        )
    stray = [name for name in there if _is_data_file(name) and name not in names]
    for name in stray:
        if not was_begun or not _PART_FILE.fullmatch(name):
            raise ConfigError(
                f"{folder.full_name(name)!r} already exists and is not in the manifest. {RECREATE}"
            )
    if folder.path is not None:  # stores clear up after themselves
        stray += [name for name in there if name.rpartition("/")[2].startswith(TEMPORARY)]
    for name in stray:
        folder.delete(name)


def _remove_dataset(folder: Folder) -> None:
    """Delete a Parquet dataset, its manifest first, so that no reader sees half of it. Other files stay.

    Raises:
        StorageError: a file could not be deleted.
    """
    names = folder.list_files()
    beside = find_metadata(folder, names)
    for name in [
        *reversed(beside),
        *filter("_metadata".__eq__, names),
        *filter(_is_data_file, names),
    ]:
        folder.delete(name)
    clear_progress(folder)


def _check_same(
    folder: Folder,
    there: ParquetManifest,
    schema: Schema | None,
    partition_by: tuple[str, ...] | None,
) -> None:
    """Check that rows may be appended to an existing dataset; None accepts its schema and partitions.

    Raises:
        ConfigError: schema or partitions differ.
    """
    differing = ""
    if schema is not None and list(schema) != list(there.schema):
        differ = sorted({field.name for field in set(schema) ^ set(there.schema)}) or [
            "the order of its fields"
        ]
        differing = f"of another schema, which differs in: {', '.join(differ)}"
    elif partition_by is not None and partition_by != there.partition_by:
        differing = f"partitioned by {list(there.partition_by)}, not by {list(partition_by)}"
    if differing:
        raise ConfigError(
            f"{folder.name!r} holds a Parquet dataset {differing}. Choose another folder, or overwrite=True"
        )
