"""A conversion that fails, is interrupted or killed leaves nothing under the name of its target, and can be begun anew."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_stack.dataset.iterator import DatasetIterator
from data_stack.exception import ConfigError
from data_stack.formats.conversion import convert
from data_stack.io.folder import folder_of
from data_stack.io.resources import ResourceFactory
from data_stack.io.storage_connectors import InMemoryStorageConnector

N = 600
TARGETS: dict[str, dict[str, Any]] = {
    "records": {"target": "out"},
    "shards of records": {"target": "out", "shardlen": 150},
    "webdataset": {"target": "out", "target_format": "webdataset", "shardlen": 150},
    "images": {"target": "out", "target_format": "images"},
    "parquet": {"target": "out", "target_format": "parquet", "shardlen": 150},
    **{name: {"target": name} for name in ("out.tar", "out.h5", "out.npz", "out.pt")},
}


class Pictures(DatasetIterator):
    """Small pictures with labels."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"image": np.full((3, 4, 3), index % 256, np.uint8), "label": index % 7, "number": index}


class Failing(Pictures):
    """Fails at a sample near the end."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def __getitems__(self, indices: Any) -> list[Any]:
        if 550 in indices and len(indices) > 20:
            raise self.error("failed")
        return super().__getitems__(indices)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("data_stack.formats.conversion.conversion._MAX_IN_BATCH", 100)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("kind", TARGETS)
def test_what_was_not_finished_leaves_nothing(tmp_path: Path, kind: str, error: type[BaseException]) -> None:
    options = dict(TARGETS[kind])
    target = tmp_path / options.pop("target")
    with pytest.raises(error, match="failed"):
        convert(Failing(error), target, **options)
    assert os.listdir(tmp_path) == []

    store = InMemoryStorageConnector()
    store.set_resource("sets/other", ResourceFactory.get_resource("sets/other", io.BytesIO(b"kept")))
    with pytest.raises(error, match="failed"):
        convert(Failing(error), (store, f"sets/{target.name}"), **options)
    assert list(store.list_resources("")) == ["sets/other"]


def test_two_conversions_do_not_make_one_target(tmp_path: Path) -> None:
    with folder_of(tmp_path).lease(".out.part.lock") as lease:
        assert lease.acquire()
        with pytest.raises(ConfigError, match="another process"):
            convert(Pictures(), tmp_path / "out")

    (tmp_path / "out").mkdir()  # an empty folder is in nobody's way
    assert convert(Pictures(), tmp_path / "out").n_verified == N


def test_what_a_killed_conversion_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".out.part").mkdir()
    (tmp_path / ".out.part" / "spec.json").write_text("{")

    assert convert(Pictures(), tmp_path / "out").n_verified == N
    assert [name for name in os.listdir(tmp_path) if not name.startswith(".~")] == ["out"]
