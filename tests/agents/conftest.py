"""Tools on a folder with files of all kinds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agents_kit import Call, MakeCall, contents_of

from data_stack import FileStorageConnector, copy_datasets
from data_stack.agents.limits import Deadline, Limits
from data_stack.agents.permissions import Permissions
from data_stack.agents.stores import open_stores
from data_stack.agents.tools import DatasetTools, ToolResult


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the command does it, unless the user allows the network."""
    monkeypatch.setenv("DATA_STACK_OFFLINE", "1")


@pytest.fixture
def make_call() -> MakeCall:
    """Makes tools for stores that are named by keyword."""

    def make(
        *stores: object,
        permissions: Permissions | None = None,
        limits: Limits | None = None,
        seconds: float = 60.0,
    ) -> Call:
        opened = open_stores(None, [str(store) for store in stores])
        tools = DatasetTools(opened, permissions or Permissions(), limits or Limits())

        def call(name: str, **arguments: Any) -> ToolResult:
            return tools.call(name, arguments, Deadline(seconds))

        return call

    return make


@pytest.fixture
def folder(tmp_path: Path, prepared: FileStorageConnector) -> Path:
    """A store with the prepared dataset digits, and with files."""
    store = tmp_path / "store"
    copy_datasets(prepared, store, ["digits"])
    (store / "wine.csv").write_text("id,name,price\n1,Barolo,31.5\n2,,\n", encoding="utf-8")
    (store / "pets").mkdir()
    (store / "pets" / "train.csv").write_text("id,kind\n1,cat\n2,dog\n3,cat\n", encoding="utf-8")
    (store / "pets" / "test.csv").write_text("id,kind\n3,cat\n4,dog\n", encoding="utf-8")
    (store / "pets" / "notes.xyz").write_text("not read", encoding="utf-8")
    return store


@pytest.fixture
def call(folder: Path, make_call: MakeCall) -> Iterator[Call]:
    """Calls tools on that store, which must stay as it is."""
    before = contents_of(folder)
    yield make_call(folder)
    assert contents_of(folder) == before
