"""Requests that our own connections send, and their answers."""

from __future__ import annotations

import socket
import ssl
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from process_harness import eventually
from web_server import Answer, ScriptedServer, Seen, WebServer

from data_stack.io.web import Exchange, WebError
from data_stack.io.web.connections import choose_wake_up_bytes, head_of_request
from data_stack.io.web.direct_answer import HeaderFields

BODY = bytes(range(256)) * 1200


class Keeping(WebServer):
    """Keeps connections open after each answer, if the answer says so."""

    def __init__(self, answer: Answer, context: ssl.SSLContext | None = None) -> None:
        super().__init__(context)
        self.given = answer
        self.seen: list[Seen] = []

    def answer(self, seen: Seen) -> Answer:
        self.seen.append(seen)
        return self.given


def kept(body: bytes = BODY, **fields: Any) -> Answer:
    return Answer(body, is_last=False, **fields)


def read_whole(url: str, **options: Any) -> bytes:
    with Exchange(url, **options) as exchange:
        return exchange.read(10_000_000)


def read_in_pieces(url: str, **options: Any) -> bytes:
    with Exchange(url, **options) as exchange:
        return b"".join(exchange.chunks())


READERS = pytest.mark.parametrize("read", [read_whole, read_in_pieces])

# ---------------------------------------------------------------------- kept connections


@READERS
@pytest.mark.parametrize("announced", [-1, "chunked"])
@pytest.mark.parametrize("is_tls", [False, True], ids=["http", "https"])
def test_a_body_that_is_read_leaves_its_connection(
    read: Any, announced: Any, is_tls: bool, tls: ssl.SSLContext
) -> None:
    with Keeping(kept(announced=announced), tls if is_tls else None) as server:
        bodies = [read(f"{server.origin}/a") for _ in range(5)]

        assert bodies == [BODY] * 5
        assert server.connections == 1


@READERS
def test_an_empty_body_leaves_its_connection(read: Any) -> None:
    with Keeping(kept(b"")) as server:
        assert [read(f"{server.origin}/a") for _ in range(3)] == [b""] * 3
        assert server.connections == 1


def test_a_body_that_is_not_read_ends_its_connection() -> None:
    with Keeping(kept()) as server:
        for _ in range(3):
            with Exchange(f"{server.origin}/a") as exchange:
                assert exchange.status == 200

        assert server.connections == 3


@READERS
def test_a_cut_body_ends_its_connection(read: Any) -> None:
    with Keeping(Answer(BODY, cut_at=70_000)) as server:
        for _ in range(2):
            with pytest.raises(WebError, match="cut"):
                read(f"{server.origin}/a")
        server.given = kept()

        assert read(f"{server.origin}/a") == BODY
        assert server.connections == 3


@READERS
def test_a_connection_that_the_server_ends_is_not_kept(read: Any) -> None:
    with Keeping(Answer(BODY, headers={"Connection": "close"})) as server:
        assert [read(f"{server.origin}/a") for _ in range(3)] == [BODY] * 3
        assert server.connections == 3


@READERS
def test_an_old_server_ends_the_body_with_the_connection(server: ScriptedServer, read: Any) -> None:
    url = server.url("/a", Answer(raw=b"HTTP/1.0 200 OK\r\n\r\n" + BODY))

    assert read(url) == BODY
    assert read(url) == BODY


def test_threads_share_kept_connections() -> None:
    with Keeping(kept()) as server:
        url = f"{server.origin}/a"
        wrong: list[int] = []

        def read_often() -> None:
            wrong.extend(number for number in range(20) if read_whole(url) != BODY)

        threads = [threading.Thread(target=read_often) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert wrong == []
        assert server.connections <= 4


# ---------------------------------------------------------------------- requests


def test_the_server_is_named_once() -> None:
    with Keeping(kept(b"hi")) as server:
        read_whole(f"{server.origin}/a b?c=d e")
        read_whole(f"{server.origin}/a", headers={"HOST": "other.example"})

        assert [seen.headers["host"] for seen in server.seen] == [
            f"localhost:{server.port}",
            "other.example",
        ]
        assert server.seen[0].path == "/a%20b?c=d%20e"


def test_an_ipv6_address_is_named_in_brackets() -> None:
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6")
    received: list[bytes] = []

    def serve() -> None:
        client, _ = listener.accept()
        with client:
            received.append(client.recv(10_000))
            client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")

    with listener:
        port = listener.getsockname()[1]
        thread = threading.Thread(target=serve)
        thread.start()
        assert read_whole(f"http://[::1]:{port}/a") == b"hi"
        thread.join()

    assert f"Host: [::1]:{port}\r\n".encode() in received[0]


def test_the_bytes_of_a_request() -> None:
    head = head_of_request("GET", "/a?b=c", "data.example", {"Range": "bytes=0-9", "X": ""})

    assert head == (b"GET /a?b=c HTTP/1.1\r\nHost: data.example\r\nRange: bytes=0-9\r\nX: \r\n\r\n")


@pytest.mark.parametrize(
    ("target", "headers"),
    [
        ("/a b", {}),
        ("/a\r\nX: y", {}),
        ("", {}),
        ("/a", {"Authorization": "s3cret\r\nX: y"}),
        ("/a", {"Authorization": "s3cret\ny"}),
        ("/a", {"Authorization": "s3cret\0"}),
        ("/a", {"Authorization": "s3cret \N{EURO SIGN}"}),
        ("/a", {"X: s3cret": "y"}),
        ("/a", {"X\r\nY": "s3cret"}),
        ("/a", {"": "s3cret"}),
    ],
)
def test_what_would_begin_another_line_is_not_sent(target: str, headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"URL|header") as caught:
        head_of_request("GET", target, "data.example", headers)

    values = "".join(headers.values())
    assert "s3cret" not in values or "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_header_that_cannot_be_sent_is_our_error(server: ScriptedServer) -> None:
    url = server.serve("/a", BODY)

    with pytest.raises(WebError, match="header 'X-Token' cannot be sent") as caught:
        read_whole(url, own_headers={"X-Token": "s3cret\r\nX: y"})

    assert "s3cret" not in str(caught.value)
    assert server.requests == []


@given(st.lists(st.tuples(st.sampled_from(["A", "a", "B", "c-d", "C-D"]), st.text("xyz"))))
def test_headers_are_found_in_any_case(fields: list[tuple[str, str]]) -> None:
    headers = HeaderFields(fields)

    for name in ("A", "a", "b", "C-d", "none"):
        values = [value for field_name, value in fields if field_name.lower() == name.lower()]
        assert headers.get(name, "") == ", ".join(values)
        assert (name in headers) == bool(values)
    assert len(headers) == len({name.lower() for name, _ in fields})


# ---------------------------------------------------------------------- waking up


@pytest.mark.parametrize(
    ("n_wanted_bytes", "n_bytes"),
    [(1, 1), (8192, 1), ((32 << 10) - 1, 1), (32 << 10, 16 << 10), (2 << 20, 512 << 10)],
)
def test_short_reads_wake_up_at_once(n_wanted_bytes: int, n_bytes: int) -> None:
    assert choose_wake_up_bytes(n_wanted_bytes) == n_bytes


@pytest.mark.parametrize("is_tls", [False, True], ids=["http", "https"])
def test_a_slow_body_is_received_as_it_comes(is_tls: bool, tls: ssl.SSLContext) -> None:
    """Half of the body takes longer than the timeout, but something comes all the time."""
    piece = bytes(2000)
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"
    answer = Answer(raw=head, endless=piece, seconds_per_piece=0.05)
    with Keeping(answer, tls if is_tls else None) as server:
        url = f"{server.origin}/a"
        body = eventually(lambda: read_whole(url, timeout_seconds=1.0), WebError)

    assert body == bytes(100_000)


@pytest.mark.parametrize("is_tls", [False, True], ids=["http", "https"])
def test_short_answers_follow_long_ones(is_tls: bool, tls: ssl.SSLContext) -> None:
    with Keeping(kept(), tls if is_tls else None) as server:
        for body in (BODY, b"hi", BODY * 4, b"", BODY):
            server.given = kept(body)
            assert read_whole(f"{server.origin}/a", timeout_seconds=60.0) == body

        assert server.connections == 1
