"""A web server on loopback that keeps connections alive and serves ranges of one body, as nginx does."""

from __future__ import annotations

import re
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class RangeServer:
    """Serves ``body`` under every path.

    Args:
        body: what is served.
        context: a TLS context, to answer ``https``; None for ``http``.
        closes_after: answers on one connection, after which the server closes it without a word; None for any number.

    Attributes:
        origin: the URL without a path.
        connections: how many were made.
    """

    def __init__(self, body: bytes, context: ssl.SSLContext | None = None, closes_after: int | None = None) -> None:
        self.connections = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                super().setup()
                outer.connections += 1
                self.n_answers = 0

            def do_GET(self) -> None:
                match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
                start, stop = (int(match[1]), min(int(match[2]) + 1, len(body))) if match else (0, len(body))
                self.send_response(206 if match else 200)
                self.send_header("Content-Length", str(stop - start))
                if match:
                    self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(body)}")
                self.end_headers()
                self.wfile.write(body[start:stop])
                self.n_answers += 1
                self.close_connection = self.n_answers == closes_after

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.origin = f"http{'s' if context else ''}://localhost:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the server and its thread."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
