"""Writes a record dataset that grows: in a local folder, sample after sample."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.records.column_writer import ColumnWriter
from data_stack.formats.records.growing_file import GrowingFile, disk_errors
from data_stack.formats.records.layout import (
    ENTRY_BYTES,
    SPEC,
    bag_name,
    idx_name,
    parse_spec,
    spec_json,
)
from data_stack.formats.records.manifest import MANIFEST, UNFINISHED, FileRecord, RecordsManifest
from data_stack.formats.records.record_batch import RecordBatch
from data_stack.formats.records.target import Target
from data_stack.util.group_rights import sync_folder


class GrowingTarget(Target):
    """A local folder without sequences, where a writer resumes where an earlier one stopped.

    A file ``unfinished`` marks the dataset while its files may be longer than the manifest says. A
    writer that finds the mark truncates them to what the manifest covers, as a power cut may have
    damaged the rest. Without the mark, as in Granular's datasets, all samples are valid that every
    column has.

    Raises:
        ConfigError: the folder has a dataset with other columns, or one that cannot be resumed.
        DatasetFileCorruptError: the dataset is damaged.
    """

    #: The files of all columns, by name.
    _files: dict[str, GrowingFile]

    #: The manifest in the folder; None without one.
    _manifest: RecordsManifest | None

    #: Whether the folder has the file ``unfinished``.
    _is_marked: bool

    # ------------------------------------------------------------------ opening

    def _open(self) -> None:
        folder = self._folder
        names = []
        for column_name in self._columns:
            names.append(bag_name(column_name))
            names.append(idx_name(column_name))
        if folder.has_file(SPEC):
            self._check_types_in_spec()
        else:
            self._check_folder_is_free(names)
            self._create(SPEC, spec_json(self._columns))
        self._manifest = self._read_manifest(names)
        self._check_indexes_exist()

        self._files = {}
        for name in names:
            file = self._stack.enter_context(GrowingFile(f"{folder.path}/{name}"))
            self._files[name] = file
        for column_name, writer in self.writers.items():
            writer.bag = self._files[bag_name(column_name)]
            writer.idx = self._files[idx_name(column_name)]
        self._is_marked = folder.has_file(UNFINISHED)
        self._resume()

    def _types(self) -> dict[str, str]:
        """Return the types of the columns by name, as ``spec.json`` has them."""
        return {name: column.type for name, column in self._columns.items()}

    def _check_folder_is_free(self, names: Iterable[str]) -> None:
        """Check that a folder without a ``spec.json`` has no files of these names.

        Raises:
            ConfigError: it has one.
        """
        for name in names:
            if self._folder.has_file(name):
                raise ConfigError(
                    f"{self._folder.full_name(name)!r} exists without a {SPEC}. "
                    "Choose another folder"
                )

    def _check_types_in_spec(self) -> None:
        """Check that the dataset in the folder has the columns to write.

        Raises:
            ConfigError: it has others.
            DatasetFileCorruptError: its ``spec.json`` is damaged.
        """
        folder = self._folder
        types_there = parse_spec(folder.read(SPEC), folder.full_name(SPEC))
        types = self._types()
        if types_there != types:
            raise ConfigError(
                f"{folder.name!r} has other columns: {types_there}, not {types}. "
                "Choose another folder"
            )

    def _read_manifest(self, names: Iterable[str]) -> RecordsManifest | None:
        """Read the manifest in the folder; return None without one.

        Args:
            names: the files that the manifest should list.

        Raises:
            DatasetFileCorruptError: the manifest is damaged.
        """
        folder = self._folder
        if not folder.has_file(MANIFEST):
            return None
        full_name = folder.full_name(MANIFEST)
        manifest = RecordsManifest.from_json(folder.read(MANIFEST), full_name)
        missing_names = set(names) - manifest.files.keys()
        if missing_names:
            raise DatasetFileCorruptError(f"{full_name} has no digest of {sorted(missing_names)}")
        types_there = {name: column.type for name, column in manifest.columns.items()}
        if types_there != self._types():
            raise DatasetFileCorruptError(f"{full_name} and {SPEC} name different columns")
        return manifest

    def _check_indexes_exist(self) -> None:
        """Check that each bag with records has an index in a file of its own.

        Granular up to 0.21 writes the index into the bag.

        Raises:
            ConfigError: a bag has no such index.
        """
        folder = self._folder
        for column_name in self._columns:
            bag = bag_name(column_name)
            if not folder.has_file(bag) or folder.has_file(idx_name(column_name)):
                continue
            with folder.open(bag) as file:
                is_empty = not file.read(1)
            if not is_empty:
                raise ConfigError(
                    f"{folder.full_name(bag)!r} has no index beside it. Choose another folder"
                )

    # ------------------------------------------------------------------ resuming

    def _resume(self) -> None:
        """Keep the samples that are valid, and remove bytes after them.

        Raises:
            DatasetFileCorruptError: a file is shorter than the manifest says.
        """
        is_longer = False
        for name, file in self._files.items():
            covered_bytes = self._covered_bytes(name)
            if file.size < covered_bytes:
                raise DatasetFileCorruptError(
                    f"{file.path!r} is cut short: {file.size} of {covered_bytes} bytes. Restore it"
                )
            if file.size > covered_bytes:
                is_longer = True
        if is_longer and not self._is_marked:
            self._resume_after_complete_samples()
        else:
            self._resume_after_covered_samples()

    def _covered_bytes(self, name: str) -> int:
        """Return how many bytes of a file the manifest covers."""
        if self._manifest is None:
            return 0
        return self._manifest.files[name].size

    def _resume_after_covered_samples(self) -> None:
        """Keep the samples that the manifest covers."""
        manifest = self._manifest
        self.count = 0 if manifest is None else manifest.count
        for name, writer in self.writers.items():
            writer.idx.cut(self.count * ENTRY_BYTES)
            writer.bag.cut(self._covered_bytes(bag_name(name)))
            if manifest is None:
                writer.written.resume_undescribed(0)
            else:
                writer.written.resume_after(
                    manifest.columns[name], manifest.record_bytes[name], manifest.count
                )

    def _resume_after_complete_samples(self) -> None:
        """Keep the samples that every column has, which another program appended.

        Raises:
            DatasetFileCorruptError: the manifest covers more.
        """
        self.count = min(_count_complete_records(writer) for writer in self.writers.values())
        if self._manifest is not None and self.count < self._manifest.count:
            raise DatasetFileCorruptError(
                f"{self._folder.name!r} has {self.count} samples, "
                f"its manifest {self._manifest.count}"
            )
        for writer in self.writers.values():
            index_bytes = self.count * ENTRY_BYTES
            writer.idx.cut(index_bytes)
            end_of_records = 0
            if self.count > 0:
                last_entry = writer.idx.read(index_bytes - ENTRY_BYTES, ENTRY_BYTES)
                end_of_records = int.from_bytes(last_entry, "little")
            writer.bag.cut(end_of_records)
            writer.written.resume_undescribed(self.count)

    # ------------------------------------------------------------------ writing

    def put(self, batches: Mapping[str, RecordBatch], n_samples: int) -> None:
        if not self._is_marked:
            # The samples before the mark must be covered: the next writer removes all others.
            if self.count > 0:
                self.checkpoint()
            self._create(UNFINISHED, b"")
            self._is_marked = True
        super().put(batches, n_samples)

    def checkpoint(self) -> None:
        earlier: Mapping[str, FileRecord] = {}
        if self._manifest is not None:
            earlier = self._manifest.files
            if all(earlier[name].size == file.size for name, file in self._files.items()):
                return
        for file in self._files.values():
            file.sync()
        records = {name: file.record(earlier.get(name)) for name, file in self._files.items()}
        self._manifest = self._write_manifest(records)

    def finish(self) -> None:
        if self._is_marked:
            for file in self._files.values():
                file.trim()
        self.checkpoint()
        if self._is_marked:
            self._folder.delete(UNFINISHED)
            path = str(self._folder.path)
            with disk_errors("write", path):
                sync_folder(path)
            self._is_marked = False

    def abandon(self) -> None:
        self.finish()

    def detach_in_child(self) -> None:
        # Closing the child's copies of the descriptors leaves the lock of the parent alone.
        self._stack.close()


def _count_complete_records(writer: ColumnWriter) -> int:
    """Return how many records of a column are complete, as its files show.

    Raises:
        DatasetFileCorruptError: the index is damaged.
    """
    ends = np.fromfile(writer.idx.path, "<u8")
    return count_complete_records(ends, writer.bag.size, writer.idx.path)


def count_complete_records(ends: npt.NDArray[np.uint64], n_bytes: int, path: str) -> int:
    """Return the number of entries of an index that point into its bag.

    A power cut may leave zeros at the end of the index, which do not count.

    Args:
        ends: the entries, shape ``(n_entries,)``.
        n_bytes: the size of the bag in bytes.
        path: the path of the index, for messages.

    Raises:
        DatasetFileCorruptError: an entry other than such a zero is smaller than the one before.
    """
    decreases = np.flatnonzero(ends[1:] < ends[:-1])
    if len(decreases) > 0:
        first_smaller = int(decreases[0]) + 1
        if ends[first_smaller:].any():
            raise DatasetFileCorruptError(
                f"{path!r} is damaged: entry {first_smaller} is smaller than the one before"
            )
        ends = ends[:first_smaller]
    return int(np.searchsorted(ends, np.uint64(n_bytes), "right"))
