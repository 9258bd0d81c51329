"""The base of small servers on loopback that keep objects in memory, for tests.

A test may replace the answer to any request (:attr:`ObjectServer.rule`).
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlsplit

from typing_extensions import Self

from data_stack.io.storage_connectors import FsspecStorageConnector


@dataclass(frozen=True)
class Request:
    """A request as it arrived.

    Attributes:
        method: of HTTP.
        path: the path of the URL, still percent-encoded.
        query: the parameters.
        headers: names in lower case.
        body: its bytes.
    """

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


@dataclass
class Answer:
    """An answer to a request.

    Attributes:
        status: of HTTP.
        body: what is sent, but to HEAD.
        headers: besides Content-Length, which may be among them.
        cut_at: the connection is closed after so many bytes of the body; None: it is sent whole.
    """

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut_at: int | None = None


@dataclass(frozen=True)
class StoredObject:
    """An object.

    Attributes:
        data: its bytes.
        generation: a number that grows with each write to the server.
        modified: the time of the write, in seconds since 1970.
        metadata: what the client stored with it.
    """

    data: bytes
    generation: int
    modified: float
    metadata: dict[str, str] = field(default_factory=dict)

    @property
    def md5(self) -> bytes:
        """The MD5 digest of the data."""
        return hashlib.md5(self.data, usedforsecurity=False).digest()

    @property
    def md5_base64(self) -> str:
        """The same as text."""
        return base64.b64encode(self.md5).decode()

    @property
    def last_modified(self) -> str:
        """The time of the write, as headers of HTTP have it."""
        return formatdate(self.modified, usegmt=True)


@dataclass(frozen=True)
class Page:
    """A page of a listing.

    Attributes:
        keys: the keys of objects, in order.
        folders: the beginnings of keys up to the delimiter, in order.
        next_name: where the next page begins; None: this is the last one.
    """

    keys: list[str]
    folders: list[str]
    next_name: str | None


class ObjectServer(ABC):
    """Has one bucket, ``data``; a context manager.

    Attributes:
        objects: the objects of the bucket, by key.
        rule: is asked before each request: an answer, or None for the right one.
        requests: what arrived, in order.
        page_size: the maximum number of names in a page of a listing.
        lock: held while a request reads or changes the objects.
        url: where it listens.
    """

    bucket: ClassVar[str] = "data"

    def __init__(self) -> None:
        self.objects: dict[str, StoredObject] = {}
        self.rule: Callable[[Request], Answer | None] = lambda request: None
        self.requests: list[Request] = []
        self.page_size = 1000
        self.lock = threading.Lock()
        self._n_writes = 0
        self._server = _make_http_server(self)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @contextlib.contextmanager
    def hanging(self) -> Iterator[None]:
        """Answer no request until the end of the block."""
        may_go_on = threading.Event()

        def rule(request: Request) -> Answer | None:
            may_go_on.wait(60)
            return None

        self.rule = rule
        try:
            yield
        finally:
            may_go_on.set()

    def cut_first(self, is_wanted: Callable[[Request], bool]) -> list[Request]:
        """Cut the body of the first right answer to a wanted request in its middle.

        Returns:
            The requests whose answers were cut: none at first, later one.
        """
        cut = list[Request]()

        def rule(request: Request) -> Answer | None:
            if cut or not is_wanted(request):
                return None
            cut.append(request)
            answer = self.right_answer(request)
            answer.cut_at = len(answer.body) // 2
            return answer

        self.rule = rule
        return cut

    def reset(self) -> None:
        """Remove all objects, rules and noted requests."""
        self.objects.clear()
        self.requests.clear()
        self.rule = lambda request: None
        self.page_size = 1000

    def put(self, key: str, data: bytes, *, age_seconds: float = 0.0, **metadata: str) -> None:
        """Put an object as another tool does."""
        self._n_writes += 1
        generation = int(time.time()) * 1_000_000 + self._n_writes
        modified = time.time() - age_seconds
        self.objects[key] = StoredObject(data, generation, modified, metadata)

    def answer(self, request: Request) -> Answer:
        """Note a request, and return the answer of the rule, or else the right one."""
        self.requests.append(request)
        answer = self.rule(request)
        if answer is not None:
            return answer
        with self.lock:
            return self.right_answer(request)

    @abstractmethod
    def store(self, place: str = "data/f", **options: Any) -> FsspecStorageConnector:
        """Return a store in a folder.

        Args:
            place: the bucket and the folder.
            **options: arguments of the store.
        """

    @abstractmethod
    def right_answer(self, request: Request) -> Answer:
        """Return what the service answers."""

    # ------------------------------------------------------------------ parts of answers

    def select_page(self, prefix: str, delimiter: str, start: str, limit: int) -> Page:
        """Return a page of the names that begin with a prefix.

        Args:
            prefix: what keys must begin with.
            delimiter: keys are cut behind its first occurrence after the prefix; empty: never.
            start: the name at which the page begins; empty: the first one.
            limit: the maximum number of names.
        """
        names: dict[str, bool] = {}
        for key in sorted(self.objects):
            if not key.startswith(prefix):
                continue
            name = key
            if delimiter and delimiter in key[len(prefix) :]:
                end = key.index(delimiter, len(prefix)) + len(delimiter)
                name = key[:end]
            if name >= start:
                names[name] = name != key or names.get(name, False)
        ordered = sorted(names)
        limit = min(limit, self.page_size)
        page = ordered[:limit]
        return Page(
            keys=[name for name in page if not names[name]],
            folders=[name for name in page if names[name]],
            next_name=ordered[limit] if len(ordered) > limit else None,
        )


def select_range(data: bytes, header: str) -> tuple[int, int] | None:
    """Return the range of bytes that a header asks for; None if it lies behind the end.

    Args:
        data: the bytes of the object.
        header: ``bytes=0-99``, ``bytes=100-`` or ``bytes=-100``.
    """
    first, _, last = header.removeprefix("bytes=").partition("-")
    if not first:
        return max(0, len(data) - int(last)), len(data)
    start = int(first)
    if start >= len(data):
        return None
    stop = min(int(last) + 1, len(data)) if last else len(data)
    return start, stop


def _make_http_server(objects: ObjectServer) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *arguments: Any) -> None:
            pass

        def do_GET(self) -> None:
            answer = objects.answer(self._read_request())
            self.send_response(answer.status)
            headers = {"Content-Length": str(len(answer.body)), **answer.headers}
            if answer.status in (204, 304):
                del headers["Content-Length"]
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body[: answer.cut_at])
            if answer.cut_at is not None:
                self.close_connection = True

        do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

        def _read_request(self) -> Request:
            parts = urlsplit(self.path)
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(int(headers.get("content-length", "0")))
            query = dict(parse_qsl(parts.query, keep_blank_values=True))
            return Request(self.command, parts.path, query, headers, body)

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # a client goes away when it has heard enough

    return Server(("127.0.0.1", 0), Handler)
