"""What the engine does whatever the scheme: what is fetched, kept, verified, told, and how many at once."""

from __future__ import annotations

import hashlib
import threading
import time
from typing import Any

import pytest
from plain_connector import MinimalConnector

from data_stack.exception import ConfigError, MalformedIdentifierError, RetrievalError, StorageError
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.retriever import Fetch, RetrievedResource, Transfer, register_scheme, retrieve
from data_stack.io.storage_connectors import FileStorageConnector, InMemoryStorageConnector, StorageConnector

BODY = b"the right bytes"
SHA256 = hashlib.sha256(BODY).hexdigest()
MD5 = hashlib.md5(BODY).hexdigest()


class Source:
    """A source that a plugin might bring, and what it was asked for."""

    def __init__(self, body: bytes = BODY) -> None:
        self.asked: list[str] = []
        self._body = body

    def __call__(self, source: str, transfer: Transfer) -> None:
        self.asked.append(source)
        transfer.expected_size = len(self._body)
        for byte in self._body:
            transfer.write(bytes([byte]))


@pytest.fixture(params=[InMemoryStorageConnector, MinimalConnector])
def any_store(request: pytest.FixtureRequest) -> StorageConnector:
    """A store of ours, and one that can do no more than it must."""
    store: StorageConnector = request.param()
    return store


# ---------------------------------------------------------------------- what is fetched, and what is not


@pytest.mark.parametrize("digests", [{"sha256": SHA256}, {"md5_sum": MD5}, {"sha256": SHA256, "md5_sum": MD5}, {}])
def test_what_is_stored_as_promised_is_not_fetched_again(any_store: StorageConnector, digests: dict[str, Any]) -> None:
    any_store.set_resource("a", [BODY])
    source = Source()

    (resource,) = retrieve([ResourceDefinition("a", "test:a", size=len(BODY), **digests)], any_store, fetchers={"test": source})

    assert source.asked == []
    assert (resource.source, resource.size, resource.verified) == (None, len(BODY), bool(digests))


@pytest.mark.parametrize("promise", [{"sha256": SHA256}, {"md5_sum": MD5}, {"size": len(BODY)}])
def test_what_is_stored_otherwise_is_replaced(any_store: StorageConnector, promise: dict[str, Any]) -> None:
    any_store.set_resource("a", [b"wrong"])

    (resource,) = retrieve([ResourceDefinition("a", "test:a", **promise)], any_store, fetchers={"test": Source()})

    assert resource == RetrievedResource("a", "test:a", len(BODY), SHA256, "size" not in promise)
    assert any_store.get_resource("a").read() == BODY


def test_results_come_in_the_order_of_the_definitions_and_a_repeated_one_is_fetched_once() -> None:
    store, source = InMemoryStorageConnector(), Source()
    definitions = [ResourceDefinition(name, f"test:{name}") for name in ("c", "a", "c", "b")]

    resources = retrieve(definitions, store, fetchers={"test": source})

    assert [resource.identifier for resource in resources] == ["c", "a", "c", "b"]
    assert sorted(source.asked) == ["test:a", "test:b", "test:c"]


@pytest.mark.parametrize("identifier", ["../x", "/x", "a\0", "a\\b", "nul", ""])
def test_a_malformed_identifier_is_refused_before_anything_is_fetched(store: FileStorageConnector, identifier: str) -> None:
    source = Source()

    with pytest.raises(MalformedIdentifierError):
        retrieve([ResourceDefinition("a", "test:a"), ResourceDefinition(identifier, "test:x")], store, fetchers={"test": source})

    assert source.asked == []
    assert store.list_resources() == []


# ---------------------------------------------------------------------- at once, and to an end


def test_no_more_transfers_than_allowed_run_at_once() -> None:
    at_once: list[int] = []
    running = threading.Semaphore(2)

    def fetch(source: str, transfer: Transfer) -> None:
        at_once.append(1 if running.acquire(blocking=False) else 99)
        time.sleep(0.01)
        transfer.write(BODY)
        running.release()

    definitions = [ResourceDefinition(str(i), "test:x") for i in range(8)]
    retrieve(definitions, InMemoryStorageConnector(), max_parallel=2, fetchers={"test": fetch})

    assert at_once == [1] * 8


# ---------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize(
    "error", [RuntimeError("boom"), KeyError("x"), OSError(5, "Input/output error"), UnicodeError("?"), RecursionError("deep")]
)
def test_whatever_a_fetcher_raises_is_what_its_source_said(error: Exception) -> None:
    def fetch(source: str, transfer: Transfer) -> None:
        raise error

    with pytest.raises(RetrievalError) as caught:
        retrieve([ResourceDefinition("a", "test:a")], InMemoryStorageConnector(), fetchers={"test": fetch})

    assert type(error).__name__ in caught.value.attempts[0][1]
    assert caught.value.__cause__ is None


def test_a_store_that_cannot_be_written_ends_the_retrieval() -> None:
    class Broken(InMemoryStorageConnector):
        """A third party's store that fails as the operating system does."""

        def create(self, identifier: str) -> Any:
            raise OSError(28, "No space left on device")

    with pytest.raises(StorageError, match="No space left on device") as caught:
        retrieve([ResourceDefinition("a", "test:a", mirrors=("test:b",))], Broken(), fetchers={"test": (source := Source())})

    assert caught.value.errno == 28
    assert source.asked == []


# ---------------------------------------------------------------------- schemes of plugins, retrievers of others


def test_a_registered_scheme_is_fetched_by_its_function_and_taken_for_network() -> None:
    source = Source()
    register_scheme("Test-Registered", source)
    register_scheme("test-registered", source)  # once more is no other
    store = InMemoryStorageConnector()

    with pytest.raises(RetrievalError, match="offline"):
        retrieve([ResourceDefinition("a", "test-registered:x")], store, offline=True)
    retrieve([ResourceDefinition("a", "test-registered:x")], store)

    assert source.asked == ["test-registered:x"]
    with pytest.raises(ConfigError, match="already taken"):
        register_scheme("test-registered", Source())


@pytest.mark.parametrize("scheme", ["https", "package", "", "c", "1x", "a:b", "a b"])
def test_a_scheme_that_is_taken_or_none_cannot_be_registered(scheme: str) -> None:
    fetch: Fetch = Source()

    with pytest.raises(ConfigError):
        register_scheme(scheme, fetch)
