"""Writes the files of a record dataset: sample by sample in a local folder, or as a whole."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import io
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import ColumnType
from data_stack.codecs.registry import codec_of
from data_stack.exception import ConfigError, DatasetFileCorruptError, StorageConflictError
from data_stack.formats.records.column_writer import ColumnWriter
from data_stack.formats.records.layout import (
    REFS,
    SPEC,
    bag_name,
    idx_name,
    parse_spec,
    spec_json,
)
from data_stack.formats.records.manifest import MANIFEST, UNFINISHED, FileRecord, RecordsManifest
from data_stack.formats.records.record_batch import RecordBatch
from data_stack.io.folder import Folder
from data_stack.io.integrity import Digest
from data_stack.io.storage_connectors.unfinished import TEMPORARY
from data_stack.io.storage_errors import storage_errors
from data_stack.util.group_rights import make_folders, sync_folder

_REMEDY = "Fix the cause, then open the dataset again: the writer resumes after the samples that were flushed"
_LOCK = "writing.lock"
_ENTRY_BYTES = 8
_READ_BYTES = 1 << 20
#: The disk begins with pieces of this size while the next ones are written.
_EARLY_BYTES = 2 << 20
#: Of Linux; it waits for nothing, and leaves errors of the disk to fsync.
_BEGIN_WRITING = getattr(ctypes.CDLL(None), "sync_file_range", None)
_SYNC_FILE_RANGE_WRITE = 2
#: A fork keeps its parent's unfinished resources here: ending their contexts would remove them.
_INHERITED_STACKS: list[contextlib.ExitStack] = []


disk_errors = functools.partial(storage_errors, if_full=_REMEDY, otherwise=_REMEDY)


class UploadedFile:
    """A file in a store, which hashes it, and publishes it as a whole."""

    def __init__(self, file: Any) -> None:
        self.file = file
        self.size = 0

    def put(self, data: bytes | memoryview) -> None:
        """Write bytes at the end."""
        self.size += self.file.write(bytes(data))  # which stores hash in the background

    def record(self) -> FileRecord:
        """Size and digests."""
        return FileRecord(self.size, self.file.digest.sha256, self.file.digest.blocks)


class GrowingFile:
    """A local file that is appended to.

    Attributes:
        path: path of the file.
        size: number of valid bytes.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        with disk_errors("open", path):
            self._handle = os.open(
                path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666
            )
            self.size = os.fstat(self._handle).st_size
        self._digest: Digest | None = None
        self._n_early = self.size

    def put(self, data: bytes | memoryview) -> None:
        """Append bytes, which must not change until more are put or :meth:`record` is called.

        Raises:
            StorageError: the disk is full or broken; the bytes are not part of the file.
        """
        view = memoryview(data).cast("B")
        n_done = 0
        with disk_errors("write", self.path):
            while n_done < len(view):
                n_done += os.pwrite(self._handle, view[n_done:], self.size + n_done)
        if self._digest is not None:
            self._digest.update(view, is_fixed=True)
        self.size += len(view)
        if _BEGIN_WRITING is not None and self.size - self._n_early >= _EARLY_BYTES:
            start, size = ctypes.c_int64(self._n_early), ctypes.c_int64(self.size - self._n_early)
            _BEGIN_WRITING(self._handle, start, size, _SYNC_FILE_RANGE_WRITE)
            self._n_early = self.size

    def cut(self, size: int) -> None:
        """Truncate the file to ``size`` bytes; :meth:`record` hashes them when it is called."""
        self.size = self._n_early = size
        self._digest = None if size else Digest()
        self.trim()

    def trim(self) -> None:
        """Remove bytes after the valid ones."""
        with disk_errors("shorten", self.path):
            if os.fstat(self._handle).st_size > self.size:
                os.ftruncate(self._handle, self.size)

    def read(self, offset: int, size: int) -> bytes:
        """Read bytes of the file.

        Raises:
            DatasetFileCorruptError: the file is shorter.
        """
        with disk_errors("read", self.path):
            data = os.pread(self._handle, size, offset)
        if len(data) < size:
            raise DatasetFileCorruptError(
                f"{self.path!r} ends at byte {offset + len(data)}: the file was truncated"
            )
        return data

    def sync(self) -> None:
        """Flush the file to disk."""
        with disk_errors("write", self.path):
            os.fsync(self._handle)

    def record(self, earlier: FileRecord | None = None) -> FileRecord:
        """Size and digests of the valid bytes; ``earlier`` is the manifest's record of the first bytes.

        Raises:
            DatasetFileCorruptError: the first bytes differ from ``earlier``.
        """
        if self._digest is None:
            digest, n_earlier = Digest(), 0 if earlier is None else earlier.size
            for start, stop in ((0, n_earlier), (n_earlier, self.size)):
                for offset in range(start, stop, _READ_BYTES):
                    digest.update(self.read(offset, min(_READ_BYTES, stop - offset)))
                if start == 0 and earlier is not None and digest.sha256 != earlier.sha256:
                    raise DatasetFileCorruptError(
                        f"{self.path!r} is damaged: it does not match the digest in the manifest"
                    )
            self._digest = digest
        return FileRecord(self._digest.size, self._digest.sha256, self._digest.blocks)

    def __enter__(self) -> GrowingFile:
        return self

    def __exit__(self, *_: object) -> None:
        # Another file may get the number of a closed one.
        handle = self._handle
        self._handle = -1
        os.close(handle)


class Target(ABC):
    """A dataset that is being written.

    Args:
        folder: the folder of the dataset.
        writers: the writers of its columns.

    Attributes:
        count: number of samples.
        writers: those of its columns, and of :data:`REFS` where there are sequences.

    Raises:
        StorageConflictError: another writer has the folder open.
    """

    def __init__(self, folder: Folder, writers: Mapping[str, ColumnWriter]) -> None:
        self._folder = folder
        self.writers = dict(writers)
        self._columns = {name: writer.column for name, writer in writers.items()}
        self._stack = contextlib.ExitStack()
        self.count = 0
        try:
            if folder.path is not None:
                self._lock(str(folder.path))
            self._open()
        except BaseException:
            self.give_up()
            raise

    def _lock(self, path: str) -> None:
        with disk_errors("create the folder", path):
            make_folders(path, durably=True)
        if not self._stack.enter_context(self._folder.lease(_LOCK)).acquire():
            raise StorageConflictError(
                f"another writer has the record dataset {path!r} open; wait, or let each write shards"
            )
        for name in self._folder.list_names():
            if name.startswith(TEMPORARY):  # of a writer that died
                self._folder.delete(name)

    @abstractmethod
    def _open(self) -> None:
        """Open the files of all columns."""

    def checkpoint(self) -> None:  # noqa: B027  # otherwise only the complete dataset is published
        """Make all samples durable and cover them by a manifest, if the dataset grows."""

    @abstractmethod
    def finish(self) -> None:
        """Make the dataset durable and complete; its manifest is written last."""

    def abandon(self) -> None:  # noqa: B027  # otherwise nothing is published
        """Leave the dataset so that another writer can resume it, if it grows."""

    def put(self, parts: Mapping[str, RecordBatch], n_samples: int) -> None:
        """Write samples: records of each column, and of :data:`REFS` where there are sequences.

        Raises:
            StorageError: they could not be written; the target cannot be used any more.
        """
        for name, part in parts.items():
            self.writers[name].put(part)
        self.count += n_samples

    def give_up(self) -> None:
        """Release all resources; unpublished files are discarded."""
        stack = self._stack
        self._stack = contextlib.ExitStack()
        # With an exception, the contexts of unpublished files discard them.
        stack.__exit__(GeneratorExit, GeneratorExit(), None)

    def detach_in_child(self) -> None:
        """Detach a forked child from the files, which belong to its parent."""
        _INHERITED_STACKS.append(self._stack)
        self._stack = contextlib.ExitStack()

    def _create(self, name: str, data: bytes) -> None:
        with self._folder.create(name) as file:
            file.write(data)

    def _write_manifest(self, files: dict[str, FileRecord]) -> RecordsManifest:
        known = {name: self.writers[name].written.describe() for name in self._columns}
        digest = Digest()
        digest.update(spec_json(self._columns))
        files[SPEC] = FileRecord(digest.size, digest.sha256, digest.blocks)
        columns = {name: column for name, (column, _) in known.items()}
        record_bytes = {name: n_bytes for name, (_, n_bytes) in known.items()}
        manifest = RecordsManifest(self.count, columns, record_bytes, dict(sorted(files.items())))
        self._create(MANIFEST, manifest.to_json())
        return manifest


class GrowingTarget(Target):
    """A local folder without sequences: samples are appended, and a writer resumes where an earlier one stopped.

    A file ``unfinished`` marks the dataset while its files may be longer than the manifest says. A writer that finds the mark
    truncates them to what the manifest covers, as a power cut may have damaged the rest. Without the mark, as in Granular's
    datasets, all samples are valid that every column has.

    Raises:
        ConfigError: the folder contains a dataset with other columns, or one that cannot be resumed.
        DatasetFileCorruptError: it is damaged.
    """

    def _open(self) -> None:
        folder = self._folder
        names = [file(name) for name in self._columns for file in (bag_name, idx_name)]
        if not folder.has_file(SPEC):
            for name in names:
                if folder.has_file(name):
                    raise ConfigError(
                        f"{folder.full_name(name)!r} exists without a {SPEC}. Choose another folder"
                    )
            self._create(SPEC, spec_json(self._columns))
        manifest = self._manifest_there = self._check_manifest(names)
        for name in self._columns:
            if folder.has_file(bag_name(name)) and not folder.has_file(idx_name(name)):
                with folder.open(bag_name(name)) as bag:
                    if bag.read(1):
                        raise ConfigError(
                            f"{folder.full_name(bag_name(name))!r} has no index beside it. Choose another folder"
                        )
        self._opened = {
            name: self._stack.enter_context(GrowingFile(f"{folder.path}/{name}")) for name in names
        }
        for name, writer in self.writers.items():
            writer.bag, writer.idx = self._opened[bag_name(name)], self._opened[idx_name(name)]
        self._is_marked = folder.has_file(UNFINISHED)
        self._resume_from(manifest)

    def _check_manifest(self, names: Sequence[str]) -> RecordsManifest | None:
        """The manifest that is there; ``names`` are those of the files that it should list."""
        folder = self._folder
        found = parse_spec(folder.read(SPEC), folder.full_name(SPEC))
        asked = {name: column.type for name, column in self._columns.items()}
        if found != asked:
            raise ConfigError(
                f"{folder.name!r} has other columns: {found}, not {asked}. Choose another folder"
            )
        if not folder.has_file(MANIFEST):
            return None
        manifest = RecordsManifest.from_json(folder.read(MANIFEST), folder.full_name(MANIFEST))
        missing = {*names} - manifest.files.keys()
        if {name: column.type for name, column in manifest.columns.items()} != asked or missing:
            problem = (
                f"has no digest of {sorted(missing)}"
                if missing
                else f"and {SPEC} name different columns"
            )
            raise DatasetFileCorruptError(f"{folder.full_name(MANIFEST)} {problem}")
        return manifest

    def _resume_from(self, manifest: RecordsManifest | None) -> None:
        """Keep the complete samples, and remove bytes after them."""
        promised = (
            {}
            if manifest is None
            else {name: record.size for name, record in manifest.files.items()}
        )
        is_longer = False
        for name, found in self._opened.items():
            if found.size < promised.get(name, 0):
                raise DatasetFileCorruptError(
                    f"{found.path!r} is cut short: {found.size} of {promised[name]} bytes. Restore it"
                )
            is_longer = is_longer or found.size > promised.get(name, 0)
        self.count = 0 if manifest is None else manifest.count
        is_covered = self._is_marked or not is_longer
        if not is_covered:
            self.count = min(map(_n_complete, self.writers.values()))
            if manifest is not None and self.count < manifest.count:
                raise DatasetFileCorruptError(
                    f"{self._folder.name!r} has {self.count} samples, its manifest {manifest.count}"
                )
        for name, writer in self.writers.items():
            writer.idx.cut(self.count * _ENTRY_BYTES)
            last = (
                writer.idx.read((self.count - 1) * _ENTRY_BYTES, _ENTRY_BYTES)
                if self.count
                else b""
            )
            writer.bag.cut(
                promised.get(bag_name(name), 0) if is_covered else int.from_bytes(last, "little")
            )
            if manifest is not None and is_covered:
                writer.written.resume_after(
                    manifest.columns[name], manifest.record_bytes[name], self.count
                )
            else:
                writer.written.resume_undescribed(self.count)

    def put(self, parts: Mapping[str, RecordBatch], n_samples: int) -> None:
        if not self._is_marked:
            if self.count:
                self.checkpoint()
            self._create(UNFINISHED, b"")
            self._is_marked = True
        super().put(parts, n_samples)

    def checkpoint(self) -> None:
        earlier = {} if self._manifest_there is None else self._manifest_there.files
        if earlier and all(earlier[name].size == each.size for name, each in self._opened.items()):
            return
        for each in self._opened.values():
            each.sync()
        self._manifest_there = self._write_manifest(
            {name: each.record(earlier.get(name)) for name, each in self._opened.items()}
        )

    def finish(self) -> None:
        if self._is_marked:
            for each in self._opened.values():
                each.trim()
        self.checkpoint()
        if self._is_marked:
            self._folder.delete(UNFINISHED)
            with disk_errors("write", path := str(self._folder.path)):
                sync_folder(path)
            self._is_marked = False

    def abandon(self) -> None:
        self.finish()

    def detach_in_child(self) -> None:
        self._stack.close()  # closing copies of its descriptors leaves the parent's lock alone


class WholeTarget(Target):
    """A store, or resources that a dataset prepares, or any folder with sequences. All files are published at the end.

    Raises:
        ConfigError: a dataset exists already.
        StorageError: the store cannot be written.
    """

    def _open(self) -> None:
        folder = self._folder
        if folder.has_file(SPEC):
            raise ConfigError(
                f"{folder.full_name(SPEC)!r} exists already, and cannot be resumed; choose another place"
            )
        self._has_sequences = any(column.is_sequence for column in self._columns.values())
        self._resources = self._stack.enter_context(contextlib.ExitStack())
        if self._has_sequences:
            self.writers[REFS] = ColumnWriter(
                REFS, ColumnType("bytes"), codec_of("bytes"), folder.name
            )
        for name, writer in self.writers.items():
            writer.bag = UploadedFile(self._resources.enter_context(folder.create(bag_name(name))))
            idx = (
                io.BytesIO()
                if self._has_sequences
                else self._resources.enter_context(folder.create(idx_name(name)))
            )
            writer.idx = UploadedFile(idx)

    def finish(self) -> None:
        records = {}
        for name, writer in self.writers.items():
            if self._has_sequences:
                index = writer.idx.file.getvalue()
                if writer.written.begins_empty:
                    # Such a bag is only readable with a zero before the first entry.
                    index = bytes(_ENTRY_BYTES) + index
                writer.bag.put(index)
            else:
                records[idx_name(name)] = writer.idx.record()
            records[bag_name(name)] = writer.bag.record()
        self._resources.close()
        self._write_manifest(records)
        self._create(SPEC, spec_json(self._columns))  # last: without it there is no dataset


def _n_complete(writer: ColumnWriter) -> int:
    """Number of entries of a column's index that point into its bag. A power cut may leave zeros at the end."""
    ends: npt.NDArray[np.uint64] = np.fromfile(writer.idx.path, "<u8")
    decreases = np.flatnonzero(ends[1:] < ends[:-1])
    if len(decreases):
        first = int(decreases[0]) + 1
        if ends[first:].any():
            raise DatasetFileCorruptError(
                f"{writer.idx.path!r} is damaged: entry {first} is smaller than the one before"
            )
        ends = ends[:first]
    return int(np.searchsorted(ends, np.uint64(writer.bag.size), "right"))
