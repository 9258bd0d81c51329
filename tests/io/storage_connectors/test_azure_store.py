"""Stores in Azure, by obstore and by adlfs, with a small server of Azure Blob Storage."""

from __future__ import annotations

import base64
import gc
import logging
import os
import random
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from azure_server import ACCOUNT, KEY, AzureServer, key_of, refusal
from object_server import Answer, Request

import data_stack
from data_stack.exception import (
    ConfigError,
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
    "h#1",
    "a/b/c.gz",
]
CLIENTS = ["fsspec", "obstore"]


@pytest.fixture(scope="module")
def server() -> Iterator[AzureServer]:
    with AzureServer() as server:
        yield server


@pytest.fixture
def azure(server: AzureServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[AzureServer]:
    """The server, with nothing in it, without faults; nothing but a test says how to log in."""
    gc.collect()  # connectors of earlier tests would share their logins
    server.reset()
    for name in os.environ:
        if name.startswith("AZURE_"):
            monkeypatch.delenv(name)
    yield server
    server.rule = lambda request: None


# adlfs sends parts as bytes, and aiohttp would rather have them as files.
@pytest.mark.filterwarnings("ignore:Sending a large body directly:ResourceWarning")
@pytest.mark.parametrize("client", CLIENTS)
class TestAzure(StorageConnectorContract):
    frees_leases_of_killed_processes = True

    @pytest.fixture
    def connector(self, azure: AzureServer, client: str) -> StorageConnector:
        return azure.store(client=client, timeout_seconds=30.0)


# ---------------------------------------------------------------------- logins


def _wrong_key() -> str:
    return base64.b64encode(b"another-key-canary").decode()


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    "login",
    [
        {"account_key": _wrong_key()},
        {"sas_token": "sv=2022-11-02&ss=b&srt=sco&sp=r&se=2099-01-01T00:00:00Z&sig=sig-canary"},
        {"anon": True},
    ],
    ids=["key", "sas", "anonymous"],
)
def test_a_wrong_login_is_refused_and_not_shown(
    azure: AzureServer, client: str, login: dict[str, Any]
) -> None:
    store = azure.store(client=client, **login)

    for ask in (store.has_resource, store.get_resource, store.stat, partial(set_to, store)):
        with pytest.raises(StorageError) as caught:
            ask("a")
        assert not isinstance(caught.value, (ResourceNotFoundError, StorageUnavailableError))
        assert "canary" not in str(caught.value)
        assert _wrong_key() not in str(caught.value)
    with pytest.raises(StorageError):
        store.list_resources()
    assert "canary" not in repr(store)


def set_to(store: FsspecStorageConnector, identifier: str) -> None:
    store.set_resource(identifier, b"data")


@pytest.mark.parametrize("client", CLIENTS)
def test_a_token_logs_in(azure: AzureServer, client: str) -> None:
    store = azure.store(client=client, sas_token=f"?{azure.sas_token()}")

    store.set_resource("a", DATA)

    assert content(store, "a") == DATA
    assert store.list_resources() == ["a"]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_token_without_the_right_to_write_reads(azure: AzureServer, client: str) -> None:
    azure.put("f/plain", DATA)
    store = azure.store(client=client, sas_token=azure.sas_token("rl"))

    assert content(store, "plain") == DATA
    with pytest.raises(StorageError, match="AuthorizationPermissionMismatch"):
        store.set_resource("a", b"data")


@pytest.mark.parametrize("client", CLIENTS)
def test_a_public_container_is_read_without_a_login(
    azure: AzureServer, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", _wrong_key())
    azure.is_public = True
    azure.put("f/plain", DATA)

    store = azure.store(client=client, anon=True)

    assert content(store, "plain") == DATA
    assert [request for request in azure.requests if "authorization" in request.headers] == []


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    "variables",
    [
        {"AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT, "AZURE_STORAGE_ACCOUNT_KEY": KEY},
        {"AZURE_STORAGE_CONNECTION_STRING": f"AccountName={ACCOUNT};AccountKey={KEY}"},
    ],
    ids=["key", "connection string"],
)
def test_the_environment_logs_in(
    azure: AzureServer, client: str, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    azure.put("f/plain", DATA)

    store = FsspecStorageConnector.from_url(
        f"az://data/f?endpointUrl={azure.url}/{ACCOUNT}&client={client}"
    )

    assert content(store, "plain") == DATA


@pytest.mark.parametrize("client", CLIENTS)
def test_a_corrected_environment_logs_in(
    azure: AzureServer, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    azure.put("f/plain", DATA)
    place = f"az://data/f?endpointUrl={azure.url}/{ACCOUNT}&account={ACCOUNT}&client={client}"
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", _wrong_key())
    refused_store = FsspecStorageConnector.from_url(place)
    with pytest.raises(StorageError, match="AuthenticationFailed"):
        refused_store.list_resources()

    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)

    assert content(FsspecStorageConnector.from_url(place), "plain") == DATA
    assert FsspecStorageConnector.from_url(place).list_resources() == ["plain"]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    "text",
    ["canary", f"AccountName={ACCOUNT};AccountKey=canary!", "AccountKey=canary", "=;=canary"],
)
def test_a_malformed_connection_string_is_an_error_and_not_shown(
    azure: AzureServer, client: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", text)
    azure.is_public = True
    store = FsspecStorageConnector.from_url(
        f"az://data/f?endpointUrl={azure.url}/{ACCOUNT}&client={client}"
    )

    for ask in (store.get_resource, store.has_resource, store.stat):
        with pytest.raises(ConfigError) as caught:
            ask("plain")
        assert "canary" not in f"{caught.value!r} {store!r}"

    assert azure.requests == []


# ---------------------------------------------------------------------- keys and listings


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("key", KEYS)
def test_objects_of_other_tools_are_read_under_their_keys(
    azure: AzureServer, client: str, key: str
) -> None:
    azure.put(f"f/{key}", DATA)
    store = azure.store(client=client)

    assert store.list_keys() == [key]
    with store.open_key(key) as resource:
        assert resource.read() == DATA


def test_both_clients_describe_a_blob_alike(azure: AzureServer) -> None:
    for name, data in (("plain", DATA), ("empty", b"")):
        azure.put(f"f/{name}", data)
    azure.put("f/folder", b"", hdi_isfolder="true")
    by_obstore = azure.store(client="obstore")
    by_fsspec = azure.store(client="fsspec")

    for name in ("plain", "empty", "folder", "missing"):
        assert by_obstore._files.info(name) == by_fsspec._files.info(name)
    assert by_obstore.stat("plain") == by_fsspec.stat("plain")
    listed = {file.path: file for file in by_fsspec._files.files("")}
    assert listed["plain"] == by_obstore._files.info("plain")


@pytest.mark.parametrize("client", CLIENTS)
def test_listings_of_many_pages_are_put_together(azure: AzureServer, client: str) -> None:
    names = [f"n{number}" for number in range(7)]
    for name in names:
        azure.put(f"f/{name}", b"x")
    azure.page_size = 3

    assert azure.store(client=client).list_resources() == names


def test_thousands_of_blobs_are_listed_by_few_requests(azure: AzureServer) -> None:
    n_blobs = 6000
    azure.page_size = 2000
    for number in range(n_blobs):
        azure.put(f"f/{number:04}", b"")

    names = azure.store(timeout_seconds=30.0).list_keys()

    assert names == [f"{number:04}" for number in range(n_blobs)]
    n_pages_of_blobs = 3
    n_pages_of_pointers = 1
    assert len(azure.requests) == n_pages_of_blobs + n_pages_of_pointers


@pytest.mark.parametrize("client", CLIENTS)
def test_folders_of_a_hierarchical_namespace_are_no_resources(
    azure: AzureServer, client: str
) -> None:
    azure.put("f/a", b"", hdi_isfolder="true")
    azure.put("f/a/plain", DATA)
    store = azure.store(client=client)

    assert store.list_keys() == ["a/plain"]
    assert not store.has_resource("a")
    with pytest.raises(ResourceNotFoundError):
        store.get_resource("a")
    assert content(store, "a/plain") == DATA


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    "answer",
    [
        Answer(200, b"<html>Log in</html>", {"Content-Type": "text/html"}),
        Answer(200, b"<html>Log in</html>", {"Content-Type": "application/xml"}),
        Answer(200, b"", {"Content-Type": "application/xml"}),
    ],
    ids=["page", "xml", "empty"],
)
def test_the_page_of_a_gateway_is_no_empty_listing(
    azure: AzureServer, client: str, answer: Answer
) -> None:
    azure.rule = lambda request: answer if "comp" in request.query else None

    with pytest.raises(StorageError):
        azure.store(client=client).list_resources()


@pytest.mark.parametrize("client", CLIENTS)
def test_another_range_than_the_requested_one_is_an_error(azure: AzureServer, client: str) -> None:
    azure.put("f/plain", DATA)

    def send_another_range(request: Request) -> Answer | None:
        if request.method != "GET" or key_of(request) != "f/plain":
            return None
        answer = azure.right_answer(request)
        answer.headers["Content-Range"] = f"bytes 7-{6 + len(answer.body)}/{len(DATA)}"
        return answer

    azure.rule = send_another_range

    with pytest.raises(StorageError), azure.store(client=client).get_resource("plain") as resource:
        resource.read()


# ---------------------------------------------------------------------- refusals and faults


@pytest.mark.parametrize("client", CLIENTS)
def test_a_file_is_loaded_without_the_right_to_list(
    azure: AzureServer, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", azure.sas_token("r"))
    azure.put("f/plain.csv", b"a,b\n1,2\n")
    options = f"endpointUrl={azure.url}/{ACCOUNT}&account={ACCOUNT}&client={client}"

    table: Any = data_stack.load(f"az://data/f/plain.csv?{options}")

    assert table[0] == {"a": 1, "b": 2}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_refusal_advises_no_right_of_another_store(azure: AzureServer, client: str) -> None:
    azure.rule = lambda request: refusal(403, "AuthorizationFailure", "No")

    with pytest.raises(StorageError) as caught:
        azure.store(client=client).get_resource("a")

    assert "s3:" not in str(caught.value)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_missing_container_is_an_error(azure: AzureServer, client: str) -> None:
    store = azure.store("misspelt/f", client=client)

    for ask in (store.has_resource, store.get_resource, store.stat, partial(set_to, store)):
        with pytest.raises(StorageError) as caught:
            ask("a")
        assert not isinstance(caught.value, ResourceNotFoundError)
    with pytest.raises(StorageError):
        store.list_resources()


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    ("status", "code"),
    [
        (403, "AuthorizationFailure"),
        (409, "PublicAccessNotPermitted"),
        (409, "AccountBeingCreated"),
        (400, "InvalidHeaderValue"),
    ],
)
def test_a_refusal_is_an_error_and_no_missing_resource(
    azure: AzureServer, client: str, status: int, code: str
) -> None:
    azure.rule = lambda request: refusal(status, code, "It is refused.")
    store = azure.store(client=client)

    for ask in (store.has_resource, store.get_resource, store.stat, partial(set_to, store)):
        with pytest.raises(StorageError) as caught:
            ask("a")
        assert not isinstance(caught.value, ResourceNotFoundError)
    with pytest.raises(StorageError, match=code):
        store._files.create("a", b"")


@pytest.mark.parametrize("client", CLIENTS)
def test_a_busy_server_is_asked_again(azure: AzureServer, client: str) -> None:
    azure.put("f/plain", DATA)
    n_refusals = 0

    def rule(request: Request) -> Answer | None:
        nonlocal n_refusals
        if n_refusals == 2:
            return None
        n_refusals += 1
        answer = refusal(503, "ServerBusy", "The server is busy.")
        answer.headers["Retry-After"] = "1"
        return answer

    azure.rule = rule

    assert content(azure.store(client=client, timeout_seconds=60.0), "plain") == DATA
    assert n_refusals == 2


@pytest.mark.parametrize("client", CLIENTS)
def test_a_body_that_is_cut_short_is_requested_again(azure: AzureServer, client: str) -> None:
    azure.put("f/plain", DATA)
    cut = azure.cut_first(lambda request: request.method == "GET" and key_of(request) == "f/plain")

    assert content(azure.store(client=client, timeout_seconds=60.0), "plain") == DATA
    assert len(cut) == 1


@pytest.mark.parametrize("client", CLIENTS)
def test_a_blob_that_changes_while_read_is_an_error(azure: AzureServer, client: str) -> None:
    azure.put("f/plain", DATA)

    with azure.store(client=client).get_resource("plain") as resource:
        assert resource.read_at(0, 100) == DATA[:100]
        azure.put("f/plain", DATA[::-1])
        with pytest.raises(ResourceChangedError):
            resource.read_at(500_000, 100)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_redirect_to_another_host_is_not_followed(azure: AzureServer, client: str) -> None:
    with AzureServer() as other:
        other.put("f/plain", b"of another host")
        place = other.url.replace("127.0.0.1", "localhost")
        azure.rule = lambda request: Answer(307, b"", {"Location": f"{place}{request.path}"})
        store = azure.store(client=client, sas_token=azure.sas_token())

        with pytest.raises(StorageError):
            store.get_resource("plain")

        assert other.requests == []


@pytest.mark.parametrize("client", CLIENTS)
def test_nothing_logged_holds_a_key_or_token(
    azure: AzureServer, client: str, caplog: pytest.LogCaptureFixture
) -> None:
    sas_token = azure.sas_token()
    signature = sas_token.partition("sig=")[2]
    with caplog.at_level(logging.DEBUG):
        for login in ({"account_key": KEY}, {"sas_token": sas_token}):
            store = azure.store(client=client, **login)
            store.set_resource("a", DATA)
            assert content(store, "a") == DATA
            store.list_resources()

    assert KEY not in caplog.text
    assert signature not in caplog.text


@pytest.mark.parametrize("client", CLIENTS)
def test_a_server_that_hangs_is_an_error_in_time(azure: AzureServer, client: str) -> None:
    store = azure.store(client=client, timeout_seconds=1.0)

    with azure.hanging(), pytest.raises(StorageUnavailableError):
        store.get_resource("a")
