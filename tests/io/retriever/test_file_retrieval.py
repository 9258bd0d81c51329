"""Resources from files or packages, by functions that keep the contract of retrievers."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from web_server import ScriptedServer

from data_stack.exception import ChecksumMismatchError, ConfigError, RetrievalError
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.retriever import FileRetrieverImpl, RetrieverFactory, Transfer, import_file, retrieve
from data_stack.io.retriever.fetchers import fetch_file, fetch_package
from data_stack.io.retriever.http import fetch_http
from data_stack.io.storage_connectors import FileStorageConnector, InMemoryStorageConnector
from data_stack.testing import RetrieverContract

BODY = bytes(range(256)) * 5000
SHA256 = hashlib.sha256(BODY).hexdigest()
MD5 = hashlib.md5(BODY).hexdigest()


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


@pytest.mark.parametrize("host", ["", "localhost"])
def test_a_file_arrives_by_its_url(store: FileStorageConnector, path: Path, host: str) -> None:
    url = path.as_uri().replace("file://", f"file://{host}")

    retrieve([ResourceDefinition("raw/data", url, sha256=SHA256)], store)

    assert store.get_resource("raw/data").read() == BODY


def test_a_path_may_come_as_a_path_and_hold_a_colon(
    store: FileStorageConnector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "v1:data.bin").write_bytes(BODY)
    monkeypatch.chdir(tmp_path)

    path: Any = Path("v1:data.bin")  # the original took it
    retrieve([ResourceDefinition("raw/data", path), ResourceDefinition("raw/more", "v1:data.bin")], store)

    assert store.list_resources() == ["raw/data", "raw/more"]


def test_what_is_no_regular_file_is_refused_without_waiting_for_a_writer(store: FileStorageConnector, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")

    assert "is not a regular file" in refusal(store, str(tmp_path / "fifo"))
    for source in ("", "\0", "/dev/zero", "/dev/stdin\0"):
        refusal(store, source)


# ---------------------------------------------------------------------- as the original was called


def test_the_file_retriever_returns_identifiers_in_order(store: FileStorageConnector, path: Path) -> None:
    retriever = RetrieverFactory.get_file_retriever(store)
    jobs = [ResourceDefinition(identifier=name, source=str(path), md5_sum=MD5) for name in ("b", "a", "c")]

    assert retriever.retrieve(jobs) == ["b", "a", "c"]
    assert isinstance(retriever.retriever_impl, FileRetrieverImpl)
    assert retriever.retriever_impl.storage_connector is store


# ---------------------------------------------------------------------- by other means


def test_an_imported_file_is_verified_and_stored(path: Path) -> None:
    store = InMemoryStorageConnector()
    definition = ResourceDefinition("raw/data", "https://unreachable.invalid/data", sha256=SHA256, size=len(BODY))

    resource = import_file(definition, path, store)

    assert (resource.identifier, resource.source, resource.sha256, resource.verified) == ("raw/data", str(path), SHA256, True)
    assert store.get_resource("raw/data").read() == BODY


@pytest.mark.parametrize("digests", [{"sha256": "0" * 64}, {"md5_sum": "0" * 32}, {"sha256": SHA256, "md5_sum": "0" * 32}])
def test_an_imported_file_of_another_digest_is_refused_and_the_stored_one_kept(
    store: FileStorageConnector, path: Path, digests: dict[str, str]
) -> None:
    store.set_resource("raw/data", b"old")

    with pytest.raises(ChecksumMismatchError, match="0000"):
        import_file("raw/data", path, store, **digests)

    assert store.get_resource("raw/data").read() == b"old"


def test_an_import_cannot_overrule_the_definition(store: FileStorageConnector, path: Path) -> None:
    with pytest.raises(ConfigError, match="defined with sha256"):
        import_file(ResourceDefinition("raw/data", "x", sha256="0" * 64), path, store, sha256=SHA256)


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


def test_a_file_of_a_package_arrives_without_importing_it(store: FileStorageConnector, package: Path) -> None:
    source = "package:lent_data/inner/table.csv"

    (resource,) = retrieve([ResourceDefinition("raw/t", source, sha256=hashlib.sha256(TABLE).hexdigest())], store, offline=True)

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
def test_what_no_package_has_is_an_error_that_says_so(store: FileStorageConnector, package: Path, source: str, said: str) -> None:
    with pytest.raises(RetrievalError) as caught:
        retrieve([ResourceDefinition("raw/t", source)], store)

    assert said in str(caught.value)
    assert "lent_data" not in sys.modules


class TestFiles(RetrieverContract):
    scheme = "file"

    def fetch(self, source: str, transfer: Transfer) -> None:
        fetch_file(source, transfer)

    @pytest.fixture
    def publish(self, tmp_path: Path) -> Callable[[str, bytes], str]:
        def write(name: str, data: bytes) -> str:
            (tmp_path / name).write_bytes(data)
            return (tmp_path / name).as_uri()

        return write


class TestPackages(RetrieverContract):
    scheme = "package"

    def fetch(self, source: str, transfer: Transfer) -> None:
        fetch_package(source, transfer)

    @pytest.fixture
    def publish(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, bytes], str]:
        (tmp_path / "published").mkdir()
        monkeypatch.syspath_prepend(tmp_path)

        def write(name: str, data: bytes) -> str:
            (tmp_path / "published" / name).write_bytes(data)
            return f"package:published/{name}"

        return write


class TestWebServers(RetrieverContract):
    scheme = "http"

    def fetch(self, source: str, transfer: Transfer) -> None:
        fetch_http(source, transfer)

    @pytest.fixture
    def publish(self, server: ScriptedServer) -> Callable[[str, bytes], str]:
        return lambda name, data: server.serve(f"/{name}", data)
