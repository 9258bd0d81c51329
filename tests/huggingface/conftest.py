"""A Hub on loopback, and repositories on it."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow.parquet as pq
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


@pytest.fixture(scope="session")
def parquet_of() -> Callable[..., bytes]:
    """A function that writes Parquet files."""
    return _parquet_of


def _parquet_of(rows: dict[str, Any], features: datasets.Features | None = None, row_group_size: int | None = None) -> bytes:
    """A Parquet file of such rows, as ``datasets`` writes it."""
    file = io.BytesIO()
    table = datasets.Dataset.from_dict(rows, features).data.table
    pq.write_table(table, file, row_group_size=row_group_size, compression="none", use_dictionary=False)
    return file.getvalue()


@pytest.fixture(scope="session")
def pictures() -> tuple[dict[str, Any], datasets.Features]:
    """Rows of all kinds, and their features."""
    rng = np.random.default_rng(0)
    shapes = [(5, 4), (5, 4, 3), (5, 4, 4), (6, 2), (3, 3, 3)]
    nested = {"a": datasets.Value("int32"), "b": [{"c": datasets.Value("string")}]}
    columns: dict[str, tuple[Any, list[Any]]] = {
        "image": (datasets.Image(), [*(rng.integers(0, 256, shape, np.uint8) for shape in shapes), None]),
        "label": (datasets.ClassLabel(names=["cat", "dog", "owl"]), [0, 1, 2, 1, 0, 2]),
        "text": (datasets.Value("string"), ["a", "b", "", None, "ü", "f"]),
        "matrix": (datasets.Array2D((2, 3), "float32"), [rng.standard_normal((2, 3)).astype(np.float32) for _ in range(6)]),
        "numbers": ([datasets.Value("int64")], [list(range(n)) for n in range(6)]),
        "nested": (nested, [{"a": n, "b": [{"c": str(n)}] * n} for n in range(6)]),
        "weight": (datasets.Value("float32"), [0.5 * n for n in range(6)]),
    }
    features = datasets.Features({name: feature for name, (feature, _) in columns.items()})
    rows = {name: values for name, (_, values) in columns.items()}
    return rows, features
