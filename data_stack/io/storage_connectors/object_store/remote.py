"""The files of an fsspec file system, with time limits, atomic writes, and our errors.

fsspec and not obstore, which is faster: a forked child hangs in obstore's runtime, and loaders fork. An instance belongs to one
process.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import importlib
import os
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Final, NoReturn, TypeVar

from data_stack.exception import (
    ConfigError,
    DataStackError,
    MissingDependencyError,
    ReadOnlyStorageError,
    StorageError,
    StorageUnavailableError,
)
from data_stack.io.storage_connectors.object_store import s3
from data_stack.io.storage_connectors.object_store.errors import explain, is_unreachable, reason_of
from data_stack.io.storage_connectors.object_store.s3 import OtherVersionError, WrongAnswerError
from data_stack.io.storage_connectors.owners import this_process
from data_stack.io.url import StorageURL
from data_stack.io.web.errors import WebError
from data_stack.io.web.limits import Limits
from data_stack.io.web.ranges import FileVersion
from data_stack.io.web.retries import retrying
from data_stack.util.forks import call_in_forks

try:
    import fsspec
    from fsspec.asyn import AsyncFileSystem, sync
    from fsspec.implementations.memory import MemoryFileSystem
except ImportError as error:
    raise MissingDependencyError("FsspecStorageConnector", "fsspec", "cloud") from error

#: Folder of unfinished files on file systems that publish by renaming; names begin with that of the process and a dot.
TEMPORARIES: Final = ".data_stack/temporaries"

_T = TypeVar("_T")
_MISSING: Final = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
_MAX_AT_ONCE: Final = 32
#: Listings take many requests.
_LISTING_TIMEOUTS: Final = 10
#: As threads send groups of them.
_MAX_CONNECTIONS: Final = 64
#: File systems of objects, which put them atomically and list by prefix; the others publish by renaming.
_ATOMIC: Final = (AsyncFileSystem, MemoryFileSystem)
_TAGS: Final = ("ETag", "etag", "generation")
_TIMES: Final = ("LastModified", "last_modified", "mtime", "updated", "modified", "created")

if hasattr(fsspec.asyn, "reset_lock"):  # fsspec itself does so from 2025.3.2 on
    os.register_at_fork(after_in_child=fsspec.asyn.reset_lock)


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file as its file system describes it.

    Attributes:
        path: relative to the root.
        size: length in bytes.
        modified: seconds since 1970 by the clock of the file system, or None.
        tag: changes with the content, as far as the file system can tell.
    """

    path: str
    size: int
    modified: float | None
    tag: str

    @property
    def etag(self) -> str:
        """What the store itself calls the version; empty if it has no name for it."""
        return self.tag.partition("|")[0]


class RemoteFiles:
    """The files below a URL.

    Args:
        url: scheme, place and folder; user and password in it are used, and never shown.
        timeout_seconds: limit of a single call, retries included.
        options: arguments of the file system's class; never shown.
        read_only: refuse to write, as to a file system that can neither put nor rename atomically.

    Raises:
        ConfigError: the URL has no bucket or host, or its scheme is unknown.
        MissingDependencyError: the package for its scheme is not installed.
    """

    def __init__(
        self,
        url: str,
        timeout_seconds: float,
        options: Mapping[str, Any],
        *,
        read_only: bool = False,
    ) -> None:
        parts = StorageURL.parse(url)
        if parts is None:
            raise ConfigError("a store needs a URL with a scheme, such as s3://bucket/folder")
        self._protocol, url = parts.scheme, str(parts)
        self._class = _class_of(self._protocol)
        can_publish = (
            issubclass(self._class, _ATOMIC) or self._class.mv is not fsspec.AbstractFileSystem.mv
        )
        self.read_only = read_only or not can_publish
        try:
            self._options = {**self._class._get_kwargs_from_urls(url), **options}
            self.root = str(self._class._strip_protocol(url)).rstrip("/")
        except (ValueError, TypeError):
            raise ConfigError(
                f"{self._class.__name__} cannot parse this {self._protocol}:// URL"
            ) from None
        if self._protocol in _WITHOUT_LOGIN and ":" in parts.authority.rpartition("@")[0]:
            # The driver would take them for a part of the bucket's name, and show them.
            raise ConfigError(
                f"a {self._protocol}:// URL must not hold a password; use the environment or storage_options"
            )
        if not parts.authority and (
            self._protocol in _WITHOUT_LOGIN | {"sftp", "ssh"} or not parts.path.strip("/")
        ):
            raise ConfigError(
                f"a {self._protocol}:// URL needs a bucket or host, such as {self._protocol}://bucket/folder"
            )
        self.place = f"{self._protocol}://{parts.host}{parts.path.rstrip('/')}"
        self._timeout_seconds = timeout_seconds
        #: Whether it has :meth:`beginning_with`.
        self.lists_by_prefix = self._protocol in ("s3", "s3a")
        self._is_s3 = self.lists_by_prefix
        self._key = (self._class, fsspec.utils.tokenize(self._options, timeout_seconds))
        self._connection: _Handle | None = None
        call_in_forks(self._begin_in_fork)

    # ------------------------------------------------------------------ reading

    def read(self, path: str, most: int) -> bytes | None:
        """The first ``most`` bytes of a file; None if there is no such file."""
        return self.read_ranges([(path, 0, most)])[0]

    def read_ranges(
        self, ranges: Sequence[tuple[str, int, int]], *, version: RemoteFile | None = None
    ) -> list[bytes | None]:
        """Read ``(path, start, end)`` ranges at once, clipped to the files; None for missing files.

        Args:
            ranges: what to read.
            version: the file of all ranges as it was described. Where :meth:`checks_version` says so, it must be unchanged.

        Raises:
            OtherVersionError: the file is of another version.
            StorageError: the file system could not read, or sent something else.
        """
        found: list[bytes | None] = []
        for i in range(0, len(ranges), _MAX_AT_ONCE):
            group = ranges[i : i + _MAX_AT_ONCE]
            ask = functools.partial(self._answers, group, version)
            answers = self._insist("read", group[0][0], ask)
            for asked, answer in zip(group, answers, strict=True):
                found.append(self._take(asked, answer))
        return found

    def checks_version(self, file: RemoteFile) -> bool:
        """Whether each answer to :meth:`read_ranges` tells of which version of the file it is."""
        return self._is_s3 and FileVersion(file.etag).strong_etag is not None

    def _take(self, asked: tuple[str, int, int], answer: bytes | Exception) -> bytes | None:
        """The bytes of an answer; None if there is no such file."""
        path, start, stop = asked
        if isinstance(answer, _MISSING):
            return None
        if isinstance(answer, OtherVersionError):
            raise answer
        if not isinstance(answer, Exception):
            if len(answer) > stop - start:
                self._fail("read", path, _too_much(len(answer), stop - start))
            return bytes(answer)
        if isinstance(answer, (WrongAnswerError, PermissionError)):
            self._fail("read", path, answer)
        # Object stores refuse a range that begins behind the end.
        try:
            info = self._info(path)
        except StorageError:
            info = None  # its reason is not that of the range
        if info is None or info.size > start:
            self._fail("read", path, answer)
        return b""

    def _answers(
        self, ranges: Sequence[tuple[str, int, int]], version: RemoteFile | None
    ) -> list[bytes | Exception]:
        """The answer to each range; raises if a retry may help."""
        answers = self._ask_s3(ranges, version) if self._is_s3 else self._ask_class(ranges)
        for answer in answers:
            is_error = isinstance(answer, BaseException) and not isinstance(answer, _MISSING)
            if is_error and (
                not isinstance(answer, Exception)
                or is_unreachable(answer)
                or not self._is_connected()
            ):
                raise answer
        return list(answers)

    def _ask_class(self, ranges: Sequence[tuple[str, int, int]]) -> list[Any]:
        paths, starts, stops = (list(values) for values in zip(*ranges, strict=True))
        names = [self._full(path) for path in paths]
        return list(self._run("cat_ranges", names, starts, stops, on_error="return"))

    def _ask_s3(
        self, ranges: Sequence[tuple[str, int, int]], version: RemoteFile | None
    ) -> list[Any]:
        is_checked = version is not None and self.checks_version(version)
        etag = version.etag if version is not None and is_checked else None
        asked = [
            s3.ObjectRange(self._object_key(path), start, stop, etag)
            for path, start, stop in ranges
        ]
        return list(self._run_s3(s3.get_ranges, asked))

    def info(self, path: str) -> RemoteFile | None:
        """Metadata of a file; None if there is no such file."""
        try:
            return self._info(path)
        except StorageUnavailableError:
            raise
        except StorageError:
            if self._is_s3:
                self.read(
                    path, 1
                )  # raises with the reason, for which an answer to HEAD has no room
            raise

    def _info(self, path: str) -> RemoteFile | None:
        if self._is_s3:
            info = self._insist(
                "look for", path, lambda: self._run_s3(s3.head, self._object_key(path))
            )
        else:
            info = self._call("look for", path, "info", self._full(path))
        return next(iter(self._describe([info] if info is not None else [])), None)

    def has_root(self) -> bool:
        """Whether the root folder exists. An object store has no folders; without its bucket it cannot be listed."""
        if issubclass(self._class, _ATOMIC):
            return True
        return self._call("look for", "", "info", self.root) is not None

    def exist(self, paths: Sequence[str]) -> list[bool]:
        """Whether there is a file at each path."""
        if issubclass(self._class, AsyncFileSystem):
            # One request each, at once: for a missing file, info() of an object store also looks for a folder.
            return [data is not None for data in self.read_ranges([(path, 0, 1) for path in paths])]
        return [self.info(path) is not None for path in paths]

    def beginning_with(self, prefix: str) -> list[RemoteFile]:
        """All files of an S3 store whose paths begin with ``prefix``, which is not empty, also within a name."""
        return self._list_s3(self._object_key(prefix), prefix)[0]

    def files(self, folder: str) -> list[RemoteFile]:
        """All files below a folder, however deep; none if there is no such folder.

        Raises:
            StorageError: the folder, or the bucket, could not be listed. A bucket that does not exist is not empty.
        """
        if self._is_s3:
            return self._list_s3(self._beginning_of(folder), folder)[0]
        # By default fsspec silently skips unreadable folders, except where it lists by prefix.
        strictly = {} if issubclass(self._class, _ATOMIC) else {"on_error": _raise_unless_missing}
        found = self._list("find", folder, **strictly) or {}
        return self._below(folder, self._describe(found.values()))

    def links(self, folder: str) -> list[str]:
        """The paths of all links below a folder, however deep; none of an object store, which has no links."""
        if issubclass(self._class, _ATOMIC):
            return []
        options = {"detail": True, "on_error": _raise_unless_missing}
        found = self._call("list", folder, "find", self._full(folder), **options) or {}
        return [
            self._relative(info["name"])
            for info in found.values()
            if info.get("type") == "link" or info.get("islink")
        ]

    def entries(self, folder: str) -> tuple[list[RemoteFile], list[str]]:
        """The files and folders in a folder; none if there is no such folder.

        Raises:
            StorageError: as for :meth:`files`.
        """
        if self._is_s3:
            return self._list_s3(self._beginning_of(folder), folder, delimiter="/")
        found = self._list("ls", folder) or []
        folders = [
            self._relative(info["name"]) for info in found if info.get("type") == "directory"
        ]
        return self._below(folder, self._describe(found)), folders

    def _list(self, method: str, folder: str, **options: Any) -> Any:
        """What a method lists in a folder; None if there is no such folder."""
        listed = self._call("list", folder, method, self._full(folder), detail=True, **options)
        if not listed and issubclass(self._class, AsyncFileSystem):
            self._check_bucket()
        return listed

    def _check_bucket(self) -> None:
        """Check that the bucket exists: an object store lists nothing for a folder that is missing, and for a bucket as well."""
        bucket = self.root.partition("/")[0]
        if bucket and self._call("look for", "", "info", bucket) is None:
            self._fail("list", "", WrongAnswerError(f"the bucket {bucket!r} does not exist"))

    def _below(self, folder: str, files: list[RemoteFile]) -> list[RemoteFile]:
        """The files of a listing that are below its folder, as all must be but the folder itself."""
        beginning = f"{folder}/" if folder else ""
        below = [file for file in files if file.path != folder]
        for file in below:
            if not file.path.startswith(beginning):
                why = f"the listing has {file.path!r:.200}, which is elsewhere"
                self._fail("list", folder, WrongAnswerError(why))
        return below

    def _list_s3(
        self, prefix: str, named: str, *, delimiter: str = ""
    ) -> tuple[list[RemoteFile], list[str]]:
        """The files and folders whose keys begin with ``prefix``; ``named`` is shown in errors."""

        def ask() -> s3.Listing:
            return self._run_s3(s3.list_objects, prefix, delimiter=delimiter, is_listing=True)  # type: ignore[no-any-return]

        listing = self._insist("list", named, ask)
        n_cut = len(self._beginning_of(""))
        files = []
        for entry in listing.objects:
            path = entry["Key"][n_cut:]
            # Consoles mark a folder by an empty object with its name and a slash.
            if path and not path.endswith("/"):
                files.append(self._describe_file(path, {**entry, "size": entry["Size"]}))
        return files, [key[n_cut:].rstrip("/") for key in listing.folders]

    # ------------------------------------------------------------------ writing

    def put(self, path: str, data: bytes | memoryview, **mode: Any) -> None:
        """Write or replace a file atomically."""
        data = bytes(data)
        self._check_writable(path)
        try:
            if issubclass(self._class, _ATOMIC):
                self._insist(
                    "store", path, lambda: self._run("pipe_file", self._full(path), data, **mode)
                )
            else:
                write = self._create_exclusively if mode else self._put_by_renaming
                self._insist("store", path, lambda: write(path, data))
        except _MISSING as error:
            self._fail("store", path, error)  # no bucket, or a file in place of a folder

    def create(self, path: str, data: bytes | memoryview) -> bool:
        """Write a file unless it exists; return whether it was written. Of concurrent attempts one succeeds."""
        try:
            self.put(path, data, mode="create")
        except FileExistsError:
            return False
        return True

    def delete(self, path: str) -> None:
        """Remove a file if it exists."""
        self._check_writable(path)
        self._call("delete", path, "rm_file", self._full(path))

    def _check_writable(self, path: str) -> None:
        if self.read_only:
            problem = f"cannot change {path!r}: {self.place} was opened for reading only, or its file system cannot rename"
            raise ReadOnlyStorageError(problem, errno.EROFS)

    def now(self) -> float:
        """The time of the file system, in seconds since 1970: that of a new file."""
        path = f"{TEMPORARIES}/{this_process()}.{secrets.token_hex(8)}"
        self.put(path, b"")
        info = self.info(path)
        self.delete(path)
        return time.time() if info is None or info.modified is None else info.modified

    def _put_by_renaming(self, path: str, data: bytes) -> None:
        temporary = f"{TEMPORARIES}/{this_process()}.{secrets.token_hex(8)}"
        try:
            self._in_folder_of(
                temporary, lambda: self._run("pipe_file", self._full(temporary), data)
            )
            n_written = self._run("info", self._full(temporary))["size"]
            if n_written != len(data):
                raise OSError(
                    errno.ENOSPC, f"only {n_written:,} of {len(data):,} bytes were stored"
                )
            self._in_folder_of(
                path, lambda: self._run("mv", self._full(temporary), self._full(path))
            )
        except BaseException as error:
            if not is_unreachable(error):  # else garbage collection removes it later
                with contextlib.suppress(Exception):
                    self._run("rm_file", self._full(temporary))
            raise

    def _create_exclusively(self, path: str, data: bytes) -> None:
        def write() -> None:
            handle = self._handle()
            with handle.lock, handle.file_system.open(self._full(path), "xb") as file:
                file.write(data)

        self._in_folder_of(path, write)

    def _in_folder_of(self, path: str, write: Callable[[], object]) -> None:
        """Call ``write``; if the folder is missing, create it first."""
        try:
            write()
        except _MISSING:
            with contextlib.suppress(
                OSError
            ):  # another process may create it; other errors show in write()
                self._run("makedirs", os.path.dirname(self._full(path)), exist_ok=True)
            write()

    # ------------------------------------------------------------------ calls

    def _call(self, action: str, path: str, method: str, *args: Any, **kwargs: Any) -> Any:
        """What a method returns; None if there is no such file."""
        with contextlib.suppress(*_MISSING):
            return self._insist(action, path, lambda: self._run(method, *args, **kwargs))
        return None

    def _run(self, method: str, *args: Any, **kwargs: Any) -> Any:
        handle = self._handle()
        file_system = handle.file_system
        if isinstance(file_system, AsyncFileSystem):
            is_listing = method in ("find", "ls")
            seconds = self._timeout_seconds * (_LISTING_TIMEOUTS if is_listing else 1)
            return sync(
                file_system.loop,
                getattr(file_system, "_" + method),
                *args,
                timeout=seconds,
                **kwargs,
            )
        with handle.lock:
            return getattr(file_system, method)(*args, **kwargs)

    def _run_s3(
        self, request: Callable[..., Any], *args: Any, is_listing: bool = False, **kwargs: Any
    ) -> Any:
        """What a request of :mod:`.s3` returns."""
        file_system = self._handle().file_system
        seconds = self._timeout_seconds * (_LISTING_TIMEOUTS if is_listing else 1)
        bucket, _, _ = file_system.split_path(self.root)
        return sync(
            file_system.loop, request, file_system, bucket, *args, timeout=seconds, **kwargs
        )

    def _insist(self, action: str, path: str, ask: Callable[[], _T]) -> _T:
        """Call ``ask``, with retries while the store is unreachable and time is left."""
        failures: list[Exception] = []

        def attempt(_: float) -> _T:
            try:
                return ask()
            except WrongAnswerError as error:
                self._fail(action, path, error)
            except (*_MISSING, FileExistsError, DataStackError):
                raise
            except Exception as error:  # noqa: BLE001  # each file system has exceptions of its own
                if not is_unreachable(error) and self._is_connected():
                    self._fail(action, path, error)
                self._disconnect()
                failures.append(error)
                raise WebError("unreachable", transient=True) from None

        try:
            return retrying(
                attempt,
                Limits(n_retries=3, backoff_seconds=0.3),
                deadline=time.monotonic() + self._timeout_seconds,
            )
        except WebError:
            self._fail(action, path, failures[-1], is_away=True)

    def _fail(self, action: str, path: str, error: Exception, *, is_away: bool = False) -> NoReturn:
        problem = f"could not {action} {path or 'the store'!r} in {self.place}"
        seconds = self._timeout_seconds if is_away else None
        raise explain(
            problem, error, self._options, seconds
        ) from None  # exceptions of clients may hold URLs with credentials

    def _handle(self) -> _Handle:
        """The file system of this process."""
        handle = self._connection
        if handle is None:
            # Connectors with the same options share one: creating an S3 client takes 0.2 s.
            handle = self._connection = _SHARED.get(self._key) or _SHARED.setdefault(
                self._key, self._connect()
            )
        return handle

    def _begin_in_fork(self) -> None:
        _INHERITED.append(self._connection)
        _SHARED.clear()
        self._connection = None

    def _is_connected(self) -> bool:
        """Whether the connection of this process still holds."""
        handle = self._connection
        return handle is None or bool(getattr(handle.file_system, "is_connected", True))

    def _disconnect(self) -> None:
        """Drop a broken connection; asynchronous clients reconnect themselves."""
        if issubclass(self._class, AsyncFileSystem):
            return
        handle, self._connection = self._connection, None
        if handle is not None:
            _SHARED.pop(self._key, None)
            handle.close()

    def _connect(self) -> _Handle:
        options, seconds = dict(self._options), self._timeout_seconds
        if issubclass(self._class, AsyncFileSystem):
            options.setdefault("use_listings_cache", False)
        if self._protocol in ("s3", "s3a"):
            # We retry, and each request ends in time even if the server is silent.
            limits = {
                "connect_timeout": min(10.0, seconds),
                "read_timeout": seconds,
                "max_pool_connections": _MAX_CONNECTIONS,
            }
            options["config_kwargs"] = {
                **limits,
                "retries": {"max_attempts": 0},
                **options.get("config_kwargs", {}),
            }
        elif self._protocol in ("sftp", "ssh"):
            options.setdefault("timeout_seconds", seconds)
        try:
            file_system = self._class(**options, skip_instance_cache=True)
        except TypeError as error:
            raise ConfigError(
                f"{self._class.__name__} does not take these options: {reason_of(error, self._options)}"
            ) from None
        if self._protocol in ("s3", "s3a"):
            file_system.retries = 1
        return _Handle(file_system, issubclass(self._class, MemoryFileSystem))

    # ------------------------------------------------------------------ names

    def _full(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root

    def _object_key(self, path: str) -> str:
        """The key of a file in its bucket."""
        return self._beginning_of("") + path

    def _beginning_of(self, folder: str) -> str:
        """What the keys of all files below a folder begin with."""
        _, _, key = self.root.partition("/")
        names = [name for name in (key, folder) if name]
        return "".join(f"{name}/" for name in names)

    def _relative(self, name: str) -> str:
        path = str(self._class._strip_protocol(name)).removeprefix(self.root)
        return path.removeprefix("/").rstrip("/")  # the key "/a" is another one than "a"

    def _describe(self, found: Iterable[Mapping[str, Any]]) -> list[RemoteFile]:
        """The files that are not links."""
        return [
            self._describe_file(self._relative(info["name"]), info)
            for info in found
            if info.get("type") == "file" and not info.get("islink")
        ]

    def _describe_file(self, path: str, info: Mapping[str, Any]) -> RemoteFile:
        modified = next((info[key] for key in _TIMES if info.get(key) not in (None, "")), None)
        etag = next((str(info[key]) for key in _TAGS if info.get(key)), "")
        size = int(info.get("size") or 0)
        tag = f"{etag}|{size}|{modified}|{info.get('ino', '')}"
        return RemoteFile(path, size, _seconds(modified), tag)


class _Handle:
    """A file system of one process."""

    def __init__(self, file_system: Any, is_parallel: bool) -> None:
        self.file_system = file_system
        # Synchronous connections are not thread-safe.
        self.lock: contextlib.AbstractContextManager[Any] = (
            contextlib.nullcontext() if is_parallel else threading.RLock()
        )
        #: Closes the connection, whose thread would never end by itself.
        self.close = weakref.finalize(self, getattr(file_system, "disconnect", bool))
        self.close.atexit = False


_WITHOUT_LOGIN = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss"}
#: The open file systems of this process.
_SHARED: weakref.WeakValueDictionary[tuple[Any, str], _Handle] = weakref.WeakValueDictionary()
#: Those of its parents, which are kept: closing one would touch shared sockets and the event loop.
_INHERITED: list[_Handle | None] = []


def _class_of(protocol: str) -> Any:
    try:
        if protocol in ("sftp", "ssh"):
            return importlib.import_module(f"{__package__}.sftp").VerifiedSFTPFileSystem
        return fsspec.get_filesystem_class(protocol)
    except ImportError as error:
        package = str(error.name or getattr(error.__cause__, "name", None) or protocol).partition(
            "."
        )[0]
        extra = "s3" if protocol in ("s3", "s3a") else "cloud"
        raise MissingDependencyError(
            f"FsspecStorageConnector of {protocol}://", package, extra
        ) from error
    except ValueError:
        raise ConfigError(f"fsspec does not know the scheme {protocol}://") from None


def _too_much(n_sent: int, n_asked: int) -> WrongAnswerError:
    return WrongAnswerError(
        f"the server sends {n_sent:,} bytes, requested were {n_asked:,}:"
        f" it or a cache before it does not support ranges"
    )


def _raise_unless_missing(error: Exception) -> None:
    if not isinstance(
        error, FileNotFoundError
    ):  # a folder may be removed while its parent is listed
        raise error


def _seconds(modified: Any) -> float | None:
    if isinstance(modified, str):
        with contextlib.suppress(ValueError):
            modified = datetime.fromisoformat(modified.replace("Z", "+00:00"))
    if isinstance(modified, datetime):
        return (modified if modified.tzinfo else modified.replace(tzinfo=timezone.utc)).timestamp()
    return float(modified) if isinstance(modified, (int, float)) else None
