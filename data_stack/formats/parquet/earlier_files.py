"""Finds the files that earlier writers left in a folder, so that a writer can resume."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from data_stack.exception import ConfigError
from data_stack.formats.parquet.files import has_suffix, is_hidden
from data_stack.formats.parquet.manifest import ParquetFileRecord, ParquetManifest
from data_stack.formats.parquet.metadata_files import RECREATE, find_metadata
from data_stack.formats.parquet.schema import Schema
from data_stack.formats.parquet.writer_part import PROGRESS_NOTE, clear_progress
from data_stack.io.folder import Folder
from data_stack.io.storage_connectors.unfinished import TEMPORARY

#: Matches the path of a file of a part, and finds the number of the part: ``part-000012.parquet``,
#: or with partitions ``day=1/part-000012-003.parquet``.
_PART_FILE: Final = re.compile(r"(?:.*/)?part-(\d{6,})(?:-\d{3,})?\.parquet")


@dataclass(frozen=True, slots=True)
class EarlierFiles:
    """The complete files that earlier writers left in a folder.

    A writer completes its files part by part, and notes them in a file of its own. When it closes,
    it lists them in the manifest, and removes its notes. So there are notes only if a writer was
    interrupted.

    Attributes:
        manifest: the manifest of the dataset; None if no writer was closed.
        notes: the notes of an interrupted writer, in the form of a manifest; None without one.
    """

    manifest: ParquetManifest | None
    notes: ParquetManifest | None

    @classmethod
    def read(cls, folder: Folder) -> EarlierFiles:
        """Read the manifest and the notes of a folder.

        Raises:
            DatasetFileCorruptError: the manifest or the notes are damaged.
            ConfigError: the schema in one of them has an unknown codec or dtype.
            StorageError: one of them cannot be read.
        """
        # A writer that could not delete its notes afterwards does not write any.
        manifest = ParquetManifest.read(folder)
        notes = None
        if folder.can_delete and folder.has_file(PROGRESS_NOTE):
            notes = ParquetManifest.from_json(folder.read(PROGRESS_NOTE), PROGRESS_NOTE)
        return cls(manifest, notes)

    @property
    def manifests(self) -> list[ParquetManifest]:
        """The manifest and the notes, in this order; those that exist."""
        manifests = []
        if self.manifest is not None:
            manifests.append(self.manifest)
        if self.notes is not None:
            manifests.append(self.notes)
        return manifests

    @property
    def listed(self) -> tuple[ParquetFileRecord, ...]:
        """The files that the manifest lists."""
        if self.manifest is None:
            return ()
        return self.manifest.files

    @property
    def noted(self) -> tuple[ParquetFileRecord, ...]:
        """The files that the notes list and the manifest does not.

        Both list the same files if a writer died after it wrote the manifest, but before it removed
        its notes.
        """
        if self.notes is None:
            return ()
        names_in_manifest = {file.name for file in self.listed}
        return tuple(file for file in self.notes.files if file.name not in names_in_manifest)

    @property
    def n_rows(self) -> int:
        """The number of rows of all complete files."""
        return sum(file.n_rows for file in (self.listed + self.noted))

    @property
    def n_parts(self) -> int:
        """The number of parts so far, which is the number of the next part.

        It is greater than the number in the name of each complete file.
        """
        n_parts = 0
        # A manifest that was generated for such files may not know the number of parts.
        for file in self.listed:
            match = _PART_FILE.fullmatch(file.name)
            if match is not None:
                n_parts = max(n_parts, int(match[1]) + 1)
        for manifest in self.manifests:
            n_parts = max(n_parts, manifest.n_parts)
        return n_parts


def check_can_append(
    folder: Folder,
    existing: ParquetManifest,
    schema: Schema | None,
    partition_by: tuple[str, ...] | None,
) -> None:
    """Check that rows may be appended to an existing dataset.

    Args:
        folder: the folder of the dataset, for the message.
        existing: the manifest of the dataset, or the notes of its interrupted writer.
        schema: the schema of the rows to append; None for that of the dataset.
        partition_by: the partition columns of these rows; None for those of the dataset.

    Raises:
        ConfigError: the dataset has another schema, or other partition columns.
    """
    difference = _describe_difference(existing, schema, partition_by)
    if difference is not None:
        raise ConfigError(
            f"{folder.name!r} holds a Parquet dataset {difference}. "
            "Choose another folder, or overwrite=True"
        )


def _describe_difference(
    existing: ParquetManifest, schema: Schema | None, partition_by: tuple[str, ...] | None
) -> str | None:
    """Say for a message how a dataset differs from the rows to append; None if it does not."""
    if schema is not None and list(schema) != list(existing.schema):
        fields_of_one = set(schema) ^ set(existing.schema)
        names = sorted({field.name for field in fields_of_one})
        # The fields are equal, so their order is not.
        what_differs = ", ".join(names) if names else "the order of its fields"
        return f"of another schema, which differs in: {what_differs}"
    if partition_by is not None and partition_by != existing.partition_by:
        return f"partitioned by {list(existing.partition_by)}, not by {list(partition_by)}"
    return None


def clear_left_over(folder: Folder, earlier: EarlierFiles) -> None:
    """Delete the files of an interrupted writer that are not complete.

    All files are checked before the first one is deleted. A file is deleted only if there are notes
    of an interrupted writer and the file is named as those of a writer: it may belong to somebody
    else.

    Args:
        folder: the folder of the dataset.
        earlier: the complete files in it.

    Raises:
        ConfigError: a complete file is missing, or a data file is neither complete nor to delete.
        StorageError: the folder cannot be listed, or a file cannot be deleted.
    """
    names = folder.list_files()
    complete_names = {file.name for file in (earlier.listed + earlier.noted)}
    missing_names = complete_names.difference(names)
    if missing_names:
        name = min(missing_names)
        raise ConfigError(
            f"{folder.full_name(name)!r} is in the manifest, but missing. Restore it. {RECREATE}"
        )

    names_to_delete = []
    for name in names:
        if not _is_data_file(name) or name in complete_names:
            continue
        is_of_interrupted_writer = earlier.notes is not None and _PART_FILE.fullmatch(name)
        if not is_of_interrupted_writer:
            raise ConfigError(
                f"{folder.full_name(name)!r} already exists and is not in the manifest. {RECREATE}"
            )
        names_to_delete.append(name)
    if folder.path is not None:  # A store removes its temporary files itself.
        for name in names:
            if _file_name(name).startswith(TEMPORARY):
                names_to_delete.append(name)
    for name in names_to_delete:
        folder.delete(name)


def remove_dataset(folder: Folder) -> None:
    """Delete a Parquet dataset. Files that are not Parquet stay.

    The manifest is deleted first, so that no reader sees half of the dataset.

    Raises:
        StorageError: a file could not be deleted.
    """
    names = folder.list_files()
    manifest_last = find_metadata(folder, names)
    for name in reversed(manifest_last):
        folder.delete(name)
    if "_metadata" in names:  # Spark writes the footers of all files there.
        folder.delete("_metadata")
    for name in names:
        if _is_data_file(name):
            folder.delete(name)
    clear_progress(folder)


def _is_data_file(path: str) -> bool:
    """Return whether tools read a file as rows of the dataset.

    Some tools write Parquet files whose names have no suffix, so such a name counts.
    """
    if is_hidden(path):
        return False
    return has_suffix(path) or "." not in _file_name(path)


def _file_name(path: str) -> str:
    """Return the last part of a path."""
    return path.rpartition("/")[2]
