"""Web servers on loopback whose answers tests choose."""

from __future__ import annotations

import re
import socket
import ssl
import struct
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from typing_extensions import Self


@dataclass(frozen=True)
class Answer:
    """The answer to one request.

    Attributes:
        body: the whole resource.
        status: of HTTP.
        headers: besides Content-Length.
        announced: the Content-Length; -1 for that of ``body``, ``"chunked"``, or None to omit it.
        ranges: whether the server supports ranges.
        cut_at: number of bytes after which the connection is closed.
        reset: it is reset instead.
        hang_at: number of bytes after which the server sends nothing more.
        seconds_per_byte: delay after each byte of ``body``.
        drip_header: a header that never ends is sent first.
        is_last: whether the connection is closed after it.
        raw: these bytes are sent instead of all that, as they are.
        endless: what is sent after ``raw`` again and again, until the other side goes away.
        seconds_per_piece: delay after each of these.
    """

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    announced: int | str | None = -1
    ranges: bool = False
    cut_at: int | None = None
    reset: bool = False
    hang_at: int | None = None
    seconds_per_byte: float = 0.0
    drip_header: bool = False
    is_last: bool = True
    raw: bytes | None = None
    endless: bytes = b""
    seconds_per_piece: float = 0.0


@dataclass(frozen=True)
class Seen:
    """One request as it arrived; header names in lower case."""

    path: str
    headers: dict[str, str]


class WebServer:
    """Answers GET and HEAD requests by :meth:`answer`; a context manager.

    Args:
        context: a TLS context, to answer ``https``; None for ``http``.
        host: the name in the URLs.

    Attributes:
        origin: the URL without a path.
        connections: how many were made.
    """

    def __init__(self, context: ssl.SSLContext | None = None, host: str = "localhost") -> None:
        self.connections = 0
        self.stopped = threading.Event()
        self._context = context
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                outer.connections += 1
                self.request.settimeout(60)
                if outer._context is not None:
                    self.request = outer._context.wrap_socket(self.request, server_side=True)
                super().setup()

            def do_GET(self) -> None:
                seen = Seen(
                    self.path, {name.lower(): value for name, value in self.headers.items()}
                )
                answer = outer.answer(seen)
                outer._send(self.connection, answer, seen.headers, is_head=self.command == "HEAD")
                self.close_connection = answer.is_last

            do_HEAD = do_GET

            def finish(self) -> None:
                super().finish()
                self.connection.close()

            def log_message(self, *arguments: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # the other side went away, as many tests want it to

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self.origin = f"http{'s' if context else ''}://{host}:{self.port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def answer(self, seen: Seen) -> Answer:
        """The answer to a request."""
        raise NotImplementedError

    def close(self) -> None:
        """End the server and its thread."""
        self.stopped.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _send(
        self, connection: socket.socket, answer: Answer, asked: dict[str, str], *, is_head: bool
    ) -> None:
        if answer.raw is not None:
            connection.sendall(answer.raw)
            while answer.endless and not self.stopped.wait(answer.seconds_per_piece):
                connection.sendall(answer.endless)
            return
        status, headers, body = answer.status, dict(answer.headers), answer.body
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", asked.get("range", ""))
        if (
            answer.ranges
            and match
            and asked.get("if-range", headers.get("ETag")) == headers.get("ETag")
        ):
            status, start = 206, int(match[1])
            stop = min(len(body), int(match[2] or len(body)) + 1)
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(body)}"
            body = body[start:stop]
        sent = body[: answer.cut_at if answer.hang_at is None else answer.hang_at]
        if answer.announced == "chunked":
            headers["Transfer-Encoding"] = "chunked"
            sent = b"".join(
                b"%x\r\n%s\r\n" % (len(sent[i : i + 1000]), sent[i : i + 1000])
                for i in range(0, len(sent), 1000)
            )
            sent += b"0\r\n\r\n" if answer.cut_at is None else b""
        elif answer.announced is not None:
            headers["Content-Length"] = str(
                len(body) if answer.announced == -1 else answer.announced
            )
        head = (
            f"HTTP/1.1 {status} Said\r\n"
            + "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            + "\r\n"
        )
        if answer.drip_header:
            self._drip(connection, b"HTTP/1.1 200 OK\r\nX-Drip: " + b"x" * 10_000, 0.05)
        connection.sendall(head.encode("latin-1"))
        if is_head:
            return
        if answer.seconds_per_byte:
            self._drip(connection, sent, answer.seconds_per_byte)
            return
        connection.sendall(sent)
        if answer.hang_at is not None:
            self.stopped.wait(300)
        if answer.reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def _drip(self, connection: socket.socket, data: bytes, seconds: float) -> None:
        for i in range(len(data)):
            connection.sendall(data[i : i + 1])
            if self.stopped.wait(seconds):
                raise ConnectionAbortedError


class ScriptedServer(WebServer):
    """Answers the n-th request of a path with the n-th answer of its script, and every later one
    with the last.

    Attributes:
        requests: what arrived, in order.
    """

    def __init__(self, context: ssl.SSLContext | None = None, host: str = "localhost") -> None:
        self.requests: list[Seen] = []
        self._scripts: dict[str, list[Answer]] = {}
        super().__init__(context, host)

    def url(self, path: str, *answers: Answer) -> str:
        """The URL of ``path``, whose script is ``answers``."""
        self._scripts[path.partition("?")[0]] = list(answers)
        return self.origin + path

    def serve(self, path: str, body: bytes = b"", **faults: Any) -> str:
        """The URL of ``path``, which always answers ``body``, with the faults of an Answer."""
        return self.url(path, Answer(body, **faults))

    def script(self, path: str, *faults: dict[str, Any]) -> str:
        """The URL of ``path``, whose answers have these fields."""
        return self.url(path, *(Answer(**fault) for fault in faults))

    def paths(self) -> list[str]:
        """The requested paths, in order."""
        return [seen.path for seen in self.requests]

    def answer(self, seen: Seen) -> Answer:
        self.requests.append(seen)
        path = re.sub(r"^http://[^/]*", "", seen.path).partition("?")[0]
        script = self._scripts.get(path) or [Answer(b"no such page", status=404)]
        n_before = sum(each.path == seen.path for each in self.requests) - 1
        return script[min(n_before, len(script) - 1)]


class RangeServer(WebServer):
    """Serves ranges of ``body`` under every path on connections that are kept, as nginx does."""

    def __init__(self, body: bytes, context: ssl.SSLContext | None = None) -> None:
        self._answer = Answer(body, ranges=True, is_last=False)
        super().__init__(context)

    def answer(self, seen: Seen) -> Answer:
        return self._answer
