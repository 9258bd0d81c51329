"""A web server on loopback with scripted answers."""

from __future__ import annotations

import re
import socket
import socketserver
import ssl
import struct
import threading
from dataclasses import dataclass, field
from typing import Any


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


@dataclass(frozen=True)
class Seen:
    """One request as it arrived; header names in lower case."""

    path: str
    headers: dict[str, str]


class ScriptedServer:
    """Answers the n-th request of a path with the n-th answer of its script, and every later one with the last.

    Args:
        context: a TLS context, to answer ``https``; None for ``http``.
        host: the name in the URLs.

    Attributes:
        requests: what arrived, in order.
        origin: the URL without a path.
    """

    def __init__(self, context: ssl.SSLContext | None = None, host: str = "localhost") -> None:
        self.requests: list[Seen] = []
        self.stopped = threading.Event()
        self._scripts: dict[str, list[Answer]] = {}
        self._context = context
        outer = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                outer._handle(self.request)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # the other side went away, as many tests want it to

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = int(self._server.server_address[1])
        self.origin = f"http{'s' if context else ''}://{host}:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

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

    def use(self, context: ssl.SSLContext) -> None:
        """Use the certificate of ``context`` from now on."""
        self._context = context

    def paths(self) -> list[str]:
        """The requested paths, in order."""
        return [seen.path for seen in self.requests]

    def close(self) -> None:
        """End the server and its thread."""
        self.stopped.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handle(self, connection: socket.socket) -> None:
        connection.settimeout(10)
        if self._context is not None:
            connection = self._context.wrap_socket(connection, server_side=True)
        with connection:
            head = b""
            while b"\r\n\r\n" not in head:
                if not (data := connection.recv(4096)):
                    return
                head += data
            first, *lines = head.decode("latin-1").split("\r\n\r\n")[0].split("\r\n")
            target = first.split(" ")[1]
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            self.requests.append(Seen(target, headers))
            path = re.sub(r"^http://[^/]*", "", target).partition("?")[0]
            script = self._scripts.get(path) or [Answer(b"no such page", status=404)]
            n_before = sum(seen.path == target for seen in self.requests) - 1
            self._answer(connection, script[min(n_before, len(script) - 1)], headers)

    def _answer(self, connection: socket.socket, answer: Answer, asked: dict[str, str]) -> None:
        status, headers, body = answer.status, dict(answer.headers), answer.body
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", asked.get("range", ""))
        if answer.ranges and match and asked.get("if-range", headers.get("ETag")) == headers.get("ETag"):
            status, start = 206, int(match[1])
            stop = min(len(body), int(match[2] or len(body)) + 1)
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(body)}"
            body = body[start:stop]
        if answer.announced == "chunked":
            headers["Transfer-Encoding"] = "chunked"
        elif answer.announced is not None:
            headers["Content-Length"] = str(len(body) if answer.announced == -1 else answer.announced)
        head = f"HTTP/1.1 {status} Said\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n"
        if answer.drip_header:
            for byte in b"HTTP/1.1 200 OK\r\nX-Drip: " + b"x" * 10_000:
                connection.sendall(bytes([byte]))
                if self.stopped.wait(0.05):
                    return
        connection.sendall(head.encode("latin-1"))
        if answer.announced == "chunked":
            for i in range(0, len(body if answer.cut_at is None else body[: answer.cut_at]), 1000):
                connection.sendall(b"%x\r\n%s\r\n" % (len(body[i : i + 1000]), body[i : i + 1000]))
            connection.sendall(b"" if answer.cut_at is not None else b"0\r\n\r\n")
            return
        if answer.seconds_per_byte:
            for i in range(len(body)):
                connection.sendall(body[i : i + 1])
                if self.stopped.wait(answer.seconds_per_byte):
                    return
            return
        if answer.hang_at is not None:
            connection.sendall(body[: answer.hang_at])
            self.stopped.wait(30)
            return
        connection.sendall(body[: answer.cut_at])
        if answer.reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
