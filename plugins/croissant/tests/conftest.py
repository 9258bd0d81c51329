"""mlcroissant's folder of unpacked archives, which it finds again by their relative paths."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlcroissant._src.operation_graph.operations import extract


@pytest.fixture(autouse=True)
def unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder for each test."""
    monkeypatch.setattr(extract, "EXTRACT_PATH", type(extract.EXTRACT_PATH)(tmp_path) / "unpacked")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Where a store is made."""
    return tmp_path / "store"
