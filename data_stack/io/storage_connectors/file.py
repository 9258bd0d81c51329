"""Resources as plain files below a folder.

The file of ``a/b.gz`` is ``ROOT/a/b.gz``, so that other tools can read a store. Names that no identifier can
have are ours: ``.~OWNER-RANDOM`` is an unfinished write of a process, ``.~partial-…`` an interrupted download that the
next one goes on with (:mod:`data_stack.io.storage_connectors.partials`), and ``ROOT/.data_stack`` holds

- ``digests/a/b.gz~/…``: SHA-256 and block digests of ``a/b.gz``, with the size, times and inode they were taken of
  (:mod:`data_stack.io.storage_connectors.digest_records`). A file of which these agree is trusted; of any other one that
  there are digests for, each block is held against them before its first byte is handed out;
- ``aside/a~/b``: ``a/b`` while the plain file ``a`` stands in its way (two identifiers never meet in one file);
- ``leases/…``: the locks of :meth:`FileStorageConnector.lease`, which die with their process.

A write is: temporary beside the target (O_EXCL, 0600), write, fsync, rename, fsync of the folder. rename alone
is atomic but not durable: after a power cut ext4 may hold the new name with 0 bytes. A failed fsync is never
tried again: the kernel has already marked the pages clean (Rebello et al., USENIX ATC 2020).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import math
import os
import secrets
import stat
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import IO, Literal, NoReturn, cast

from data_stack.exception import (
    ChecksumMismatchError,
    ConfigError,
    DamagedBlockError,
    DataStackError,
    MalformedIdentifierError,
    MaliciousFilePathError,
    ResourceNotFoundError,
    StorageError,
)
from data_stack.io.identifiers import checked_identifier, checked_prefix
from data_stack.io.resources import ByteSource, Storable, StreamedResource, StreamedTextResource, SupportedStreamedResourceTypes
from data_stack.io.storage_connectors.connector import (
    BINARY,
    BLOCK_BYTES,
    COPY_BYTES,
    DAY_SECONDS,
    Digest,
    Garbage,
    Lease,
    ResourceInfo,
    ResourceWriter,
    StorageConnector,
    StoreFinding,
    StoreUsage,
    store_bytes,
)
from data_stack.io.storage_connectors.digest_records import TEMPORARY, Announcement, DigestRecords, FileVersion
from data_stack.io.storage_connectors.owners import is_dead, is_of_this_machine, this_process
from data_stack.io.storage_connectors.partials import PARTIAL, Partial, removed
from data_stack.io.storage_errors import storage_error
from data_stack.util.forks import ForkLock

_OWN_FOLDER = ".data_stack"
#: Temporaries of other machines (or containers) are left alone for this long: whether their owner lives cannot be seen.
_FOREIGN_GRACE_SECONDS = DAY_SECONDS
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
#: A file that is replaced between two looks at it is opened again, so often at most.
_MOST_LOOKS = 20


class FileStorageConnector(StorageConnector):
    """Keeps resources as files below ``root_path``; several processes may share it.

    The folder is made at the first write. Symbolic links inside of it are followed as long as they stay inside.

    A file that something else touched since it was stored (edited, damaged, copied with its store) is read with a check: each
    block of 1 MiB against its recorded digest, before its first byte is handed out. Once all of it was found right it is
    trusted again. A file without a record, such as another tool's, is served as it is.

    Args:
        root_path: folder of the store. As in the original, an absolute identifier below it is tolerated.
        check_reads: ``"touched"`` as above; ``"always"`` to check all files that have a record, each time they are opened, for
            a disk that is not to be trusted.
    """

    knows_digests = True

    def __init__(self, root_path: str | os.PathLike[str], *, check_reads: Literal["touched", "always"] = "touched") -> None:
        if check_reads not in ("touched", "always"):
            raise ConfigError(f'check_reads is "touched" or "always", not {check_reads!r:.80}')
        self._root_path = os.path.abspath(os.fspath(root_path))
        self._checks_always = check_reads == "always"

    @property
    def root_path(self) -> str:
        """Absolute path of the store's folder."""
        return self._root_path

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._root_path!r}{', check_reads=' + repr('always') if self._checks_always else ''})"

    # ------------------------------------------------------------------ contract

    def get_resource(self, identifier: str, resource_type: SupportedStreamedResourceTypes = BINARY) -> StreamedResource:
        identifier = self._checked(identifier)
        with self._located(identifier):
            resource = StreamedResource.sealed(identifier, _FileSource(self, identifier), self)
        if resource_type is SupportedStreamedResourceTypes.STREAMED_TEXT_RESOURCE:
            return cast(StreamedResource, StreamedTextResource.from_streamed_resource(resource))
        return resource

    def set_resource(self, identifier: str, resource: Storable) -> None:
        with self.create(identifier) as writer:
            store_bytes(resource, writer)

    def has_resource(self, identifier: str) -> bool:
        try:
            with self._located(self._checked(identifier)):
                return True
        except ResourceNotFoundError:
            return False

    def delete_resource(self, identifier: str) -> None:
        identifier = self._checked(identifier)
        with self._located(identifier) as (folder, name, _), self._storage_errors("delete", identifier):
            self._records.forget(identifier)  # first: killed in between, we leave a file without a digest, not the reverse
            try:
                os.unlink(name, dir_fd=folder)
            except FileNotFoundError:  # another process was faster
                raise ResourceNotFoundError(identifier, repr(self)) from None
            os.fsync(folder)
        self._remove_aside(identifier)

    def move_resource(self, identifier: str, new_identifier: str) -> None:
        identifier, new_identifier = self._checked(identifier), self._checked(new_identifier)
        with self._located(identifier) as (folder, name, _), self._opened_file(identifier) as (_, status, known, _):
            if known is None:  # touched by other means: held against its digests while it is copied
                super().move_resource(identifier, new_identifier)
                return
            with self._storage_errors("store", new_identifier):
                target, new_name = self._target(new_identifier)
                try:
                    # The open handle keeps its inode, by which it is told from a successor below.
                    announced = self._records.announce(new_identifier, status, known)
                    try:
                        self._records.forget(identifier)  # first, as in delete_resource()
                        os.replace(name, new_name, src_dir_fd=folder, dst_dir_fd=target)
                        for changed in {target, folder}:
                            os.fsync(changed)
                        self._remove_aside(new_identifier, unless=target)
                    except FileNotFoundError:
                        raise ResourceNotFoundError(identifier, repr(self)) from None
                    finally:
                        self._note(announced, target, new_name, status.st_ino)
                finally:
                    os.close(target)
        self._remove_aside(identifier)

    def list_resources(self, prefix: str = "") -> list[str]:
        checked_prefix(prefix)
        aside = os.path.join(self._root_path, _OWN_FOLDER, "aside")
        found = {*self._walk(self._root_path, prefix), *self._walk(aside, prefix)}
        return sorted(identifier for identifier in found if identifier.startswith(prefix))

    def stat(self, identifier: str) -> ResourceInfo:
        identifier = self._checked(identifier)
        with self._located(identifier) as (_, _, status):
            known, _ = self._records.found(identifier, status)
            return _info(identifier, status, known)

    def create(self, identifier: str) -> contextlib.AbstractContextManager[ResourceWriter]:
        return self._written(identifier)

    def create_resumable(self, identifier: str, key: str) -> contextlib.AbstractContextManager[ResourceWriter]:
        return self._written(identifier, key)

    @contextlib.contextmanager
    def _written(self, identifier: str, key: str | None = None) -> Iterator[ResourceWriter]:
        identifier = self._checked(identifier)
        with self._storage_errors("store", identifier):
            folder, name = self._target(identifier)
        try:
            temporary = TEMPORARY + this_process() + "-" + secrets.token_hex(4)
            partial = None if key is None else Partial.open(folder, key)
            with self._storage_errors("store", identifier):
                handle = (
                    partial.handle
                    if partial is not None
                    else os.open(
                        temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder
                    )
                )
            file = open(handle, "w+b", buffering=1 << 17)
            writer = _FileWriter(identifier, file, lambda error: self._raise("store", identifier, error), partial)
            try:
                yield writer
                with self._storage_errors("store", identifier):
                    writer.seal()
                    os.fchmod(handle, 0o666 & ~_umask())
                    # To the nanosecond: the clock that files get may stand still for 4 ms, and a change within would not show.
                    os.utime(handle, ns=(time.time_ns(), time.time_ns()))
                    os.fsync(handle)
                    version = FileVersion(writer.digest.size, writer.digest.sha256, writer.digest.blocks)
                    # As long as it is open no other file has its inode, by which it is told from a successor below.
                    held = os.dup(handle)
                    try:
                        announced = self._records.announce(identifier, os.fstat(held), version)
                        try:
                            file.close()
                            self._publish(folder, temporary if partial is None else partial.name, name, identifier)
                        finally:
                            self._note(announced, folder, name, os.fstat(held).st_ino)
                    finally:
                        os.close(held)
            except BaseException as error:
                writer.digest.finish()
                with contextlib.suppress(OSError, ValueError):
                    file.flush()  # may fail again to write what a full disk refused
                if partial is not None:
                    partial.end(error)
                with contextlib.suppress(OSError):
                    file.close()
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)
                raise
        finally:
            os.close(folder)

    def verify_resource(self, identifier: str, sha256: str | None = None) -> ResourceInfo:
        """Read a resource whole, as in :meth:`StorageConnector.verify_resource`.

        A file that was changed by other means is damaged, unless ``sha256`` says that these are the right bytes.
        """
        identifier = self._checked(identifier)
        with self._opened_file(identifier) as (handle, status, known, versions):
            found = self._digested(identifier, handle)
            recorded = versions if known is None else [known]
            promised = [sha256] if sha256 is not None else [version.sha256 for version in recorded]
            if promised and found.sha256 not in promised:
                if known is not None and known.sha256 != found.sha256:
                    self._records.distrust(identifier, status, known)
                blocks = zip(recorded[0].blocks if recorded else (), found.blocks, strict=False)
                damaged = [number for number, (old, new) in enumerate(blocks) if old != new]
                where = f"{self!r}" + (f", damaged in blocks {damaged[:8]} of 1 MiB" if damaged else "")
                raise ChecksumMismatchError(identifier, where, promised[0], found.sha256)
            if known is None or known.sha256 != found.sha256:
                self._trust(identifier, handle, status, found)
        return ResourceInfo(identifier, found.size, found.sha256, found.blocks, status.st_mtime)

    def lease(self, identifier: str) -> contextlib.AbstractContextManager[Lease]:
        return contextlib.closing(_FileLease(os.path.join(self._root_path, _OWN_FOLDER, "leases"), self._checked(identifier)))

    def remove_abandoned(self, prefix: str = "") -> list[str]:
        return [garbage.name for garbage in self._abandoned(prefix)]

    # ------------------------------------------------------------------ upkeep

    def collect_garbage(self, grace_seconds: float = DAY_SECONDS, *, dry_run: bool = False) -> list[Garbage]:
        return [
            *self._abandoned(dry_run=dry_run, grace_seconds=grace_seconds),
            *self._orphaned_notes(grace_seconds, dry_run),
        ]

    def audit(self) -> list[StoreFinding]:
        if os.path.isdir(self._root_path):
            return []
        # Resources are stored in a folder that is not there yet; but who checks a backup has then named the wrong one.
        problem = "there is no such folder, so nothing is stored here; check the path"
        return [StoreFinding(self._root_path, problem, is_fault=True)]

    def usage(self) -> StoreUsage:
        sizes = []
        for identifier in self.list_resources():
            with contextlib.suppress(ResourceNotFoundError), self._located(identifier) as (_, _, status):
                sizes.append((status.st_ino, status.st_size))
        return StoreUsage(
            len(sizes),
            sum(size for _, size in sizes),
            sum(size for _, size in set(sizes)),  # linked files once
            sum(garbage.size or 0 for garbage in self.collect_garbage(0.0, dry_run=True)),
        )

    def _abandoned(self, prefix: str = "", *, dry_run: bool = False, grace_seconds: float = DAY_SECONDS) -> Iterator[Garbage]:
        """Remove what writers that died left below ``prefix``; of downloads, which can go on, after the grace period."""
        below = checked_prefix(prefix).rpartition("/")[0]
        for start in (below, os.path.join(_OWN_FOLDER, "digests", below), os.path.join(_OWN_FOLDER, "aside")):
            for folder, _, files in os.walk(os.path.join(self._root_path, start)):
                for path in (os.path.join(folder, file) for file in files if file.startswith(TEMPORARY)):
                    if os.path.basename(path).startswith(PARTIAL):
                        size = removed(path, grace_seconds, dry_run=dry_run)
                        if size is not None:
                            yield Garbage(os.path.relpath(path, self._root_path), size, "an interrupted download")
                        continue
                    if not _is_abandoned(path):
                        continue
                    if self._is_needed(path):
                        if not dry_run:
                            self._records.adopt(path)
                        continue
                    yield from self._removed(path, -math.inf, dry_run, "left by a writer that died")

    def _orphaned_notes(self, grace_seconds: float, dry_run: bool) -> Iterator[Garbage]:
        """Remove digests of files that other means removed, and of versions that one of several writers at once replaced."""
        for folder, _, files in os.walk(os.path.join(self._root_path, _OWN_FOLDER, "digests")):
            for path in (os.path.join(folder, file) for file in files if not file.startswith(TEMPORARY)):
                note = self._records.note_at(path)
                if note is None:
                    continue
                try:
                    with self._located(checked_identifier(note[0])) as (_, _, status):
                        current = self._records.name_of(status)
                except ResourceNotFoundError:
                    yield from self._removed(path, grace_seconds, dry_run, "digest of a file that is gone")
                except DataStackError:
                    pass  # no name of a resource, or one that leads out of the store
                else:
                    if current != note[1] and current in files:
                        yield from self._removed(path, grace_seconds, dry_run, "digest of a version that was replaced")

    def _removed(self, path: str, grace_seconds: float, dry_run: bool, reason: str) -> Iterator[Garbage]:
        with contextlib.suppress(OSError):
            status = os.stat(path, follow_symlinks=False)
            if time.time() - status.st_mtime >= grace_seconds:
                if not dry_run:
                    os.unlink(path)
                    self._records.remove_empty(os.path.dirname(path))
                yield Garbage(os.path.relpath(path, self._root_path), status.st_size, reason)

    def _is_needed(self, path: str) -> bool:
        """Whether this is the note on a file whose writer died before it could settle that."""
        note = self._records.note_at(path)
        with contextlib.suppress(DataStackError):
            if note is not None:
                with self._located(checked_identifier(note[0])) as (_, _, status):
                    return self._records.name_of(status) == note[1]
        return False

    # ------------------------------------------------------------------ identifiers to files

    def _checked(self, identifier: object) -> str:
        if type(identifier) is str and identifier.startswith("/"):
            for root in (self._root_path, os.path.realpath(self._root_path)):
                if identifier.startswith(root.rstrip("/") + "/"):
                    return checked_identifier(identifier[len(root.rstrip("/")) + 1 :])
            raise MaliciousFilePathError(
                f"identifier {identifier!r} leaves the store at {self._root_path}; give a path relative to it"
            )
        return checked_identifier(identifier)

    @contextlib.contextmanager
    def _located(self, identifier: str) -> Iterator[tuple[int, str, os.stat_result]]:
        """The folder (as an open handle), file name and status of a stored resource."""
        for folders, name in self._places(identifier):
            try:
                with self._storage_errors("look for", identifier, let_through=(FileNotFoundError, NotADirectoryError)):
                    folder, name, status = self._regular_file(folders, name)
            except (FileNotFoundError, NotADirectoryError):
                continue
            try:
                yield folder, name, status
            finally:
                os.close(folder)
            return
        raise ResourceNotFoundError(identifier, repr(self))

    def _regular_file(self, folders: Sequence[str], name: str) -> tuple[int, str, os.stat_result]:
        """The open folder, name and status of a regular file, through links that stay inside."""
        folder = self._open_folder(folders)
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                inside, name = self._resolved([*folders, name])
                os.close(folder)
                folder = -1
                folder = self._open_folder(inside)
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode):
                raise FileNotFoundError(errno.ENOENT, "no regular file", name)
            result, folder = folder, -1
            return result, name, status
        finally:
            if folder >= 0:
                os.close(folder)

    @staticmethod
    def _places(identifier: str) -> tuple[tuple[list[str], str], tuple[list[str], str]]:
        """Where a resource may lie: (folders, file), the plain place first."""
        *folders, name = identifier.split("/")
        return (folders, name), ([_OWN_FOLDER, "aside", *(folder + "~" for folder in folders)], name)

    def _open_folder(self, folders: Sequence[str], create: bool = False, resolve: bool = True) -> int:
        """A handle on a folder below the root, reached without ever leaving it.

        Each step is opened relative to the one before and follows no link, so that a link put there
        meanwhile changes nothing. Links that were there before are resolved first, and must stay inside.
        """
        if create and not os.path.isdir(self._root_path):
            _make_folders(self._root_path)
        handle = os.open(self._root_path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for folder in folders:
                try:
                    below = os.open(folder, _FOLDER_FLAGS, dir_fd=handle)
                except FileNotFoundError:
                    if not create:
                        raise
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(folder, dir_fd=handle)
                        os.fsync(handle)
                    below = os.open(folder, _FOLDER_FLAGS, dir_fd=handle)
                except OSError as error:
                    if error.errno not in (errno.ELOOP, errno.ENOTDIR) or not _is_link(folder, handle):
                        raise
                    if not resolve:
                        raise MaliciousFilePathError(
                            f"{'/'.join(folders)!r} changed while it was followed in {self!r}"
                        ) from error
                    inside, last = self._resolved(folders)
                    return self._open_folder([*inside, last], create, resolve=False)
                os.close(handle)
                handle = below
            result, handle = handle, -1
            return result
        finally:
            if handle >= 0:
                os.close(handle)

    def _resolved(self, path: Sequence[str]) -> tuple[list[str], str]:
        """The folders and last name that a path through symbolic links leads to; inside of the root, or an error."""
        root = os.path.realpath(self._root_path)
        real = os.path.realpath(os.path.join(root, *path))
        if os.path.commonpath([root, real]) != root or real == root:
            raise MaliciousFilePathError(f"{'/'.join(path)!r} leads out of {self!r} through a symbolic link")
        *folders, name = os.path.relpath(real, root).split(os.sep)
        return folders, name

    def _target(self, identifier: str) -> tuple[int, str]:
        """The folder to write a resource in, made if need be: the plain place, or aside if a file or folder stands in its way."""
        (folders, name), aside = self._places(identifier)
        try:
            folder = self._open_folder(folders, create=True)
        except NotADirectoryError:
            return self._open_folder(aside[0], create=True), aside[1]
        with contextlib.suppress(OSError):
            # An empty folder is in nobody's way.
            os.rmdir(name, dir_fd=folder)
        try:
            is_folder = stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
        except FileNotFoundError:
            is_folder = False
        if not is_folder:
            return folder, name
        os.close(folder)
        return self._open_folder(aside[0], create=True), aside[1]

    def _publish(self, folder: int, temporary: str, name: str, identifier: str) -> None:
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)
        # A copy from a time when something stood in the way would come back to life once this one is deleted.
        self._remove_aside(identifier, unless=folder)

    def _remove_aside(self, identifier: str, unless: int | None = None) -> None:
        folders, name = self._places(identifier)[1]
        with contextlib.suppress(OSError):
            folder = self._open_folder(folders)
            try:
                if unless is None or not os.path.sameopenfile(folder, unless):
                    os.unlink(name, dir_fd=folder)
            finally:
                os.close(folder)

    def _walk(self, top: str, prefix: str) -> Iterator[str]:
        """Identifiers of the regular files below ``top``; folders that ``prefix`` rules out are not entered."""
        pending = [""]
        while pending:
            above = pending.pop()
            try:
                entries = list(os.scandir(os.path.join(top, above)))
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                self._raise("list", above, error)
            for entry in entries:
                path = f"{above}/{entry.name}" if above else entry.name
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    identifier = path.replace("~/", "/").removesuffix("~")
                    if identifier.startswith(prefix) or prefix.startswith(identifier + "/"):
                        pending.append(path)
                    continue
                with contextlib.suppress(MalformedIdentifierError, ResourceNotFoundError):
                    identifier = checked_identifier(path.replace("~/", "/"))
                    if entry.is_symlink():
                        with self._located(identifier):
                            yield identifier
                    elif entry.is_file(follow_symlinks=False):
                        yield identifier

    # ------------------------------------------------------------------ digests

    @property
    def _records(self) -> DigestRecords:
        return DigestRecords(os.path.join(self._root_path, _OWN_FOLDER, "digests"))

    def _note(self, announced: Announcement, folder: int, name: str, inode: int) -> None:
        """Settle the note on a file, if it has its name now and no other writer was faster to replace it."""
        with contextlib.suppress(OSError):
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if status.st_ino == inode:
                self._records.settle(announced, status)
                return
        self._records.withdraw(announced)

    def _trust(self, identifier: str, handle: int, status: os.stat_result, version: FileVersion) -> None:
        """Note that an open file was found to be ``version``, if nobody touched it meanwhile, nor another one took its place."""
        announced = self._records.announce_found(identifier, version)
        with contextlib.suppress(OSError, DataStackError), self._located(identifier) as (_, _, now):
            if _same_file(status, now) and _same_file(status, os.fstat(handle)):
                self._records.settle(announced, status)

    def _digested(self, identifier: str, handle: int) -> FileVersion:
        """Read an open file whole."""
        digest = Digest()
        try:
            with self._storage_errors("read", identifier):
                while chunk := os.pread(handle, COPY_BYTES, digest.size):
                    digest.update(chunk)
            return FileVersion(digest.size, digest.sha256, digest.blocks)
        finally:
            digest.finish()

    # ------------------------------------------------------------------ errors

    @contextlib.contextmanager
    def _storage_errors(self, action: str, identifier: str, let_through: tuple[type[OSError], ...] = ()) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if isinstance(error, (StorageError, *let_through)):
                raise
            self._raise(action, identifier, error)

    def _raise(self, action: str, identifier: str, error: OSError) -> NoReturn:
        raise storage_error(
            f"could not {action} {identifier!r} in {self!r}",
            error,
            self._root_path,
            if_full="Nothing was published; make room and try again.",
            otherwise="The store is as it was; check permissions and the disk.",
        ) from error

    @contextlib.contextmanager
    def _opened_file(self, identifier: str) -> Iterator[tuple[int, os.stat_result, FileVersion | None, list[FileVersion]]]:
        opened = self._open_file(identifier)
        try:
            yield opened
        finally:
            os.close(opened[0])

    def _open_file(self, identifier: str) -> tuple[int, os.stat_result, FileVersion | None, list[FileVersion]]:
        """A handle on a resource's file for reading, its status, and what is known of it, as :meth:`DigestRecords.found` says."""
        n_looks = 0
        while True:
            n_looks += 1
            with self._located(identifier) as (folder, name, _), self._storage_errors("read", identifier):
                handle = os.open(name, _FILE_FLAGS, dir_fd=folder)
                try:
                    status = os.fstat(handle)
                    known, versions = self._records.found(identifier, status)
                    # Replaced meanwhile, its note is gone, and what was found are notes on its successors.
                    if not versions or _has_name(handle, name, folder):
                        return handle, status, known, versions
                    if n_looks == _MOST_LOOKS:
                        return handle, status, None, []
                except BaseException:
                    os.close(handle)
                    raise
                os.close(handle)


class _FileSource(ByteSource):
    """A file that is opened at the first need and read by position; blocks of a touched one are checked before their first use.

    The handle may be inherited by a fork: positional reads share nothing but the sealed bytes. There is no lock around the
    checks: what another thread does meanwhile costs at most another one.
    """

    def __init__(self, connector: FileStorageConnector, identifier: str) -> None:
        self._connector, self._identifier = connector, identifier
        self._handle = -1
        self._info: ResourceInfo | None = None
        self._opening = ForkLock()
        self._status: os.stat_result | None = None
        #: What the file should be one of; none if it is trusted, or nothing is known of it.
        self._versions: list[FileVersion] = []
        self._is_checked = bytearray()

    def _opened(self) -> ResourceInfo:
        if self._info is None:
            with self._opening:
                if self._info is None:
                    self._open()
        return cast(ResourceInfo, self._info)

    def _open(self) -> None:
        connector, identifier = self._connector, self._identifier
        handle, status, known, versions = connector._open_file(identifier)
        if known is not None and connector._checks_always:
            versions = [known]
        fitting = [version for version in versions if version.size == status.st_size]
        if versions and not fitting:
            os.close(handle)
            size = versions[0].size
            block = min(size, status.st_size) // BLOCK_BYTES
            raise self._damaged(block, f"{size:,} bytes", f"{status.st_size:,} bytes", "size")
        self._handle, self._status, self._versions = handle, status, fitting
        self._is_checked = bytearray(-(-status.st_size // BLOCK_BYTES))
        info = _info(identifier, status, known)
        if fitting and not status.st_size:
            info = self._found_right(info)
        self._info = info  # last: other threads look at this one to see that it is open

    @property
    def size(self) -> int:
        return self._opened().size

    @property
    def sha256(self) -> str | None:
        return self._opened().sha256

    def readinto_at(self, offset: int, buffer: memoryview) -> int:
        if self._info is None:
            self._opened()
        return self._readinto_checked(offset, buffer) if self._versions else self._readinto(offset, buffer)

    def fileno(self) -> int:
        info = self._opened()
        # Who has the descriptor reads past us.
        scratch = memoryview(bytearray(BLOCK_BYTES)) if self._versions else memoryview(b"")
        for offset in range(0, info.size, BLOCK_BYTES):
            if not self._versions:
                break
            if not self._is_checked[offset // BLOCK_BYTES]:
                self._readinto_checked(offset, scratch[: info.size - offset])
        return self._handle

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    # ------------------------------------------------------------------ inside

    def _readinto(self, offset: int, buffer: memoryview) -> int:
        try:
            n_read = os.preadv(self._handle, [buffer], offset)
            while 0 < n_read < len(buffer):
                more = os.preadv(self._handle, [buffer[n_read:]], offset + n_read)
                if more == 0:
                    break
                n_read += more
        except OSError as error:
            self._connector._raise("read", self._identifier, error)
        return n_read

    def _readinto_checked(self, offset: int, buffer: memoryview) -> int:
        size = self._opened().size
        position, end = offset, min(offset + len(buffer), size)
        while position < end:
            number = position // BLOCK_BYTES
            first, last = number * BLOCK_BYTES, min((number + 1) * BLOCK_BYTES, size)
            part = buffer[position - offset : min(last, end) - offset]
            if self._is_checked[number]:
                self._readinto(position, part)
            elif len(part) == last - first:
                try:
                    self._check(number, part[: self._readinto(first, part)])
                except DamagedBlockError:
                    part[:] = bytes(len(part))  # nothing of it is handed out
                    raise
            else:
                block = memoryview(bytearray(last - first))
                self._check(number, block[: self._readinto(first, block)])
                part[:] = block[position - first : position - first + len(part)]
            position += len(part)
        return max(0, end - offset)

    def _check(self, number: int, data: memoryview) -> None:
        """Hold a block against the versions that this may be."""
        versions = self._versions
        if not versions:
            return  # another thread has just found the last block right
        crc = zlib.crc32(data)
        right = [version for version in versions if version.blocks[number] == crc]
        if not right:
            raise self._damaged(number, f"{versions[0].blocks[number]:08x}", f"{crc:08x}", "crc32")
        self._versions = right
        self._is_checked[number] = 1
        if 0 not in self._is_checked:
            self._info = self._found_right(self._opened())

    def _found_right(self, info: ResourceInfo) -> ResourceInfo:
        """All of the file is right: it needs no more checks, and its next reader none."""
        versions, self._versions = self._versions, []
        if not versions or info.sha256 is not None:  # another thread has said so, or it was trusted before
            return info
        self._connector._trust(self._identifier, self._handle, cast(os.stat_result, self._status), versions[0])
        return replace(info, sha256=versions[0].sha256, blocks=versions[0].blocks)

    def _damaged(self, block: int, expected: str, actual: str, algorithm: str) -> DamagedBlockError:
        path = os.path.join(self._connector.root_path, self._identifier)
        where = (
            f"{self._connector!r} (the file was changed since it was stored; if that was meant, store it again: "
            f"data-stack import-file {self._identifier} {path} --unverified)"
        )
        return DamagedBlockError(self._identifier, where, block, BLOCK_BYTES, expected, actual, algorithm)


class _FileWriter(ResourceWriter):
    """A ResourceWriter whose operating system errors are ours."""

    def __init__(
        self, identifier: str, file: IO[bytes], fail: Callable[[OSError], NoReturn], partial: Partial | None = None
    ) -> None:
        super().__init__(identifier, file, partial)
        self._raise = fail

    def _fail(self, error: OSError) -> NoReturn:
        self._raise(error)


class _FileLease(Lease):
    """A lock on a file, which the operating system releases when its process dies."""

    def __init__(self, folder: str, identifier: str) -> None:
        self._folder = folder
        self._name = hashlib.sha256(identifier.encode()).hexdigest()[:16] + "-" + identifier.replace("/", "~")[:200]
        self._file: IO[bytes] | None = None

    def acquire(self) -> bool:
        if self._file is not None:
            return True
        try:
            import fcntl
        except ImportError:  # no such locks on this system; nothing correct depends on them
            return True
        try:
            os.makedirs(self._folder, exist_ok=True)
            file = open(os.path.join(self._folder, self._name), "ab")
        except OSError:
            return True  # a store that cannot be written needs no lease
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return False
        except OSError:
            file.close()
            return True  # a file system without locks
        self._file = file
        return True

    def close(self) -> None:
        """Give the lease back."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _is_abandoned(path: str) -> bool:
    """Whether the writer of a temporary file is dead; if that cannot be seen from here, whether it is old."""
    owner = os.path.basename(path).removeprefix(TEMPORARY).rpartition("-")[0]
    if is_of_this_machine(owner):
        return is_dead(owner)
    try:
        return time.time() - os.stat(path, follow_symlinks=False).st_mtime > _FOREIGN_GRACE_SECONDS
    except OSError:
        return False


def _info(identifier: str, status: os.stat_result, known: FileVersion | None) -> ResourceInfo:
    if known is None:
        return ResourceInfo(identifier, status.st_size, modified=status.st_mtime)
    return ResourceInfo(identifier, status.st_size, known.sha256, known.blocks, status.st_mtime)


def _same_file(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns) == (
        other.st_ino,
        other.st_size,
        other.st_mtime_ns,
        other.st_ctime_ns,
    )


def _has_name(handle: int, name: str, folder: int) -> bool:
    """Whether an open file still has the name under which it was opened."""
    try:
        return os.path.samestat(os.stat(name, dir_fd=folder, follow_symlinks=False), os.fstat(handle))
    except FileNotFoundError:
        return False


def _is_link(name: str, folder: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _make_folders(path: str) -> None:
    """Make a folder and those above it, each durable in its parent."""
    above = os.path.dirname(path)
    if not os.path.isdir(above):
        _make_folders(above)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)
        handle = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _umask() -> int:
    # os.umask() can only be asked by setting it, which other threads would notice.
    with contextlib.suppress(OSError, StopIteration, ValueError):
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            return int(next(line for line in file if line.startswith("Umask:")).split()[1], 8)
    return 0o022
