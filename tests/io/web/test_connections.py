"""Connections to hosts with several addresses."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from counted_calls import count_calls
from web_server import ScriptedServer

from data_stack.io.web import Exchange, WebError

BODY = b"the body"


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port of this machine that accepts no connection any more, and refuses none."""
    with contextlib.ExitStack() as exits:
        listener = exits.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            waiting = exits.enter_context(socket.socket())
            waiting.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                waiting.connect(listener.getsockname())
        yield listener.getsockname()[1]


def resolve_to(monkeypatch: pytest.MonkeyPatch, *hosts: str) -> None:
    """Let all names lead to some addresses."""

    def getaddrinfo(host: str, port: int, *arguments: Any, **options: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in hosts]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


def test_an_address_that_refuses_is_passed_by(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.serve("/a", BODY)
    port = urlsplit(url).port
    resolve_to(monkeypatch, "127.0.0.2", "127.0.0.1")  # nothing listens at the first one

    with Exchange(f"http://data.example:{port}/a") as exchange:
        assert exchange.read(100) == BODY


def test_all_addresses_together_have_the_time_of_a_request(
    silent_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve_to(monkeypatch, *["127.0.0.1"] * 100)

    def exchange() -> None:
        with pytest.raises(WebError, match=r"no answer within 0\.4 s") as raised:
            Exchange(f"http://data.example:{silent_port}/a", timeout_seconds=0.4).__enter__()
        assert raised.value.transient

    assert count_calls(exchange, "connect") < 50


def test_the_error_of_the_last_address_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve_to(monkeypatch, "127.0.0.2", "127.0.0.3")

    with pytest.raises(WebError, match="connection refused"):
        Exchange("http://data.example:9/a").__enter__()
