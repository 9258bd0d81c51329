"""The interface of what a writer of records writes to."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Mapping

from data_stack.exception import StorageConflictError
from data_stack.formats.records.column_writer import ColumnWriter
from data_stack.formats.records.growing_file import disk_errors
from data_stack.formats.records.layout import SPEC, spec_json
from data_stack.formats.records.manifest import MANIFEST, FileRecord, RecordsManifest
from data_stack.formats.records.record_batch import RecordBatch
from data_stack.io.folder import Folder
from data_stack.io.integrity import Digest
from data_stack.io.storage_connectors.unfinished import TEMPORARY
from data_stack.util.group_rights import make_folders

#: The lease of the one writer that has a local folder open.
_LOCK = "writing.lock"

#: The unfinished resources of the parents of this process, see :meth:`Target.detach_in_child`.
_INHERITED_STACKS: list[contextlib.ExitStack] = []


class Target(ABC):
    """A dataset that is being written.

    Args:
        folder: the folder of the dataset.
        writers: the writer of each column.

    Attributes:
        count: the number of samples.
        writers: the writer of each column, and of :data:`REFS` where there are sequences.

    Raises:
        StorageConflictError: another writer has the folder open.
    """

    #: The lock and the open files.
    _stack: contextlib.ExitStack

    def __init__(self, folder: Folder, writers: Mapping[str, ColumnWriter]) -> None:
        self._folder = folder
        self._columns = {name: writer.column for name, writer in writers.items()}
        self._stack = contextlib.ExitStack()
        self.writers = dict(writers)
        self.count = 0
        try:
            if folder.path is not None:
                self._lock(str(folder.path))
            self._open()
        except BaseException:
            self.give_up()
            raise

    def _lock(self, path: str) -> None:
        """Lock a local folder, and remove what a writer that died has left there.

        Raises:
            StorageConflictError: another writer has the folder open.
        """
        with disk_errors("create the folder", path):
            make_folders(path, durably=True)
        lease = self._stack.enter_context(self._folder.lease(_LOCK))
        if not lease.acquire():
            raise StorageConflictError(
                f"another writer has the record dataset {path!r} open; "
                "wait, or let each write shards"
            )
        for name in self._folder.list_names():
            if name.startswith(TEMPORARY):
                self._folder.delete(name)

    @abstractmethod
    def _open(self) -> None:
        """Open the files of all columns."""

    # ------------------------------------------------------------------ writing

    def put(self, batches: Mapping[str, RecordBatch], n_samples: int) -> None:
        """Write samples.

        Args:
            batches: the records of each column, and of :data:`REFS` where there are sequences.
            n_samples: the number of samples.

        Raises:
            StorageError: they could not be written; the target cannot be used any more.
        """
        for name, batch in batches.items():
            self.writers[name].put(batch)
        self.count += n_samples

    def checkpoint(self) -> None:  # noqa: B027  # otherwise only the complete dataset is published
        """Make all samples durable and cover them by a manifest, if the dataset grows."""

    @abstractmethod
    def finish(self) -> None:
        """Make the dataset durable and complete; its manifest is written last."""

    def abandon(self) -> None:  # noqa: B027  # otherwise nothing is published
        """Leave the dataset so that another writer can resume it, if it grows."""

    # ------------------------------------------------------------------ end

    def give_up(self) -> None:
        """Release the lock and all files; unpublished files are discarded."""
        stack = self._stack
        self._stack = contextlib.ExitStack()
        # With an exception, the contexts of unpublished files discard them.
        stack.__exit__(GeneratorExit, GeneratorExit(), None)

    def detach_in_child(self) -> None:
        """Detach a forked child from the files, which belong to its parent.

        The child keeps the contexts of the unpublished files, unused, until it ends: ending them,
        which Python does with contexts that nothing refers to, would discard the parent's files.
        """
        _INHERITED_STACKS.append(self._stack)
        self._stack = contextlib.ExitStack()

    # ------------------------------------------------------------------ spec and manifest

    def _create(self, name: str, data: bytes) -> None:
        """Create a file of the dataset, atomically."""
        with self._folder.create(name) as file:
            file.write(data)

    def _write_manifest(self, files: Mapping[str, FileRecord]) -> RecordsManifest:
        """Write the manifest.

        Args:
            files: the size and the digests of all files but ``spec.json``.
        """
        columns = {}
        record_bytes = {}
        for name in self._columns:
            column, n_bytes = self.writers[name].written.describe()
            columns[name] = column
            record_bytes[name] = n_bytes

        digest_of_spec = Digest()
        digest_of_spec.update(spec_json(self._columns))
        spec_record = FileRecord(digest_of_spec.size, digest_of_spec.sha256, digest_of_spec.blocks)
        all_files = dict(sorted({**files, SPEC: spec_record}.items()))

        manifest = RecordsManifest(self.count, columns, record_bytes, all_files)
        self._create(MANIFEST, manifest.to_json())
        return manifest
