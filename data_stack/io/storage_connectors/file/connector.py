"""The storage connector for a folder.

The file of ``a/b.gz`` is ``ROOT/a/b.gz``, so that other tools can read a store. Other names are
internal: ``.~OWNER-RANDOM`` is an unfinished write, ``.~partial-…`` an interrupted download
(:mod:`data_stack.io.storage_connectors.unfinished`), and ``ROOT/.data_stack`` holds

- ``digests/a/b.gz~``: the SHA-256 of ``a/b.gz``, with size, times and inode
  (:mod:`data_stack.io.storage_connectors.file.digest_notes`);
- ``leases/…``: the locks of :meth:`FileStorageConnector.lease`, which end with their process.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from data_stack.exception import (
    ChecksumMismatchError,
    MaliciousFilePathError,
    ResourceNotFoundError,
)
from data_stack.io.identifiers import (
    OWN_FOLDER,
    check_identifier,
    check_key,
    check_key_prefix,
    check_prefix,
    is_identifier,
    is_key,
)
from data_stack.io.integrity import Digest
from data_stack.io.lazy_source import LazySource
from data_stack.io.resources import Storable, StreamedResource, SupportedStreamedResourceTypes
from data_stack.io.storage_connectors.connector import (
    BINARY,
    DAY_SECONDS,
    Garbage,
    KeyOpener,
    ResourceInfo,
    StorageConnector,
)
from data_stack.io.storage_connectors.file.digest_notes import (
    DigestNote,
    DigestNotes,
    digest_of,
    state_of,
)
from data_stack.io.storage_connectors.file.opened_file import OpenedFile
from data_stack.io.storage_connectors.file.publishing import publishing
from data_stack.io.storage_connectors.file.store_folder import StoreFolder
from data_stack.io.storage_connectors.lease import FileLease, Lease
from data_stack.io.storage_connectors.partial import Partial
from data_stack.io.storage_connectors.storable import binary_chunks
from data_stack.io.storage_connectors.unfinished import remove_unfinished
from data_stack.io.storage_connectors.writer import ResourceWriter
from data_stack.io.storage_errors import explaining, storage_error
from data_stack.io.tree import LEADS_OUT, Tree, is_below, walk_folder


@dataclass(frozen=True, slots=True)
class _StoredFile:
    """The file of a resource, in its open folder.

    Attributes:
        folder: the descriptor of the folder.
        name: the name of the file in the folder.
        status: the status of the file.
    """

    folder: int
    name: str
    status: os.stat_result


class FileStorageConnector(StorageConnector):
    """Keeps resources as files below ``root_path``. Several processes may share it.

    The first write creates the folder. The folder may be a symbolic link. A link inside of the
    folder is not a resource; if its target is a file below ``root_path``, :meth:`open_key` reads
    it.

    After another program has edited, damaged or copied a file, its digest is unknown: ``stat``
    returns None for it, and the next loading of a dataset reads the file and compares it with the
    manifest.

    A resource ``a`` and one below it, ``a/b``, exclude each other.

    Args:
        root_path: the folder of the store. As in the original, an absolute identifier below it is
            accepted.

    Attributes:
        root_path: the absolute path of the folder.
    """

    knows_digests = True
    root_path: str
    #: The notes on the digests of the files.
    _notes: DigestNotes
    #: Opens the folders of the files.
    _folder: StoreFolder

    def __init__(self, root_path: str | os.PathLike[str]) -> None:
        self.root_path = os.path.abspath(os.fspath(root_path))
        self._notes = DigestNotes(os.path.join(self.root_path, OWN_FOLDER, "digests"))
        self._folder = StoreFolder(self.root_path)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.root_path!r})"

    # ------------------------------------------------------------------ reading

    def get_resource(
        self, identifier: str, resource_type: SupportedStreamedResourceTypes = BINARY
    ) -> StreamedResource:
        identifier = self._check_name(identifier)
        with self._locate(identifier):
            source = LazySource(functools.partial(self._open_file, identifier))
        return self._make_resource(identifier, source, resource_type)

    def has_resource(self, identifier: str) -> bool:
        try:
            with self._locate(self._check_name(identifier)):
                return True
        except ResourceNotFoundError:
            return False

    def stat(self, identifier: str) -> ResourceInfo:
        identifier = self._check_name(identifier)
        with self._locate(identifier) as stored:
            sha256 = None
            note = self._notes.read(identifier)
            if note is not None and note.is_valid_for(stored.status):
                sha256 = note.sha256
            return ResourceInfo(identifier, stored.status.st_size, sha256, stored.status.st_mtime)

    def list_resources(self, prefix: str = "") -> list[str]:
        check_prefix(prefix)
        with self._explaining("list", prefix):
            identifiers = set(self._folder.walk(prefix))
        return sorted(identifier for identifier in identifiers if identifier.startswith(prefix))

    def verify_resource(self, identifier: str, sha256: str | None = None) -> ResourceInfo:
        """Read a resource whole, as in :meth:`StorageConnector.verify_resource`.

        If there is a note on the resource, the file must have the digest of the note, even if
        another program has changed the file since; or the digest ``sha256``, if it is given.
        """
        identifier = self._check_name(identifier)
        with contextlib.closing(self._open_file(identifier)) as file:
            with self._explaining("read", identifier):
                digest = digest_of(file.handle)

            expected_sha256 = sha256
            if sha256 is None and file.last_note is not None:
                expected_sha256 = file.last_note.sha256
            if expected_sha256 is None or expected_sha256 == digest.sha256:
                is_noted = file.valid_note is not None and file.sha256 == digest.sha256
                if not is_noted:
                    self._write_note(identifier, digest, file.status)
                return ResourceInfo(identifier, digest.size, digest.sha256, file.status.st_mtime)

            if not self._was_replaced(identifier, file):
                if file.valid_note is not None:
                    # The times of a damaged file may be unchanged. Without them, the note is no
                    # longer valid for this file.
                    self._notes.write(identifier, replace(file.valid_note, state=()))
                raise ChecksumMismatchError(identifier, repr(self), expected_sha256, digest.sha256)

        # The expected digest may have been that of the file which has replaced this one.
        return self.verify_resource(identifier, sha256)

    # ------------------------------------------------------------------ writing

    def set_resource(self, identifier: str, resource: Storable) -> None:
        with self.create(identifier) as writer:
            writer.writelines(binary_chunks(resource))

    def create_resumable(self, identifier: str, key: str) -> AbstractContextManager[ResourceWriter]:
        return self.create(identifier, key)

    @contextlib.contextmanager
    def create(self, identifier: str, key: str | None = None) -> Iterator[ResourceWriter]:
        """Write a resource as a file, as in :meth:`StorageConnector.create`.

        Args:
            identifier: the resource.
            key: as for :meth:`create_resumable`; None if the write cannot be resumed.
        """
        identifier = self._check_name(identifier)
        with self._open_target(identifier) as (folder, name):
            partial = None
            if key is not None:
                partial = Partial.open(folder, key)
            with publishing(
                folder,
                name,
                identifier,
                functools.partial(self._explain, "store", identifier),
                partial=partial,
                # If the process is killed before it writes the new note, the file has no note,
                # rather than the note on its predecessor.
                before_renaming=functools.partial(self._notes.remove, identifier),
            ) as writer:
                yield writer
            self._write_note(identifier, writer.digest, writer.status)

    def delete_resource(self, identifier: str) -> None:
        identifier = self._check_name(identifier)
        with self._locate(identifier) as stored, self._explaining("delete", identifier):
            self._notes.remove(identifier)
            os.unlink(stored.name, dir_fd=stored.folder)
            os.fsync(stored.folder)

    def move_resource(self, identifier: str, new_identifier: str) -> None:
        identifier = self._check_name(identifier)
        new_identifier = self._check_name(new_identifier)
        with (
            self._locate(identifier) as stored,
            contextlib.closing(self._open_file(identifier)) as file,
            self._open_target(new_identifier) as (target_folder, target_name),
            self._explaining("move", identifier),
        ):
            self._notes.remove(new_identifier)
            self._notes.remove(identifier)
            os.replace(stored.name, target_name, src_dir_fd=stored.folder, dst_dir_fd=target_folder)
            os.fsync(target_folder)
            os.fsync(stored.folder)
            # The note moves too. If it was valid, it is made valid for the times after renaming; if
            # not, it still says which digest is expected.
            if file.last_note is not None:
                state: tuple[float, ...] = ()
                if file.valid_note is not None:
                    state = state_of(os.fstat(file.handle))
                self._notes.write(new_identifier, replace(file.last_note, state=state))

    # ------------------------------------------------------------------ files of other tools

    def list_keys(self, prefix: str = "") -> list[str]:
        tree = self._walk(prefix)
        return sorted(key for key in tree.files if key.startswith(prefix) and is_key(key))

    def list_links(self, prefix: str = "") -> list[str]:
        tree = self._walk(prefix)
        names = [left_out.name for left_out in tree.left_out if left_out.rule == LEADS_OUT]
        return sorted(name for name in names if name.startswith(prefix))

    def has_key(self, key: str) -> bool:
        try:
            with self._locate(self._resolve_key(key)):
                return True
        except ResourceNotFoundError:
            return False

    def open_key(self, key: str) -> StreamedResource:
        path = self._resolve_key(key)
        if is_identifier(path) and path == key:
            return self.get_resource(key)
        with self._locate(path):
            source = LazySource(functools.partial(self._open_file, path))
        return StreamedResource.from_source(key, source, KeyOpener(self))

    def delete_key(self, key: str) -> None:
        if is_identifier(key) and self.has_resource(key):
            self.delete_resource(key)
            return
        if not self.has_key(key):
            raise ResourceNotFoundError(key, repr(self))
        # If the key is that of a link, the link is removed and not its target.
        with self._explaining("delete", key):
            folder, name = self._folder.open_parent(key)
            try:
                os.unlink(name, dir_fd=folder)
                os.fsync(folder)
            finally:
                os.close(folder)

    def _walk(self, prefix: str) -> Tree:
        """Return the files and links in the folder of a prefix of keys.

        Raises:
            MalformedIdentifierError: no key can begin with this prefix.
        """
        check_key_prefix(prefix)
        folder = prefix.rpartition("/")[0]
        with self._explaining("list", prefix):
            return walk_folder(self.root_path, folder)

    def _resolve_key(self, key: str) -> str:
        """Return the path, below the root, of the file that a key names, through links.

        Raises:
            MalformedIdentifierError: no file can have such a key.
            MaliciousFilePathError: a link leads out of the store.
        """
        check_key(key)
        root = os.path.realpath(self.root_path)
        path = os.path.realpath(os.path.join(root, key.lstrip("/")))
        if key.startswith("/") or not is_below(path, root):
            raise MaliciousFilePathError(
                f"{key!r:.200} is a link out of {self!r}; what it leads to is not read"
            )
        return os.path.relpath(path, root)

    # ------------------------------------------------------------------ upkeep

    def lease(self, identifier: str) -> AbstractContextManager[Lease]:
        identifier = self._check_name(identifier)
        digest = hashlib.sha256(identifier.encode()).hexdigest()[:16]
        # The identifier is for people who look into the folder. A file name has at most 255 bytes.
        readable_name = identifier.replace("/", "~")[:200]
        path = os.path.join(self.root_path, OWN_FOLDER, "leases", f"{digest}-{readable_name}")
        return contextlib.closing(FileLease(path))

    def remove_abandoned(self, prefix: str = "") -> list[str]:
        garbage = self._remove_abandoned(prefix, DAY_SECONDS, dry_run=False)
        return [item.name for item in garbage]

    def collect_garbage(
        self, grace_seconds: float = DAY_SECONDS, *, dry_run: bool = False
    ) -> list[Garbage]:
        return self._remove_abandoned("", grace_seconds, dry_run=dry_run)

    def _remove_abandoned(
        self, prefix: str, grace_seconds: float, *, dry_run: bool
    ) -> list[Garbage]:
        """Remove files of dead writers, and partial downloads older than the grace period."""
        check_prefix(prefix)
        folder = prefix.rpartition("/")[0]
        garbage = []
        for start in (folder, os.path.join(OWN_FOLDER, "digests", folder)):
            path = os.path.join(self.root_path, start)
            for file in remove_unfinished(path, grace_seconds, dry_run=dry_run):
                name = os.path.relpath(file.path, self.root_path)
                garbage.append(Garbage(name, file.size, file.reason))
        return garbage

    # ------------------------------------------------------------------ files

    def _check_name(self, identifier: object) -> str:
        """Return a checked identifier. An absolute path below the root becomes relative.

        Raises:
            MalformedIdentifierError: the identifier is malformed.
            MaliciousFilePathError: the identifier leads out of the store.
        """
        # Only a plain str: check_identifier() refuses its subclasses.
        if type(identifier) is str and identifier.startswith("/"):
            for root in (self.root_path, os.path.realpath(self.root_path)):
                prefix = root.rstrip("/") + "/"
                if identifier.startswith(prefix):
                    return check_identifier(identifier[len(prefix) :])
        return check_identifier(identifier)

    @contextlib.contextmanager
    def _locate(self, identifier: str) -> Iterator[_StoredFile]:
        """Find the file of a resource or key. Its folder is open until the end of the block.

        Raises:
            ResourceNotFoundError: there is no such file.
        """
        folder = -1
        try:
            try:
                folder, name = self._folder.open_parent(identifier)
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except OSError as error:
                raise self._explain("look for", identifier, error) from error
            if not stat.S_ISREG(status.st_mode):
                raise ResourceNotFoundError(identifier, repr(self))
            yield _StoredFile(folder, name, status)
        finally:
            if folder >= 0:
                os.close(folder)

    @contextlib.contextmanager
    def _open_target(self, identifier: str) -> Iterator[tuple[int, str]]:
        """Open the folder of a resource that will be written. It is created if it is missing.

        Yields:
            The descriptor of the folder, and the name of the file.
        """
        with self._explaining("store", identifier):
            folder, name = self._folder.open_parent(identifier, create=True)
        try:
            # A file cannot replace a folder. A folder of this name may be left, empty, when all
            # resources below it were deleted.
            with contextlib.suppress(OSError):
                os.rmdir(name, dir_fd=folder)
            yield folder, name
        finally:
            os.close(folder)

    def _open_file(self, identifier: str) -> OpenedFile:
        """Open the file of a resource or key.

        Raises:
            ResourceNotFoundError: there is no such file.
        """
        with self._locate(identifier) as stored, self._explaining("read", identifier):
            flags = os.O_NOFOLLOW | os.O_NONBLOCK
            handle = os.open(stored.name, flags, dir_fd=stored.folder)
            # The note is read after the file is open. If the file is replaced in between, the note
            # is that on its successor, which is not valid for this file. In the other order, the
            # note on its predecessor would make this file look damaged.
            note = None
            if is_identifier(identifier):
                note = self._notes.read(identifier)
            explain = functools.partial(self._explain, "read", identifier)
            return OpenedFile(handle, explain, note)

    def _was_replaced(self, identifier: str, file: OpenedFile) -> bool:
        """Return whether another file has replaced an open file.

        Raises:
            ResourceNotFoundError: the resource was deleted.
        """
        with self._locate(identifier) as stored:
            return not os.path.samestat(stored.status, file.status)

    def _write_note(self, identifier: str, digest: Digest, status: os.stat_result) -> None:
        """Write the note on a file, unless the file was replaced meanwhile.

        Args:
            identifier: the resource.
            digest: the size and digest of the file.
            status: the status that the file has with this digest.
        """
        note = DigestNote(digest.size, digest.sha256, state_of(status))
        self._notes.write(identifier, note)
        with contextlib.suppress(ResourceNotFoundError), self._locate(identifier) as stored:
            if note.is_valid_for(stored.status):
                return
        # A faster writer has replaced the file, and this note may have replaced the note on it.
        with contextlib.suppress(OSError):
            self._notes.remove(identifier)

    # ------------------------------------------------------------------ errors

    def _explaining(self, action: str, identifier: str) -> AbstractContextManager[None]:
        """Explain the errors of the operating system in the block, see :meth:`_explain`."""
        return explaining(functools.partial(self._explain, action, identifier))

    def _explain(self, action: str, identifier: str, error: OSError) -> Exception:
        """Return the error to raise for an error of the operating system.

        Args:
            action: what failed: ``"read"``.
            identifier: the resource.
            error: the error.
        """
        is_missing = isinstance(error, (FileNotFoundError, NotADirectoryError))
        if is_missing and action != "store":
            return ResourceNotFoundError(identifier, repr(self))
        return storage_error(
            f"could not {action} {identifier!r} in {self!r}",
            error,
            self.root_path,
            if_full="Nothing was published; make room and try again.",
            otherwise=(
                "The store is as it was; check permissions and the disk, or name another one "
                "by storage= or DATA_STACK_HOME."
            ),
        )
