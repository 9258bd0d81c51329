"""Writes Parquet datasets from rows, columns or the samples of an iterator."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.iterator.adapted import Indexable, as_iterator
from data_stack.exception import ConfigError, StorageConflictError
from data_stack.formats.class_name_metadata import metadata_of_class_names
from data_stack.formats.dataset_writer import DatasetWriter
from data_stack.formats.parquet.column_values import column_values
from data_stack.formats.parquet.earlier_files import (
    EarlierFiles,
    check_can_append,
    clear_left_over,
    remove_dataset,
)
from data_stack.formats.parquet.file_format import COMPRESSIONS, FileFormat
from data_stack.formats.parquet.foreign_metadata import add_foreign_metadata
from data_stack.formats.parquet.manifest import ParquetManifest
from data_stack.formats.parquet.metadata import write_metadata
from data_stack.formats.parquet.metadata_files import INDEXES_KEY, read_metadata
from data_stack.formats.parquet.row_encoder import MAX_ROWS, CellBatch, RowEncoder
from data_stack.formats.parquet.schema import Schema
from data_stack.formats.parquet.schema_of_columns import schema_of_columns
from data_stack.formats.parquet.writer_part import WriterPart, clear_progress
from data_stack.formats.sample_columns import by_name, samples_at_once
from data_stack.io.folder import Folder, folder_of
from data_stack.io.progress import with_bar
from data_stack.util.suggestions import did_you_mean

_MEBIBYTE: Final = 1 << 20
#: Stands for "no limit" where a number of rows or bytes is compared.
_NO_LIMIT: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class _RowSink:
    """Encodes rows of one schema and writes them to files.

    Attributes:
        encoder: encodes rows, and holds single rows until they are a batch.
        part: writes them to files.
    """

    encoder: RowEncoder
    part: WriterPart

    @property
    def n_rows(self) -> int:
        """Number of rows that the writer received."""
        return self.part.n_rows + self.encoder.n_rows


class ParquetWriter(DatasetWriter):
    """Writes a Parquet dataset: files and row groups of a given size, then a manifest of the files.

    ::

        schema = Schema(
            "frames",
            [
                Field("id", "int64"),
                Field("day", str),
                Field("image", "uint8", (None, None, 3), PngCodec()),
            ],
        )
        with ParquetWriter("s3://bucket/frames", schema, partition_by=["day"]) as writer:
            writer.append({"id": 0, "day": "2024-01-01", "image": image})
            writer.append_columns({"id": ids, "day": days, "image": images})

    A file is invisible until it is complete, and a complete dataset has a manifest. A writer that
    is opened again after an interruption resumes after the rows of all complete files:
    ``len(writer)`` is their number, and the caller appends the rows from there on. A writer that is
    opened on a complete dataset appends to it; until it is closed, readers see the dataset
    unchanged.

    Threads and processes do not share a writer, and a dataset has at most one writer at a time. A
    writer does not resume in a store that cannot list and delete. Nor does it resume in
    ``preprocess()``, which is repeated as a whole after an interruption.

    Args:
        target: a folder, a storage connector or the URL of one (``"s3://bucket/frames"``), or the
            PreparedResources that ``preprocess()`` gets.
        schema: of the rows; None to use the schema of the dataset, or to infer it from the first
            row or the first columns, which need a value for each field. Integers become int64, and
            floats become float64. An array keeps its dtype and number of dimensions; a column of
            arrays also keeps their shape. Images of Pillow become PNG, and dicts become structs.
            All fields are nullable.
        prefix: folder below ``target``.
        row_group_mb: size of a row group in MiB before compression, which is its size in a reader's
            memory; small row groups suit random access. None for no limit, here and below.
        row_group_rows: maximum rows per row group.
        file_mb: approximate size of a file in MiB; a file ends with a row group.
        rows_per_file: maximum rows per file.
        partition_by: columns that become folders (``day=2024-01-01``) instead of columns of the
            files, outermost first. Their values are text, integers, bools, dates or Decimals; null
            becomes ``__HIVE_DEFAULT_PARTITION__``. Other characters are quoted as in URLs. In a
            store, values may have letters, digits and ``._+@,-`` only.
        compression: ``"zstd"``, ``"snappy"``, ``"gzip"``, ``"lz4"``, ``"brotli"`` or ``"none"``.
            Compressed cells such as images are not compressed again.
        petastorm: also write the metadata that Petastorm's ``make_reader`` needs, which contains a
            pickle; this requires the package ``lazy-data-stack-petastorm``.
        resume: continue the dataset in the folder; False to raise if the folder has one.
        overwrite: remove an existing dataset first.
        class_names: the names of the classes of columns of labels, by column. ``datasets`` of
            Hugging Face reads them as ``ClassLabel`` where the field is a nullable int64.

    Attributes:
        schema: the schema of the rows; None until it is known.

    Raises:
        ConfigError: an argument is invalid; or the folder has a dataset with another schema or of
            another writer.
        StorageConflictError: another writer is open.
        DatasetFileCorruptError: files of an earlier writer are damaged.
        StorageError: the dataset cannot be written.
    """

    #: How to write the files.
    _format: FileFormat
    #: Whether to write Petastorm's metadata.
    _petastorm: bool
    #: The metadata with the names of classes; empty without such.
    _class_metadata: dict[bytes, bytes]
    #: The folder of the dataset.
    _folder: Folder
    #: Name of the folder, for messages.
    _name: str
    #: The process that opened the writer; a child process may not use it.
    _pid: int
    #: "" while the writer can be used; else why it cannot, as messages end: "closed", "abandoned"
    #: or "broken by …".
    _state: str
    #: The partition columns; None until a dataset or a schema decides.
    _partition_by: tuple[str, ...] | None
    #: The files in the folder when the writer was opened.
    _earlier: EarlierFiles
    #: Number of rows in these files.
    _n_earlier_rows: int
    #: None until the schema is known.
    _sink: _RowSink | None
    #: Holds the lease of the folder.
    _lease: contextlib.ExitStack

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
        class_names: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        if schema is not None and not isinstance(schema, Schema):
            raise ConfigError(f"schema must be a Schema, got {schema!r:.80}")
        if isinstance(partition_by, str):
            raise ConfigError(f"partition_by must be a list of columns, such as [{partition_by!r}]")
        if compression not in COMPRESSIONS:
            suggestion = did_you_mean(compression, COMPRESSIONS)
            known = ", ".join(COMPRESSIONS)
            raise ConfigError(
                f"unknown compression {compression!r:.40}{suggestion}; known: {known}"
            )
        # A limit that rounds to 0 bytes means row groups of one row.
        row_group_bytes = max(1, _bytes_of("row_group_mb", row_group_mb))
        self._format = FileFormat(
            row_group_bytes=row_group_bytes,
            row_group_rows=_max_rows("row_group_rows", row_group_rows),
            compression=compression,
            file_bytes=_bytes_of("file_mb", file_mb),
            file_rows=_max_rows("rows_per_file", rows_per_file),
        )
        self._petastorm = bool(petastorm)
        self._class_metadata = metadata_of_class_names(class_names or {})
        self._folder = folder_of(target, prefix)
        self._name = self._folder.name or "the root of the store"
        self._pid = os.getpid()
        self._state = ""
        self.schema = schema
        self._partition_by = None
        if partition_by is not None:
            self._partition_by = tuple(partition_by)
        self._sink = None
        with contextlib.ExitStack() as stack:
            lease = stack.enter_context(self._folder.lease("_data_stack.lock"))
            if not lease.acquire():
                raise StorageConflictError(
                    f"another writer has opened {self._name!r}: wait until it is closed"
                )
            self._earlier = self._take_over_earlier_files(resume=resume, overwrite=overwrite)
            if self.schema is not None:
                self._sink = self._open_sink(self.schema)
            self._lease = stack.pop_all()  # kept until the writer is closed

    def __len__(self) -> int:
        """Return the number of rows, including rows that are not durable yet.

        All rows of a newly opened writer are durable.
        """
        n_rows = self._n_earlier_rows
        if self._sink is not None:
            n_rows += self._sink.n_rows
        return n_rows

    def __repr__(self) -> str:
        state = f", {self._state}" if self._state else ""
        return f"<{type(self).__name__} of {self._name!r}: {len(self):,} rows{state}>"

    # ------------------------------------------------------------------ writing

    def append(self, row: Mapping[str, Any]) -> int:
        """Append a row: a value for each field, None for null. Nullable fields may be left out.

        Values may be objects of Python or numpy, tensors, or images of Pillow. The caller may
        change them afterwards.

        Returns:
            The position of the row.

        Raises:
            ConfigError: a value does not fit its field, or a field is missing or unknown. The row
                was not appended.
            StorageError: writing failed, for example on a full disk; the writer cannot be used any
                more.
        """
        self._check_usable()
        position = len(self)
        if not isinstance(row, Mapping):
            raise ConfigError(
                f"row {position} of {self._name!r} is a {type(row).__name__}, "
                "not a dict of its fields"
            )
        if self._sink is None:
            columns_of_one_row = {name: [row[name]] for name in row}
            self._sink = self._open_sink(self._infer_schema(columns_of_one_row))
        is_batch = self._sink.encoder.append(row, position)
        if is_batch:
            self._flush_rows()
        return position

    def append_columns(self, columns: Mapping[str, Any], *, encoded: Collection[str] = ()) -> None:
        """Append many rows, given as columns.

        Args:
            columns: values by name: arrays of shape ``(n, ...)``, lists of n values, or a DataFrame
                of pandas; nullable fields may be left out.
            encoded: names of columns with encoded cells instead of values, such as the bytes of
                image files; they are not decoded.

        Raises:
            ConfigError: as for :meth:`append`, or the columns differ in length. ``len(writer)``
                counts the appended rows.
            StorageError: as for :meth:`append`.
        """
        self._check_usable()
        self._flush_rows()
        if not hasattr(columns, "keys"):
            raise ConfigError(
                f"columns must be a dict or a DataFrame, got {type(columns).__name__}"
            )
        if self._sink is None:
            values = {name: column_values(columns[name]) for name in columns}
            self._sink = self._open_sink(self._infer_schema(values))
        encoder = self._sink.encoder
        n_rows, arrays = encoder.check_columns(columns, encoded)
        for start in range(0, n_rows, MAX_ROWS):
            stop = min(n_rows, start + MAX_ROWS)
            cells = encoder.encode(arrays, start, stop, len(self), encoded)
            self._write_cells(self._sink.part, cells)

    def append_arrow(self, table: pa.Table | pa.RecordBatch) -> None:
        """Append rows with encoded cells, such as those of another dataset with the same schema.

        Nothing is decoded.

        Args:
            table: columns by name, partition columns included, of the stored types, or of types
                that can be cast without loss.

        Raises:
            ConfigError, StorageError: as for :meth:`append_columns`.
        """
        self._check_usable()
        self._flush_rows()
        if self._sink is None:
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
        """Write the samples of an iterator from position ``len(writer)`` on.

        After an interruption, samples that an earlier writer wrote are not written again.

        Args:
            iterator: dicts, or tuples with ``names``; bare samples are tuples of one. A sequence
                such as a list is allowed.
            names: the names of the fields of tuples, by position.
            progress: show a progress bar; None to show it on a terminal and in a notebook.

        Returns:
            Number of rows in the dataset.

        Raises:
            ConfigError: as for :meth:`append`; or the dataset is longer than the iterator.
            StorageError: as for :meth:`append`.
        """
        self._check_usable()
        iterator = as_iterator(iterator)
        n_samples = len(iterator)
        n_written = len(self)
        if n_written > n_samples:
            raise ConfigError(
                f"{self!r} has more rows than the {n_samples} samples to write: "
                "it holds another dataset"
            )
        if n_written == n_samples:
            return n_written
        first_sample = by_name(iterator[n_written], names)
        batch_size = samples_at_once(first_sample)
        starts = range(n_written, n_samples, batch_size)
        for start in with_bar(starts, progress, desc="writing Parquet", unit="batch"):
            stop = min(n_samples, start + batch_size)
            batch = iterator.read_batch(range(start, stop))
            self.append_columns(by_name(batch, names))
        return len(self)

    def checkpoint(self) -> None:
        """Complete the open files.

        The rows so far become durable, and the next writer resumes after them.

        Raises:
            StorageError: as for :meth:`append`.
        """
        self._check_usable()
        self._flush_rows()
        if self._sink is not None:
            with self._broken_by_errors():
                self._sink.part.complete(is_noted=True)

    def close(self) -> None:
        """Complete the dataset: all files, then the manifest. Closing again does nothing.

        Raises:
            ConfigError: the writer has neither a schema nor rows.
            StorageError: writing failed. Complete files stay, and the next writer resumes after
                them.
        """
        if self._has_ended:
            return
        try:
            self._check_usable()
            self._flush_rows()
            if self._sink is None:
                raise ConfigError(f"{self._name!r} has neither rows nor a schema: pass schema=")
            self._complete_dataset(self._sink)
        except BaseException:
            self.abandon()
            raise
        self._release("closed")

    def abandon(self) -> None:
        """Discard rows that are not durable; the next writer resumes after the others."""
        if self._has_ended:
            return
        try:
            if os.getpid() == self._pid and self._sink is not None:
                self._sink.part.discard()
        finally:
            self._release("abandoned")

    # ------------------------------------------------------------------ beginning

    def _take_over_earlier_files(self, *, resume: bool, overwrite: bool) -> EarlierFiles:
        """Find the files of earlier writers, and take over their schema and partitions.

        Raises:
            ConfigError: the writer cannot or may not append to the files.
        """
        can_resume = self._folder.can_delete
        if overwrite and can_resume:
            remove_dataset(self._folder)
        earlier = EarlierFiles.read(self._folder)
        if earlier.manifest is not None and not can_resume:
            raise ConfigError(
                f"{self._name!r} holds a Parquet dataset; "
                "this store can neither append to it nor remove it"
            )
        for existing in earlier.manifests:
            if not resume:
                what = "files of an interrupted writer"
                if existing is earlier.manifest:
                    what = "a Parquet dataset"
                raise ConfigError(
                    f"{self._name!r} has {what}: "
                    "choose another folder, or pass resume=True or overwrite=True"
                )
            check_can_append(self._folder, existing, self.schema, self._partition_by)
            self.schema = existing.schema
            self._partition_by = existing.partition_by
        self._n_earlier_rows = earlier.n_rows
        if can_resume:
            clear_left_over(self._folder, earlier)
        return earlier

    def _infer_schema(self, columns: Mapping[str, Any]) -> Schema:
        """Infer the schema from the first columns. It is named after the folder."""
        folder_name = self._folder.name.rpartition("/")[2]
        return schema_of_columns(folder_name or "dataset", columns)

    def _open_sink(self, schema: Schema) -> _RowSink:
        """Prepare to write rows of a schema, which becomes that of the writer."""
        partition_by = self._partition_by or ()
        encoder = RowEncoder(schema, partition_by, self._name, self._format.file_rows)
        if self._petastorm:
            # Raise for fields that Petastorm lacks, before anything is written.
            add_foreign_metadata({}, schema, (), always=True)
        notes = ParquetManifest(schema, self._earlier.noted, partition_by, self._earlier.n_parts)
        metadata = {**(encoder.arrow_schema.metadata or {}), **self._class_metadata}
        arrow_schema = encoder.arrow_schema.with_metadata(metadata)
        part = WriterPart(self._folder, notes, arrow_schema, self._format)
        self.schema = schema
        return _RowSink(encoder, part)

    # ------------------------------------------------------------------ rows into files

    def _flush_rows(self) -> None:
        """Write the single rows that wait to be a batch."""
        if self._sink is not None and self._sink.encoder.n_rows:
            self._write_cells(self._sink.part, self._sink.encoder.take())

    def _write_cells(self, part: WriterPart, cells: CellBatch) -> None:
        """Write a batch of encoded rows."""
        with self._broken_by_errors():
            part.add(cells)

    @contextlib.contextmanager
    def _broken_by_errors(self) -> Iterator[None]:
        """Refuse further use of the writer after an error in the ``with`` block."""
        try:
            yield
        except BaseException as error:
            self._state = (
                f"broken by an error ({error!s:.200}); "
                "open a new writer, which resumes after the last complete file"
            )
            raise

    # ------------------------------------------------------------------ closing

    def _complete_dataset(self, sink: _RowSink) -> None:
        """Complete all files, and write the metadata files, the manifest last."""
        part = sink.part
        has_files = bool(self._earlier.listed or part.notes.files)
        # Other tools see the columns only if there is a file.
        needs_file = not has_files and not part.notes.partition_by
        with self._broken_by_errors():
            part.complete(is_noted=True, needs_file=needs_file)
        is_unchanged = self._earlier.manifest is not None and not part.notes.files
        if self._petastorm or not is_unchanged:
            self._write_manifest(part.notes, sink.encoder.arrow_schema)
        clear_progress(self._folder)

    def _write_manifest(self, notes: ParquetManifest, arrow_schema: pa.Schema) -> None:
        """Write the metadata files of all files, those of earlier writers included.

        Args:
            notes: the files that the manifest does not list yet.
            arrow_schema: the schema of the files.
        """
        manifest = replace(notes, files=self._earlier.listed + notes.files)
        metadata: dict[bytes, bytes] = {}
        if self._folder.can_delete:
            stored = read_metadata(self._folder)
            if stored is not None:
                metadata.update(stored.metadata)
        metadata.update(manifest.schema.metadata())
        metadata.update(self._class_metadata)
        metadata.pop(INDEXES_KEY, None)  # the indexes lack the new rows
        complete_metadata = add_foreign_metadata(
            metadata, manifest.schema, manifest.files, always=self._petastorm
        )
        paths = [file.name for file in manifest.files]
        write_metadata(self._folder, arrow_schema.with_metadata(complete_metadata), paths, manifest)

    def _check_usable(self) -> None:
        """Raise ConfigError if this process cannot use the writer, or cannot use it any more."""
        if os.getpid() != self._pid:
            raise ConfigError(f"the writer of {self._name!r} belongs to the parent process")
        if self._state:
            raise ConfigError(f"cannot append to {self._name!r}: its writer is {self._state}")

    @property
    def _has_ended(self) -> bool:
        return self._state in ("closed", "abandoned")

    def _release(self, state: str) -> None:
        """Release the lease of the folder, and refuse further use with ``state`` as the reason."""
        self._state = state
        self._lease.close()


def _bytes_of(name: str, mebibytes: Any) -> int:
    """Convert an argument in MiB, above 0, to bytes. None is no limit.

    Raises:
        ConfigError: it is not a finite number above 0.
    """
    if mebibytes is None:
        return _NO_LIMIT
    if not _is_finite_number(mebibytes) or not mebibytes > 0:
        raise ConfigError(f"{name} must be a number above 0, got {mebibytes!r:.40}")
    return int(float(mebibytes) * _MEBIBYTE)


def _max_rows(name: str, n_rows: Any) -> int:
    """Check an argument that limits rows, at least 1. None is no limit.

    Raises:
        ConfigError: it is not a finite number of at least 1.
    """
    if n_rows is None:
        return _NO_LIMIT
    if not _is_finite_number(n_rows) or not n_rows >= 1:
        raise ConfigError(f"{name} must be a number of at least 1, got {n_rows!r:.40}")
    return int(n_rows)


def _is_finite_number(value: Any) -> bool:
    """Whether a value is a real number, and neither NaN nor infinite."""
    if isinstance(value, (int, np.integer)):
        return True
    return isinstance(value, (float, np.floating)) and math.isfinite(value)
