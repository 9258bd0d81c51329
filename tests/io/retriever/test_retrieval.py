"""What is fetched, kept, verified and told, whatever the scheme; resources from files or
packages.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from plain_connector import MinimalConnector
from web_server import ScriptedServer

from data_stack.exception import (
    ChecksumMismatchError,
    ConfigError,
    MalformedIdentifierError,
    RetrievalError,
    StorageError,
)
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.retriever import (
    FileRetrieverImpl,
    RetrievedResource,
    RetrieverFactory,
    Transfer,
    import_file,
    register_scheme,
    retrieve,
)
from data_stack.io.retriever.file import fetch_file
from data_stack.io.retriever.http import fetch_http
from data_stack.io.retriever.package import fetch_package
from data_stack.io.storage_connectors import (
    FileStorageConnector,
    InMemoryStorageConnector,
    StorageConnector,
)
from data_stack.testing import RetrieverContract

BODY = bytes(range(256)) * 5
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
def any_store(request: pytest.FixtureRequest) -> Any:
    """A store of ours, and one that can do no more than it must."""
    return request.param()


# ----------------------------------------------------------------- what is fetched, and what is not


@pytest.mark.parametrize(
    "digests", [{"sha256": SHA256}, {"md5_sum": MD5}, {"sha256": SHA256, "md5_sum": MD5}, {}]
)
def test_what_is_stored_as_promised_is_not_fetched_again(
    any_store: StorageConnector, digests: dict[str, Any]
) -> None:
    any_store.set_resource("a", [BODY])
    source = Source()

    (resource,) = retrieve(
        [ResourceDefinition("a", "test:a", size=len(BODY), **digests)],
        any_store,
        fetchers={"test": source},
    )

    assert source.asked == []
    assert (resource.source, resource.size, resource.verified) == (None, len(BODY), bool(digests))


@pytest.mark.parametrize("promise", [{"sha256": SHA256}, {"md5_sum": MD5}, {"size": len(BODY)}])
def test_what_is_stored_otherwise_is_replaced(
    any_store: StorageConnector, promise: dict[str, Any]
) -> None:
    any_store.set_resource("a", [b"wrong"])

    (resource,) = retrieve(
        [ResourceDefinition("a", "test:a", **promise)], any_store, fetchers={"test": Source()}
    )

    assert resource == RetrievedResource("a", "test:a", len(BODY), SHA256, "size" not in promise)
    assert any_store.get_resource("a").read() == BODY


def test_results_come_in_order_and_repeated_ones_once() -> None:
    store, source = InMemoryStorageConnector(), Source()
    definitions = [ResourceDefinition(name, f"test:{name}") for name in ("c", "a", "c", "b")]

    resources = retrieve(definitions, store, fetchers={"test": source})

    assert [resource.identifier for resource in resources] == ["c", "a", "c", "b"]
    assert sorted(source.asked) == ["test:a", "test:b", "test:c"]


@pytest.mark.parametrize("identifier", ["../x", "/x", "a\0", "a\\b", "nul", ""])
def test_a_malformed_identifier_is_refused_before_anything_is_fetched(
    store: FileStorageConnector, identifier: str
) -> None:
    source = Source()

    with pytest.raises(MalformedIdentifierError):
        retrieve(
            [ResourceDefinition("a", "test:a"), ResourceDefinition(identifier, "test:x")],
            store,
            fetchers={"test": source},
        )

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
    "error",
    [
        RuntimeError("boom"),
        KeyError("x"),
        OSError(5, "Input/output error"),
        UnicodeError("?"),
        RecursionError("deep"),
    ],
)
def test_whatever_a_fetcher_raises_is_what_its_source_said(error: Exception) -> None:
    def fetch(source: str, transfer: Transfer) -> None:
        raise error

    with pytest.raises(RetrievalError) as caught:
        retrieve(
            [ResourceDefinition("a", "test:a")],
            InMemoryStorageConnector(),
            fetchers={"test": fetch},
        )

    assert type(error).__name__ in caught.value.attempts[0][1]
    assert caught.value.__cause__ is None


def test_a_store_that_cannot_be_written_ends_the_retrieval() -> None:
    class Broken(InMemoryStorageConnector):
        """A third party's store that fails as the operating system does."""

        def create(self, identifier: str) -> Any:
            raise OSError(28, "No space left on device")

    with pytest.raises(StorageError, match="No space left on device") as caught:
        retrieve(
            [ResourceDefinition("a", "test:a", mirrors=("test:b",))],
            Broken(),
            fetchers={"test": (source := Source())},
        )

    assert caught.value.errno == 28
    assert source.asked == []


# --------------------------------------------------------- schemes of plugins, retrievers of others


def test_a_registered_scheme_is_fetched_and_taken_for_network() -> None:
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
    with pytest.raises(ConfigError):
        register_scheme(scheme, Source())


# ---------------------------------------------------------------------- files


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of BODY, with a name that a URL must encode."""
    path = tmp_path / "a b%20?#ü.bin"
    path.write_bytes(BODY)
    return path


def refusal(store: FileStorageConnector, source: str) -> str:
    """The error of a retrieval that must fail and store nothing."""
    with pytest.raises(RetrievalError) as caught:
        retrieve([ResourceDefinition("raw/data", source)], store)
    assert not store.has_resource("raw/data")
    return str(caught.value)


def test_a_path_may_be_a_path_with_a_colon(
    store: FileStorageConnector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "v1:data.bin").write_bytes(BODY)
    monkeypatch.chdir(tmp_path)

    path: Any = Path("v1:data.bin")  # the original took it
    retrieve(
        [ResourceDefinition("raw/data", path), ResourceDefinition("raw/more", "v1:data.bin")], store
    )

    assert store.list_resources() == ["raw/data", "raw/more"]


def test_a_special_file_is_refused_without_waiting(
    store: FileStorageConnector, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "fifo")

    assert "is not a regular file" in refusal(store, str(tmp_path / "fifo"))
    for source in ("", "\0", "/dev/zero", "/dev/stdin\0"):
        refusal(store, source)


# ---------------------------------------------------------------------- as the original was called


def test_the_file_retriever_returns_identifiers_in_order(
    store: FileStorageConnector, path: Path
) -> None:
    retriever = RetrieverFactory.get_file_retriever(store)
    jobs = [
        ResourceDefinition(identifier=name, source=str(path), md5_sum=MD5)
        for name in ("b", "a", "c")
    ]

    assert retriever.retrieve(jobs) == ["b", "a", "c"]
    assert isinstance(retriever.retriever_impl, FileRetrieverImpl)
    assert retriever.retriever_impl.storage_connector is store


# ---------------------------------------------------------------------- by other means


def test_an_imported_file_is_verified_and_stored(path: Path) -> None:
    store = InMemoryStorageConnector()
    definition = ResourceDefinition(
        "raw/data", "https://unreachable.invalid/data", sha256=SHA256, size=len(BODY)
    )

    resource = import_file(definition, path, store)

    assert (resource.identifier, resource.source, resource.sha256, resource.verified) == (
        "raw/data",
        str(path),
        SHA256,
        True,
    )
    assert store.get_resource("raw/data").read() == BODY


@pytest.mark.parametrize(
    "digests",
    [{"sha256": "0" * 64}, {"md5_sum": "0" * 32}, {"sha256": SHA256, "md5_sum": "0" * 32}],
)
def test_an_imported_file_of_another_digest_is_refused(
    store: FileStorageConnector, path: Path, digests: dict[str, str]
) -> None:
    store.set_resource("raw/data", b"old")

    with pytest.raises(ChecksumMismatchError, match="0000"):
        import_file("raw/data", path, store, **digests)

    assert store.get_resource("raw/data").read() == b"old"


def test_an_import_cannot_overrule_the_definition(store: FileStorageConnector, path: Path) -> None:
    with pytest.raises(ConfigError, match="defined with sha256"):
        import_file(
            ResourceDefinition("raw/data", "x", sha256="0" * 64), path, store, sha256=SHA256
        )


TABLE = b"one,two\n1,2\n"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package ``lent_data`` that must not be imported."""
    folder = tmp_path / "site" / "lent_data"
    (folder / "inner").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise SystemExit('imported')")
    (folder / "inner" / "__init__.py").write_text("raise SystemExit('imported')")
    (folder / "inner" / "table.csv").write_bytes(TABLE)
    monkeypatch.syspath_prepend(folder.parent)
    return folder


def test_a_file_of_a_package_arrives_without_importing_it(
    store: FileStorageConnector, package: Path
) -> None:
    source = "package:lent_data/inner/table.csv"

    (resource,) = retrieve(
        [ResourceDefinition("raw/t", source, sha256=hashlib.sha256(TABLE).hexdigest())],
        store,
        offline=True,
    )

    assert resource.source == source
    assert store.get_resource("raw/t").read() == TABLE
    assert "lent_data" not in sys.modules


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("package:no_such_package_here/x.csv", "no package 'no_such_package_here' is installed"),
        ("package:lent_data/missing.csv", "has no file missing.csv"),
        ("package:lent_data/inner", "is a folder"),
        ("package:lent_data", "not of the form"),
        ("package:lent_data/../../secret", "not of the form"),
        ("package:lent_data//etc/passwd", "not of the form"),
        ("package:lent_data.inner/table.csv", "not of the form"),
        ("package:", "not of the form"),
        ("package:sys/x", "has no file x"),
        ("package:__main__/x", ""),
        ("package:lent_data/a\0b", "has no file"),
    ],
)
def test_what_no_package_has_is_an_error_that_says_so(
    store: FileStorageConnector, package: Path, source: str, said: str
) -> None:
    with pytest.raises(RetrievalError) as caught:
        retrieve([ResourceDefinition("raw/t", source)], store)

    assert said in str(caught.value)
    assert "lent_data" not in sys.modules


class TestFiles(RetrieverContract):
    scheme = "file"

    fetch = staticmethod(fetch_file)

    @pytest.fixture
    def publish(self, tmp_path: Path) -> Callable[[str, bytes], str]:
        def write(name: str, data: bytes) -> str:
            (tmp_path / name).write_bytes(data)
            return (tmp_path / name).as_uri()

        return write


class TestPackages(RetrieverContract):
    scheme = "package"

    fetch = staticmethod(fetch_package)

    @pytest.fixture
    def publish(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Callable[[str, bytes], str]:
        (tmp_path / "published").mkdir()
        monkeypatch.syspath_prepend(tmp_path)

        def write(name: str, data: bytes) -> str:
            (tmp_path / "published" / name).write_bytes(data)
            return f"package:published/{name}"

        return write


class TestWebServers(RetrieverContract):
    scheme = "http"

    fetch = staticmethod(fetch_http)

    @pytest.fixture
    def publish(self, server: ScriptedServer) -> Callable[[str, bytes], str]:
        return lambda name, data: server.serve(f"/{name}", data)
