"""Web servers on loopback that do, byte for byte, what a test tells them to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from web_server import ScriptedServer


@pytest.fixture
def other_server() -> Iterator[ScriptedServer]:
    """Another web server."""
    with ScriptedServer() as server:
        yield server


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder of ``store``."""
    return tmp_path / "store"


@pytest.fixture(autouse=True)
def _no_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever proxies and switches this machine has are not those of a test."""
    for name in (
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "no_proxy",
        "DATA_STACK_OFFLINE",
        "REQUESTS_CA_BUNDLE",
    ):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
