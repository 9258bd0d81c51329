"""Resources as plain files below a folder.

The file of ``a/b.gz`` is ``ROOT/a/b.gz``, so that other tools can read a store. Other names are internal: ``.~OWNER-RANDOM`` is
an unfinished write, ``.~partial-…`` an interrupted download (:mod:`data_stack.io.storage_connectors.unfinished`), and
``ROOT/.data_stack`` holds

- ``digests/a/b.gz~``: SHA-256 of ``a/b.gz``, with size, times and inode
  (:mod:`data_stack.io.storage_connectors.file.digest_notes`);
- ``leases/…``: the locks of :meth:`FileStorageConnector.lease`, which end with their process.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate

from data_stack.exception import (
    ChecksumMismatchError,
    MaliciousFilePathError,
    ResourceNotFoundError,
    StorageConflictError,
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
from data_stack.io.lazy_source import LazySource
from data_stack.io.resources import Storable, StreamedResource, SupportedStreamedResourceTypes
from data_stack.io.storage_connectors.connector import (
    BINARY,
    Garbage,
    KeyOpener,
    ResourceInfo,
    StorageConnector,
)
from data_stack.io.storage_connectors.file.digest_notes import (
    DigestNotes,
    FileVersion,
    digest_of,
    facts_of,
)
from data_stack.io.storage_connectors.file.opened_file import OpenedFile
from data_stack.io.storage_connectors.file.publishing import publishing
from data_stack.io.storage_connectors.lease import FileLease, Lease
from data_stack.io.storage_connectors.partial import Partial
from data_stack.io.storage_connectors.storable import binary_chunks
from data_stack.io.storage_connectors.unfinished import remove_unfinished
from data_stack.io.storage_connectors.writer import Explain, ResourceWriter
from data_stack.io.storage_errors import explaining, storage_error
from data_stack.io.tree import LEADS_OUT, is_below, walk_folder
from data_stack.util.group_rights import make_folder, make_folders


class FileStorageConnector(StorageConnector):
    """Keeps resources as files below ``root_path``; several processes may share it.

    The first write creates the folder. It may be a symbolic link; links inside of it are not resources. A link is a key,
    which :meth:`open_key` reads, if its target is a file below ``root_path``.

    The digest of a file is unknown after any other program touched it (edited, damaged, copied it): ``stat`` then returns none,
    and the next loading of a dataset reads the file and compares it with the manifest.

    A resource ``a`` and one below it, ``a/b``, exclude each other.

    Args:
        root_path: folder of the store. As in the original, an absolute identifier below it is accepted.

    Attributes:
        root_path: absolute path of the folder.
    """

    knows_digests = True

    def __init__(self, root_path: str | os.PathLike[str]) -> None:
        self.root_path = os.path.abspath(os.fspath(root_path))
        self._notes = DigestNotes(os.path.join(self.root_path, OWN_FOLDER, "digests"))
        #: Whether the file system is known to tell upper from lower case.
        self._tells_case = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.root_path!r})"

    # ------------------------------------------------------------------ contract

    def get_resource(
        self, identifier: str, resource_type: SupportedStreamedResourceTypes = BINARY
    ) -> StreamedResource:
        identifier = self._check_name(identifier)
        with self._locate(identifier):
            source = LazySource(functools.partial(self._open_file, identifier))
        return self._make_resource(identifier, source, resource_type)

    def set_resource(self, identifier: str, resource: Storable) -> None:
        with self.create(identifier) as writer:
            writer.writelines(binary_chunks(resource))

    def has_resource(self, identifier: str) -> bool:
        try:
            with self._locate(self._check_name(identifier)):
                return True
        except ResourceNotFoundError:
            return False

    def delete_resource(self, identifier: str) -> None:
        identifier = self._check_name(identifier)
        with self._locate(identifier) as (folder, name, _), self._explaining("delete", identifier):
            self._notes.remove(identifier)
            os.unlink(name, dir_fd=folder)
            os.fsync(folder)

    def move_resource(self, identifier: str, new_identifier: str) -> None:
        identifier, new_identifier = self._check_name(identifier), self._check_name(new_identifier)
        with (
            self._locate(identifier) as (folder, name, _),
            contextlib.closing(self._open_file(identifier)) as file,
        ):
            with (
                self._target(new_identifier) as (target, new_name),
                self._explaining("move", identifier),
            ):
                self._notes.remove(new_identifier)
                self._notes.remove(identifier)
                os.replace(name, new_name, src_dir_fd=folder, dst_dir_fd=target)
                os.fsync(target)
                os.fsync(folder)
                if file.noted is not None:  # the expected digest of a touched file moves too
                    facts = () if file.version is None else facts_of(os.fstat(file.handle))
                    self._notes.write(new_identifier, replace(file.noted, facts=facts))

    def list_resources(self, prefix: str = "") -> list[str]:
        check_prefix(prefix)
        with self._explaining("list", prefix):
            return sorted(
                {identifier for identifier in self._walk(prefix) if identifier.startswith(prefix)}
            )

    def list_keys(self, prefix: str = "") -> list[str]:
        check_key_prefix(prefix)
        above = prefix.rpartition("/")[0]
        with self._explaining("list", prefix):
            tree = walk_folder(self.root_path, above)
        return sorted(key for key in tree.files if key.startswith(prefix) and is_key(key))

    def list_links(self, prefix: str = "") -> list[str]:
        above = check_key_prefix(prefix).rpartition("/")[0]
        with self._explaining("list", prefix):
            tree = walk_folder(self.root_path, above)
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
        with self._explaining("delete", key):
            folder, name = self._open_folder(key)
            try:
                os.unlink(name, dir_fd=folder)
                os.fsync(folder)
            finally:
                os.close(folder)

    def stat(self, identifier: str) -> ResourceInfo:
        identifier = self._check_name(identifier)
        with self._locate(identifier) as (_, _, status):
            noted = self._notes.read(identifier)
            sha256 = noted.sha256 if noted is not None and noted.is_of(status) else None
            return ResourceInfo(identifier, status.st_size, sha256, status.st_mtime)

    def create_resumable(
        self, identifier: str, key: str
    ) -> contextlib.AbstractContextManager[ResourceWriter]:
        return self.create(identifier, key)

    @contextlib.contextmanager
    def create(self, identifier: str, key: str | None = None) -> Iterator[ResourceWriter]:
        identifier = self._check_name(identifier)
        with self._target(identifier) as (folder, name):
            partial = None if key is None else Partial.open(folder, key)
            # A kill in between leaves a file without a note, not with that of its predecessor.
            forget, explain = (
                functools.partial(self._notes.remove, identifier),
                self._explain("store", identifier),
            )
            with publishing(
                folder, name, identifier, explain, partial=partial, before_renaming=forget
            ) as writer:
                yield writer
            self._note(
                identifier,
                FileVersion(writer.digest.size, writer.digest.sha256, facts_of(writer.status)),
            )

    def verify_resource(self, identifier: str, sha256: str | None = None) -> ResourceInfo:
        """Read a resource whole, as in :meth:`StorageConnector.verify_resource`.

        A file that was changed by other means is damaged, unless it has the digest ``sha256``.
        """
        identifier = self._check_name(identifier)
        with contextlib.closing(self._open_file(identifier)) as file:
            with self._explaining("read", identifier):
                digest = digest_of(file.handle)
            found = FileVersion(digest.size, digest.sha256, facts_of(file.status))
            promised = sha256 or (None if file.noted is None else file.noted.sha256)
            if promised in (None, found.sha256):
                if file.version is None or file.version.sha256 != found.sha256:
                    self._note(identifier, found)
                return ResourceInfo(identifier, found.size, found.sha256, file.status.st_mtime)
            with self._locate(identifier) as (_, _, now):
                if os.path.samestat(now, file.status):  # else the note may be that of its successor
                    if file.version is not None:
                        self._notes.write(identifier, replace(file.version, facts=()))
                    raise ChecksumMismatchError(identifier, repr(self), str(promised), found.sha256)
        return self.verify_resource(identifier, sha256)

    def lease(self, identifier: str) -> contextlib.AbstractContextManager[Lease]:
        identifier = self._check_name(identifier)
        name = (
            hashlib.sha256(identifier.encode()).hexdigest()[:16]
            + "-"
            + identifier.replace("/", "~")[:200]
        )
        return contextlib.closing(
            FileLease(os.path.join(self.root_path, OWN_FOLDER, "leases", name))
        )

    def remove_abandoned(self, prefix: str = "") -> list[str]:
        return [garbage.name for garbage in self._abandon(prefix)]

    # ------------------------------------------------------------------ upkeep

    def collect_garbage(
        self, grace_seconds: float = 86_400.0, *, dry_run: bool = False
    ) -> list[Garbage]:
        return list(self._abandon(dry_run=dry_run, grace_seconds=grace_seconds))

    def _abandon(
        self, prefix: str = "", *, dry_run: bool = False, grace_seconds: float = 86_400.0
    ) -> Iterator[Garbage]:
        """Remove files of dead writers below ``prefix``, and partial downloads older than the grace period."""
        below = check_prefix(prefix).rpartition("/")[0]
        for start in (below, os.path.join(OWN_FOLDER, "digests", below)):
            for unfinished in remove_unfinished(
                os.path.join(self.root_path, start), grace_seconds, dry_run=dry_run
            ):
                yield Garbage(
                    os.path.relpath(unfinished.path, self.root_path),
                    unfinished.size,
                    unfinished.reason,
                )

    # ------------------------------------------------------------------ files and notes

    def _check_name(self, identifier: object) -> str:
        """Check an identifier; an absolute path below the root becomes relative.

        Raises:
            MalformedIdentifierError, MaliciousFilePathError: it is malformed, or leads out.
        """
        if type(identifier) is str and identifier.startswith("/"):
            for root in (self.root_path, os.path.realpath(self.root_path)):
                if identifier.startswith(root.rstrip("/") + "/"):
                    return check_identifier(identifier[len(root.rstrip("/")) + 1 :])
        return check_identifier(identifier)

    def _resolve_key(self, key: str) -> str:
        """The path, below the root, of the file that a key names, through links.

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

    def _open_folder(self, identifier: str, *, create: bool = False) -> tuple[int, str]:
        """A handle on the folder of a resource, which the caller closes, and the name of its file.

        Each folder is opened relative to the one above, and must not be a link.

        Raises:
            FileNotFoundError: a name differs from that of a stored file in upper and lower case only.
            StorageConflictError: likewise, and it is to be created.
        """
        *folders, name = identifier.split("/")
        if create:
            make_folders(self.root_path, durably=True)
        handle = os.open(self.root_path, os.O_DIRECTORY)
        try:
            for folder in folders:
                if create:
                    with contextlib.suppress(FileExistsError):
                        make_folder(folder, handle)
                        os.fsync(handle)
                self._check_stored_name(folder, handle, is_to_write=create)
                above = handle
                handle = os.open(folder, os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
                os.close(above)
            self._check_stored_name(name, handle, is_to_write=create)
        except BaseException:
            os.close(handle)
            raise
        return handle, name

    def _check_stored_name(self, name: str, folder: int, *, is_to_write: bool) -> None:
        """Check that a file or folder has exactly a name, on file systems that do not tell upper from lower case.

        There ``aB`` opens the file ``Ab``, and two resources would share it. Such a file system also
        finds the name with all cases swapped; only then the names of the folder are compared. Once a
        name was found, and not with its cases swapped, the file system tells them apart.

        Args:
            name: a segment of an identifier or key.
            folder: the handle of its folder.
            is_to_write: whether it is to be created or replaced.

        Raises:
            FileNotFoundError: another name is stored.
            StorageConflictError: likewise, and it is to be written.
        """
        swapped = name.swapcase()
        if self._tells_case or swapped == name:
            return
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError:  # it is missing
            return
        try:
            other_status = os.stat(swapped, dir_fd=folder, follow_symlinks=False)
        except OSError:
            self._tells_case = True
            return
        names = os.listdir(folder)
        if not os.path.samestat(status, other_status) or name in names:
            return
        if not is_to_write:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        stored = next((other for other in names if other.lower() == name.lower()), swapped)
        raise StorageConflictError(
            f"could not store {name!r} in {self!r}: {stored!r} is stored there, and this file system does not tell "
            f"the two names apart. Nothing was written; choose a name that differs in more than upper and lower case",
            errno.EEXIST,
        )

    def _walk(self, prefix: str) -> Iterator[str]:
        """The identifiers of all files that may begin with ``prefix``, skipping other folders."""
        above = prefix.rpartition("/")[0]
        folder = above if is_identifier(above) else ""
        links = (
            os.path.islink(os.path.join(self.root_path, path))
            for path in accumulate(folder.split("/"), "{}/{}".format)
        )
        pending = [folder]
        if any(links) or not self._is_stored_folder(folder):
            pending = []
        while pending:
            above = pending.pop()
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                for entry in os.scandir(os.path.join(self.root_path, above)):
                    path = f"{above}/{entry.name}" if above else entry.name
                    if entry.is_dir(follow_symlinks=False):
                        if path.startswith(prefix) and not entry.name.startswith("."):
                            pending.append(path)
                    elif entry.is_file(follow_symlinks=False) and is_identifier(path):
                        yield path

    def _is_stored_folder(self, path: str) -> bool:
        """Whether a folder exists under exactly this path, also in upper and lower case."""
        try:
            handle, _ = self._open_folder(f"{path}/." if path else ".")
        except OSError:
            return False
        os.close(handle)
        return True

    @contextlib.contextmanager
    def _locate(self, identifier: str) -> Iterator[tuple[int, str, os.stat_result]]:
        """The folder (as an open handle), file name and status of a stored resource."""
        folder = -1
        try:
            try:
                folder, name = self._open_folder(identifier)
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if not stat.S_ISREG(status.st_mode):
                    raise FileNotFoundError
            except OSError as error:
                raise self._explain("look for", identifier)(error) from error
            yield folder, name, status
        finally:
            if folder >= 0:
                os.close(folder)

    @contextlib.contextmanager
    def _target(self, identifier: str) -> Iterator[tuple[int, str]]:
        """The open folder of a resource, created if missing, and the name of its file."""
        with self._explaining("store", identifier):
            folder, name = self._open_folder(identifier, create=True)
        try:
            with contextlib.suppress(OSError):
                os.rmdir(name, dir_fd=folder)  # an empty folder of that name
            yield folder, name
        finally:
            os.close(folder)

    def _open_file(self, identifier: str) -> OpenedFile:
        with self._locate(identifier) as (folder, name, _), self._explaining("read", identifier):
            handle = os.open(name, os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
            # The note last: that of a successor does not match, that of a predecessor would look like damage.
            noted = self._notes.read(identifier) if is_identifier(identifier) else None
            return OpenedFile(handle, self._explain("read", identifier), noted)

    def _note(self, identifier: str, version: FileVersion) -> None:
        """Note the version of a file, unless it was replaced meanwhile."""
        self._notes.write(identifier, version)
        with contextlib.suppress(ResourceNotFoundError), self._locate(identifier) as (_, _, status):
            if version.is_of(status):
                return
        with contextlib.suppress(OSError):  # our note may have replaced that of a faster writer
            self._notes.remove(identifier)

    # ------------------------------------------------------------------ errors

    def _explaining(self, action: str, identifier: str) -> contextlib.AbstractContextManager[None]:
        return explaining(self._explain(action, identifier))

    def _explain(self, action: str, identifier: str) -> Explain:
        def explain(error: OSError) -> Exception:
            if isinstance(error, (FileNotFoundError, NotADirectoryError)) and action != "store":
                return ResourceNotFoundError(identifier, repr(self))
            problem, if_full = (
                f"could not {action} {identifier!r} in {self!r}",
                "Nothing was published; make room and try again.",
            )
            advice = "The store is as it was; check permissions and the disk, or name another one by storage= or DATA_STACK_HOME."
            return storage_error(problem, error, self.root_path, if_full=if_full, otherwise=advice)

        return explain


class StorageConnectorFactory:
    """Makes file storage connectors, as in the original."""

    @classmethod
    def get_file_storage_connector(cls, folder_path: str) -> StorageConnector:
        """A FileStorageConnector with its root at ``folder_path``."""
        return FileStorageConnector(folder_path)
