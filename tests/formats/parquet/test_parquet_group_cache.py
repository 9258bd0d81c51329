"""Row groups that are kept: how many, which go, and what threads get that wait for one that another reads."""

from __future__ import annotations

import collections
import functools
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.parquet import ParquetDataset
from data_stack.formats.parquet.columns import ArrayColumn, GroupColumn
from data_stack.formats.parquet.group_cache import GroupCache
from data_stack.formats.parquet.row_groups import GroupReading
from data_stack.loader import BlockShuffled, Loader

N_ROWS = 1000

Read = Callable[[int, Sequence[str]], dict[str, GroupColumn]]


def column(group: int) -> ArrayColumn:
    return ArrayColumn(np.full(N_ROWS, group))


class Made(GroupReading):
    """A row group whose columns a function gives."""

    def __init__(self, read: Read, group: int, names: Sequence[str]) -> None:
        self._read, self._number, self.names = read, group, names
        self.is_decoded = True

    def columns(self) -> dict[str, GroupColumn]:
        return self._read(self._number, self.names)


def cache_of(read: Read, max_bytes: int) -> GroupCache:
    return GroupCache(functools.partial(Made, read), max_bytes)


def test_a_row_group_that_goes_while_more_of_it_is_read_still_has_all_columns() -> None:
    def read(group: int, names: Sequence[str]) -> dict[str, GroupColumn]:
        if names == ["b"]:
            cache.columns(1, ["a"])  # another thread needs the room at this moment
        return {name: column(group) for name in names}

    cache = cache_of(read, 1)
    cache.columns(0, ["a"])

    columns = cache.columns(0, ["a", "b"])

    assert set(columns) == {"a", "b"}
    assert cache.n_bytes == sum(column.n_bytes for column in columns.values())


@pytest.mark.parametrize("failure", [DatasetFileCorruptError, KeyboardInterrupt])
def test_threads_that_wait_for_one_that_fails_try_by_themselves(failure: type[BaseException]) -> None:
    n_reads = 0
    begun = threading.Event()

    def read(group: int, names: Sequence[str]) -> dict[str, GroupColumn]:
        nonlocal n_reads
        n_reads += 1
        if n_reads == 1:
            begun.set()
            time.sleep(0.2)
            raise failure("once")
        return {name: column(group) for name in names}

    cache = cache_of(read, 1 << 20)
    found: list[Any] = []

    def use() -> None:
        try:
            found.append(cache.columns(0, ["a"])["a"].value(0))
        except BaseException as error:  # a thread has nobody else to tell
            found.append(type(error))

    threads = [threading.Thread(target=use) for _ in range(6)]
    threads[0].start()
    begun.wait(30)
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert sorted(found, key=str) == [0, 0, 0, 0, 0, failure]
    assert n_reads == 2


def count_reads(dataset: ParquetDataset, count: Callable[[int], None]) -> None:
    """Let a function know of each row group that is about to be read."""

    class Counted(GroupReading):
        def decode(self) -> None:
            if not self.is_decoded:
                count(self._group)
            super().decode()

    dataset._cache = GroupCache(functools.partial(Counted, dataset._groups), dataset._max_cached_bytes)


@pytest.mark.parametrize(("kind", "workers"), [("inline", None), ("threads", 3)])
def test_a_block_wise_shuffle_reads_each_row_group_once_an_epoch(tmp_path: Path, kind: Any, workers: int | None) -> None:
    pq.write_table(pa.table({"id": np.arange(9600)}), tmp_path / "a.parquet", row_group_size=320)
    dataset = ParquetDataset(tmp_path, max_cached_bytes=320 * 8 * 14)  # of 30 row groups
    n_reads: collections.Counter[int] = collections.Counter()
    count_reads(dataset, lambda group: n_reads.update([group]))
    ids = []

    with Loader(dataset, 40, shuffle=BlockShuffled(window=4), worker_kind=kind, workers=workers, seed=3) as loader:
        for _ in range(3):
            ids.append([number for batch in loader for number in batch["id"].tolist()])

    assert [sorted(epoch) for epoch in ids] == [list(range(9600))] * 3
    # now and then a thread that had to wait has a window read ahead that others have been through meanwhile
    assert sum(n_reads.values()) < 4 * 30


def test_a_full_shuffle_of_more_than_fits_holds_one_row_group_at_a_time(tmp_path: Path) -> None:
    n_held = []
    pq.write_table(pa.table({"id": np.arange(200), "raw": [bytes(10_000)] * 200}), tmp_path / "a.parquet", row_group_size=10)
    dataset = ParquetDataset(tmp_path, max_cached_bytes=1)
    count_reads(dataset, lambda _: n_held.append(pa.total_allocated_bytes() - before))
    before = pa.total_allocated_bytes()

    batch = dataset.read_batch(np.random.default_rng(0).permutation(200))

    assert sorted(batch["id"].tolist()) == list(range(200))
    assert len(n_held) == 20
    assert max(n_held) < 5 * 100_000
