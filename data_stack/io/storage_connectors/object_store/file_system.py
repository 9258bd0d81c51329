"""A file system of fsspec, with time limits, retries and our errors."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn, TypeVar
from urllib.parse import urlsplit

from data_stack.exception import ConfigError, DataStackError, MissingDependencyError
from data_stack.io.storage_connectors.object_store.azure_account import (
    AZURE_PROTOCOLS,
    account_of_host,
    adlfs_options,
)
from data_stack.io.storage_connectors.object_store.errors import (
    explain,
    is_busy,
    is_unreachable,
    reason_of,
    requested_pause_of,
)
from data_stack.io.storage_connectors.object_store.login_environment import login_digest
from data_stack.io.storage_connectors.object_store.login_files import (
    check_google_endpoint,
    check_google_file,
    check_google_login,
    check_s3_files,
)
from data_stack.io.storage_connectors.object_store.remote_file import RemoteFile
from data_stack.io.storage_connectors.object_store.s3 import WrongAnswerError
from data_stack.io.url import StorageURL
from data_stack.util.forks import call_in_forks, fork_lock
from data_stack.util.polling import jittered

try:
    import fsspec
    from fsspec.asyn import AsyncFileSystem, sync
    from fsspec.implementations.memory import MemoryFileSystem
    from fsspec.registry import known_implementations, registry
except ImportError as error:
    raise MissingDependencyError("FsspecStorageConnector", "fsspec", "cloud") from error

_Result = TypeVar("_Result")

#: What file systems raise for a file that does not exist.
MISSING_ERRORS: Final = (FileNotFoundError, NotADirectoryError, IsADirectoryError)

S3_PROTOCOLS: Final = ("s3", "s3a")
GOOGLE_PROTOCOLS: Final = ("gs", "gcs")
_SFTP_PROTOCOLS: Final = ("sftp", "ssh")
#: The protocols whose URLs have a bucket in the place of user and host.
_BUCKET_PROTOCOLS: Final = {*S3_PROTOCOLS, *GOOGLE_PROTOCOLS, *AZURE_PROTOCOLS}
#: File systems of objects, which put them atomically and list by prefix. The others publish by
#: renaming.
_ATOMIC_CLASSES: Final = (AsyncFileSystem, MemoryFileSystem)
#: The classes whose import can wait until fsspec sends a request.
_LATE_CLASSES: Final = ("s3fs.S3FileSystem", "adlfs.AzureBlobFileSystem")

#: A listing takes many requests, so its limit is this many timeouts.
_LISTING_METHODS: Final = ("find", "ls")
_LISTING_TIMEOUTS: Final = 10

_MAX_RETRIES: Final = 3
#: The pause after the first failure. Each further pause is twice as long.
_FIRST_PAUSE_SECONDS: Final = 0.3
#: The same if the store is busy, and does not say how long to wait, or its client does not tell:
#: https://cloud.google.com/storage/docs/retry-strategy#exponential-backoff
_FIRST_BUSY_PAUSE_SECONDS: Final = 1.0
_MAX_CONNECT_SECONDS: Final = 10.0
#: Threads send groups of requests at once.
_MAX_CONNECTIONS: Final = 64

if hasattr(fsspec.asyn, "reset_lock"):  # fsspec itself does so from 2025.3.2 on
    os.register_at_fork(after_in_child=fsspec.asyn.reset_lock)


class RemoteFileSystem:
    """The file system of a URL. It connects on first use, once per process.

    Args:
        url: scheme, place and folder. User and password in it are used, and never shown.
        timeout_seconds: the limit of a single call, retries included.
        options: the arguments of the class of the file system, which are never shown.

    Raises:
        ConfigError: the URL has no bucket or host, or its scheme is unknown.
        MissingDependencyError: the package for its scheme is not installed.

    Attributes:
        protocol: the scheme.
        root: the folder, as fsspec names it.
        place: the URL without user and password, for messages.
        options: the arguments of the class of the file system, which may hold secrets.
        is_asynchronous: whether many requests are sent at once.
        is_atomic: whether it puts files atomically; otherwise they are published by renaming.
        can_publish: whether it can do either.
    """

    protocol: str
    root: str
    place: str
    options: dict[str, Any]
    is_asynchronous: bool
    is_atomic: bool
    can_publish: bool
    #: The class of fsspec; None before it is needed.
    _loaded_class: Any
    _timeout_seconds: float
    #: The options and the timeout. Connectors for which they are equal share a connection.
    _token_of_options: str
    #: The connection of this process; None before it is used.
    _connection: _Connection | None
    #: Held by the thread that connects.
    _connecting: threading.Lock

    def __init__(self, url: str, timeout_seconds: float, options: Mapping[str, Any]) -> None:
        parts = StorageURL.parse(url)
        if parts is None:
            raise ConfigError("a store needs a URL with a scheme, such as s3://bucket/folder")
        self.protocol = parts.scheme
        self._loaded_class = None
        self._timeout_seconds = timeout_seconds
        options_of_url: dict[str, Any] = {}
        known_root = _find_root_without_class(parts)
        if known_root is not None:
            self.is_asynchronous = True
            self.is_atomic = True
            self.can_publish = True
            self.root = known_root
        else:
            self.is_asynchronous = issubclass(self._class, AsyncFileSystem)
            self.is_atomic = issubclass(self._class, _ATOMIC_CLASSES)
            can_rename = self._class.mv is not fsspec.AbstractFileSystem.mv
            self.can_publish = self.is_atomic or can_rename
            try:
                options_of_url = self._class._get_kwargs_from_urls(str(parts))
                self.root = str(self._class._strip_protocol(str(parts))).rstrip("/")
            except (ValueError, TypeError):
                raise ConfigError(
                    f"{self._class.__name__} cannot parse this {self.protocol}:// URL"
                ) from None
        if self.protocol in AZURE_PROTOCOLS:
            options_of_url = account_of_host(parts.host)
        self.options = {**options_of_url, **options}
        _check_place(parts)
        host = parts.host
        if self.protocol in AZURE_PROTOCOLS:
            # What stands before the host is no user, but the container.
            host = parts.authority
        self.place = f"{self.protocol}://{host}{parts.path.rstrip('/')}"
        self._token_of_options = fsspec.utils.tokenize(self.options, timeout_seconds)
        self._connection = None
        self._connecting = fork_lock()
        call_in_forks(self._leave_inherited_connection)

    @property
    def _class(self) -> Any:
        """The class of fsspec, which the first use imports."""
        if self._loaded_class is None:
            self._loaded_class = _class_of(self.protocol)
        return self._loaded_class

    # ------------------------------------------------------------------ names

    def name_of(self, path: str) -> str:
        """Return the name of a file for fsspec.

        Args:
            path: the path relative to the root; empty: the root.
        """
        return f"{self.root}/{path}" if path else self.root

    def path_of(self, name: str) -> str:
        """Return the path, relative to the root, of a file that fsspec names."""
        path = str(self._class._strip_protocol(name)).removeprefix(self.root)
        # Only one slash: the key "/a" is another one than "a".
        return path.removeprefix("/").rstrip("/")

    def key_of(self, path: str) -> str:
        """Return the key of a file in its bucket.

        Args:
            path: the path relative to the root; empty: what the keys of all files begin with.
        """
        root = self.root.partition("/")[2]
        return f"{root}/{path}" if root else path

    @property
    def sharing_key(self) -> tuple[str, str, str]:
        """A value that is equal for equal options and an equal login of the environment."""
        digest = login_digest(self.protocol, os.environ)
        return self.protocol, self._token_of_options, digest

    @property
    def max_listing_seconds(self) -> float:
        """The limit of a listing, which takes many requests."""
        return self._timeout_seconds * _LISTING_TIMEOUTS

    def file_of(self, info: Mapping[str, Any]) -> RemoteFile | None:
        """Return the file that fsspec describes; None for a folder or link."""
        if info.get("type") != "file" or info.get("islink"):
            return None
        return RemoteFile.of(self.path_of(info["name"]), info)

    # ------------------------------------------------------------------ requests

    def connect(self) -> Any:
        """Return the file system of fsspec in this process, which the first call makes."""
        return self._connect_once().file_system

    def call(self, action: str, path: str, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the file system, with retries.

        Args:
            action: what the call does, for messages.
            path: the path of the file, for messages.
            method: the name of the method.
            *args: its arguments.
            **kwargs: its keyword arguments.

        Returns:
            What the method returns; None if there is no such file.
        """
        with contextlib.suppress(*MISSING_ERRORS):
            return self.retry(action, path, lambda: self.run(method, *args, **kwargs))
        return None

    def run(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the file system once. Its exceptions are raised as they are.

        Args:
            method: the name of the method.
            *args: its arguments.
            **kwargs: its keyword arguments.
        """
        connection = self._connect_once()
        file_system = connection.file_system
        if not self.is_asynchronous:
            with connection.lock:
                return getattr(file_system, method)(*args, **kwargs)
        is_listing = method in _LISTING_METHODS
        return sync(
            file_system.loop,
            getattr(file_system, f"_{method}"),
            *args,
            timeout=self.max_listing_seconds if is_listing else self._timeout_seconds,
            **kwargs,
        )

    def run_request(self, request: Callable[..., Any], *args: Any) -> Any:
        """Send a request of :mod:`.s3` once, and return its answer.

        Args:
            request: the request. Its first arguments are the file system and the bucket.
            *args: its further arguments.
        """
        file_system = self._connect_once().file_system
        bucket, _, _ = file_system.split_path(self.root)
        return sync(
            file_system.loop,
            request,
            file_system,
            bucket,
            *args,
            timeout=self._timeout_seconds,
        )

    def open_new_file(self, path: str, data: bytes) -> None:
        """Write a file that does not exist yet, on a synchronous file system.

        Raises:
            FileExistsError: it exists.
        """
        connection = self._connect_once()
        with connection.lock, connection.file_system.open(self.name_of(path), "xb") as file:
            file.write(data)

    def retry(self, action: str, path: str, request: Callable[[], _Result]) -> _Result:
        """Send a request, again while the store is unreachable and time is left.

        Args:
            action: what the request does, for messages.
            path: the path of the file, for messages.
            request: sends the request, and returns the answer.

        Raises:
            StorageError: the store refused the request, or did not answer.
            FileNotFoundError: there is no such file. Any of :data:`MISSING_ERRORS` says so.
            FileExistsError: the request was to create a file that exists.
        """
        deadline = time.monotonic() + self._timeout_seconds
        n_failures = 0
        while True:
            try:
                return request()
            except WrongAnswerError as error:
                self.fail(action, path, error)
            except (*MISSING_ERRORS, FileExistsError, DataStackError):
                raise
            except Exception as error:  # noqa: BLE001  # each file system has exceptions of its own
                may_pass = is_unreachable(error) or not self.is_connected()
                if not may_pass:
                    self.fail(action, path, error)
                last_error = error

            self._disconnect()
            n_failures += 1
            pause_seconds = _choose_pause(last_error, n_failures)
            # A server that asks for more time than is left is not asked again.
            has_time = time.monotonic() + pause_seconds <= deadline
            if n_failures > _MAX_RETRIES or not has_time:
                self.fail(action, path, last_error, is_away=True)
            time.sleep(pause_seconds)

    def fail(self, action: str, path: str, error: Exception, *, is_away: bool = False) -> NoReturn:
        """Raise our error for an exception.

        Args:
            action: what failed: ``"read"``.
            path: the path of the file; empty: the store.
            error: the exception.
            is_away: whether the store did not answer.
        """
        problem = f"could not {action} {path or 'the store'!r} in {self.place}"
        waited_seconds = self._timeout_seconds if is_away else None
        # Not with its cause: exceptions of clients may hold URLs with credentials.
        raise explain(problem, error, self.options, waited_seconds) from None

    # ------------------------------------------------------------------ connections

    def is_connected(self) -> bool:
        """Return whether the connection of this process holds, or will be made by the next call."""
        connection = self._connection
        if connection is None:
            return True
        return bool(getattr(connection.file_system, "is_connected", True))

    def _connect_once(self) -> _Connection:
        """Return the connection of this process, which is made by the first call."""
        connection = self._connection
        if connection is not None:
            return connection
        with self._connecting:
            # Another thread may have connected while this one waited.
            connection = self._connection
            if connection is None:
                connection = self._find_shared_connection() or self._share_new_connection()
                self._connection = connection
        return connection

    def _find_shared_connection(self) -> _Connection | None:
        """Return the connection of another connector with the same options, if there is one."""
        with _SHARING:
            return _SHARED.get(self.sharing_key)

    def _share_new_connection(self) -> _Connection:
        """Connect, for all connectors with the same options: an S3 client takes 0.2 s.

        Two connectors may connect at the same moment. Each then keeps its connection, and further
        connectors take the later one.
        """
        connection = self._connect()
        with _SHARING:
            _SHARED[self.sharing_key] = connection
        return connection

    def _connect(self) -> _Connection:
        """Make the file system.

        Raises:
            ConfigError: it does not take the options, or a file of the login does not exist.
        """
        options = dict(self.options)
        file_system_class = self._class
        if self.is_asynchronous:
            options.setdefault("use_listings_cache", False)
        if self.protocol in S3_PROTOCOLS:
            check_s3_files(self.options, os.environ)
            # Imported here, as aiohttp may be missing.
            from data_stack.io.storage_connectors.object_store.redirects import (
                direct_session_class,
            )

            # retry() retries, so the client does not. Its timeouts end each request in time, even
            # if the server is silent.
            options["config_kwargs"] = {
                "connect_timeout": min(_MAX_CONNECT_SECONDS, self._timeout_seconds),
                "read_timeout": self._timeout_seconds,
                "max_pool_connections": _MAX_CONNECTIONS,
                "retries": {"max_attempts": 0},
                "http_session_cls": direct_session_class(),
                **options.get("config_kwargs", {}),
            }
        elif self.protocol in GOOGLE_PROTOCOLS:
            check_google_file(self.options, os.environ)
            from data_stack.io.storage_connectors.object_store.redirects import refuse_redirects

            session_options = dict(options.get("session_kwargs") or {})
            traces = session_options.get("trace_configs") or []
            session_options["trace_configs"] = [*traces, refuse_redirects()]
            options["session_kwargs"] = session_options
            if options.get("endpoint_url"):
                file_system_class = _google_class_without_grpc(file_system_class)
        elif self.protocol in AZURE_PROTOCOLS:
            options = adlfs_options(options, os.environ)
        elif self.protocol in _SFTP_PROTOCOLS:
            options.setdefault("timeout_seconds", self._timeout_seconds)
        try:
            file_system = file_system_class(**options, skip_instance_cache=True)
        except TypeError as error:
            reason = reason_of(error, self.options)
            raise ConfigError(
                f"{file_system_class.__name__} does not take these options: {reason}"
            ) from None
        if self.protocol in S3_PROTOCOLS:
            file_system.retries = 1
        elif self.protocol in GOOGLE_PROTOCOLS:
            check_google_login(file_system, self.options, os.environ)
            check_google_endpoint(file_system)
        is_parallel = issubclass(self._class, MemoryFileSystem)
        return _Connection(file_system, is_parallel=is_parallel)

    def _disconnect(self) -> None:
        """Drop a broken connection. Asynchronous clients connect again themselves."""
        if self.is_asynchronous:
            return
        connection = self._connection
        self._connection = None
        if connection is not None:
            with _SHARING:
                # Another connector may have made a new one meanwhile.
                key = self.sharing_key
                if _SHARED.get(key) is connection:
                    del _SHARED[key]
            connection.close()

    def _leave_inherited_connection(self) -> None:
        """Begin without a connection in a fork."""
        _INHERITED.append(self._connection)
        _SHARED.clear()
        self._connection = None


class _Connection:
    """A file system of fsspec in one process.

    Args:
        file_system: the file system.
        is_parallel: whether threads may use it at once. Synchronous connections are not
            thread-safe.

    Attributes:
        file_system: the file system.
        lock: held by the thread that uses the file system.
        close: closes the connection, whose thread would never end by itself.
    """

    file_system: Any
    lock: contextlib.AbstractContextManager[Any]
    close: weakref.finalize[Any, Any]

    def __init__(self, file_system: Any, *, is_parallel: bool) -> None:
        self.file_system = file_system
        if is_parallel:
            self.lock = contextlib.nullcontext()
        else:
            self.lock = threading.RLock()
        disconnect = getattr(file_system, "disconnect", _do_nothing)
        self.close = weakref.finalize(self, disconnect)
        self.close.atexit = False


#: The connections of this process.
_SHARED: weakref.WeakValueDictionary[tuple[str, str, str], _Connection] = (
    weakref.WeakValueDictionary()
)
#: Held while a connection is looked up or noted there.
_SHARING: Final = fork_lock()
#: Those of its parents, which are kept: closing one would touch shared sockets and the event loop.
_INHERITED: list[_Connection | None] = []


def _choose_pause(error: Exception, n_failures: int) -> float:
    """Return how many seconds to wait before a request is sent again.

    Args:
        error: why it failed the last time.
        n_failures: how often it has failed.
    """
    growth = 2.0 ** (n_failures - 1)
    requested_seconds = requested_pause_of(error)
    if requested_seconds is not None:
        return requested_seconds + jittered(_FIRST_PAUSE_SECONDS * growth)
    if is_busy(error):
        return jittered(_FIRST_BUSY_PAUSE_SECONDS * growth)
    return jittered(_FIRST_PAUSE_SECONDS * growth)


def _do_nothing() -> None:
    """Close a connection of a file system that has nothing to close."""


def _find_root_without_class(url: StorageURL) -> str | None:
    """Return the root as the class of fsspec names it, where its import can wait; None elsewhere.

    s3fs takes 0.15 s of processor time to import, adlfs 0.6 s, and obstore sends most requests.
    What is needed of the class before is known, unless the URL has an option for it, or the user
    has registered another class.
    """
    class_name = known_implementations.get(url.scheme, {}).get("class")
    is_loaded = url.scheme in registry
    if class_name not in _LATE_CLASSES or is_loaded:
        return None
    package = class_name.partition(".")[0]
    if importlib.util.find_spec(package) is None:
        return None
    try:
        urlsplit(str(url))
    except ValueError:
        # The class says why it is no URL.
        return None
    if url.scheme in AZURE_PROTOCOLS:
        if url.query or url.fragment or ":" in url.authority:
            return None
        container = url.authority.partition("@")[0]
        return f"{container}{url.path}".rstrip("/")
    if "versionId" in url.query:
        return None
    return f"{url.authority}{url.path}{url.query}{url.fragment}".rstrip("/")


def _class_of(protocol: str) -> Any:
    """Return the class of a file system.

    Raises:
        ConfigError: fsspec knows none.
        MissingDependencyError: its package is not installed.
    """
    try:
        if protocol in _SFTP_PROTOCOLS:
            return importlib.import_module(f"{__package__}.sftp").VerifiedSFTPFileSystem
        return fsspec.get_filesystem_class(protocol)
    except ImportError as error:
        module = error.name or getattr(error.__cause__, "name", None) or protocol
        package = str(module).partition(".")[0]
        extra = _extra_of(protocol)
        raise MissingDependencyError(
            f"FsspecStorageConnector of {protocol}://", package, extra
        ) from error
    except ValueError:
        raise ConfigError(f"fsspec does not know the scheme {protocol}://") from None


def _google_class_without_grpc(file_system_class: Any) -> Any:
    """Return the class of gcsfs that sends no requests by gRPC.

    The class that gcsfs registers asks by gRPC what kind of bucket it is, and waits 60 s for a
    server without gRPC. So every request to an emulator or gateway would be given up.

    Args:
        file_system_class: the class for the scheme; one that is not of gcsfs is returned.
    """
    if not file_system_class.__module__.startswith("gcsfs."):
        return file_system_class
    return importlib.import_module("gcsfs.core").GCSFileSystem


def _extra_of(protocol: str) -> str:
    """Return the extra of data_stack that brings the class of a file system."""
    if protocol in S3_PROTOCOLS:
        return "s3"
    if protocol in GOOGLE_PROTOCOLS:
        return "gcs"
    if protocol in AZURE_PROTOCOLS:
        return "azure"
    return "cloud"


def _check_place(url: StorageURL) -> None:
    """Check that a URL has a bucket or host, and no password in the place of a bucket.

    Raises:
        ConfigError: it has not.
    """
    scheme = url.scheme
    if scheme in _BUCKET_PROTOCOLS and ":" in url.authority.rpartition("@")[0]:
        # The driver would take them for a part of the bucket's name, and show them.
        raise ConfigError(
            f"a {scheme}:// URL must not hold a password; use the environment or storage_options"
        )
    needs_authority = scheme in _BUCKET_PROTOCOLS or scheme in _SFTP_PROTOCOLS
    has_path = url.path.strip("/") != ""
    if not url.authority and (needs_authority or not has_path):
        raise ConfigError(
            f"a {scheme}:// URL needs a bucket or host, such as {scheme}://bucket/folder"
        )
