"""Finds the files of earlier writers, after which a writer resumes."""

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

#: The name of a file of a part, with the number of the part.
_PART_FILE: Final = re.compile(r"(?:.*/)?part-(\d{6,})(?:-\d{3,})?\.parquet")


@dataclass(frozen=True, slots=True)
class EarlierFiles:
    """The complete files that earlier writers left in a folder.

    Attributes:
        manifest: the manifest of the dataset; None without a complete dataset.
        notes: what an interrupted writer noted; None without such a writer.
    """

    manifest: ParquetManifest | None
    notes: ParquetManifest | None

    @classmethod
    def read(cls, folder: Folder) -> EarlierFiles:
        """Read manifest and notes. Only a folder that can delete may have notes.

        Raises:
            DatasetFileCorruptError: manifest or notes are damaged.
            ConfigError: their schema has an unknown codec or dtype.
            StorageError: they cannot be read.
        """
        manifest = ParquetManifest.read(folder)
        notes = None
        if folder.can_delete and folder.has_file(PROGRESS_NOTE):
            notes = ParquetManifest.from_json(folder.read(PROGRESS_NOTE), PROGRESS_NOTE)
        return cls(manifest, notes)

    @property
    def manifests(self) -> list[ParquetManifest]:
        """The manifest, then the notes, as far as they exist."""
        return [manifest for manifest in (self.manifest, self.notes) if manifest is not None]

    @property
    def listed(self) -> tuple[ParquetFileRecord, ...]:
        """The files that the manifest lists."""
        if self.manifest is None:
            return ()
        return self.manifest.files

    @property
    def noted(self) -> tuple[ParquetFileRecord, ...]:
        """The files that notes list and the manifest does not.

        A writer that died at the very end has noted files that the manifest lists.
        """
        if self.notes is None:
            return ()
        names_in_manifest = {file.name for file in self.listed}
        return tuple(file for file in self.notes.files if file.name not in names_in_manifest)

    @property
    def n_rows(self) -> int:
        """Number of rows of all files."""
        return sum(file.n_rows for file in (self.listed + self.noted))

    @property
    def n_parts(self) -> int:
        """The number of the next part, greater than those of all complete files."""
        next_part = 0
        for file in self.listed:
            match = _PART_FILE.fullmatch(file.name)
            if match is not None:
                next_part = max(next_part, int(match[1]) + 1)
        for manifest in self.manifests:
            next_part = max(next_part, manifest.n_parts)
        return next_part


def check_can_append(
    folder: Folder,
    existing: ParquetManifest,
    schema: Schema | None,
    partition_by: tuple[str, ...] | None,
) -> None:
    """Check that rows may be appended to an existing dataset.

    Args:
        folder: of the dataset.
        existing: the manifest of the dataset, or the notes of its writer.
        schema: of the rows to append; None for the schema of the dataset.
        partition_by: partition columns of these rows; None for those of the dataset.

    Raises:
        ConfigError: schema or partitions differ.
    """
    difference = _difference(existing, schema, partition_by)
    if difference is not None:
        raise ConfigError(
            f"{folder.name!r} holds a Parquet dataset {difference}. "
            "Choose another folder, or overwrite=True"
        )


def _difference(
    existing: ParquetManifest, schema: Schema | None, partition_by: tuple[str, ...] | None
) -> str | None:
    """How a dataset differs from the rows to append, for a message; None if it does not."""
    if schema is not None and list(schema) != list(existing.schema):
        names = sorted({field.name for field in set(schema) ^ set(existing.schema)})
        what_differs = ", ".join(names) or "the order of its fields"
        return f"of another schema, which differs in: {what_differs}"
    if partition_by is not None and partition_by != existing.partition_by:
        return f"partitioned by {list(existing.partition_by)}, not by {list(partition_by)}"
    return None


def clear_left_over(folder: Folder, earlier: EarlierFiles) -> None:
    """Delete files of parts that were not completed. Only beside notes such files may exist.

    Args:
        folder: of the dataset.
        earlier: the complete files in it.

    Raises:
        ConfigError: a complete file is missing; or a file is neither complete nor of such a part.
    """
    names = folder.list_files()
    complete = {file.name for file in (earlier.listed + earlier.noted)}
    for name in sorted(complete.difference(names)):
        raise ConfigError(
            f"{folder.full_name(name)!r} is in the manifest, but missing. Restore it. {RECREATE}"
        )
    left_over = [name for name in names if _is_data_file(name) and name not in complete]
    for name in left_over:
        if earlier.notes is None or not _PART_FILE.fullmatch(name):
            raise ConfigError(
                f"{folder.full_name(name)!r} already exists and is not in the manifest. {RECREATE}"
            )
    if folder.path is not None:  # stores remove temporary files themselves
        for name in names:
            if _file_name(name).startswith(TEMPORARY):
                left_over.append(name)
    for name in left_over:
        folder.delete(name)


def remove_dataset(folder: Folder) -> None:
    """Delete a Parquet dataset. Other files stay.

    Its manifest is deleted first, so that no reader sees half of the dataset.

    Raises:
        StorageError: a file could not be deleted.
    """
    names = folder.list_files()
    for name in reversed(find_metadata(folder, names)):
        folder.delete(name)
    if "_metadata" in names:  # of Spark, with the footers of all files
        folder.delete("_metadata")
    for name in names:
        if _is_data_file(name):
            folder.delete(name)
    clear_progress(folder)


def _is_data_file(path: str) -> bool:
    """Whether tools read a file as rows of the dataset, by its path."""
    if is_hidden(path):
        return False
    return has_suffix(path) or "." not in _file_name(path)


def _file_name(path: str) -> str:
    return path.rpartition("/")[2]
