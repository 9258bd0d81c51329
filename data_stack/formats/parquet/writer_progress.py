"""What a writer that has not finished has completed, so that the next one goes on from there."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from data_stack.dataset.strict_json import JsonObject, sealed_json
from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.parquet.dataset_names import COMMON_METADATA, PARQUET_MANIFEST, PROGRESS_FOLDER, is_data_file
from data_stack.formats.parquet.metadata import ParquetFileRecord, parsed_names, parsed_schema
from data_stack.formats.parquet.schema import Schema
from data_stack.io.folder import TEMPORARY, Folder

__all__ = ["PART_FILE", "WriterProgress", "check_same", "clear_left_over", "clear_progress", "remove_dataset"]

_BEGUN: Final = "begun.json"
_FORMAT: Final = "data_stack parquet progress 2"
#: What our writer calls the files of a part, with the number of the part.
PART_FILE: Final = re.compile(r"(?:.*/)?part-(\d{6,})(?:-\d{3,})?\.parquet")


@dataclass
class WriterProgress:
    """Notes in a folder of the dataset: what is written, and one note for each part that is complete.

    A part is one file; of a dataset with partitions, one or more in each of them. Its note is written when all of them are
    durable, so the files that are noted always hold the first rows that the writer was given.

    Attributes:
        folder: of the dataset.
        schema: of the rows.
        partition_by: columns that are folders.
        first_part: number of the first part of this writer.
        n_parts: number of the next one.
        files: of all complete parts.
    """

    folder: Folder
    schema: Schema
    partition_by: tuple[str, ...]
    first_part: int
    n_parts: int
    files: list[ParquetFileRecord]

    @classmethod
    def begin(cls, folder: Folder, schema: Schema, partition_by: tuple[str, ...], first_part: int) -> WriterProgress:
        """Note that a dataset is begun, or gone on with."""
        progress = cls(folder, schema, partition_by, first_part, first_part, [])
        if folder.can_delete:
            progress._put(
                _BEGUN,
                {
                    "format": _FORMAT,
                    "schema": json.dumps(schema.to_json()),
                    "partition_by": json.dumps(list(partition_by)),
                    "first_part": first_part,
                },
            )
        return progress

    @classmethod
    def find(cls, folder: Folder) -> WriterProgress | None:
        """What the last writer noted; None if there is nothing.

        Raises:
            DatasetFileCorruptError: it is damaged.
        """
        notes = folder.subfolder(PROGRESS_FOLDER)
        if not folder.can_delete or not notes.has_file(_BEGUN):
            return None
        what = notes.full_name(_BEGUN)
        fields = JsonObject.unsealed(notes.read(_BEGUN), what)
        if (stated := fields.text("format")) != _FORMAT:
            raise DatasetFileCorruptError(f"{what} is of the format {stated!r:.60}; this version of data_stack reads {_FORMAT!r}")
        schema = parsed_schema(fields.optional_text("schema"), what)
        partition_by, first_part = parsed_names(fields.text("partition_by"), what), fields.size("first_part")
        fields.done()
        if schema is None:
            raise DatasetFileCorruptError(f"{what} is damaged: it tells no schema")
        progress = cls(folder, schema, partition_by, first_part, first_part, [])
        while notes.has_file(_note_name(progress.n_parts)):
            progress._take(notes, _note_name(progress.n_parts))
        return progress

    def check(self, schema: Schema | None, partition_by: tuple[str, ...] | None) -> None:
        """Whether a writer of such rows may go on.

        Raises:
            ConfigError: it may not.
        """
        check_same(self.folder, self.schema, self.partition_by, schema, partition_by)

    @property
    def n_rows(self) -> int:
        """Rows of all complete parts."""
        return sum(file.n_rows for file in self.files)

    def add(self, files: list[ParquetFileRecord]) -> None:
        """Note that a part is complete; all its files are durable."""
        if self.folder.can_delete:
            self._put(_note_name(self.n_parts), {"files": [file.to_json() for file in files]})
        self.files += files
        self.n_parts += 1

    def clear(self) -> None:
        """Remove all notes: the manifest tells it all now, or the dataset is to be begun anew."""
        if self.folder.can_delete:
            clear_progress(self.folder)

    def _put(self, name: str, fields: dict[str, object]) -> None:
        with self.folder.subfolder(PROGRESS_FOLDER).create(name) as file:
            file.write(sealed_json(fields))

    def _take(self, notes: Folder, name: str) -> None:
        what = notes.full_name(name)
        fields = JsonObject.unsealed(notes.read(name), what)
        self.files += [ParquetFileRecord.from_json(each, what) for each in fields.objects("files")]
        fields.done()
        self.n_parts += 1


def clear_progress(folder: Folder) -> None:
    """Remove what a writer noted; the note that there is one goes last."""
    names = folder.subfolder(PROGRESS_FOLDER).list_names()
    for name in sorted(names, key=lambda name: name == _BEGUN):
        folder.delete(f"{PROGRESS_FOLDER}/{name}")


def clear_left_over(folder: Folder, before: Sequence[ParquetFileRecord], progress: WriterProgress | None) -> None:
    """Delete files of parts that were not completed, where this folder can.

    Raises:
        ConfigError: there is a file that neither the manifest nor the notes list, and that is none of such a part.
    """
    if not folder.can_delete:
        return
    known = {file.name for file in (*before, *(progress.files if progress is not None else ()))}
    there = folder.list_files()
    if folder.path is not None:  # stores clear up after themselves
        for name in there:
            if name.rpartition("/")[2].startswith(TEMPORARY):
                folder.delete(name)
    stray = [name for name in there if is_data_file(name) and name not in known]
    for name in stray:
        if progress is None or not PART_FILE.fullmatch(name):
            raise ConfigError(
                f"there is {folder.full_name(name)!r} already, which no manifest lists. Choose another folder; or "
                f"`data-stack parquet generate-metadata` makes a manifest of what is there, and overwrite=True removes it"
            )
    for name in stray:
        folder.delete(name)


def remove_dataset(folder: Folder) -> None:
    """Delete a Parquet dataset: its manifest first, so that it is never half there. Other files stay.

    Raises:
        ConfigError: this folder cannot delete.
        StorageError: something could not be deleted.
    """
    if not folder.can_delete:
        if folder.has_file(PARQUET_MANIFEST):
            raise ConfigError(f"{folder.name!r} holds a Parquet dataset, which cannot be removed from this store")
        return
    names = folder.list_files()
    for name in [*filter(names.__contains__, (PARQUET_MANIFEST, COMMON_METADATA, "_metadata")), *filter(is_data_file, names)]:
        folder.delete(name)
    clear_progress(folder)


def check_same(
    folder: Folder,
    schema: Schema,
    partition_by: tuple[str, ...],
    asked: Schema | None,
    asked_partition_by: tuple[str, ...] | None,
) -> None:
    """Whether rows of one schema may be written behind those of another.

    Raises:
        ConfigError: they may not.
    """
    if asked is not None and list(asked) != list(schema):
        differing = [field.name for field in asked if field.name not in schema or schema[field.name] != field]
        differing += [field.name for field in schema if field.name not in asked]
        raise ConfigError(
            f"{folder.name!r} holds a Parquet dataset of another schema: {', '.join(differing) or 'the order of its fields'} "
            f"{'differs' if len(differing) < 2 else 'differ'}. Choose another folder, or overwrite=True"
        )
    if asked_partition_by is not None and asked_partition_by != partition_by:
        raise ConfigError(
            f"{folder.name!r} holds a Parquet dataset partitioned by {list(partition_by)}, not by {list(asked_partition_by)}. "
            f"Choose another folder, or overwrite=True"
        )


def _note_name(part: int) -> str:
    return f"{part:06d}.json"
