"""Built-in ways to fetch a source keep the contract of retrievers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from web_server import ScriptedServer

from data_stack.io.retriever import Transfer
from data_stack.io.retriever.file import fetch_file
from data_stack.io.retriever.http import fetch_http
from data_stack.io.retriever.package import fetch_package
from data_stack.testing import RetrieverContract


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
