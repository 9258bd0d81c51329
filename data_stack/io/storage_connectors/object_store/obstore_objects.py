"""Requests for single objects by obstore."""

from __future__ import annotations

import concurrent.futures
import functools
import re
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, TypeVar

import obstore

from data_stack.io.storage_connectors.object_store import obstore_runtime
from data_stack.io.storage_connectors.object_store.azure_folders import is_folder
from data_stack.io.storage_connectors.object_store.azure_listing import AzureLister
from data_stack.io.storage_connectors.object_store.azure_login import AzureLogin
from data_stack.io.storage_connectors.object_store.file_system import (
    GOOGLE_PROTOCOLS,
    S3_PROTOCOLS,
    RemoteFileSystem,
)
from data_stack.io.storage_connectors.object_store.object_client import (
    FileRange,
    Lister,
    ListingPage,
    ObjectClient,
)
from data_stack.io.storage_connectors.object_store.obstore_errors import (
    WholeObjectError,
    translate,
)
from data_stack.io.storage_connectors.object_store.obstore_stores import (
    make_az_store,
    make_gs_store,
    make_s3_store,
)
from data_stack.io.storage_connectors.object_store.remote_file import RemoteFile
from data_stack.io.storage_connectors.object_store.s3 import (
    OtherVersionError,
    WrongAnswerError,
    refusal_of,
)
from data_stack.io.storage_connectors.object_store.s3_listing import S3Lister
from data_stack.io.storage_connectors.object_store.s3_place import S3Place, find_s3_place
from data_stack.util.executor import waiting
from data_stack.util.forks import call_in_forks, fork_lock
from data_stack.util.logger import logger

if TYPE_CHECKING:
    from obstore import GetOptions, PutMode, UpdateVersion

    from data_stack.io.storage_connectors.object_store.google_listing import GoogleLister
    from data_stack.io.storage_connectors.object_store.google_login import GoogleLogin

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

#: A signal is noticed within this time.
_MAX_WAIT_SECONDS: Final = 0.2
_CONTROL_CHARACTER: Final = re.compile(r"[\x00-\x1f\x7f]")
#: The codes of S3 for a bucket in another region than that of the request.
_ELSEWHERE_CODES: Final = {"PermanentRedirect", "AuthorizationHeaderMalformed"}

#: The stores of this process, by bucket, options and login. Connectors to one bucket share
#: connections.
_stores: weakref.WeakValueDictionary[tuple[str, ...], Any] = weakref.WeakValueDictionary()
#: The logins to Azure of this process, by options and environment. Connectors to one account share
#: a token.
_azure_logins: weakref.WeakValueDictionary[tuple[str, ...], AzureLogin] = (
    weakref.WeakValueDictionary()
)
#: Held while a store or login is looked up or made there.
_sharing: Final = fork_lock()
#: The stores of the parents of this process, which are kept: ending one would touch their sockets.
_inherited: Final[list[Any]] = []


class ObstoreObjects(ObjectClient):
    """The objects below a URL, read and written by obstore.

    Our web client lists buckets and containers, as obstore does not list exactly. It also describes
    objects of Google, whose versions obstore names otherwise. The client of fsspec does what
    neither can do:

    - everything in a process that was forked after obstore had started, because its threads do not
      survive a fork, and a request would never end;
    - everything in a bucket in another region than the requested one, which obstore does not look
      for;
    - everything in a bucket to which a proxy leads, as a redirect would lead obstore through it to
      any host, with the session token;
    - everything for Google where a client certificate must be shown;
    - objects whose names obstore does not take as they are, such as ``a//b`` and ``a/``;
    - listing buckets of S3 for which botocore has certificates of its own;
    - deleting objects of Google and Azure, which obstore does by requests for many objects;
    - deleting a certain version of an object;
    - writing to Google without a login, for which obstore logs in as the machine all the same.

    Args:
        file_system: the file system of the URL.
        timeout_seconds: the limit of a request.
        make_other: makes the client of fsspec. It is called when that client is needed first, whose
            import takes up to 0.7 s of processor time.
    """

    _file_system: RemoteFileSystem
    _timeout_seconds: float
    _make_other: Callable[[], ObjectClient]
    #: The client of fsspec; None before it is needed.
    _made_other: ObjectClient | None
    _bucket: str
    _is_s3: bool
    _is_google: bool
    #: The store; None before it is used in this process.
    _store: Any
    #: Where the bucket of S3 is; None before it is asked for in this process, and elsewhere.
    _place: S3Place | None
    #: The login of Google; None before it is used in this process, and elsewhere.
    _google_login: GoogleLogin | None
    #: The login of Azure; None before it is used in this process, and elsewhere.
    _azure_login: AzureLogin | None
    #: Whether there is no store of obstore, because a proxy leads to the bucket.
    _is_proxied: bool
    #: Whether the bucket turned out to be in another region.
    _is_elsewhere: bool

    def __init__(
        self,
        file_system: RemoteFileSystem,
        timeout_seconds: float,
        make_other: Callable[[], ObjectClient],
    ) -> None:
        self._file_system = file_system
        self._timeout_seconds = timeout_seconds
        self._make_other = make_other
        self._made_other = None
        self._bucket = file_system.root.partition("/")[0]
        self._is_s3 = file_system.protocol in S3_PROTOCOLS
        self._is_google = file_system.protocol in GOOGLE_PROTOCOLS
        self._store = None
        self._place = None
        self._google_login = None
        self._azure_login = None
        self._is_proxied = False
        self._is_elsewhere = False
        call_in_forks(self._leave_inherited_store)

    # ------------------------------------------------------------------ requests

    def read_ranges(self, ranges: Sequence[FileRange], etag: str | None) -> Sequence[Any]:
        names = [file_range.path for file_range in ranges]
        if not self._sends(names):
            return self._other.read_ranges(ranges, etag)
        read = functools.partial(self._read_range, etag=etag)
        answers = _call_for_all(read, ranges)
        if any(self._shows_other_region(answer) for answer in answers):
            return self._other.read_ranges(ranges, etag)
        return answers

    def describe(self, path: str) -> RemoteFile | None:
        try:
            if self._is_google:
                return self._describe_at_google(path)
            return self._send(
                path,
                lambda key: self._request_description(path, key),
                lambda: self._other.describe(path),
            )
        except FileNotFoundError:
            if not self._is_s3:
                self._check_missing(path)
            return None

    def _describe_at_google(self, path: str) -> RemoteFile | None:
        if not self._sends([]):
            return self._other.describe(path)
        return self._google_lister().describe(path, self._file_system.key_of(path))

    def _check_missing(self, path: str) -> None:
        """Check that an object is missing, not its bucket or container.

        An answer to HEAD does not say, and one of the JSON API of Google only in its message.
        """
        (answer,) = self.read_ranges([FileRange(path, 0, 1)], None)
        if isinstance(answer, Exception) and not isinstance(answer, FileNotFoundError):
            raise answer

    def put(self, path: str, data: bytes) -> None:
        if not self._writes():
            self._other.put(path, data)
            return
        self._send(
            path,
            lambda key: self._write(key, data, mode="overwrite"),
            lambda: self._other.put(path, data),
        )

    def create(self, path: str, data: bytes) -> None:
        if not self._writes():
            self._other.create(path, data)
            return
        self._send(
            path,
            lambda key: self._write(key, data, mode="create"),
            lambda: self._other.create(path, data),
        )

    def delete(self, path: str) -> None:
        if not self._is_s3:
            self._other.delete(path)
            return
        self._send(
            path,
            lambda key: self._run(lambda: obstore.delete(self._connect(), key)),
            lambda: self._other.delete(path),
        )

    def reads_generations(self, path: str) -> bool:
        return self._is_google and self._sends([path])

    def read_version(self, path: str, max_bytes: int) -> tuple[bytes, str | None]:
        return self._send(
            path,
            lambda key: self._request_version(key, max_bytes),
            lambda: self._other.read_version(path, max_bytes),
        )

    def put_over(self, path: str, data: bytes, version: str) -> None:
        if not self._writes():
            self._other.put_over(path, data, version)
            return
        # Google compares the generation of an object, the others compare its ETag.
        mode: UpdateVersion = {"version": version} if self._is_google else {"e_tag": version}
        self._send(
            path,
            lambda key: self._write(key, data, mode=mode),
            lambda: self._other.put_over(path, data, version),
        )

    def delete_version(self, path: str, version: str) -> None:
        # obstore deletes without conditions.
        self._other.delete_version(path, version)

    def list_page(self, prefix: str, delimiter: str, token: str | None) -> ListingPage:
        lister = self._find_lister()
        if lister is None:
            return self._other.list_page(prefix, delimiter, token)
        try:
            return lister.list_page(prefix, delimiter, token)
        except OSError as error:
            if not self._shows_other_region(error):
                raise
        return self._other.list_page(prefix, delimiter, token)

    def _find_lister(self) -> Lister | None:
        """Return what lists the bucket by our web client; None if it must not."""
        if not self._sends([]):
            return None
        if self._is_google:
            return self._google_lister()
        if not self._is_s3:
            return AzureLister(self._bucket, self._log_in_to_azure(), self._timeout_seconds)
        if not self._find_place().suits_web_client:
            return None
        return S3Lister(self._find_place(), self._timeout_seconds)

    def _google_lister(self) -> GoogleLister:
        """Return what lists and describes objects of Google."""
        # Imported here, as google-auth may be missing.
        from data_stack.io.storage_connectors.object_store.google_listing import GoogleLister

        return GoogleLister(
            self._file_system.connect().base,
            self._bucket,
            self._log_in_to_google(),
            self._timeout_seconds,
        )

    def _read_range(self, file_range: FileRange, etag: str | None) -> bytes | Exception:
        """Return a range, or why it could not be read."""
        key = self._file_system.key_of(file_range.path)
        try:
            return self._request_range(key, file_range.start, file_range.stop, etag)
        except WholeObjectError:
            pass
        except Exception as error:  # noqa: BLE001  # it is returned
            return self._explain_missing(error, etag)
        # Some servers answer 200 and send the whole object, if all of it was asked for.
        try:
            return self._request_whole(key, file_range, etag)
        except Exception as error:  # noqa: BLE001  # it is returned
            return self._explain_missing(error, etag)

    def _explain_missing(self, error: Exception, etag: str | None) -> Exception:
        """Return why a range could not be read, where Google says that a generation is missing."""
        is_missing_generation = self._is_google and etag is not None
        if is_missing_generation and isinstance(error, FileNotFoundError):
            return OtherVersionError("another generation")
        return error

    def _request_range(self, key: str, start: int, stop: int, etag: str | None) -> bytes:
        """Request a range. obstore checks that the answer has this range, or less at the end."""

        def get() -> bytes:
            options = self._options_for(etag)
            options["range"] = (start, stop)
            result = obstore.get(self._connect(), key, options=options)
            self._check_version(result, etag)
            content_type = result.attributes.get("Content-Type", "")
            if content_type.startswith("multipart/byteranges"):
                raise WrongAnswerError("the server sends several parts in place of one")
            first, end = result.range
            return _read_body(result, end - first)

        return self._run(get)

    def _request_whole(self, key: str, file_range: FileRange, etag: str | None) -> bytes:
        """Request a whole object, which must lie in a range.

        Raises:
            WrongAnswerError: it does not.
        """

        def get() -> bytes:
            result = obstore.get(self._connect(), key, options=self._options_for(etag))
            self._check_version(result, etag)
            n_bytes = result.meta["size"]
            if file_range.start > 0 or n_bytes > file_range.stop:
                raise WrongAnswerError(
                    f"the server answers 200 with {n_bytes:,} bytes, requested were bytes "
                    f"{file_range.start:,} to {file_range.stop:,}: "
                    "it or a cache before it does not support ranges"
                )
            return _read_body(result, n_bytes)

        return self._run(get)

    def _options_for(self, etag: str | None) -> GetOptions:
        """Return how a version is asked for: by its ETag, at Google by its generation."""
        if etag is None:
            return {}
        return {"version": etag} if self._is_google else {"if_match": etag}

    def _check_version(self, result: Any, etag: str | None) -> None:
        """Check that an answer has the version that was asked for.

        Raises:
            OtherVersionError: it has another one. A missing ETag is not an equal one.
        """
        if etag is None:
            return
        name = "version" if self._is_google else "e_tag"
        sent_etag = result.meta[name]
        if sent_etag != etag:
            raise OtherVersionError(f"ETag {sent_etag}")

    def _request_version(self, key: str, max_bytes: int) -> tuple[bytes, str | None]:
        """Request the beginning of an object, and the name of its version."""

        def get() -> tuple[bytes, str | None]:
            result = obstore.get(self._connect(), key)
            n_bytes = min(max_bytes, result.meta["size"])
            data = bytes(next(result.stream(min_chunk_size=max(n_bytes, 1)), b""))
            if len(data) < n_bytes:
                raise ConnectionError("the connection was cut")
            version = result.meta["version"] if self._is_google else result.meta["e_tag"]
            return data[:n_bytes], version

        return self._run(get)

    def _request_description(self, path: str, key: str) -> RemoteFile | None:
        """Request the description of an object; return None for one that stands for a folder.

        Raises:
            FileNotFoundError: there is no such object.
        """

        def head() -> Any:
            return obstore.get(self._connect(), key, options={"head": True})

        answer = self._run(head, has_body=False)
        if not self._is_s3 and is_folder(answer.attributes):
            return None
        meta = answer.meta
        modified = meta["last_modified"]
        info = {
            "size": meta["size"],
            "ETag": meta["e_tag"] or "",
            # obstore gives 1970 if the server does not say when.
            "LastModified": modified if modified.timestamp() > 0 else "",
        }
        return RemoteFile.of(path, info)

    def _write(self, key: str, data: bytes, *, mode: PutMode) -> None:
        def put() -> None:
            obstore.put(self._connect(), key, data, mode=mode, use_multipart=False)

        self._run(put)

    def _run(self, function: Callable[[], _Result], *, has_body: bool = True) -> _Result:
        """Send a request, and raise the exceptions of the other clients in place of obstore's."""
        obstore_runtime.note_start()
        if self._is_google:
            self._log_in_to_google().renew_in_time()
        elif not self._is_s3:
            self._log_in_to_azure().renew_in_time()
        try:
            return _call_interruptibly(function)
        except (obstore.exceptions.BaseError, FileNotFoundError) as error:
            raise translate(error, self._secrets(), has_body=has_body) from None

    def _secrets(self) -> list[str]:
        """Return the texts that log requests in, as a server may repeat them."""
        if self._is_google:
            return self._log_in_to_google().secrets()
        if self._is_s3:
            return self._find_place().secrets()
        return self._log_in_to_azure().secrets()

    # ------------------------------------------------------------------ the other client

    @property
    def _other(self) -> ObjectClient:
        """The client of fsspec, which the first use makes."""
        if self._made_other is None:
            self._made_other = self._make_other()
        return self._made_other

    def _send(
        self, path: str, request: Callable[[str], _Result], other_request: Callable[[], _Result]
    ) -> _Result:
        """Send a request by obstore, or by the other client where obstore cannot.

        Args:
            path: the path of the object.
            request: sends it by obstore, which wants the key in the bucket.
            other_request: sends it by the other client.
        """
        if not self._sends([path]):
            return other_request()
        try:
            return request(self._file_system.key_of(path))
        except OSError as error:
            if not self._shows_other_region(error):
                raise
        return other_request()

    def _sends(self, paths: Sequence[str]) -> bool:
        """Return whether obstore can send requests for these objects."""
        if self._is_elsewhere or obstore_runtime.is_lost() or self._connect() is None:
            return False
        if self._is_google and self._log_in_to_google().needs_certificate:
            return False
        return all(_keeps_key(self._file_system.key_of(path)) for path in paths)

    def _writes(self) -> bool:
        """Return whether obstore can write."""
        return not self._is_google or not self._log_in_to_google().is_anonymous

    def _shows_other_region(self, answer: Any) -> bool:
        """Return whether an answer says that the bucket is in another region, and note it."""
        if not isinstance(answer, OSError) or refusal_of(answer).code not in _ELSEWHERE_CODES:
            return False
        if not self._is_elsewhere:
            self._is_elsewhere = True
            logger.warning(
                "The bucket of %s is in another region than the requested one. "
                "Requests are faster if the URL names it (region=…).",
                self._file_system.place,
            )
        return True

    # ------------------------------------------------------------------ the store

    def _connect(self) -> Any:
        """Return the store, made by the first call; None if a proxy leads to the bucket."""
        store = self._store
        if store is None and not self._is_proxied:
            obstore_runtime.note_start()
            # Not while the lock is held: looking for a login takes seconds on some machines.
            if self._is_google:
                self._log_in_to_google()
            elif not self._is_s3:
                self._log_in_to_azure()
            key = (self._bucket, *self._file_system.sharing_key)
            with _sharing:
                store = _stores.get(key)
                if store is None:
                    store = self._make_store()
                    if store is not None:
                        _stores[key] = store
            self._store = store
            self._is_proxied = store is None
        return store

    def _make_store(self) -> Any:
        if self._is_google:
            return make_gs_store(
                self._bucket,
                self._file_system.connect(),
                self._log_in_to_google(),
                self._timeout_seconds,
            )
        if self._is_s3:
            return make_s3_store(self._find_place(), self._timeout_seconds)
        return make_az_store(self._bucket, self._log_in_to_azure(), self._timeout_seconds)

    def _find_place(self) -> S3Place:
        """Return where the bucket of S3 is, which the first call finds out."""
        if self._place is None:
            self._place = find_s3_place(self._bucket, self._file_system.options)
        return self._place

    def _log_in_to_google(self) -> GoogleLogin:
        """Return the login of Google, which the first call looks for."""
        if self._google_login is None:
            # Imported here, as gcsfs may be missing.
            from data_stack.io.storage_connectors.object_store.google_login import GoogleLogin

            self._google_login = GoogleLogin(self._file_system.connect(), self._timeout_seconds)
        return self._google_login

    def _log_in_to_azure(self) -> AzureLogin:
        """Return the login of Azure, which the first call looks for."""
        if self._azure_login is None:
            key = self._file_system.sharing_key
            with _sharing:
                login = _azure_logins.get(key)
                if login is None:
                    login = AzureLogin(self._file_system.options, self._timeout_seconds)
                    _azure_logins[key] = login
            self._azure_login = login
        return self._azure_login

    def _leave_inherited_store(self) -> None:
        """Begin without a store in a fork."""
        _inherited.append(self._store)
        _stores.clear()
        _azure_logins.clear()
        self._store = None
        self._place = None
        self._google_login = None
        self._azure_login = None


def _call_interruptibly(function: Callable[[], _Result]) -> _Result:
    """Call a function that calls obstore, which lets no signal through while it waits.

    Only the main thread receives signals, so it waits for another thread. Otherwise Ctrl-C would
    have no effect before a silent server is given up.
    """
    if threading.current_thread() is not threading.main_thread():
        return function()
    try:
        answer = waiting.submit(function)
    except RuntimeError:
        # Python is exiting, and starts no threads.
        return function()
    return _wait_for(answer)


def _wait_for(answer: Future[_Result]) -> _Result:
    """Return the result of a call, or raise its exception, unless Ctrl-C comes before.

    A signal that comes just before a wait is noticed when that wait ends. So no wait is long: one
    of 15 programs waited for a silent server up to its limit.
    """
    while True:
        try:
            return answer.result(_MAX_WAIT_SECONDS)
        except concurrent.futures.TimeoutError:
            if answer.done():
                # The call itself may have raised it.
                return answer.result()


def _call_for_all(function: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
    """Return the results of a function that calls obstore, called for all items at once.

    Ctrl-C ends the wait. The calls under way are not waited for, as a silent server would keep them
    until their limit; their results are dropped.
    """
    if len(items) == 1:
        return [function(items[0])]
    futures = list[Future[_Result]]()
    try:
        for item in items:
            futures.append(waiting.submit(function, item))
        return [_wait_for(future) for future in futures]
    finally:
        for future in futures:
            future.cancel()


def _keeps_key(key: str) -> bool:
    """Return whether obstore takes a key as it is.

    It removes a slash at the end, and refuses empty names, dots and control characters.
    """
    if any(name in ("", ".", "..") for name in key.split("/")):
        return False
    return _CONTROL_CHARACTER.search(key) is None


def _read_body(result: Any, n_bytes: int) -> bytes:
    """Return the body of an answer, of exactly this length. Of a longer one, not all is received.

    As one piece of a stream, 4 MiB take 1.4 ms of processor time. Those that ``result.bytes()``
    returns take 5 ms: they are copied to new memory of Python, whose pages are then mapped.

    Raises:
        ConnectionError: it is shorter.
        WrongAnswerError: it is longer.
    """
    pieces = result.stream(min_chunk_size=n_bytes + 1)
    body = bytes(next(pieces, b""))
    if len(body) < n_bytes:
        raise ConnectionError(f"the connection was cut after {len(body):,} of {n_bytes:,} bytes")
    if len(body) > n_bytes:
        raise WrongAnswerError(
            f"the server sends more than the {n_bytes:,} bytes that it announces"
        )
    return body
