"""Row groups that are prefetched are those that come next, and errors surface where their rows are read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_stack.dataset.iterator.access import access_to
from data_stack.exception import DatasetFileCorruptError, LoadingError
from data_stack.formats.parquet import ParquetDataset
from data_stack.formats.parquet.group_cache import GroupCache
from data_stack.formats.parquet.row_groups import GroupReading
from data_stack.loader import BlockShuffled, Loader

_NAME = "a thread of an executor"
_EXECUTORS = ("data_stack-compute", "data_stack-parquet")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """12 row groups of 50 rows."""
    for number in range(2):
        ids = np.arange(300 * number, 300 * (number + 1))
        table = pa.table({"id": ids, "raw": [bytes(2000)] * 300})
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=50)
    return tmp_path


def watched(dataset: ParquetDataset) -> list[tuple[int, str]]:
    """The row groups that a dataset reads from now on, each with the thread that decodes it."""
    reads: list[tuple[int, str]] = []

    class Watched(GroupReading):
        def decode(self) -> None:
            if not self.is_decoded:
                name = threading.current_thread().name
                reads.append((self._group, _NAME if name.startswith(_EXECUTORS) else name))
            super().decode()

    def reading(group: int, names: Sequence[str]) -> GroupReading:
        return Watched(dataset._groups, group, names)

    dataset._cache = GroupCache(reading, dataset._max_cached_bytes)
    return reads


def soon(condition: Callable[[], bool]) -> bool:
    """Whether a condition becomes true within a few seconds."""
    end = time.monotonic() + 20
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.002)
    return True


def has(dataset: ParquetDataset, group: int) -> bool:
    return dataset._cache.has(group, list(dataset.schema.fields))


def readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(_EXECUTORS)]


@pytest.mark.parametrize(("kind", "workers"), [("inline", None), ("threads", 1)])
def test_a_loader_reads_the_row_groups_of_the_next_window_ahead(folder: Path, kind: Any, workers: int | None) -> None:
    dataset = ParquetDataset(folder)
    reads = watched(dataset)
    ids = []

    for batch in Loader(dataset, 25, shuffle=BlockShuffled(window=3), worker_kind=kind, workers=workers, seed=2):
        ids.extend(batch["id"].tolist())
        time.sleep(0.01)  # as a consumer that does something with it

    assert sorted(ids) == list(range(600))
    assert sorted(group for group, _ in reads) == list(range(12))
    # Those of the first window are few bytes, had sooner without threads. Of the others, the consumer reads those that no thread
    # has begun, which on a busy machine are some.
    assert any(name == _NAME for _, name in reads)


def test_damage_in_prefetched_rows_is_reported_when_they_are_read(folder: Path) -> None:
    path = folder / "1.parquet"
    column = pq.read_metadata(path).row_group(2).column(1)
    data = bytearray(path.read_bytes())
    data[column.data_page_offset : column.data_page_offset + 40] = bytes(40)
    path.write_bytes(data)
    dataset = ParquetDataset(folder)
    found = []

    with pytest.raises(LoadingError, match=r"row group 2 of .*1\.parquet") as caught:
        for batch in Loader(dataset, 50, worker_kind="inline"):
            found.extend(batch["id"].tolist())
            time.sleep(0.01)

    assert isinstance(caught.value.__cause__, DatasetFileCorruptError)
    assert found == list(range(400))
    assert dataset[599]["id"] == 599


def test_an_iteration_that_is_broken_off_leaves_no_thread_behind(folder: Path) -> None:
    dataset = ParquetDataset(folder)

    for _ in Loader(dataset, 25, shuffle=BlockShuffled(window=4), worker_kind="inline"):
        break

    assert soon(lambda: not readers())
    assert len(dataset.read_batch(range(600))["id"]) == 600


def test_what_waits_to_be_asked_for_stays_below_its_limit(tmp_path: Path) -> None:
    values = np.random.default_rng(0).random(16 << 17)  # 16 MiB
    pq.write_table(pa.table({"value": values}), tmp_path / "a.parquet", row_group_size=1 << 18, use_dictionary=False)
    small = ParquetDataset(tmp_path, max_cached_bytes=5 << 20)
    small.read_batch([0])

    access_to(small).prefetch(np.arange(1, 8) << 18)
    assert soon(lambda: has(small, 1) and has(small, 2))
    assert [has(small, group) for group in range(8)] == [True, True, True, False, False, False, False, False]
