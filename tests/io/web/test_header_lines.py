"""The header lines of an answer, strictly read."""

from __future__ import annotations

import email.message
import http.client
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from web_server import Answer, ScriptedServer

from data_stack.io.web import Exchange, WebError
from data_stack.io.web.header_lines import BadHeaderError, read_fields, values_of

NAMES = st.text("abcXYZ019-_.!#$%&'*+^`|~", min_size=1)
VALUES = st.text(st.characters(min_codepoint=0x21, max_codepoint=0xFF), max_size=20).filter(
    lambda text: "\x7f" not in text and text.isprintable()
)


def fields_of(header: bytes) -> list[tuple[str, str]]:
    return read_fields(io.BytesIO(header))


@given(st.lists(st.tuples(NAMES, VALUES), max_size=20))
def test_headers_are_read_as_http_client_reads_them(fields: list[tuple[str, str]]) -> None:
    lines = [f"{name}: {value}\r\n" for name, value in fields]
    header = "".join([*lines, "\r\n"]).encode("latin-1")

    parsed: email.message.Message = http.client.parse_headers(io.BytesIO(header))

    assert fields_of(header) == parsed.items() == fields


@pytest.mark.parametrize(
    ("header", "fields"),
    [
        (b"\r\n", []),
        (b"A: b\n\n", [("A", "b")]),
        (b"A:b\r\n\r\n", [("A", "b")]),
        (b"A: \t b c \t\r\n\r\n", [("A", "b c")]),
        (b"A:\r\n\r\n", [("A", "")]),
        (b"A: b:c\r\n\r\n", [("A", "b:c")]),
        (b"A: b\r\n c\r\n\td \r\n\r\n", [("A", "b c d")]),
        (b"A: \xe9\r\n\r\nbody: x\r\n", [("A", "é")]),
    ],
)
def test_a_header_ends_with_an_empty_line(header: bytes, fields: list[tuple[str, str]]) -> None:
    assert fields_of(header) == fields


@pytest.mark.parametrize(
    "line",
    [
        b"no colon",
        b" A: continues nothing",
        b"A : b",
        b": no name",
        b"A\x00: b",
        b"A: b\x00c",
        b"A: b\rC: d",
        b"(A): b",
    ],
)
def test_a_line_that_is_no_header_is_refused(server: ScriptedServer, line: bytes) -> None:
    with pytest.raises(BadHeaderError, match="sends a header that cannot be read"):
        fields_of(line + b"\r\nContent-Length: 5\r\n\r\n")

    answer = Answer(raw=b"HTTP/1.1 200 OK\r\n" + line + b"\r\nContent-Length: 5\r\n\r\nhello")
    with pytest.raises(WebError, match="sends a header that cannot be read") as raised:
        Exchange(server.url("/a", answer)).__enter__()
    assert not raised.value.transient


@pytest.mark.parametrize("n_bytes", range(len(b"A: b\r\nC: d\r\n")))
def test_a_header_that_is_cut_short_is_an_error(n_bytes: int) -> None:
    with pytest.raises(http.client.IncompleteRead):
        fields_of(b"A: b\r\nC: d\r\n"[:n_bytes])


def test_a_server_that_cuts_a_header_may_be_asked_again(server: ScriptedServer) -> None:
    url = server.url("/a", Answer(raw=b"HTTP/1.1 200 OK\r\nContent-Len"))

    with pytest.raises(WebError, match="the connection was cut") as raised:
        Exchange(url).__enter__()

    assert raised.value.transient


def test_headers_have_limits() -> None:
    assert len(fields_of(b"A: b\r\n" * 100 + b"\r\n")) == 100

    with pytest.raises(BadHeaderError, match="more than 100 header lines"):
        fields_of(b"A: b\r\n" * 101 + b"\r\n")
    with pytest.raises(http.client.LineTooLong):
        fields_of(b"A: " + b"b" * 65_536 + b"\r\n\r\n")


def test_values_of_a_header_are_joined() -> None:
    fields = [("A", "1"), ("b", "2"), ("a", "3")]

    assert values_of(fields, "a") == "1, 3"
    assert values_of(fields, "c") == ""
