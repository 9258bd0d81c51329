"""The web client: deadlines, redirects, sessions of users, and connections that threads and forked
processes may use.
"""

from __future__ import annotations

import pickle
import random
import ssl
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import requests
import trustme
from process_harness import eventually, in_fork, until
from web_server import Answer, RangeServer, ScriptedServer, Seen, WebServer

from data_stack.exception import (
    CatalogueBusyError,
    CatalogueError,
    CatalogueUnavailableError,
    ConfigError,
    RetrievalError,
    StorageUnavailableError,
)
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.retriever import Limits, retrieve
from data_stack.io.storage_connectors import InMemoryStorageConnector
from data_stack.io.web import Exchange, WebError, ask, follow, use_session
from data_stack.io.web.files import WebFiles
from data_stack.io.web.json_api import ask_json
from data_stack.io.web.json_shape import check_shape
from data_stack.io.web.ranges import ByteRange

BODY = random.Random(3).randbytes(300_000)


def read_all(url: str, **options: Any) -> bytes:
    with Exchange(url, **options) as answer:
        return answer.read(1_000_000)


# ---------------------------------------------------------------------- deadlines

DRIPS: dict[str, dict[str, Any]] = {
    "header": {"drip_header": True},
    "body without length": {"seconds_per_byte": 0.1, "announced": None},
    "nothing": {"hang_at": 0},
    "a part": {"hang_at": 1000},
}


@pytest.mark.parametrize(("drip", "is_tls"), [*((each, False) for each in DRIPS), ("a part", True)])
def test_each_reader_gives_up_a_server_that_drips(
    server: ScriptedServer,
    tls: ssl.SSLContext,
    monkeypatch: pytest.MonkeyPatch,
    drip: str,
    is_tls: bool,
) -> None:
    monkeypatch.setenv("DATA_STACK_WEB_TIMEOUT", "0.3")
    fault = DRIPS[drip]
    ranged = {"status": 206, "headers": {"Content-Range": f"bytes 0-{len(BODY) - 1}/{len(BODY)}"}}
    with ScriptedServer(tls if is_tls else None) as dripping:
        url = dripping.serve("/a", BODY, **(ranged | fault))
        api = dripping.serve("/api", BODY, **fault)
        with pytest.raises(StorageUnavailableError, match=r"no answer|stalled"):
            WebFiles(dripping.origin).read("a", 0, len(BODY))
        with pytest.raises(RetrievalError, match=r"no answer|stalled"):
            retrieve(
                [ResourceDefinition("a", api)],
                InMemoryStorageConnector(),
                progress=False,
                limits=Limits(n_retries=0),
            )
        if not is_tls:
            url = server.serve("/there", status=302, headers={"Location": url})
        with pytest.raises(WebError, match=r"no answer|stalled"):
            read_all(url, byte_range=ByteRange(0, len(BODY)))


@pytest.mark.parametrize(
    ("asked", "status"), [("100000", 429), ("Fri, 27 Nov 2099 20:36:55 GMT", 503)]
)
def test_a_pause_that_is_too_long_is_not_waited(
    server: ScriptedServer, asked: str, status: int
) -> None:
    url = server.serve("/a", status=status, headers={"Retry-After": asked})

    with pytest.raises(StorageUnavailableError, match=f"answers {status}"):
        WebFiles(server.origin).read("a", 0, 9)
    with pytest.raises(CatalogueBusyError if status == 429 else CatalogueUnavailableError):
        ask_json(url, {}, server="it", subject="that")

    assert len(server.requests) == 2


def test_retries_have_the_timeout_of_their_request(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATA_STACK_WEB_TIMEOUT", "0.2")
    url = server.script("/a", {"status": 503}, {"body": BODY})
    limits = Limits(backoff_seconds=1.0, max_wait_seconds=0.01)

    data = ask(url, lambda answer: answer.read(len(BODY)), limits, timeout_seconds=30.0)

    assert data == BODY


def test_another_thread_cuts_an_exchange(server: ScriptedServer) -> None:
    exchange = Exchange(server.serve("/a", BODY, hang_at=10))

    def cut() -> None:
        until(lambda: len(server.requests) == 1)
        exchange.cut()

    threading.Thread(target=cut).start()

    with pytest.raises(WebError, match="interrupted"), exchange:
        exchange.read(len(BODY))


@pytest.mark.parametrize("seconds", ["0", "nan", "inf", "soon"])
def test_a_timeout_that_is_none_is_an_error(monkeypatch: pytest.MonkeyPatch, seconds: str) -> None:
    monkeypatch.setenv("DATA_STACK_WEB_TIMEOUT", seconds)

    with pytest.raises(ConfigError, match="positive number of seconds"):
        retrieve([], InMemoryStorageConnector())


# ------------------------------------------------------------- where servers and documents may lead


FOREIGN = [
    "file:///etc/passwd",
    "package:json/tool.py",
    "ftp://a.example/x",
    "data:,x",
    "http://[::bad/x",
]


@pytest.mark.parametrize(
    "origin", ["https://a.example/b/c.json", "http://a.example/b/c.json", "/data/c.json", "c.json"]
)
@pytest.mark.parametrize(
    "target",
    [
        *FOREIGN,
        "https://a.example:port/x",
        "https://a.example:99999999/x",
        7,
        b"https://a.example/",
    ],
)
def test_nothing_leads_to_another_scheme(origin: str, target: Any) -> None:
    with pytest.raises(WebError, match="leads to"):
        follow(origin, target)


def test_encryption_is_not_left_and_paths_stay_at_the_server() -> None:
    secure, plain = "https://u:p@a.example/b/c.json", "http://a.example/b/c.json"

    for origin in (secure, "/data/c.json"):
        with pytest.raises(WebError, match="not encrypted"):
            follow(origin, "http://a.example/x")
    assert follow(plain, "http://b.example/x") == "http://b.example/x"
    assert follow(plain, "HTTPS://b.example/x#y") == "https://b.example/x"
    assert follow("/data/c.json", "https://v:q@b.example/x") == "https://b.example/x"
    assert follow(plain, "/etc/passwd") == "http://a.example/etc/passwd"
    assert follow(plain, "//b.example/x") == "http://b.example/x"
    # The user's password is for his server only.
    assert follow(secure, "d.csv") == "https://u:p@a.example/b/d.csv"
    assert follow(secure, "https://b.example/d.csv") == "https://b.example/d.csv"
    assert follow(secure, "https://a.example:444/d.csv") == "https://a.example:444/d.csv"
    with pytest.raises(WebError):
        follow("/data/c.json", "d.csv")


# ---------------------------------------------------------------------- credentials


def test_a_session_of_the_user_serves_its_own_server_alone(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ScriptedServer(host="127.0.0.1") as other:
        session = requests.Session()
        session.headers["X-Key"] = "canary"
        session.auth = ("me", "canary")
        session.cookies.set("sid", "canary")
        use_session(server.origin + "/any/path", session)
        url = server.serve("/a", status=302, headers={"Location": other.serve("/b", BODY)})

        assert (
            read_all(url, own_headers={"X-Token": "canary"}, headers={"Range": "bytes=0-"}) == BODY
        )
        read_all(other.origin + "/b")

        assert {"x-key", "authorization", "cookie", "x-token"} <= server.requests[0].headers.keys()
        assert all("canary" not in str(seen) for seen in other.requests)
        assert other.requests[0].headers["range"] == "bytes=0-"
        monkeypatch.setenv("DATA_STACK_WEB_TIMEOUT", "0.5")
        with pytest.raises(WebError, match="no answer"):
            read_all(server.serve("/drips", drip_header=True))


def test_a_session_goes_on_to_serve_its_user(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, url = requests.Session(), server.serve("/a", BODY)
    use_session(server.origin, session)
    assert session.get(url).content == BODY

    monkeypatch.setenv("DATA_STACK_WEB_TIMEOUT", "0.3")
    assert eventually(lambda: read_all(url), WebError) == BODY
    time.sleep(0.4)  # that deadline is not the user's

    assert session.get(url).content == BODY


def test_a_session_brings_certificates_and_redirects_stay_encrypted(
    server: ScriptedServer, tls: ssl.SSLContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "others.pem").write_bytes(trustme.CA().cert_pem.bytes())
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "others.pem"))
    session = requests.Session()
    with ScriptedServer(tls) as encrypted:
        url = encrypted.serve("/a", BODY)
        leaving = encrypted.serve(
            "/leaving", status=302, headers={"Location": server.serve("/plain", BODY)}
        )
        with pytest.raises(WebError, match="its TLS certificate is refused"):
            read_all(url)
        session.verify = str(tmp_path / "ca.pem")
        use_session(encrypted.origin, session)

        assert read_all(url) == BODY
        with pytest.raises(WebError, match="not encrypted"):
            read_all(leaving)
        assert server.requests == []


def test_passwords_of_netrc_and_cookies_go_nowhere(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".netrc").write_text("machine localhost login me password canary\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    url = server.serve("/a", BODY, headers={"Set-Cookie": "sid=canary; Path=/"})

    for _ in range(2):
        read_all(url)

    assert all("canary" not in str(seen) for seen in server.requests)


# ---------------------------------------------------------------------- connections


@pytest.mark.parametrize("is_tls", [False, True], ids=["http", "https"])
def test_reads_share_a_connection_which_forks_do_not(
    server: ScriptedServer, tls: ssl.SSLContext, is_tls: bool
) -> None:
    with RangeServer(BODY, tls if is_tls else None) as ranges:
        files = pickle.loads(pickle.dumps(WebFiles(ranges.origin)))
        for start in range(0, 100_000, 1000):
            assert files.read("a", start, start + 7) == BODY[start : start + 7]
        assert ranges.connections == 1

        status = in_fork(
            lambda: all(
                files.read("a", start, start + 7) == BODY[start : start + 7] for start in range(50)
            )
        )
        for start in range(50):
            assert files.read("a", start, start + 9) == BODY[start : start + 9]

        assert status == 0
        assert ranges.connections == 2


def test_a_kept_connection_that_the_server_closes_is_replaced() -> None:
    """Even if it closes it only when the next request arrives, which no look at the socket can
    foresee.
    """

    class Closing(WebServer):
        n_answers = 0

        def answer(self, seen: Seen) -> Answer:
            if self.n_answers == self.connections:
                raise ConnectionAbortedError
            self.n_answers += 1
            return Answer(b"hi", is_last=False)

    with Closing() as closing:
        assert [read_all(closing.origin + "/a") for _ in range(3)] == [b"hi"] * 3
        assert closing.connections == 3


def test_a_proxy_is_used_and_its_password_hidden(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.serve("/a", BODY)
    for name in ("HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, server.origin.replace("://", "://me:s%40cret@"))

    assert read_all("http://data.example/a") == BODY
    assert server.requests[0].headers["proxy-authorization"] == "Basic bWU6c0BjcmV0"
    monkeypatch.setenv("DATA_STACK_WEB_TIMEOUT", "0.3")
    with pytest.raises(StorageUnavailableError) as caught:
        WebFiles("https://data.example").read("a", 0, 9)  # this proxy makes no tunnels
    assert "cret" not in str(caught.value)
    monkeypatch.delenv("DATA_STACK_WEB_TIMEOUT")
    monkeypatch.setenv("NO_PROXY", "localhost")
    assert read_all(server.origin + "/a") == BODY


# ---------------------------------------------------------------------- answers


SHAPE = {"id": (int, str), "files": [{"name": str, "size?": int, "ok?": bool}], "more?": object}


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"id": 1, "files": []}, None),
        (
            {"id": "1", "files": [{"name": "a", "size": None, "x": 1}], "more": [1], "other": 2},
            None,
        ),
        ([], "the answer is a list, expected an object"),
        (None, "the answer is null, expected an object"),
        ({"id": 1}, "the answer has no 'files'"),
        ({"id": None, "files": []}, "'id' of the answer is null, expected a text"),
        ({"id": True, "files": []}, "'id' of the answer is true or false, expected a text"),
        ({"id": 1, "files": {}}, "'files' of the answer is an object, expected a list"),
        (
            {"id": 1, "files": [{"name": "a"}, 7]},
            "entry 1 of 'files' of the answer is an integer, expected an object",
        ),
        (
            {"id": 1, "files": [{"name": 7}]},
            "'name' of entry 0 of 'files' of the answer is an integer, expected a text",
        ),
        (
            {"id": 1, "files": [{"name": "a", "size": True}]},
            "'size' of entry 0 .* is true or false, expected an integer",
        ),
        (
            {"id": 1, "files": [{"name": "a", "ok": 1}]},
            "'ok' of entry 0 .* is an integer, expected true or false",
        ),
    ],
)
def test_an_answer_of_another_shape_says_where(value: Any, problem: str | None) -> None:
    if problem is None:
        check_shape(value, SHAPE)
        return
    with pytest.raises(ValueError, match=problem):
        check_shape(value, SHAPE)


@pytest.mark.parametrize("value", [b"{}", b"[]", b'{"a":{}}'])
def test_an_answer_of_too_many_values_is_refused(server: ScriptedServer, value: bytes) -> None:
    n_values = (16 << 20) // (len(value) + 1)
    body = b"[" + b",".join([value] * n_values) + b"]"
    with pytest.raises(CatalogueError, match=r"values that they would take .* bytes of memory"):
        ask_json(server.serve("/a", body), {}, server="it", subject="that")


@pytest.mark.parametrize("body", [b"<html>", b"[" * 100_000, b"\xff\xfe", b"", b"9" * 10_000])
def test_what_is_no_json_is_an_error_of_ours(server: ScriptedServer, body: bytes) -> None:
    with pytest.raises(CatalogueError, match="it is not JSON"):
        ask_json(server.serve("/a", body), {}, server="it", subject="that")


# ---------------------------------------------------------------------- secrets in answers


@pytest.mark.parametrize("n_characters_before", [0, 40, 55])
def test_a_reason_that_repeats_a_token_is_shown_without_it(
    server: ScriptedServer, n_characters_before: int
) -> None:
    padding = "x" * n_characters_before
    raw = f"HTTP/1.1 503 {padding} token-canary\r\nConnection: close\r\n\r\n"
    url = server.serve("/a", raw=raw.encode())

    for options in (
        {"own_headers": {"Authorization": "Bearer token-canary"}},
        {"own_headers": {"x-amz-security-token": "token-canary"}},
    ):
        with pytest.raises(WebError) as caught:
            read_all(url, **options)
        assert "canar" not in str(caught.value)
        assert "503" in str(caught.value)


def test_signatures_are_not_logged(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    url = server.serve("/a", BODY)

    with caplog.at_level("DEBUG"):
        read_all(f"{url}?X-Amz-Signature=canary&X-Amz-Date=20260102")

    assert "X-Amz-Date=20260102" in caplog.text
    assert "canary" not in caplog.text
