"""Resources as plain files below a folder.

The file of ``a/b.gz`` is ``ROOT/a/b.gz``, so that other tools can read a store. Names that no identifier can
have are ours: ``.~OWNER-RANDOM`` is an unfinished write of a process, and ``ROOT/.data_stack`` holds

- ``digests/a/b.gz~``: SHA-256 and block digests of ``a/b.gz``, with the size, time and inode they were taken of.
  They describe the file only as long as these agree, so they need no atomicity together with it;
- ``aside/a~/b``: ``a/b`` while the plain file ``a`` stands in its way (two identifiers never meet in one file);
- ``leases/…``: the locks of :meth:`FileStorageConnector.lease`, which die with their process.

A write is: temporary beside the target (O_EXCL, 0600), write, fsync, rename, fsync of the folder. rename alone
is atomic but not durable: after a power cut ext4 may hold the new name with 0 bytes. A failed fsync is never
tried again: the kernel has already marked the pages clean (Rebello et al., USENIX ATC 2020).
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import json
import os
import secrets
import shutil
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, NoReturn, cast

from data_stack.exception import (
    MalformedIdentifierError,
    MaliciousFilePathError,
    ResourceNotFoundError,
    StorageError,
    StorageFullError,
)
from data_stack.io.identifiers import checked_identifier, checked_prefix
from data_stack.io.resources import ByteSource, Storable, StreamedResource, StreamedTextResource, SupportedStreamedResourceTypes
from data_stack.io.storage_connectors.connector import (
    BINARY,
    Digest,
    Lease,
    ResourceInfo,
    ResourceWriter,
    StorageConnector,
    store_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined]  # typeshed: Python 3.12

_OWN_FOLDER = ".data_stack"
_TEMPORARY = ".~"
#: Temporaries of other machines (or containers) are left alone for this long: whether their owner lives cannot be seen.
_FOREIGN_GRACE_SECONDS = 24 * 3600.0
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class FileStorageConnector(StorageConnector):
    """Keeps resources as files below ``root_path``; several processes may share it.

    The folder is made at the first write. Symbolic links inside of it are followed as long as they stay inside.

    Args:
        root_path: folder of the store. As in the original, an absolute identifier below it is tolerated.
    """

    knows_digests = True

    def __init__(self, root_path: str | os.PathLike[str]) -> None:
        self._root_path = os.path.abspath(os.fspath(root_path))

    @property
    def root_path(self) -> str:
        """Absolute path of the store's folder."""
        return self._root_path

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._root_path!r})"

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
            self._remove_record(identifier)  # first: killed in between, we leave a file without a digest, not the reverse
            os.unlink(name, dir_fd=folder)
            os.fsync(folder)
        self._remove_aside(identifier)

    def list_resources(self, prefix: str = "") -> list[str]:
        checked_prefix(prefix)
        aside = os.path.join(self._root_path, _OWN_FOLDER, "aside")
        found = {*self._walk(self._root_path, prefix), *self._walk(aside, prefix)}
        return sorted(identifier for identifier in found if identifier.startswith(prefix))

    def stat(self, identifier: str) -> ResourceInfo:
        identifier = self._checked(identifier)
        with self._located(identifier) as (_, _, status):
            return self._info(identifier, status)

    @contextlib.contextmanager
    def create(self, identifier: str) -> Iterator[ResourceWriter]:
        identifier = self._checked(identifier)
        with self._storage_errors("store", identifier):
            folder, name = self._target(identifier)
        try:
            temporary = _TEMPORARY + _owner() + "-" + secrets.token_hex(4)
            with self._storage_errors("store", identifier):
                handle = os.open(
                    temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder
                )
            file = open(handle, "w+b", buffering=1 << 17)
            writer = _FileWriter(identifier, file, lambda error: self._raise("store", identifier, error))
            try:
                yield writer
                with self._storage_errors("store", identifier):
                    writer.seal()
                    os.fchmod(handle, 0o666 & ~_umask())
                    os.fsync(handle)
                    status = os.fstat(handle)
                    file.close()
                    self._publish(folder, temporary, name, identifier)
            except BaseException:
                writer.digest.finish()
                with contextlib.suppress(OSError):
                    file.close()  # may fail again to write what a full disk refused
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)
                raise
        finally:
            os.close(folder)
        self._record(identifier, status, writer.digest)

    def verify_resource(self, identifier: str, sha256: str | None = None) -> ResourceInfo:
        identifier = self._checked(identifier)
        with self._located(identifier) as (_, _, before):
            found = super().verify_resource(identifier, sha256)
        with self._located(identifier) as (_, _, after):
            if self._info(identifier, after).sha256 is None and _same_file(before, after):
                self._record(identifier, after, found)
        return found

    def lease(self, identifier: str) -> contextlib.AbstractContextManager[Lease]:
        return contextlib.closing(_FileLease(os.path.join(self._root_path, _OWN_FOLDER, "leases"), self._checked(identifier)))

    def remove_abandoned(self, prefix: str = "") -> list[str]:
        below = checked_prefix(prefix).rpartition("/")[0]
        removed = []
        for start in (below, os.path.join(_OWN_FOLDER, "digests", below), os.path.join(_OWN_FOLDER, "aside")):
            for path, _, files in os.walk(os.path.join(self._root_path, start)):
                for file in files:
                    if file.startswith(_TEMPORARY) and _is_abandoned(os.path.join(path, file)):
                        with contextlib.suppress(OSError):
                            os.unlink(os.path.join(path, file))
                            removed.append(os.path.relpath(os.path.join(path, file), self._root_path))
        return removed

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

    def _info(self, identifier: str, status: os.stat_result) -> ResourceInfo:
        """What is known of a file: its recorded digests if they were taken of this very file."""
        sha256: str | None = None
        blocks: tuple[int, ...] = ()
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            with open(self._record_path(identifier), "rb") as file:
                record = json.loads(file.read())
            if [record["size"], record["mtime_ns"], record["inode"]] == [status.st_size, status.st_mtime_ns, status.st_ino]:
                crcs = bytes.fromhex(record["blocks"])
                blocks = tuple(int.from_bytes(crcs[i : i + 4], "big") for i in range(0, len(crcs), 4))
                sha256 = bytes.fromhex(record["sha256"]).hex()
        return ResourceInfo(identifier, status.st_size, sha256, blocks, status.st_mtime)

    def _record(self, identifier: str, status: os.stat_result, digest: Digest | ResourceInfo) -> None:
        """Note the digests of a file; losing the note costs a reading, never an answer."""
        record = {
            "size": status.st_size,
            "mtime_ns": status.st_mtime_ns,
            "inode": status.st_ino,
            "sha256": digest.sha256,
            "blocks": b"".join(crc.to_bytes(4, "big") for crc in digest.blocks).hex(),
        }
        path = self._record_path(identifier)
        temporary = os.path.join(os.path.dirname(path), _TEMPORARY + _owner() + "-" + secrets.token_hex(4))
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(temporary, "x", encoding="ascii") as file:
                json.dump(record, file)
            os.replace(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)

    def _remove_record(self, identifier: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._record_path(identifier))

    def _record_path(self, identifier: str) -> str:
        # No identifier ends with "~", so the record of "a" never meets the folder of the record of "a/b".
        return os.path.join(self._root_path, _OWN_FOLDER, "digests", identifier + "~")

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
        reason = error.strerror or str(error)
        if error.errno in _FULL:
            with contextlib.suppress(OSError):
                reason += f"; {shutil.disk_usage(self._root_path).free:,} bytes are free"
            raise StorageFullError(
                f"could not {action} {identifier!r} in {self!r}: {reason}. Nothing was published; make room and try again.",
                error.errno,
            ) from error
        raise StorageError(
            f"could not {action} {identifier!r} in {self!r}: {reason}. The store is as it was; check permissions and the disk.",
            error.errno,
        ) from error

    def _open_file(self, identifier: str) -> tuple[int, ResourceInfo]:
        """A handle on a resource's file for reading, and what is known of exactly that file."""
        with self._located(identifier) as (folder, name, _), self._storage_errors("read", identifier):
            handle = os.open(name, _FILE_FLAGS, dir_fd=folder)
            return handle, self._info(identifier, os.fstat(handle))


class _FileSource(ByteSource):
    """A file that is opened at the first need and read by position.

    The handle may be inherited by a fork: positional reads share nothing but the sealed bytes.
    """

    def __init__(self, connector: FileStorageConnector, identifier: str) -> None:
        self._connector, self._identifier = connector, identifier
        self._handle = -1
        self._info: ResourceInfo | None = None
        self._opening, self._pid = threading.Lock(), os.getpid()

    def _opened(self) -> ResourceInfo:
        if self._info is None:
            if self._pid != os.getpid():
                self._opening, self._pid = threading.Lock(), os.getpid()
            with self._opening:
                if self._info is None:
                    self._handle, self._info = self._connector._open_file(self._identifier)
        return self._info

    @property
    def size(self) -> int:
        return self._opened().size

    @property
    def sha256(self) -> str | None:
        return self._opened().sha256

    def readinto_at(self, offset: int, buffer: memoryview) -> int:
        if self._info is None:
            self._opened()
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

    def fileno(self) -> int:
        self._opened()
        return self._handle

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


class _FileWriter(ResourceWriter):
    """A ResourceWriter whose operating system errors are ours."""

    def __init__(self, identifier: str, file: IO[bytes], fail: Callable[[OSError], NoReturn]) -> None:
        super().__init__(identifier, file)
        self._fail = fail

    def write(self, data: Buffer, /) -> int:
        try:
            return super().write(data)
        except StorageError:
            raise
        except OSError as error:
            self._fail(error)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self._fail(error)

    def seal(self) -> None:
        try:
            super().seal()
        except OSError as error:
            self._fail(error)


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


# ---------------------------------------------------------------------- who wrote that


@functools.lru_cache(maxsize=1)
def _machine() -> str:
    """Names what a process number is meaningful in: one boot of one machine, one namespace of processes."""
    facts = [os.uname().nodename]
    with contextlib.suppress(OSError):
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            facts.append(file.read())
        facts.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:12]


def _started(pid: int) -> str | None:
    """When a process began, in clock ticks since boot: tells it from a later one of the same number. None: there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[19]
    except OSError:
        if os.path.exists("/proc/self/stat"):
            return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        pass
    return "0"


def _owner() -> str:
    return f"{_machine()}-{os.getpid()}-{_started(os.getpid())}"


def _is_abandoned(path: str) -> bool:
    """Whether the writer of a temporary file is dead; if that cannot be seen from here, whether it is old."""
    try:
        machine, pid, started, _ = os.path.basename(path).removeprefix(_TEMPORARY).split("-")
        if machine == _machine():
            return _started(int(pid)) != started
    except ValueError:
        pass
    try:
        return time.time() - os.stat(path, follow_symlinks=False).st_mtime > _FOREIGN_GRACE_SECONDS
    except OSError:
        return False


def _same_file(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_ino, one.st_size, one.st_mtime_ns) == (other.st_ino, other.st_size, other.st_mtime_ns)


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
