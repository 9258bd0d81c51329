"""Requests to S3 by obstore, and when another client sends them."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from object_server import Answer, Request
from s3_server import ACCESS_KEY, SECRET_KEY, S3Server
from scripted_s3 import ScriptedS3, is_listing, refusal

from data_stack.exception import ConfigError, StorageError
from data_stack.io.storage_connectors.object_store import FsspecStorageConnector
from data_stack.io.storage_connectors.object_store.object_client import FileRange

#: How clients introduce themselves in their requests.
OBSTORE, S3FS = "object_store", "aiobotocore"


@pytest.fixture
def s3() -> Iterator[ScriptedS3]:
    with ScriptedS3() as server:
        yield server


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let nothing but a test say how to connect."""
    gc.collect()  # connectors of earlier tests would share their connections
    for name in os.environ:
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


def clients_of(server: ScriptedS3, method: str = "GET") -> set[str]:
    """Return which clients have sent requests for objects."""
    agents = [
        request.headers.get("user-agent", "")
        for request in server.requests
        if request.method == method and not is_listing(request)
    ]
    return {client for agent in agents for client in (OBSTORE, S3FS) if client in agent}


def read(server: ScriptedS3, name: str = "a", **options: Any) -> bytes:
    with server.store(**options).get_resource(name) as resource:
        return bytes(resource.read())


# ---------------------------------------------------------------------- which client


@pytest.mark.parametrize(
    ("options", "client"),
    [
        ({}, OBSTORE),
        ({"client": "obstore"}, OBSTORE),
        ({"client": "fsspec"}, S3FS),
        ({"requester_pays": True}, S3FS),
        ({"config_kwargs": {"s3": {"addressing_style": "path"}}}, S3FS),
    ],
    ids=str,
)
def test_obstore_sends_what_it_has_options_for(
    s3: ScriptedS3, options: dict[str, Any], client: str
) -> None:
    s3.put("f/a", b"content")

    assert read(s3, **options) == b"content"
    assert clients_of(s3) == {client}


def test_writing_and_deleting_are_requests_of_obstore(s3: ScriptedS3) -> None:
    store = s3.store()

    store.set_resource("a", b"content")
    store.delete_resource("a")

    assert clients_of(s3, "PUT") == clients_of(s3, "DELETE") == {OBSTORE}
    assert s3.objects == {}


def test_an_unknown_client_is_refused(s3: ScriptedS3) -> None:
    with pytest.raises(ConfigError, match="client must be 'obstore' or 'fsspec'"):
        s3.store(client="boto")
    with pytest.raises(ConfigError, match=r"'obstore' does not know the scheme memory://"):
        FsspecStorageConnector("memory://a", client="obstore")


@pytest.mark.parametrize("name", ["a b", "a+b", "a%20b", "a%2Fb", "ü/ö", "a&b=c", "a?b#c", "~a"])
def test_keys_with_signs_of_urls_are_read(s3: ScriptedS3, name: str) -> None:
    s3.put(f"f/{name}", b"content")

    with s3.store().open_key(name) as resource:
        assert resource.read() == b"content"

    assert clients_of(s3) == {OBSTORE}


@pytest.mark.parametrize("name", ["a//b", "a/./b", "a/"])
def test_keys_that_obstore_cannot_name_are_read_by_s3fs(s3: ScriptedS3, name: str) -> None:
    s3.put(f"f/{name}", b"content")
    store = s3.store()

    answers = store._files.read_ranges([FileRange(name, 0, 7)])

    assert answers == [b"content"]
    assert clients_of(s3) == {S3FS}


def test_a_bucket_in_another_region_is_left_to_fsspec(s3: ScriptedS3) -> None:
    s3.put("f/a", b"content")

    def refuse_obstore(request: Request) -> Answer | None:
        if OBSTORE in request.headers.get("user-agent", ""):
            return refusal(400, "AuthorizationHeaderMalformed", "expecting 'eu-1'")
        return None

    s3.rule = refuse_obstore
    store = s3.store()
    for _ in range(3):
        with store.get_resource("a") as resource:
            assert resource.read() == b"content"

    n_refused = sum(OBSTORE in request.headers["user-agent"] for request in s3.requests)
    assert n_refused == 1


# ---------------------------------------------------------------------- settings


def key_in(server: ScriptedS3) -> str:
    """Return the access key that signed the last request."""
    signature = server.requests[-1].headers["authorization"]
    return signature.partition("Credential=")[2].partition("/")[0]


def test_login_region_and_endpoint_come_from_the_environment(
    s3: ScriptedS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.put("f/a", b"content")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key-of-environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.url)

    with FsspecStorageConnector("s3://data/f").get_resource("a") as resource:
        assert resource.read() == b"content"

    headers = s3.requests[-1].headers
    assert clients_of(s3) == {OBSTORE}
    assert key_in(s3) == "key-of-environment"
    assert "/eu-1/s3/" in headers["authorization"]
    assert headers["x-amz-security-token"] == "token"


def test_arguments_take_precedence_over_the_environment(
    s3: ScriptedS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.put("f/a", b"content")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "other")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "other")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "other")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")

    assert read(s3) == b"content"
    assert key_in(s3) == "k"
    assert "x-amz-security-token" not in s3.requests[-1].headers


@pytest.mark.parametrize("by", ["argument", "environment"])
def test_a_profile_gives_login_region_and_endpoint(
    s3: ScriptedS3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, by: str
) -> None:
    s3.put("f/a", b"content")
    (tmp_path / "credentials").write_text(
        "[lab]\naws_access_key_id = key-of-lab\naws_secret_access_key = secret\n"
    )
    (tmp_path / "config").write_text(f"[profile lab]\nregion = eu-1\nendpoint_url = {s3.url}\n")
    options: dict[str, Any] = {"profile": "lab"}
    if by == "environment":
        monkeypatch.setenv("AWS_PROFILE", "lab")
        options = {}

    with FsspecStorageConnector("s3://data/f", **options).get_resource("a") as resource:
        assert resource.read() == b"content"

    assert clients_of(s3) == {OBSTORE}
    assert key_in(s3) == "key-of-lab"
    assert "/eu-1/s3/" in s3.requests[-1].headers["authorization"]


def test_anonymous_requests_have_no_signature(s3: ScriptedS3) -> None:
    s3.put("f/a", b"content")
    store = FsspecStorageConnector("s3://data/f", endpoint_url=s3.url, anon=True)

    with store.get_resource("a") as resource:
        assert resource.read() == b"content"

    assert clients_of(s3) == {OBSTORE}
    assert not any("authorization" in request.headers for request in s3.requests)


# ---------------------------------------------------------------------- answers


def test_a_server_that_hangs_is_given_up_in_time(s3: ScriptedS3) -> None:
    import threading

    ended = threading.Event()
    s3.rule = lambda request: (ended.wait(120), None)[1]
    store = FsspecStorageConnector(
        "s3://data/f", endpoint_url=s3.url, anon=True, timeout_seconds=0.5
    )
    try:
        with pytest.raises(StorageError, match=r"within 0\.5 s"):
            store.get_resource("a")
    finally:
        ended.set()


# ---------------------------------------------------------------------- processes


def _read_in_child(store: FsspecStorageConnector, answers: Any) -> None:
    with store.get_resource("a") as resource:
        answers.put(resource.read())


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("was_used", [False, True], ids=["before use", "after use"])
def test_children_read_with_clients_of_their_own(
    s3: ScriptedS3, method: str, was_used: bool
) -> None:
    s3.put("f/a", b"content")
    store = s3.store()
    if was_used:
        assert read(s3) == b"content"
        assert store.has_resource("a")
    context: Any = multiprocessing.get_context(method)
    answers = context.SimpleQueue()

    child = context.Process(target=_read_in_child, args=(store, answers))
    child.start()
    child.join(120)

    assert child.exitcode == 0
    assert answers.get() == b"content"


_PROGRAM = """
import sys
from data_stack.io.storage_connectors.object_store import FsspecStorageConnector
from data_stack.io.storage_connectors.object_store.object_client import FileRange
store = FsspecStorageConnector(sys.argv[1], endpoint_url=sys.argv[2],
                               client_kwargs={"region_name": "us-east-1"})
store.set_resource(sys.argv[3], b"content" * 100_000)
print(len(store.get_resource(sys.argv[3]).read()))
"""


def test_small_programs_exit_in_order(s3_server: S3Server) -> None:
    place = f"s3://{s3_server.new_bucket()}/folder"
    login = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}

    for _ in range(4):
        words = [sys.executable, "-c", _PROGRAM, place, s3_server.endpoint_url]
        words.append(secrets.token_hex(4))
        run = subprocess.run(
            words, capture_output=True, timeout=100, env={**os.environ, **login}, check=False
        )
        assert (run.returncode, run.stdout, run.stderr) == (0, b"700000\n", b"")


def test_a_pickled_connector_keeps_its_client(s3: ScriptedS3) -> None:
    s3.put("f/a", b"content")
    store = pickle.loads(pickle.dumps(s3.store(client="fsspec")))

    with store.get_resource("a") as resource:
        resource.read()

    assert clients_of(s3) == {S3FS}
