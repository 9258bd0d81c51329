"""An answer of a web server is what was asked for, or an error: its framing, its part, its version,
its end, its login.
"""

from __future__ import annotations

import gzip
import hashlib
import logging
import random
import re
import threading
from typing import Any

import pytest
import requests
from process_harness import until
from requests.auth import HTTPDigestAuth
from web_server import Answer, ScriptedServer, Seen, WebServer

from data_stack.exception import (
    CatalogueError,
    CorruptSourceError,
    ResourceChangedError,
    RetrievalError,
    StorageError,
    StorageUnavailableError,
)
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.retriever import Limits, retrieve
from data_stack.io.storage_connectors import InMemoryStorageConnector
from data_stack.io.web import Exchange, WebError, use_session
from data_stack.io.web.file_version import FileVersion
from data_stack.io.web.files import WebFiles
from data_stack.io.web.json_api import ask_json
from data_stack.io.web.ranges import ByteRange

BODY = random.Random(5).randbytes(3000)
ONCE = Limits(n_retries=0)


def read_all(url: str, **options: Any) -> bytes:
    with Exchange(url, **options) as answer:
        return answer.read(1_000_000)


def retrieved(url: str, **fields: Any) -> bytes:
    """What a store has after the retrieval of a URL."""
    store = InMemoryStorageConnector()
    retrieve([ResourceDefinition("a", url, **fields)], store, limits=ONCE, progress=False)
    with store.get_resource("a") as resource:
        return bytes(resource.read())


def raw(head: str, body: bytes, **fields: Any) -> Answer:
    """An answer of exactly these bytes."""
    return Answer(raw=f"HTTP/1.1 {head}\r\n\r\n".encode("latin-1") + body, **fields)


CHUNKED = b"5\r\nhello\r\n0\r\n\r\n"
PACKED = gzip.compress(b"hello", mtime=0)  # the names of tests have these bytes


# --------------------------------------------------------------------- where a body begins and ends


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("identity, chunked", CHUNKED),
        ("gzip, chunked", b"%x\r\n%b\r\n0\r\n\r\n" % (len(PACKED), PACKED)),
        ("gzip", PACKED),
        ("chunked, chunked", CHUNKED),
        ("x-new", b"hello"),
        ("chunked\r\nTransfer-Encoding: gzip", CHUNKED),
    ],
)
def test_another_transfer_coding_is_refused(
    server: ScriptedServer, coding: str, body: bytes
) -> None:
    url = server.url("/a", raw(f"200 OK\r\nTransfer-Encoding: {coding}", body))

    with pytest.raises(RetrievalError, match="transfer coding"):
        retrieved(url)
    with pytest.raises(CatalogueError, match="transfer coding"):
        ask_json(url, {}, server="it", subject="that")
    with pytest.raises(StorageError, match="transfer coding"):
        WebFiles(server.origin).read("a", 0, 5)


@pytest.mark.parametrize("coding", ["chunked", "Chunked", "chunked \t", "  CHUNKED"])
def test_chunks_are_put_together(server: ScriptedServer, coding: str) -> None:
    url = server.url("/a", raw(f"200 OK\r\nTransfer-Encoding: {coding}", CHUNKED))

    assert read_all(url) == b"hello"
    assert retrieved(url) == b"hello"


@pytest.mark.parametrize(
    "body",
    [
        b"-5\r\nhello\r\n0\r\n\r\n",
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b"1_0\r\nhello\r\n0\r\n\r\n",
        b"5;" + b"x" * 5000 + b"\r\nhello\r\n0\r\n\r\n",
        b"5\r\nhello\r\n",
        b"5\r\nhel",
    ],
    ids=["negative", "prefixed", "underscore", "long extension", "no last chunk", "cut"],
)
def test_chunks_that_are_none_are_an_error(server: ScriptedServer, body: bytes) -> None:
    url = server.url("/a", raw("200 OK\r\nTransfer-Encoding: chunked", body))

    with pytest.raises(WebError, match=r"cut|chunk"):
        read_all(url)
    with pytest.raises(RetrievalError):
        retrieved(url)


@pytest.mark.parametrize("length", ["5\r\nContent-Length: 6", "-5", "five", "5, 6", "0x5"])
def test_a_length_that_is_none_is_an_error(server: ScriptedServer, length: str) -> None:
    url = server.url("/a", raw(f"200 OK\r\nContent-Length: {length}", b"hello"))

    with pytest.raises(RetrievalError, match=r"Content-Length|length that is not a number"):
        retrieved(url)


def test_a_length_that_is_sent_twice_is_read(server: ScriptedServer) -> None:
    url = server.url("/a", raw("200 OK\r\nContent-Length: 5\r\nContent-Length: 5", b"hello"))

    assert read_all(url) == b"hello"


@pytest.mark.parametrize("n_interim", [1, 3])
@pytest.mark.parametrize("status", ["100 Continue", "102 Processing", "103 Early Hints"])
def test_interim_answers_are_passed_over(
    server: ScriptedServer, status: str, n_interim: int
) -> None:
    interim = f"{status}\r\nLink: </style.css>\r\nContent-Length: 3\r\n\r\nHTTP/1.1 " * n_interim
    url = server.url("/a", raw(f"{interim}200 OK\r\nContent-Length: 5", b"hello"))

    assert read_all(url) == b"hello"


IN_CHUNKS = "200 OK\r\nTransfer-Encoding: chunked"


@pytest.mark.parametrize(
    ("head", "body", "endless"),
    [
        (IN_CHUNKS, b"2\r\n{}\r\n0\r\n", b"X: " + b"y" * 20_000 + b"\r\n"),
        (IN_CHUNKS, b"", b"1;" + b"y" * 4000 + b"\r\nx\r\n"),
        ("103 Early Hints", b"", b"HTTP/1.1 103 Hints\r\nX: " + b"y" * 20_000 + b"\r\n\r\n"),
    ],
    ids=["trailers", "extensions of chunks", "interim answers"],
)
def test_what_has_no_end_around_a_body_ends(
    server: ScriptedServer, head: str, body: bytes, endless: bytes
) -> None:
    url = server.url("/a", raw(head, body, endless=endless))

    with pytest.raises(WebError, match=r"trailer|around the content|before the content"):
        read_all(url, timeout_seconds=60.0)
    with pytest.raises(RetrievalError):
        retrieved(url)


def test_a_few_trailers_are_discarded(server: ScriptedServer) -> None:
    trailers = b"5\r\nhello\r\n0\r\nX-Checksum: 1\r\nX-Other: 2\r\n\r\n"
    url = server.url("/a", raw("200 OK\r\nTransfer-Encoding: chunked", trailers))

    assert read_all(url) == b"hello"


def test_a_file_without_an_end_is_stored_with_a_warning(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    url = server.serve("/a", BODY, announced=None)

    with caplog.at_level(logging.WARNING):
        assert retrieved(url) == BODY

    assert "did not say where they end" in caplog.text


# ---------------------------------------------------------------------- parts


def part(start: int, stop: int, *, body: bytes | None = None, **headers: str) -> Answer:
    """An answer that announces a part, and sends it, or ``body``."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    announced = {"Content-Range": f"bytes {start}-{stop - 1}/{len(BODY)}"} | named
    return Answer(BODY[start:stop] if body is None else body, 206, announced)


WRONG_PARTS = {
    "another start": part(1, 101),
    "longer": part(0, 200),
    "shorter": part(0, 99),
    "no range": Answer(BODY[:100], 206),
    "unreadable range": part(0, 100, Content_Range="bytes 0-99"),
    "other unit": part(0, 100, Content_Range="rows 0-99/3000"),
    "several parts": part(0, 100, Content_Type="multipart/byteranges; boundary=x"),
    "encoded": part(0, 100, Content_Encoding="gzip"),
    "another length": part(0, 100, body=BODY[:50]),
    "whole": Answer(BODY),
}


@pytest.mark.parametrize("fault", WRONG_PARTS)
def test_another_part_than_the_requested_one_is_refused(server: ScriptedServer, fault: str) -> None:
    server.url("/a", WRONG_PARTS[fault])

    with pytest.raises(StorageError) as caught:
        WebFiles(server.origin).read("a", 0, 100)

    assert not isinstance(caught.value, StorageUnavailableError)
    assert len(server.requests) == 1


@pytest.mark.parametrize("is_longer", [False, True])
def test_a_part_in_chunks_has_the_announced_length(server: ScriptedServer, is_longer: bool) -> None:
    body = BODY[: 110 if is_longer else 90]
    headers = {"Content-Range": f"bytes 0-99/{len(BODY)}"}
    server.url("/a", Answer(body, 206, headers, announced="chunked"))

    with pytest.raises(WebError, match="sends more" if is_longer else "cut"):
        read_all(server.origin + "/a", byte_range=ByteRange(0, 100))


@pytest.mark.parametrize("n_bytes", [90, 100, 110])
def test_a_view_of_a_part_in_chunks_is_whole(server: ScriptedServer, n_bytes: int) -> None:
    headers = {"Content-Range": f"bytes 0-99/{len(BODY)}"}
    server.url("/a", Answer(BODY[:n_bytes], 206, headers, announced="chunked"))
    buffer = memoryview(bytearray(100))

    with Exchange(server.origin + "/a", byte_range=ByteRange(0, 100)) as answer:
        if n_bytes == 100:
            answer.read_into(buffer)
            assert buffer == BODY[:100]
        else:
            with pytest.raises(WebError, match="sends more" if n_bytes > 100 else "cut"):
                answer.read_into(buffer)


def test_a_buffer_of_another_length_is_refused(server: ScriptedServer) -> None:
    url = server.serve("/a", BODY)

    with (
        Exchange(url) as answer,
        pytest.raises(ValueError, match="10 bytes for"),
    ):
        answer.read_into(memoryview(bytearray(10)))


def test_only_the_end_of_a_file_ends_a_part_early(server: ScriptedServer) -> None:
    server.url("/a", part(2900, 3000))

    assert WebFiles(server.origin).read("a", 2900, 4000) == BODY[2900:]


ONE: dict[str, str] = {"ETag": '"one"'}
MONDAY = {"Last-Modified": "Mon, 23 Nov 2026 10:00:00 GMT"}
TUESDAY = {"Last-Modified": "Tue, 24 Nov 2026 10:00:00 GMT"}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (ONE, {"ETag": '"two"'}),
        (ONE, {}),
        (ONE | MONDAY, MONDAY),
        (ONE, {"ETag": 'W/"one"'}),
        ({"ETag": 'W/"one"'} | MONDAY, {"ETag": 'W/"one"'} | TUESDAY),
        (MONDAY, TUESDAY),
        (MONDAY, {}),
        ({}, {"Content-Range": "bytes 100-199/3001"}),
    ],
    ids=[
        "tag",
        "no tag",
        "no tag, same date",
        "weak",
        "date behind weak",
        "date",
        "no date",
        "size",
    ],
)
def test_parts_of_two_versions_are_not_mixed(
    server: ScriptedServer, first: dict[str, str], second: dict[str, str]
) -> None:
    before = {"Content-Range": "bytes 0-99/3000"} | first
    after = {"Content-Range": "bytes 100-199/3000"} | second
    server.url("/a", Answer(BODY[:100], 206, before), Answer(BODY[100:200], 206, after))
    file = WebFiles(server.origin).open("a")

    assert file.read(0, 100) == BODY[:100]
    with pytest.raises(ResourceChangedError, match="was replaced while it was in use"):
        file.read(100, 200)


def test_a_file_that_is_reopened_is_read_anew(server: ScriptedServer) -> None:
    server.url("/a", Answer(BODY, headers=ONE, ranges=True), Answer(b"new", ranges=True))
    files = WebFiles(server.origin)

    assert files.read("a", 0, 5000) == BODY
    assert files.read("a", 0, 5000) == b"new"


@pytest.mark.parametrize(
    ("told", "asked"),
    [
        (ONE | MONDAY, ("if-match", '"one"')),
        ({"ETag": 'W/"one"'} | MONDAY, ("if-unmodified-since", MONDAY["Last-Modified"])),
        (MONDAY, ("if-unmodified-since", MONDAY["Last-Modified"])),
    ],
)
def test_later_parts_are_asked_for_by_version(
    server: ScriptedServer, told: dict[str, str], asked: tuple[str, str]
) -> None:
    server.url(
        "/a",
        Answer(BODY, headers=told, ranges=True),
        Answer(BODY, headers=told, ranges=True),
        Answer(status=412),
        Answer(status=416, headers={"Content-Range": "bytes */10"}),
    )
    file = WebFiles(server.origin).open("a")

    assert file.read(0, 100) + file.read(100, 200) == BODY[:200]
    for _ in ("412", "416"):
        with pytest.raises(ResourceChangedError):
            file.read(200, 300)

    name, value = asked
    assert [seen.headers.get(name) for seen in server.requests] == [None, value, value, value]


def test_a_date_may_differ_where_a_strong_tag_does_not() -> None:
    before = FileVersion('"one"', MONDAY["Last-Modified"], 10)

    assert before.agrees_with(FileVersion('"one"', TUESDAY["Last-Modified"], 10))
    assert before.agrees_with(FileVersion('"one"', "", None))
    assert not before.agrees_with(FileVersion('"one"', "", 11))


def test_only_a_strong_tag_asks_for_the_rest() -> None:
    with pytest.raises(ValueError, match="strong ETag"):
        ByteRange(5, version=FileVersion('W/"one"'), or_whole=True).headers()


@pytest.mark.parametrize(
    "headers",
    [
        MONDAY,
        {},
        ONE | {"Content-Encoding": "gzip"},
        ONE | {"Content-Type": "multipart/byteranges; boundary=x"},
        {"ETag": 'W/"one"'},
    ],
    ids=["no tag", "nothing", "encoded", "several parts", "weak tag"],
)
def test_a_download_is_not_resumed_by_an_answer_in_doubt(
    server: ScriptedServer, headers: dict[str, str]
) -> None:
    rest = {"Content-Range": "bytes 1000-2999/3000"} | headers
    url = server.url(
        "/a",
        Answer(BODY, headers=ONE, cut_at=1000),
        Answer(bytes(2000), 206, rest),
        Answer(BODY),
    )
    store = InMemoryStorageConnector()

    retrieve([ResourceDefinition("a", url)], store, limits=Limits(backoff_seconds=0.01))

    with store.get_resource("a") as resource:
        assert bytes(resource.read()) == BODY


def test_a_range_among_the_headers_is_checked_as_well(server: ScriptedServer) -> None:
    url = server.url("/a", part(10, 20), part(11, 21), part(10, 3000))

    assert read_all(url, headers={"range": "bytes=10-19"}) == BODY[10:20]
    with pytest.raises(WebError, match="sends bytes 11 to 21"):
        read_all(url, headers={"Range": "bytes=10-19"})
    assert read_all(url, headers={"Range": "bytes=10-"}) == BODY[10:]


# ---------------------------------------------------------------------- encoded


def test_a_wrong_digest_says_that_the_body_is_encoded(
    server: ScriptedServer,
) -> None:
    url = server.serve("/a", gzip.compress(BODY), headers={"Content-Encoding": "gzip"})

    with pytest.raises(CorruptSourceError, match="Content-Encoding: gzip"):
        retrieved(url, sha256=hashlib.sha256(BODY).hexdigest())


@pytest.mark.parametrize("encoding", ["gzip", "br", "gzip, gzip", "x\x1b[31m"])
def test_an_encoded_answer_is_refused_by_its_name(server: ScriptedServer, encoding: str) -> None:
    url = server.serve("/a", PACKED, headers={"Content-Encoding": encoding})

    with pytest.raises(RetrievalError, match="answers encoded as") as caught:
        retrieved(url)
    with pytest.raises(CatalogueError, match="answers encoded as"):
        ask_json(url, {}, server="it", subject="that")

    assert "\x1b" not in str(caught.value)


def test_a_part_is_no_answer_for_the_whole(server: ScriptedServer) -> None:
    url = server.url("/a", part(0, 3000))

    with pytest.raises(RetrievalError, match=r"206 .*instead of the whole file"):
        retrieved(url)


# ---------------------------------------------------------------------- logins


class DigestServer(WebServer):
    """Sends ``answers[1]`` to requests with a login, ``answers[0]`` to others."""

    def __init__(self, refusal: Answer, after_login: Answer) -> None:
        self._refusal = refusal
        self._after_login = after_login
        self.logins: list[str] = []
        super().__init__(host="127.0.0.1")

    def answer(self, seen: Seen) -> Answer:
        login = seen.headers.get("authorization", "")
        if not login.startswith("Digest "):
            return self._refusal
        self.logins.append(login)
        return self._after_login


CHALLENGE = {"WWW-Authenticate": 'Digest realm="a", nonce="b", qop="auth"'}


def ask_with_login(server: WebServer, **options: Any) -> bytes:
    session = requests.Session()
    session.auth = HTTPDigestAuth("me", "secret")
    use_session(server.origin, session)
    return read_all(server.origin + "/a", **options)


@pytest.mark.parametrize("is_last", [False, True], ids=["kept", "closed"])
@pytest.mark.parametrize("size", [0, 10, 1_000_000])
def test_a_digest_login_is_answered(size: int, is_last: bool) -> None:
    refusal = Answer(bytes(size), 401, CHALLENGE, is_last=is_last)

    with DigestServer(refusal, Answer(BODY, is_last=False)) as server:
        assert [ask_with_login(server) for _ in range(2)] == [BODY, BODY]

        (realm,) = set(re.findall('realm="([^"]*)"', " ".join(server.logins)))
        assert realm == "a"


def test_a_login_has_the_time_of_its_request() -> None:
    refusal = Answer(status=401, headers=CHALLENGE, is_last=False)

    with (
        DigestServer(refusal, Answer(BODY, hang_at=0)) as silent,
        pytest.raises(WebError, match=r"no answer|stalled"),
    ):
        ask_with_login(silent, timeout_seconds=0.4)
    with (
        DigestServer(refusal, Answer(drip_header=True)) as dripping,
        pytest.raises(WebError, match="no answer"),
    ):
        ask_with_login(dripping, timeout_seconds=0.4)


def test_a_refusal_before_a_login_is_not_read_without_end() -> None:
    head = b"HTTP/1.1 401 U\r\n" + f"WWW-Authenticate: {CHALLENGE['WWW-Authenticate']}".encode()
    endless = Answer(raw=head + b"\r\n\r\n", endless=bytes(1 << 20))

    with DigestServer(endless, Answer(BODY)) as server:
        assert ask_with_login(server) == BODY


def test_a_login_that_is_refused_shows_the_refusal() -> None:
    refusal = Answer(b'{"why": "no"}', 401, CHALLENGE)

    with DigestServer(refusal, refusal) as server:
        session = requests.Session()
        session.auth = HTTPDigestAuth("me", "wrong")
        use_session(server.origin, session)
        answer = ask_json(server.origin + "/a", {}, server="it", subject="that")

    assert (answer.status, answer.value) == (401, {"why": "no"})


def test_a_session_asks_for_its_user_without_our_limits() -> None:
    refusal = Answer(bytes(100_000), 401, CHALLENGE, is_last=False)

    with DigestServer(refusal, refusal) as server:
        session = requests.Session()
        session.auth = HTTPDigestAuth("me", "wrong")
        use_session(server.origin, session)
        threads_before = threading.active_count()
        answer = session.get(server.origin + "/a")

    assert len(answer.content) == 100_000
    assert until(lambda: threading.active_count() <= threads_before)
