"""A folder in which a record dataset is written, and gone on with after an interruption."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Mapping
from typing import Any

from data_stack.codecs.codec import Column
from data_stack.exception import ConfigError, DatasetFileCorruptError, StorageConflictError, StorageError
from data_stack.formats.records.bag_writer import FolderBag
from data_stack.formats.records.column_buffer import ColumnBuffer
from data_stack.formats.records.growing_file import GrowingFile, disk_errors, sync_folder
from data_stack.formats.records.layout import MAX_RECORDS, REFS, SPEC, bag_name, idx_name, parsed_spec, spec_json
from data_stack.formats.records.manifest import MANIFEST, FileRecord, RecordsManifest
from data_stack.formats.records.progress import PROGRESS, Progress, this_boot
from data_stack.formats.records.references import parsed_references
from data_stack.io.folder import Folder
from data_stack.io.integrity import Digest, HashingThread
from data_stack.io.storage_connectors.owners import is_dead, this_process
from data_stack.util.executor import waiting
from data_stack.util.lock_file import try_lock

__all__ = ["PART", "FolderTarget", "Target", "spec_record"]

#: Behind the name of what is not finished, of a dataset with sequences.
PART = ".part"
#: What unfinished files are called in a folder, ours and those of :class:`Folder`.
_TEMPORARY = ".~"
#: As long as that lasts, a power cut costs no more.
_SYNC_SECONDS = 30.0
_ENTRY_BYTES = 8
_MOST_SYNCS = 8


class Target:
    """Where a dataset is written.

    Attributes:
        bags: the columns by name, and :data:`REFS` where there are sequences.
        count: complete samples that were found.
        manifest: what says of how many of them what they are; None if nothing does.
        is_closed: whether it is finished for good.
    """

    bags: Mapping[str, Any]
    count = 0
    manifest: RecordsManifest | None = None
    is_closed = False

    def observe_found(self, buffers: Mapping[str, ColumnBuffer]) -> None:
        """Let the columns' observations begin with what the manifest says."""

    def begin(self) -> None:
        """Called before the first samples are written."""

    def written(self, count: int) -> None:
        """Called when so many samples are written."""

    def sync(self, count: int) -> None:
        """Make what is written outlive a power cut, where there is anything before the end."""

    def finish(self, buffers: Mapping[str, ColumnBuffer], count: int) -> None:
        """Make it durable and complete, its manifest last."""
        raise NotImplementedError

    def checkpoint(self, buffers: Mapping[str, ColumnBuffer], count: int) -> None:
        """Make what is there durable, and verified from now on where that is possible."""
        raise NotImplementedError

    def release(self) -> None:
        """Give everything back, and leave the dataset as it is."""
        raise NotImplementedError

    def disown(self) -> None:
        """As in :meth:`release`, in a fork, to which nothing of it belongs."""
        raise NotImplementedError


class FolderTarget(Target):
    """A folder of this machine, for one writer at a time.

    Args:
        folder: the folder; it is made.
        columns: what it holds.
        hashing: takes SHA-256 of all files.
        truncates: whether to cut off what columns have beyond the last sample that is complete in all; if not, what is written is
            held against it.

    Raises:
        StorageConflictError: somebody else writes there.
        ConfigError: a dataset of other columns is there, or one that cannot be gone on with.
        DatasetFileCorruptError: it is damaged.
        StorageError: the folder cannot be written.
    """

    def __init__(self, folder: Folder, columns: Mapping[str, Column], hashing: HashingThread, *, truncates: bool) -> None:
        self._folder, self._columns, self._hashing = folder, columns, hashing
        self._root = str(folder.path)
        self._has_references = any(column.is_sequence for column in columns.values())
        self._names = [*columns, REFS] if self._has_references else list(columns)
        self._part = PART if self._has_references else ""
        self._n_observed = 0
        self._synced: int | None = None
        self._synced_at = time.monotonic()
        self._files: list[GrowingFile] = []
        self._made: list[str] = []
        self._make_folder()
        self._lock = self._claimed()
        try:
            self._remove_abandoned()
            self._check_spec()
            if self._has_references:
                self._open_unfinished()
            else:
                self._open_growing()
            self.bags = self._bags
            if self._bags:
                self.count = self._n_complete()
                for name, bag in self._bags.items():
                    bag.count(self._n_records(name, self.count))
                    if truncates:
                        bag.cut()
        except BaseException:
            self.release()
            raise

    # ------------------------------------------------------------------ while it is written

    def observe_found(self, buffers: Mapping[str, ColumnBuffer]) -> None:
        if self.manifest is not None and self._bags:
            self._n_observed = self.manifest.count
            for name, buffer in buffers.items():
                buffer.observed.follow(self.manifest.columns[name], self.manifest.record_bytes[name], self.manifest.count)
                buffer.observed.check(name)

    def begin(self) -> None:
        if self._synced is None:
            # Durable before any sample: a power cut must not leave samples without it.
            self._note(self.count)

    def written(self, count: int) -> None:
        if time.monotonic() - self._synced_at > _SYNC_SECONDS:
            self.sync(count)

    def sync(self, count: int) -> None:
        """Make samples durable, and note that they are."""
        if self._bags and self._synced != count:
            self._sync()
            self._note(count)

    def checkpoint(self, buffers: Mapping[str, ColumnBuffer], count: int) -> None:
        self.sync(count)
        if not self._has_references:
            self._publish(self._manifest(buffers, count))

    def finish(self, buffers: Mapping[str, ColumnBuffer], count: int) -> None:
        if self.is_closed:
            return
        for bag in self._bags.values():
            bag.cut()
        if not self._has_references:
            if self.manifest is None or self.manifest.count != count or not self._is_as_promised(self.manifest):
                self._sync()
                self._publish(self._manifest(buffers, count))
            self._forget_progress()
            return
        for bag in self._bags.values():
            _put_index_behind(bag)
        self._sync()
        manifest = self._manifest(buffers, count)
        self._put(MANIFEST + PART, manifest.to_json())
        with disk_errors("rename files in", self._root):
            for name in self._names:
                with contextlib.suppress(FileNotFoundError):  # an attempt that failed renamed it
                    os.rename(self._path(bag_name(name) + PART), self._path(bag_name(name)))
            self._settle()
        self.manifest = manifest

    # ------------------------------------------------------------------ the end

    def release(self) -> None:
        for file in self._files:
            file.close()
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    def disown(self) -> None:
        # Closing a copy of the descriptor leaves the parent's lock alone.
        self.release()

    # ------------------------------------------------------------------ opening

    def _path(self, file: str) -> str:
        return os.path.join(self._root, file)

    def _make_folder(self) -> None:
        with disk_errors("make the folder", self._root):
            above = self._root
            missing = []
            while not os.path.isdir(above):
                missing.append(above)
                above = os.path.dirname(above)
            for folder in reversed(missing):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(folder)
                self._made.append(folder)

    def _claimed(self) -> int:
        """The spec's file, locked for us. It is made whole if there is none."""
        path = self._path(SPEC)
        while True:
            with disk_errors("open", path):
                try:
                    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
                except FileNotFoundError:
                    if os.path.islink(path):
                        raise StorageError(f"could not open {path!r}: it is a link to nowhere. Remove it") from None
                    self._make_spec(path)
                    continue
                if not try_lock(handle):
                    os.close(handle)
                    raise StorageConflictError(
                        f"another writer has the record dataset {self._root!r} open. Wait until it is closed, or let each "
                        f"process write shards of its own (ShardedRecordWriter with shardstart and shardstep)"
                    )
                with contextlib.suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(handle), os.stat(path)):
                        return handle
                os.close(handle)

    def _remove_abandoned(self) -> None:
        """Remove temporary files of writers that died; while we hold the lock nobody else makes a manifest."""
        for name in self._folder.list_names():
            if name.startswith(_TEMPORARY):
                owner = name[len(_TEMPORARY) :].rpartition("-")[0]
                if not owner or is_dead(owner):
                    with contextlib.suppress(OSError):
                        os.unlink(self._path(name))

    def _make_spec(self, path: str) -> None:
        temporary = self._path(f"{_TEMPORARY}{this_process()}-{secrets.token_hex(4)}")
        with open(temporary, "xb") as file:
            try:
                file.write(spec_json(self._columns))
                file.flush()
                os.fsync(file.fileno())  # its name is durable with the first file of ours that is
                # Unlike a rename, a link never replaces what another writer has made and locked meanwhile.
                with contextlib.suppress(FileExistsError):
                    os.link(temporary, path)
            finally:
                os.unlink(temporary)

    def _check_spec(self) -> None:
        found = parsed_spec(self._folder.read(SPEC), self._folder.full_name(SPEC))
        asked = {name: column.type for name, column in self._columns.items()}
        if found != asked:
            raise ConfigError(
                f"{self._root!r} holds a record dataset of other columns: {found}, not {asked}. Choose another folder"
            )
        for name in (MANIFEST, MANIFEST + PART):
            if self.manifest is None and self._folder.has_file(name) and (name == MANIFEST or self._are_all_final()):
                self.manifest = RecordsManifest.from_json(self._folder.read(name), self._folder.full_name(name))
        if self.manifest is not None and {name: column.type for name, column in self.manifest.columns.items()} != asked:
            raise DatasetFileCorruptError(f"{self._folder.full_name(MANIFEST)} is of other columns than {SPEC}")
        if self.manifest is not None:
            indexes = [] if self._has_references else [idx_name(name) for name in self._names]
            for file in [bag_name(name) for name in self._names] + indexes:
                if file not in self.manifest.files:
                    raise DatasetFileCorruptError(f"{self._folder.full_name(MANIFEST)} has no digest of {file!r}")

    def _open_growing(self) -> None:
        if os.path.exists(self._path(bag_name(REFS))):
            raise ConfigError(
                f"{self._root!r} holds a finished dataset in the layout of Granular 0.21, to which nothing can be appended. "
                f"Write further samples to another folder"
            )
        self._open_bags()

    def _are_all_final(self) -> bool:
        return self._has_references and all(os.path.exists(self._path(bag_name(name))) for name in self._names)

    def _open_unfinished(self) -> None:
        """Take up what is not finished. A dataset with sequences is finished once all its bags have their names."""
        self._bags: dict[str, FolderBag] = {}
        with disk_errors("rename files in", self._root):
            if self._are_all_final():
                self.is_closed = True
                self._settle()
                self.count = self._n_in_finished()
                return
            for name in self._names:
                final = self._path(bag_name(name))
                if os.path.exists(final):
                    if not os.path.exists(self._path(idx_name(name) + PART)):
                        raise ConfigError(
                            f"{final!r} is in the way: it is no part of a dataset with sequences that this version of data_stack "
                            f"left unfinished. Choose another folder"
                        )
                    os.rename(final, final + PART)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path(MANIFEST + PART))
        self._open_bags()
        for bag in self._bags.values():
            bag.count(bag.n_found)
            bag.bag.cut()  # what has no entry in the index may be the index itself, put there to finish

    def _open_bags(self) -> None:
        self._bags = {}
        for name in self._names:
            bag_path, idx_path = self._path(bag_name(name) + self._part), self._path(idx_name(name) + self._part)
            if not os.path.exists(idx_path) and os.path.exists(bag_path) and os.path.getsize(bag_path):
                raise ConfigError(
                    f"{bag_path!r} has no index beside it: it is of an older layout, or the index is lost. Choose another "
                    f"folder, or remove this one to begin anew"
                )
            for path in (bag_path, idx_path):
                self._files.append(GrowingFile(path, self._hashing))
            promised = (0, 0)
            if self.manifest is not None:
                file = self.manifest.files.get(bag_name(name))
                promised = (self.manifest.count, file.size if file is not None else 0)
            self._bags[name] = FolderBag(name, self._files[-2], self._files[-1], promised)

    # ------------------------------------------------------------------ how far it got

    def _n_trusted(self) -> int:
        """Samples that are what was written: all, unless their writer's machine stopped before they were synced."""
        if not self._folder.has_file(PROGRESS):
            return MAX_RECORDS  # another tool's
        progress = Progress.from_json(self._folder.read(PROGRESS))
        if progress.boot == this_boot():
            return MAX_RECORDS
        return max(progress.count, self.manifest.count if self.manifest is not None else 0)

    def _note(self, count: int) -> None:
        self._put(PROGRESS, Progress(this_boot(), count).to_json())
        self._synced, self._synced_at = count, time.monotonic()

    def _forget_progress(self) -> None:
        with disk_errors("remove a file of", self._root), contextlib.suppress(FileNotFoundError):
            os.unlink(self._path(PROGRESS))

    def _n_complete(self) -> int:
        """Samples of which each column has all records."""
        n_samples = min(bag.n_found for name, bag in self._bags.items() if not self._has_references or name == REFS)
        n_samples = min(n_samples, self._n_trusted())  # first: what lies behind may be anything
        if not self._has_references:
            return n_samples
        while n_samples and any(self._n_records(name, n_samples) > bag.n_found for name, bag in self._bags.items()):
            n_samples -= 1
        return n_samples

    def _n_records(self, name: str, n_samples: int) -> int:
        """How many records of a column the first samples have."""
        if name == REFS or not self._columns[name].is_sequence:
            return n_samples
        references = self._bags[REFS]
        position = list(self._columns).index(name)
        are_sequences = [column.is_sequence for column in self._columns.values()]
        while n_samples:  # the last sample whose sequence is not empty
            n_samples -= 1
            start, stop = references.end_of(n_samples), references.end_of(n_samples + 1)
            try:
                first, count = parsed_references(references.bag.read(start, stop - start), are_sequences)[position]
            except ValueError as error:
                raise DatasetFileCorruptError(
                    f"{references.bag.path!r} is damaged: record {n_samples} (byte {start}) does not name the records of a "
                    f"sample: {error}"
                ) from error
            if count:
                return first + count
        return 0

    def _n_in_finished(self) -> int:
        if self.manifest is not None:
            return self.manifest.count
        with self._folder.open(bag_name(REFS)) as file:
            size = file.seek(0, os.SEEK_END)
            if size == 0:
                return 0
            file.seek(max(0, size - _ENTRY_BYTES))
            start = int.from_bytes(file.read(_ENTRY_BYTES), "little")
            if start > size - _ENTRY_BYTES or (size - start) % _ENTRY_BYTES:
                raise DatasetFileCorruptError(
                    f"{self._path(bag_name(REFS))!r} is damaged or was never finished: its last 8 bytes do not tell where its "
                    f"index begins. Choose another folder"
                )
            file.seek(start)
            has_leading_zero = file.read(_ENTRY_BYTES) == bytes(_ENTRY_BYTES)
            return (size - start) // _ENTRY_BYTES - has_leading_zero

    # ------------------------------------------------------------------ finishing

    def _is_as_promised(self, manifest: RecordsManifest) -> bool:
        return all(manifest.files[name].size == file.size for name, file in self._final_files().items())

    def _final_files(self) -> dict[str, GrowingFile]:
        """The files that stay, by the name that they will have."""
        files = {bag_name(name): bag.bag for name, bag in self._bags.items()}
        if not self._has_references:
            files |= {idx_name(name): bag.idx for name, bag in self._bags.items()}
        return files

    def _sync(self) -> None:
        # At once: a journaling file system settles them together.
        for _ in waiting.map(GrowingFile.sync, self._files, at_once=_MOST_SYNCS):
            pass

    def _manifest(self, buffers: Mapping[str, ColumnBuffer], count: int) -> RecordsManifest:
        columns, record_bytes, files = {}, {}, {}
        for name, buffer in buffers.items():
            bag = self._bags[name]
            # The sequences of a dataset that was interrupted have no manifest that could say how many values were seen.
            if self._n_observed < self.count:
                buffer.observed.add_stored(bag, self._n_records(name, self._n_observed), self._n_records(name, self.count))
                buffer.observed.check(name)
            columns[name], record_bytes[name] = buffer.observed.result()
        self._n_observed = self.count
        for name, file in self._final_files().items():
            files[name] = file.record(self.manifest.files.get(name) if self.manifest is not None else None)
        files[SPEC] = spec_record(self._columns, self._hashing)
        return RecordsManifest(count, columns, record_bytes, dict(sorted(files.items())))

    def _publish(self, manifest: RecordsManifest) -> None:
        self._put(MANIFEST, manifest.to_json())
        self.manifest = manifest

    def _put(self, name: str, data: bytes) -> None:
        """Make a small file, durable, and with it all names that were made before."""
        with self._folder.create(name) as file:
            file.write(data)
        while self._made:
            sync_folder(os.path.dirname(self._made[-1]))
            self._made.pop()

    def _settle(self) -> None:
        """All bags of a dataset with sequences have their names: give the manifest its own, and remove what is left over."""
        sync_folder(self._root)
        with contextlib.suppress(FileNotFoundError):
            os.rename(self._path(MANIFEST + PART), self._path(MANIFEST))
        for name in self._names:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path(idx_name(name) + PART))
        self._forget_progress()
        sync_folder(self._root)


def spec_record(columns: Mapping[str, Column], hashing: HashingThread) -> FileRecord:
    """What a manifest says of ``spec.json``."""
    digest = Digest(hashing)
    digest.update(spec_json(columns))
    return FileRecord.of(digest)


def _put_index_behind(bag: FolderBag) -> None:
    """Make one file of a bag and its index. A bag whose first record is empty needs a leading zero to be understood."""
    if bag.n_records == 0:
        return
    n_leading = _ENTRY_BYTES if bag.end_of(1) == 0 else 0
    n_put = bag.bag.size - bag.n_bytes  # by an attempt that failed
    if n_put < n_leading:
        bag.bag.write(bytes(n_leading))
        bag.bag.advance()
        n_put = n_leading
    for piece in bag.idx.pieces(n_put - n_leading, bag.n_records * _ENTRY_BYTES):
        bag.bag.write(piece)
        bag.bag.advance()
