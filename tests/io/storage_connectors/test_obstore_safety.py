"""Where requests of obstore may go, and how they end: redirects, proxies, bad endpoints, Ctrl-C."""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import object_server
import pytest
from object_server import Request
from process_harness import run_python
from scripted_s3 import ScriptedS3, refusal
from web_server import Answer, ScriptedServer, Seen, WebServer

from data_stack.exception import ResourceChangedError, StorageError, StorageUnavailableError
from data_stack.io.storage_connectors.object_store import FsspecStorageConnector
from data_stack.testing.storage_connector import content

DATA = os.urandom(300_000)
#: All credentials that a request may hold.
LOGIN = {"key": "key-canary", "secret": "secret-canary", "token": "token-canary"}


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An environment without variables and files of AWS."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.fspath(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.fspath(tmp_path / "credentials"))


@pytest.fixture
def s3() -> Iterator[ScriptedS3]:
    """A server with one object."""
    with ScriptedS3() as server:
        server.put("f/plain", DATA)
        yield server


class Endpoint(WebServer):
    """An endpoint of S3 that gives each request the same answer."""

    def __init__(self, answer: Answer, context: ssl.SSLContext | None = None) -> None:
        self._answer = answer
        self.n_requests = 0
        super().__init__(context)

    def answer(self, seen: Seen) -> Answer:
        self.n_requests += 1
        return self._answer


def store_at(url: str, **options: Any) -> FsspecStorageConnector:
    """A store that only obstore reads."""
    arguments: dict[str, Any] = {
        "timeout_seconds": 30.0,
        "client_kwargs": {"region_name": "us-east-1"},
        **LOGIN,
        **options,
    }
    return FsspecStorageConnector("s3://data/f", endpoint_url=url, client="obstore", **arguments)


# ---------------------------------------------------------------------- redirects


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_to_another_host_is_not_followed(status: int) -> None:
    with ScriptedServer(host="127.0.0.1") as other:
        other.serve("/data/f/plain", DATA, ranges=True, headers={"ETag": '"1"'})
        target = other.origin + "/data/f/plain"
        with Endpoint(Answer(status=status, headers={"Location": target})) as endpoint:
            with pytest.raises(StorageError, match="redirects to another host") as raised:
                store_at(endpoint.origin).get_resource("plain")
            n_requests = endpoint.n_requests

    assert not isinstance(raised.value, StorageUnavailableError)
    assert other.requests == []
    assert n_requests <= 2  # it is not tried again, but another object is looked for
    assert "canary" not in str(raised.value)


def test_writing_is_not_redirected_to_another_host() -> None:
    with ScriptedServer(host="127.0.0.1") as other:
        redirect = Answer(status=307, headers={"Location": other.origin + "/data/f/plain"})
        with Endpoint(redirect) as endpoint, pytest.raises(StorageError):
            store_at(endpoint.origin).set_resource("plain", DATA)

    assert other.requests == []


def test_a_redirect_to_another_port_does_not_get_the_signature(s3: ScriptedS3) -> None:
    with ScriptedS3() as other:
        other.put("f/plain", DATA)
        location = {"Location": f"{other.url}/data/f/plain"}
        s3.rule = lambda request: object_server.Answer(307, headers=location)

        # obstore cannot be kept from following it: its proxies are chosen by host.
        assert store_at(s3.url)._files.read("plain", 10) == DATA[:10]

        (redirected,) = other.requests
        assert "authorization" not in redirected.headers
        assert "secret-canary" not in str(redirected)


def test_a_redirect_does_not_leave_encryption(
    tls: ssl.SSLContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", os.fspath(tmp_path / "ca.pem"))
    with ScriptedServer() as plain:
        plain.serve("/data/f/plain", DATA, ranges=True, headers={"ETag": '"1"'})
        redirect = Answer(status=307, headers={"Location": plain.origin + "/data/f/plain"})
        with Endpoint(redirect, tls) as endpoint:
            with pytest.raises(StorageError, match="not encrypted"):
                store_at(endpoint.origin).get_resource("plain")

    assert plain.requests == []


def test_an_endpoint_that_is_away_is_no_redirect() -> None:
    with pytest.raises(StorageUnavailableError, match="refused"):
        store_at("http://127.0.0.1:1", timeout_seconds=1.0).get_resource("plain")


# ---------------------------------------------------------------------- proxies


class Proxy(WebServer):
    """Passes requests for ``http://bucket.example`` on to a server.

    Attributes:
        agents: which clients asked.
    """

    def __init__(self, s3: ScriptedS3) -> None:
        self._s3 = s3
        self.agents = set[str]()
        super().__init__()

    def answer(self, seen: Seen) -> Answer:
        self.agents.add(seen.headers["user-agent"])
        assert seen.path.startswith("http://bucket.example/data/")
        key = seen.path.removeprefix("http://bucket.example/data/")
        stored = self._s3.objects.get(key)
        if stored is None:
            return Answer(b"<Error><Code>NoSuchKey</Code></Error>", status=404)
        headers = {"ETag": '"1"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        return Answer(stored.data, ranges=True, headers=headers)


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY"])
def test_a_store_behind_a_proxy_is_read_by_fsspec(
    s3: ScriptedS3, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with Proxy(s3) as proxy:
        monkeypatch.setenv(name, proxy.origin)

        assert content(store_at("http://bucket.example"), "plain") == DATA

        assert proxy.agents
        assert all("aiobotocore" in agent for agent in proxy.agents)


def test_a_server_without_a_proxy_is_read_by_obstore(
    s3: ScriptedS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")

    assert content(store_at(s3.url), "plain") == DATA

    agents = {request.headers["user-agent"] for request in s3.requests}
    assert all(agent.startswith("object_store") for agent in agents)


# ---------------------------------------------------------------------- bad endpoints


def test_a_server_that_accepts_and_says_nothing_is_given_up() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"

    with listener, pytest.raises(StorageUnavailableError, match=r"within 0\.5 s"):
        store_at(url, timeout_seconds=0.5).get_resource("plain")


@pytest.mark.parametrize(
    "answer",
    [
        Answer(drip_header=True),
        Answer(DATA, status=206, hang_at=1000),
        Answer(DATA, status=206, seconds_per_byte=0.1),
    ],
    ids=["in the header", "in the body", "byte by byte"],
)
def test_a_server_that_hangs_in_an_answer_is_given_up(answer: Answer) -> None:
    answer.headers.update(
        {
            "Content-Range": f"bytes 0-{len(DATA) - 1}/{len(DATA)}",
            "ETag": '"1"',
            "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT",
        }
    )

    with Endpoint(answer) as endpoint:
        store = store_at(endpoint.origin, timeout_seconds=0.5)
        with pytest.raises(StorageUnavailableError, match=r"within 0\.5 s"):
            store.get_resource("plain")


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_that_names_no_pause_gets_one(s3: ScriptedS3, status: int) -> None:
    asked_at = list[float]()

    def rule(request: Request) -> object_server.Answer | None:
        asked_at.append(time.monotonic())
        return refusal(status, "SlowDown") if len(asked_at) <= 2 else None

    s3.rule = rule

    assert store_at(s3.url, timeout_seconds=60.0)._files.read("plain", 10) == DATA[:10]

    # Half of one second, and half of two: the pauses are random.
    assert asked_at[1] - asked_at[0] >= 0.5
    assert asked_at[2] - asked_at[1] >= 1.0


def test_a_server_that_is_slowed_down_is_asked_again(s3: ScriptedS3) -> None:
    n_refused = 0

    def rule(request: Request) -> object_server.Answer | None:
        nonlocal n_refused
        n_refused += 1
        if n_refused > 2:
            return None
        answer = refusal(503, "SlowDown", "Reduce your request rate.")
        answer.headers["Retry-After"] = "1"
        return answer

    s3.rule = rule

    assert content(store_at(s3.url, timeout_seconds=60.0), "plain") == DATA
    assert n_refused > 2


# ---------------------------------------------------------------------- versions


def test_an_object_that_changes_while_read_is_an_error(s3: ScriptedS3) -> None:
    s3.put("f/large", DATA * 10)
    with store_at(s3.url).get_resource("large") as resource:
        assert resource.read_at(0, 10) == DATA[:10]
        s3.put("f/large", bytes(len(DATA) * 10))

        with pytest.raises(ResourceChangedError):
            resource.read_at(2_000_000, 10)


# ---------------------------------------------------------------------- Ctrl-C


def test_ctrl_c_ends_many_ranges_under_way() -> None:
    program = """
import os, signal, socket, threading
from data_stack.io.storage_connectors.object_store import FsspecStorageConnector
from data_stack.io.storage_connectors.object_store.object_client import FileRange
listener = socket.create_server(("127.0.0.1", 0), backlog=64)
url = f"http://127.0.0.1:{listener.getsockname()[1]}"
store = FsspecStorageConnector("s3://data/f", endpoint_url=url, anon=True, client="obstore",
                               timeout_seconds=3600.0)
connections = []
def interrupt():
    for _ in range(16):
        connections.append(listener.accept()[0])
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
try:
    store._files.read_ranges([FileRange("a", number, number + 9) for number in range(16)])
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""

    output, errors = run_python("-c", program)  # it may take a tenth of the limit of a request

    assert output == "interrupted\n"
    assert errors == ""
