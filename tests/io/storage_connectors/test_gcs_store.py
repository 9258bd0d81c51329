"""Stores in Google Cloud Storage, by obstore and by gcsfs, with a small server of both APIs."""

from __future__ import annotations

import multiprocessing
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gcs_server import GCSServer, key_of, make_private_key, refusal
from object_server import Answer, Request
from process_harness import run_python
from web_server import ScriptedServer

import data_stack
from data_stack.exception import (
    ResourceChangedError,
    ResourceNotFoundError,
    StorageError,
    StorageUnavailableError,
)
from data_stack.io.storage_connectors import FsspecStorageConnector, StorageConnector
from data_stack.testing import StorageConnectorContract
from data_stack.testing.storage_connector import content

DATA = random.Random(0).randbytes(600_000)
KEYS = [
    "with space",
    "a+b",
    "100%",
    "%41",
    "größe",
    "日本",
    "q?x=1&y=2",
    "semi;colon",
    "a/b/c.gz",
    "a//b",
]
CLIENTS = ["fsspec", "obstore"]


@pytest.fixture(scope="module")
def server() -> Iterator[GCSServer]:
    with GCSServer() as server:
        yield server


@pytest.fixture(scope="module")
def key_file(server: GCSServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the service account.

    All tests have the same one: the environment of the process that the contract starts is that of
    its first test.
    """
    path = tmp_path_factory.mktemp("gcs") / "key.json"
    server.write_key_file(path)
    return path


@pytest.fixture
def gcs(server: GCSServer, key_file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GCSServer]:
    """The server, with nothing in it, without faults; the environment has the login."""
    server.reset()
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", os.fspath(key_file))
    yield server
    server.rule = lambda request: None


# gcsfs sends parts as bytes, and aiohttp would rather have them as files.
@pytest.mark.filterwarnings("ignore:Sending a large body directly:ResourceWarning")
@pytest.mark.parametrize("client", CLIENTS)
class TestGoogleCloudStorage(StorageConnectorContract):
    frees_leases_of_killed_processes = True

    @pytest.fixture
    def connector(self, gcs: GCSServer, client: str) -> StorageConnector:
        return gcs.store(client=client, token=None, timeout_seconds=30.0)


# ---------------------------------------------------------------------- logins


@pytest.mark.parametrize("client", CLIENTS)
def test_another_key_is_refused_and_not_shown(
    gcs: GCSServer, client: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gcs.write_key_file(tmp_path / "key.json", make_private_key())
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", os.fspath(tmp_path / "key.json"))
    store = gcs.store(client=client, token=None, timeout_seconds=2.0)

    for ask in (store.has_resource, store.get_resource, store.stat):
        with pytest.raises(StorageError) as caught:
            ask("a")
        assert "PRIVATE KEY" not in str(caught.value)
        assert "canary" not in str(caught.value)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_public_bucket_is_read_and_written_without_a_login(gcs: GCSServer, client: str) -> None:
    gcs.is_public = True
    store = gcs.store(client=client)

    store.set_resource("a", DATA)

    assert content(store, "a") == DATA
    assert [request for request in gcs.requests if "authorization" in request.headers] == []


# ---------------------------------------------------------------------- keys and listings


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("key", KEYS)
def test_objects_of_other_tools_are_read_under_their_keys(
    gcs: GCSServer, client: str, key: str
) -> None:
    gcs.put(f"f/{key}", DATA)
    store = gcs.store(client=client, token=None)

    with store.open_key(key) as resource:
        assert resource.read() == DATA


@pytest.mark.parametrize("client", CLIENTS)
def test_listings_of_many_pages_are_put_together(gcs: GCSServer, client: str) -> None:
    names = [f"n{number}" for number in range(7)]
    for name in names:
        gcs.put(f"f/{name}", b"x")
    gcs.page_size = 3

    assert gcs.store(client=client, token=None).list_resources() == names


@pytest.mark.parametrize("client", CLIENTS)
def test_marks_of_folders_are_no_keys(gcs: GCSServer, client: str) -> None:
    for name in ("folder/", "folder/x", "a//b"):
        gcs.put(f"f/{name}", b"x")

    assert gcs.store(client=client, token=None).list_keys() == ["a//b", "folder/x"]


# ---------------------------------------------------------------------- refusals and faults


@pytest.mark.parametrize("client", CLIENTS)
def test_a_missing_bucket_is_an_error_or_has_nothing(gcs: GCSServer, client: str) -> None:
    store = gcs.store("misspelt/f", client=client, token=None)

    with pytest.raises((StorageError, ResourceNotFoundError)):
        store.get_resource("a")
    with pytest.raises(StorageError):
        store.set_resource("a", b"a")


@pytest.mark.parametrize("client", CLIENTS)
def test_a_refusal_is_an_error_and_no_missing_resource(gcs: GCSServer, client: str) -> None:
    gcs.rule = lambda request: refusal(request, 403, "AccessDenied", "Access denied.")
    store = gcs.store(client=client, token="anon")

    for ask in (store.has_resource, store.get_resource, store.stat):
        with pytest.raises(StorageError) as caught:
            ask("a")
        assert not isinstance(caught.value, ResourceNotFoundError)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_asked_again(gcs: GCSServer, client: str, status: int) -> None:
    gcs.is_public = True
    gcs.put("f/plain", DATA)
    n_refusals = 0

    def rule(request: Request) -> Answer | None:
        nonlocal n_refusals
        if n_refusals == 2:
            return None
        n_refusals += 1
        return refusal(request, status, "SlowDown", "Reduce your rate of requests.")

    gcs.rule = rule

    assert content(gcs.store(client=client, timeout_seconds=60.0), "plain") == DATA
    assert n_refusals == 2


@pytest.mark.parametrize("client", CLIENTS)
def test_a_body_that_is_cut_short_is_requested_again(gcs: GCSServer, client: str) -> None:
    gcs.is_public = True
    gcs.put("f/plain", DATA)
    cut = gcs.cut_first(
        lambda request: (
            request.method == "GET" and "range" in request.headers and key_of(request) == "f/plain"
        )
    )

    assert content(gcs.store(client=client, timeout_seconds=60.0), "plain") == DATA
    assert len(cut) == 1


@pytest.mark.parametrize("client", CLIENTS)
def test_a_server_that_hangs_is_an_error_in_time(gcs: GCSServer, client: str) -> None:
    store = gcs.store(client=client, timeout_seconds=1.0)

    with gcs.hanging(), pytest.raises(StorageUnavailableError):
        store.get_resource("a")


# ---------------------------------------------------------------------- races


def _try_to_acquire(store: FsspecStorageConnector, barrier: Any, results: Any) -> None:
    """Try to get a lease at the same time as other processes, and keep it until all have tried."""
    barrier.wait(120)
    with store.lease("a") as lease:
        results.put(lease.acquire())
        barrier.wait(120)


@pytest.mark.parametrize("client", CLIENTS)
def test_of_processes_that_want_a_lease_one_gets_it(gcs: GCSServer, client: str) -> None:
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(3)
    results = context.Queue()
    store = gcs.store(client=client, token=None, timeout_seconds=30.0)
    processes = [
        context.Process(target=_try_to_acquire, args=(store, barrier, results)) for _ in range(3)
    ]

    for process in processes:
        process.start()
    acquired = [results.get(timeout=250) for _ in processes]
    for process in processes:
        process.join(120)

    assert sorted(acquired) == [False, False, True]


# ---------------------------------------------------------------------- versions and redirects


@pytest.mark.parametrize("client", CLIENTS)
def test_an_object_that_changes_while_read_is_an_error(gcs: GCSServer, client: str) -> None:
    gcs.is_public = True
    gcs.put("f/plain", DATA * 5)
    with gcs.store(client=client).get_resource("plain") as resource:
        assert resource.read_at(0, 10) == DATA[:10]
        gcs.put("f/plain", bytes(len(DATA) * 5))

        with pytest.raises(ResourceChangedError):
            resource.read_at(2_500_000, 10)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_to_another_host_is_not_followed(
    gcs: GCSServer, client: str, status: int
) -> None:
    gcs.put("f/plain", DATA)
    with ScriptedServer(host="localhost") as other:
        target = other.serve("/elsewhere", DATA, ranges=True)

        def rule(request: Request) -> Answer | None:
            if request.path == "/token":
                return None
            return Answer(status, headers={"Location": target})

        gcs.rule = rule
        store = gcs.store(client=client, token=None, timeout_seconds=60.0)

        for ask in (store.get_resource, store.has_resource, store.delete_resource):
            with pytest.raises(StorageError, match="redirects") as caught:
                ask("plain")
            assert not isinstance(caught.value, StorageUnavailableError)
        with pytest.raises(StorageError):
            store.set_resource("a", DATA)

        assert other.requests == []


_LOAD_AND_STORE = """
import data_stack, os, sys
from data_stack.io.storage_connectors import FsspecStorageConnector
options = f"endpointUrl={sys.argv[1]}&anonymous=true&client={sys.argv[2]}&timeoutSeconds=20"
print(data_stack.load(f"gs://data/f/plain.csv?{options}")[0])
store = FsspecStorageConnector.from_url(f"gs://data/f?{options}")
store.set_resource("stored", b"12")
print(store.get_resource("stored").read())
"""


@pytest.mark.parametrize("client", CLIENTS)
def test_a_server_without_grpc_is_used(gcs: GCSServer, client: str) -> None:
    gcs.is_public = True
    gcs.put("f/plain.csv", b"a,b\n1,2\n")

    output, _ = run_python(
        "-c", _LOAD_AND_STORE, gcs.url, client, GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT="true"
    )

    assert output.splitlines() == ["{'a': 1, 'b': 2}", "b'12'"]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_file_is_loaded_without_the_right_to_list(gcs: GCSServer, client: str) -> None:
    gcs.is_public = True
    gcs.put("f/plain.csv", b"a,b\n1,2\n")

    def rule(request: Request) -> Answer | None:
        if key_of(request) in gcs.objects:
            return None
        return refusal(request, 403, "AccessDenied", "No right to list")

    gcs.rule = rule

    options = f"endpointUrl={gcs.url}&anonymous=true&client={client}"
    table: Any = data_stack.load(f"gs://data/f/plain.csv?{options}")

    assert table[0] == {"a": 1, "b": 2}
