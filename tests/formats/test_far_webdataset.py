"""Tars in a remote store: what an epoch moves, and what another process need not read again."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from archives import tar_of
from far_store import FarStorageConnector

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.exception import ConfigError, ResourceChangedError
from data_stack.formats.webdataset import WebDatasetIterator
from data_stack.io.storage_connectors import StorageConnector
from data_stack.io.storage_connectors.cached import CachedStorageConnector
from data_stack.loader import BlockShuffled, Loader

N_SHARDS = 5
N_OF_SHARD = 100
PICTURE_BYTES = 50_000
N_SAMPLES = N_SHARDS * N_OF_SHARD


def write_shard(store: FarStorageConnector, number: int, n_samples: int = N_OF_SHARD) -> None:
    files: dict[str, bytes] = {}
    for sample in range(number * N_OF_SHARD, number * N_OF_SHARD + n_samples):
        files[f"{sample:04}.bin"] = sample.to_bytes(2, "little") * (PICTURE_BYTES // 2)
        files[f"{sample:04}.cls"] = str(sample).encode()
    with store.create(f"{number}.tar") as file:
        file.write(tar_of(files, "w"))


@pytest.fixture
def store(tmp_path: Path) -> FarStorageConnector:
    store = FarStorageConnector(tmp_path, block_bytes=1 << 14)
    for number in range(N_SHARDS):
        write_shard(store, number)
    return store


def shards_of(store: StorageConnector, **options: Any) -> WebDatasetIterator:
    shards = [(store, f"{number}.tar") for number in range(N_SHARDS)]
    return WebDatasetIterator(shards, **options)


def labels_of_an_epoch(samples: DatasetIteratorIF, shuffle: Any, **options: Any) -> list[int]:
    """The labels of all samples, in the order of a loader."""
    labels: list[int] = []
    for batch in Loader(samples, 32, shuffle=shuffle, seed=1, **options):
        labels.extend(batch["cls"].tolist())
    return labels


@pytest.mark.parametrize("worker_kind", ["inline", "threads", "auto"])
def test_an_epoch_by_blocks_moves_each_byte_about_once(
    store: FarStorageConnector, worker_kind: str
) -> None:
    samples = shards_of(store, max_kept_bytes=0)
    assert len(samples) == N_SAMPLES
    store.requests.clear()

    seen = labels_of_an_epoch(samples, BlockShuffled(window=4), worker_kind=worker_kind)

    assert sorted(seen) == list(range(N_SAMPLES))
    assert seen != sorted(seen)
    assert store.fetched_bytes < 1.3 * N_SAMPLES * PICTURE_BYTES
    # By single pictures, there would be one for each of them.
    assert len(store.requests) < N_SAMPLES / 3


@pytest.mark.parametrize("shuffle", [False, True, BlockShuffled(window=4)])
def test_headers_and_an_epoch_fetch_each_byte_once(
    store: FarStorageConnector, shuffle: Any
) -> None:
    samples = shards_of(store)

    seen = labels_of_an_epoch(samples, shuffle)

    assert sorted(seen) == list(range(N_SAMPLES))
    n_bytes = sum(path.stat().st_size for path in Path(store.root_path).glob("*.tar"))
    assert store.fetched_bytes < 1.01 * n_bytes + N_SHARDS * store.block_bytes


def test_shards_above_the_limit_are_not_kept(store: FarStorageConnector) -> None:
    samples = shards_of(store, max_kept_bytes=10_000_000)
    assert len(samples) == N_SAMPLES
    store.requests.clear()

    seen = labels_of_an_epoch(samples, BlockShuffled(window=4))

    assert sorted(seen) == list(range(N_SAMPLES))
    assert store.fetched_bytes > N_SAMPLES * PICTURE_BYTES - 10_000_000


def test_other_fields_of_kept_shards_need_no_request(store: FarStorageConnector) -> None:
    samples = shards_of(store)
    assert len(samples) == N_SAMPLES
    store.requests.clear()

    labels = samples.with_fields(["cls"], {})

    assert labels[321]["cls"] == 321
    assert samples[0]["bin"] == bytes(PICTURE_BYTES)
    assert store.requests == []


def test_large_files_behind_small_ones_are_skipped(tmp_path: Path) -> None:
    store = FarStorageConnector(tmp_path, block_bytes=1 << 14)
    files = {f"{number}.txt": b"small" for number in range(8)}
    files |= {f"{number}.bin": bytes(6 << 20) for number in range(4)}
    with store.create("a.tar") as file:
        file.write(tar_of(files, "w"))

    samples = WebDatasetIterator([(store, "a.tar")])

    assert len(samples) == 8
    assert store.fetched_bytes < 9 << 20
    assert samples[3]["bin"] == bytes(6 << 20)


@pytest.mark.parametrize("n_epochs", [1, 2])
def test_order_by_blocks_is_that_of_an_empty_cache(
    store: FarStorageConnector, tmp_path: Path, n_epochs: int
) -> None:
    expected = labels_of_an_epoch(shards_of(store), BlockShuffled(window=4))

    for _ in range(n_epochs):
        cached = CachedStorageConnector(store, local=tmp_path / "cache")
        seen = labels_of_an_epoch(shards_of(cached), BlockShuffled(window=4))

    assert seen == expected


def test_blocks_go_on_from_shard_to_shard(store: FarStorageConnector) -> None:
    samples = shards_of(store)

    lengths = BlockShuffled().for_iterator(samples).lengths(N_SAMPLES)  # type: ignore[attr-defined]

    assert lengths.sum() == N_SAMPLES
    assert set(lengths[:-1].tolist()) == {26}


def test_only_the_fields_to_read_are_fetched(store: FarStorageConnector) -> None:
    labels = shards_of(store, max_kept_bytes=0).with_fields(["cls"], {})
    store.requests.clear()

    seen = labels_of_an_epoch(labels, BlockShuffled(), worker_kind="inline")

    assert sorted(seen) == list(range(N_SAMPLES))
    assert store.fetched_bytes < 0.6 * N_SAMPLES * PICTURE_BYTES


def test_a_copy_has_the_headers_of_remote_shards(
    store: FarStorageConnector, tmp_path: Path
) -> None:
    samples = shards_of(store)
    keys = list(samples.keys)
    pickled = pickle.dumps(samples)
    (tmp_path / "4.tar").unlink()

    copy = pickle.loads(pickled)

    assert list(copy.keys) == keys
    assert copy[399]["cls"] == 399


def test_a_copy_notices_a_remote_shard_that_changed(store: FarStorageConnector) -> None:
    samples = shards_of(store)
    assert samples[0]["cls"] == 0
    pickled = pickle.dumps(samples)
    write_shard(store, 4, n_samples=3)

    copy = pickle.loads(pickled)

    assert copy[399]["cls"] == 399
    with pytest.raises(ResourceChangedError, match=r"4\.tar"):
        copy[400]


def test_a_copy_reads_the_headers_of_local_shards_again(
    store: FarStorageConnector, tmp_path: Path
) -> None:
    samples = WebDatasetIterator(tmp_path / "4.tar")
    assert len(samples) == N_OF_SHARD
    pickled = pickle.dumps(samples)
    write_shard(store, 4, n_samples=3)

    copy = pickle.loads(pickled)

    assert len(copy) == 3


def test_local_shards_have_no_blocks(store: FarStorageConnector, tmp_path: Path) -> None:
    samples = WebDatasetIterator(tmp_path / "4.tar")

    with pytest.raises(ConfigError, match="reports no blocks"):
        Loader(samples, 32, shuffle=BlockShuffled())


def test_shards_without_samples_have_no_blocks(tmp_path: Path) -> None:
    store = FarStorageConnector(tmp_path)
    write_shard(store, 0, n_samples=0)

    samples = WebDatasetIterator([(store, "0.tar")])

    assert len(samples) == 0
    assert samples.remote_bytes() == 0
