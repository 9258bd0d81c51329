"""A folder of a store in which a record dataset is written: all of it is published at the end, or nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import Column
from data_stack.exception import ConfigError
from data_stack.formats.records.bag_writer import BagWriter
from data_stack.formats.records.column_buffer import ColumnBuffer
from data_stack.formats.records.folder_target import Target, spec_record
from data_stack.formats.records.layout import REFS, SPEC, bag_name, idx_name, spec_json
from data_stack.formats.records.manifest import MANIFEST, FileRecord, RecordsManifest
from data_stack.io.folder import Folder
from data_stack.io.integrity import Digest, HashingThread
from data_stack.io.storage_connectors.writer import local_file

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined]  # typeshed: Python 3.12

__all__ = ["StoreTarget"]

_COPY_BYTES = 1 << 20
#: What a fork got of its parent's unfinished resources: whose contexts must not end there, for that would remove them.
_OF_PARENTS: list[contextlib.ExitStack] = []


class _NothingToPublish(BaseException):
    """Ends the contexts of resources that shall not be published. Never leaves this module."""


class StoreTarget(Target):
    """A folder of a storage connector, or among the resources that a dataset prepares.

    Args:
        folder: the folder.
        columns: what it holds.
        hashing: takes SHA-256 of all files.
        replaces: whether what is there may be replaced.

    Raises:
        ConfigError: a dataset is there.
        StorageError: the store cannot be written.
    """

    def __init__(self, folder: Folder, columns: Mapping[str, Column], hashing: HashingThread, *, replaces: bool) -> None:
        if not replaces and (folder.has_file(MANIFEST) or folder.has_file(SPEC)):
            raise ConfigError(
                f"{folder.full_name(SPEC)!r} is stored already: in a store a dataset is written whole, once. Choose another "
                f"prefix, or delete the resources below this one"
            )
        self._folder, self._columns, self._hashing = folder, columns, hashing
        self._has_references = any(column.is_sequence for column in columns.values())
        self._contexts = contextlib.ExitStack()
        self._bags: dict[str, _StoredBag] = {}
        try:
            for name in [*columns, REFS] if self._has_references else columns:
                bag = _StoredFile(self._contexts.enter_context(folder.create(bag_name(name))), hashing)
                idx_context = (
                    local_file(folder.full_name(idx_name(name))) if self._has_references else folder.create(idx_name(name))
                )
                self._bags[name] = _StoredBag(bag, _StoredFile(self._contexts.enter_context(idx_context), hashing))
        except BaseException:
            self.release()
            raise
        self.bags = self._bags

    def checkpoint(self, buffers: Mapping[str, ColumnBuffer], count: int) -> None:
        """Nothing: a store publishes what is complete."""

    def finish(self, buffers: Mapping[str, ColumnBuffer], count: int) -> None:
        columns, record_bytes, files = {}, {}, {}
        for name, buffer in buffers.items():
            columns[name], record_bytes[name] = buffer.observed.result()
        for name, bag in self._bags.items():
            if self._has_references:
                bag.put_index_behind()
            else:
                files[idx_name(name)] = FileRecord.of(bag.idx.digest)
            files[bag_name(name)] = FileRecord.of(bag.bag.digest)
        files[SPEC] = spec_record(self._columns, self._hashing)
        self._contexts.close()
        for name, data in (
            (SPEC, spec_json(self._columns)),
            (MANIFEST, RecordsManifest(count, columns, record_bytes, dict(sorted(files.items()))).to_json()),
        ):
            with self._folder.create(name) as file:
                file.write(data)

    def release(self) -> None:
        contexts, self._contexts = self._contexts, contextlib.ExitStack()
        with contextlib.suppress(_NothingToPublish):
            contexts.__exit__(_NothingToPublish, _NothingToPublish(), None)

    def disown(self) -> None:
        _OF_PARENTS.append(self._contexts)


class _StoredFile:
    """A file that is written from its start to its end."""

    def __init__(self, file: IO[bytes] | Any, hashing: HashingThread) -> None:
        self.file, self.digest = file, Digest(hashing)

    def write(self, data: Buffer) -> None:
        data = bytes(data)  # which stores hash in the background
        self.file.write(data)
        self.digest.update(data)


class _StoredBag(BagWriter):
    is_repeatable = False

    def __init__(self, bag: _StoredFile, idx: _StoredFile) -> None:
        super().__init__()
        self.bag, self.idx = bag, idx
        self._begins_empty = False

    def _put(self, data: Buffer, ends: npt.NDArray[np.uint64]) -> None:
        if self.n_records == 0:
            self._begins_empty = int(ends[0]) == 0
        self.bag.write(data)
        self.idx.write(ends)

    def put_index_behind(self) -> None:
        """Make one file of both. A bag whose first record is empty needs a leading zero to be understood."""
        if self._begins_empty:
            self.bag.write(bytes(8))
        self.idx.file.seek(0)
        while piece := self.idx.file.read(_COPY_BYTES):
            self.bag.write(piece)
