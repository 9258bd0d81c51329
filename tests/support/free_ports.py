"""Finds TCP ports for servers of tests. It imports no client of a server."""

from __future__ import annotations

import socket


def free_port() -> int:
    """A TCP port of the loopback that nobody uses at the moment."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])
