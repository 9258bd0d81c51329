"""Finds TCP ports for servers of tests. It imports no client of a server."""

from __future__ import annotations

import contextlib
import secrets
import socket

#: Systems give higher ports to connections and to servers that ask for any: Linux those from 32768
#: on. They would take one that a server leaves for a moment.
_PORTS = range(15_000, 30_000)


def free_port() -> int:
    """A TCP port of the loopback that nobody uses at the moment."""
    while True:
        port = secrets.choice(_PORTS)
        with socket.socket() as listening, contextlib.suppress(OSError):
            listening.bind(("127.0.0.1", port))
            return port
