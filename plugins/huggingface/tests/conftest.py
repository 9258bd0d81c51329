"""A Hub on loopback, and repositories on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import HubServer

from data_stack.plugins import default_manager
from data_stack.repository import default_repository


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """An empty Hub, which data_stack asks; an empty store."""
    server = HubServer()
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setenv("DATA_STACK_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.delenv("DATA_STACK_OFFLINE", raising=False)
    default_manager.cache_clear()
    default_repository.cache_clear()
    yield server
    server.close()
    default_repository.cache_clear()
