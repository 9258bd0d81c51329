"""Row groups that are kept or prefetched: how many, which go, and what threads get that wait for one that another reads."""

from __future__ import annotations

import collections
import functools
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from process_harness import until

from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.exception import DatasetFileCorruptError, LoadingError
from data_stack.formats.parquet import ParquetDataset
from data_stack.formats.parquet.columns import ArrayColumn, GroupColumn
from data_stack.formats.parquet.row_group_cache import RowGroupCache
from data_stack.formats.parquet.row_group_reader import RowGroupReader
from data_stack.loader import BlockShuffled, Loader

N_ROWS = 1000
_EXECUTORS = ("data_stack-compute", "data_stack-parquet")

Read = Callable[[int, Sequence[str]], dict[str, GroupColumn]]


def column(group: int) -> ArrayColumn:
    return ArrayColumn(np.full(N_ROWS, group))


class Made(RowGroupReader):
    """A row group whose columns a function gives."""

    def __init__(self, read: Read, group: int, names: Sequence[str]) -> None:
        self._read, self._number, self.names = read, group, names
        self.is_decoded = True

    def columns(self, names: Sequence[str] | None = None) -> dict[str, GroupColumn]:
        return self._read(self._number, self.names if names is None else names)


def cache_of(read: Read, max_bytes: int) -> RowGroupCache:
    return RowGroupCache(functools.partial(Made, read), max_bytes)


def test_a_row_group_evicted_while_read_still_has_all_columns() -> None:
    def read(group: int, names: Sequence[str]) -> dict[str, GroupColumn]:
        if names == ["b"]:
            cache.columns(1, ["a"])  # another thread needs the room at this moment
        return {name: column(group) for name in names}

    cache = cache_of(read, 1)
    cache.columns(0, ["a"])

    columns = cache.columns(0, ["a", "b"])

    assert set(columns) == {"a", "b"}
    assert cache.n_bytes == sum(column.n_bytes for column in columns.values())


def test_the_cache_grows_to_hold_all_row_groups_of_batches() -> None:
    reads = itertools.count()
    cache = cache_of(
        lambda *_: {"a": ArrayColumn(np.broadcast_to(float(next(reads)), 2 << 20))}, 1 << 30
    )

    for batch in range(20):
        wanted = np.random.default_rng(batch).permutation(30).tolist()
        while wanted:
            cache.columns(wanted.pop(wanted.index(cache.next_to_read(wanted, ["a"]))), ["a"])

    assert next(reads) < 5 * 30


def test_a_prefetch_of_other_columns_does_not_count(tmp_path: Path) -> None:
    table = pa.table({"a": range(30), "b": range(30)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=10)
    cache = ParquetDataset(tmp_path)._access.cache
    cache.prefetch([1], ["a"])
    until(lambda: cache.has(1, ["a"]))

    has_other_column = cache.has(1, ["a", "b"])
    next_group = cache.next_to_read([1, 2], ["b"])

    assert not has_other_column
    assert next_group == 2
    assert set(cache.columns(1, ["b"])) == {"b"}


@pytest.mark.parametrize("failure", [DatasetFileCorruptError, KeyboardInterrupt])
def test_threads_that_wait_for_one_that_fails_try_by_themselves(
    failure: type[BaseException],
) -> None:
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
    assert begun.wait(60)
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert sorted(found, key=str) == [0, 0, 0, 0, 0, failure]
    assert n_reads == 2


def watch(dataset: ParquetDataset, saw: Callable[[int], object]) -> None:
    """Call a function with each row group that is about to be decoded."""

    class Watched(RowGroupReader):
        def decode(self) -> None:
            if not self.is_decoded:
                saw(self._group)
            super().decode()

    access = dataset._access
    access.cache = RowGroupCache(functools.partial(Watched, access.groups), access.max_cached_bytes)


@pytest.mark.parametrize(("kind", "workers"), [("inline", None), ("threads", 3)])
def test_a_block_shuffle_reads_each_row_group_once_an_epoch(
    tmp_path: Path, kind: Any, workers: int | None
) -> None:
    pq.write_table(pa.table({"id": np.arange(9600)}), tmp_path / "a.parquet", row_group_size=320)
    dataset = ParquetDataset(tmp_path, max_cached_bytes=320 * 8 * 14)  # of 30 row groups
    n_reads: collections.Counter[int] = collections.Counter()
    watch(dataset, lambda group: n_reads.update([group]))
    ids = []

    with Loader(
        dataset, 40, shuffle=BlockShuffled(window=4), worker_kind=kind, workers=workers, seed=3
    ) as loader:
        for _ in range(3):
            ids.append([number for batch in loader for number in batch["id"].tolist()])

    assert [sorted(epoch) for epoch in ids] == [list(range(9600))] * 3
    # now and then a thread that had to wait has a window read ahead that others have been through meanwhile
    assert sum(n_reads.values()) < 4 * 30


def test_a_full_shuffle_beyond_memory_holds_one_row_group(tmp_path: Path) -> None:
    n_held = []
    pq.write_table(
        pa.table({"id": np.arange(200), "raw": [bytes(10_000)] * 200}),
        tmp_path / "a.parquet",
        row_group_size=10,
    )
    dataset = ParquetDataset(tmp_path, max_cached_bytes=1)
    watch(dataset, lambda _: n_held.append(pa.total_allocated_bytes() - before))
    before = pa.total_allocated_bytes()

    batch = dataset.read_batch(np.random.default_rng(0).permutation(200))

    assert sorted(batch["id"].tolist()) == list(range(200))
    assert len(n_held) == 20
    assert max(n_held) < 5 * 100_000


# ---------------------------------------------------------------------- prefetching


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """12 row groups of 50 rows."""
    for number in range(2):
        ids = np.arange(300 * number, 300 * (number + 1))
        table = pa.table({"id": ids, "raw": [bytes(20_000)] * 300})
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=50)
    return tmp_path


def has(dataset: ParquetDataset, group: int) -> bool:
    return dataset._access.cache.has(group, list(dataset.schema.fields))


@pytest.mark.parametrize(("kind", "workers"), [("inline", None), ("threads", 1)])
def test_a_loader_prefetches_the_row_groups_of_the_next_window(
    folder: Path, kind: Any, workers: int | None
) -> None:
    dataset = ParquetDataset(folder)
    reads: list[tuple[int, str]] = []
    watch(dataset, lambda group: reads.append((group, threading.current_thread().name)))
    ids = []

    for batch in Loader(
        dataset, 25, shuffle=BlockShuffled(window=3), worker_kind=kind, workers=workers, seed=2
    ):
        ids.extend(batch["id"].tolist())
        time.sleep(0.01)  # as a consumer that does something with it

    assert sorted(ids) == list(range(600))
    assert sorted(group for group, _ in reads) == list(range(12))
    # Those of the first window are few bytes, had sooner without threads. Of the others, the consumer reads those that no thread
    # has begun, which on a busy machine are some.
    assert any(name.startswith(_EXECUTORS) for _, name in reads)


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

    assert until(
        lambda: not any(thread.name.startswith(_EXECUTORS) for thread in threading.enumerate())
    )
    assert len(dataset.read_batch(range(600))["id"]) == 600


def test_what_waits_to_be_asked_for_stays_below_its_limit(tmp_path: Path) -> None:
    values = np.random.default_rng(0).random(16 << 17)  # 16 MiB
    pq.write_table(
        pa.table({"value": values}),
        tmp_path / "a.parquet",
        row_group_size=1 << 18,
        use_dictionary=False,
    )
    small = ParquetDataset(tmp_path, max_cached_bytes=5 << 20)
    small.read_batch([0])

    access_to(small).prefetch(np.arange(1, 8) << 18)
    assert until(lambda: has(small, 1) and has(small, 2))
    assert [has(small, group) for group in range(8)] == [
        True,
        True,
        True,
        False,
        False,
        False,
        False,
        False,
    ]
