"""Loaders of samples in a remote store: what an epoch moves, block by block, and the warning of a
random order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from far_store import FarStorageConnector

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.formats import NumpyDatasetIterator, write_npy
from data_stack.formats.parquet import ParquetDataset, ParquetWriter
from data_stack.formats.records import ColumnType, RecordReader, RecordWriter
from data_stack.loader import BlockShuffled, Loader

#: 24 MiB, more than is cached of a remote file.
N_ROWS, ROW_BYTES = 8192, 3072
BLOCK_BYTES = 1 << 16


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> FarStorageConnector:
    store = FarStorageConnector(tmp_path_factory.mktemp("remote"), BLOCK_BYTES)
    images, numbers = np.zeros((N_ROWS, ROW_BYTES), np.uint8), np.arange(N_ROWS)
    arrays: dict[str, Any] = {"image": images, "number": numbers, "few": images[:100]}
    for name, array in arrays.items():
        with store.create(f"arrays/{name}.npy") as file:
            write_npy(file, array)
    with RecordWriter(
        store,
        {"image": ColumnType("array", "uint8", (ROW_BYTES,)), "number": "i64"},
        prefix="records",
    ) as writer:
        writer.extend({"image": images, "number": numbers})
    with ParquetWriter(store, prefix="parquet", row_group_rows=256, compression="none") as rows:
        rows.append_columns(
            {
                "image": np.random.default_rng(0).integers(0, 255, images.shape, "u1"),
                "number": numbers,
            }
        )
    return store


SOURCES: dict[str, Callable[[FarStorageConnector], DatasetIteratorIF]] = {
    "arrays": lambda store: NumpyDatasetIterator(
        {name: store.get_resource(f"arrays/{name}.npy") for name in ("image", "number")}
    ),
    "records": lambda store: RecordReader(store, prefix="records"),
    "parquet": lambda store: ParquetDataset(store, prefix="parquet", max_cached_bytes=16 << 20),
}


@pytest.mark.parametrize(
    "options", [{"worker_kind": "inline"}, {"worker_kind": "threads", "workers": 2}, {}]
)
@pytest.mark.parametrize("source_kind", ["arrays", "records"])
def test_an_epoch_by_blocks_moves_each_byte_about_once(
    store: FarStorageConnector, source_kind: str, options: dict[str, Any]
) -> None:
    iterator = SOURCES[source_kind](store)
    store.requests.clear()

    # two windows fit into the cache, as threads are not in the same one all the time
    with Loader(iterator, 256, shuffle=BlockShuffled(window=8), seed=1, **options) as loader:
        seen = list(itertools.chain.from_iterable(batch["number"].tolist() for batch in loader))

    assert sorted(seen) == list(range(N_ROWS))
    assert store.fetched_bytes <= 1.2 * N_ROWS * (ROW_BYTES + 8)


@pytest.mark.parametrize("source_kind", SOURCES)
def test_a_random_order_warns_once_and_says_what_to_do(
    store: FarStorageConnector, source_kind: str
) -> None:
    rows = SOURCES[source_kind](store)

    for iterator in (rows, rows.map(dict), rows.skip(1)):
        loader = Loader(iterator, 16, shuffle=True, worker_kind="inline")
        with pytest.warns(
            UserWarning,
            match=r"remote store .*BlockShuffled\(\)\), which reads each block once; or keep a copy",
        ) as warned:
            next(iter(loader))
        assert [warning.filename for warning in warned] == [__file__]
        next(iter(loader))  # silent
        next(iter(Loader(iterator, 16, worker_kind="inline")))  # in order, too
    with pytest.warns(UserWarning, match="shuffle in the loader only"):
        next(iter(Loader(rows.shuffle(1), 16, worker_kind="inline")))


def test_cached_and_local_samples_are_shuffled_silently(
    store: FarStorageConnector, tmp_path: Path
) -> None:
    (tmp_path / "local").mkdir()
    np.save(tmp_path / "local/a.npy", np.zeros((N_ROWS, ROW_BYTES), np.uint8))
    few = NumpyDatasetIterator([store.get_resource("arrays/few.npy")])
    local = NumpyDatasetIterator([tmp_path / "local/a.npy"])
    stored = SOURCES["arrays"](store).cache(
        storage=FarStorageConnector(tmp_path / "cache", BLOCK_BYTES)
    )

    for iterator in (few, local, stored, few.in_memory()):
        next(iter(Loader(iterator, 16, shuffle=True, worker_kind="inline")))
