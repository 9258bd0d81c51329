"""A disk that is full, cannot be written or read, or flips bits: an error of ours that says so, and
nothing lost.
"""

from __future__ import annotations

import gc
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fault_dataset import RIGHT, opened, read
from fault_stores import CachedStores, StoreKind
from process_harness import Harness, flip_file
from sizes import FULL, SEED, sized, spread
from small_disk import remount_larger, tmpfs, why_no_mounts

from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.exception import (
    ChecksumMismatchError,
    DamagedBlockError,
    DataStackError,
    StorageFullError,
)
from data_stack.formats.conversion import convert
from data_stack.formats.records import ColumnType, RecordWriter, ShardedRecordWriter
from data_stack.io.storage_connectors import FileStorageConnector
from data_stack.stores.splits import save_splits

#: Whom to be so that permissions mean something; None for who we are.
NOBODY = 65534 if os.geteuid() == 0 else None


def test_after_a_full_disk_the_next_run_heals_the_dataset(
    processes: Harness, stores: StoreKind, sources: str, figures: Counter[str]
) -> None:
    for limit in spread(700_000, max(2, sized(2, 40 // stores.slowness, cost=stores.cost))):
        store = stores.new()

        outcome = processes.run(
            "fault_dataset:prepare_with_small_files",
            store,
            sources,
            limit,
            look_for_left=not stores.keeps_open,
        )

        assert outcome.value == "prepared" or outcome.error == "StorageFullError", outcome
        assert outcome.left == []
        figures["prepared" if outcome.value else "StorageFullError"] += 1
        healed = processes.run("fault_dataset:heal", store, sources)
        assert healed.value == RIGHT, healed
        assert stores.left_over(store) == []
        stores.discard(store)
    assert figures["StorageFullError"] > 0


def test_a_cache_on_a_full_disk_serves_the_remote(
    processes: Harness, sources: str, tmp_path: Path
) -> None:
    if reason := why_no_mounts():
        pytest.skip(f"no small disk can be mounted: {reason}")
    remote = tmp_path / "remote"
    assert processes.run("fault_dataset:prepare", {"url": str(remote)}, sources).value == "prepared"
    for size in spread(1_200_000, sized(2, 40)):
        with tmpfs(tmp_path / "disk", size) as disk:
            store = {"url": f"file://{remote}?cache={disk}/local"}

            outcomes = [
                processes.run("fault_dataset:use", store, sources, look_for_left=True)
                for _ in range(2)
            ]

            assert [(outcome.value, outcome.left) for outcome in outcomes] == [(RIGHT, [])] * 2, (
                outcomes
            )


@pytest.fixture
def locked(processes: Harness, sources: str, open_folder: Path) -> Iterator[Path]:
    """A store with the dataset that another user may only read."""
    root = open_folder / "store"
    assert processes.run("fault_dataset:prepare", {"url": str(root)}, sources).value == "prepared"
    lock(root, 0o555, 0o444)
    yield root
    lock(root, 0o755, 0o644)
    shutil.rmtree(root)


def test_a_store_that_may_be_read_only_serves_and_refuses(
    processes: Harness, sources: str, locked: Path
) -> None:
    before = {path: path.lstat().st_mtime_ns for path in locked.rglob("*")}

    reading = processes.run(
        "fault_dataset:use", {"url": str(locked)}, sources, user=NOBODY, look_for_left=True
    )
    writing = processes.run(
        "fault_dataset:prepare", {"url": str(locked)}, sources, 2, user=NOBODY, look_for_left=True
    )

    assert (reading.value, reading.left) == (RIGHT, []), reading
    assert (writing.error, writing.own, writing.left) == ("StorageError", True, []), writing
    assert {path: path.lstat().st_mtime_ns for path in locked.rglob("*")} == before


@pytest.mark.parametrize("closed", [".", "numbers/1/preprocessed/train/samples.npy", ".data_stack"])
def test_unreadable_files_are_our_error_or_not_needed(
    processes: Harness, sources: str, locked: Path, closed: str
) -> None:
    (locked / closed).chmod(0)

    outcome = processes.run(
        "fault_dataset:use", {"url": str(locked)}, sources, user=NOBODY, look_for_left=True
    )

    assert outcome.value == RIGHT or outcome.own, outcome
    assert outcome.left == []


def lock(root: Path, folders: int, files: int) -> None:
    """Set the modes of all below a folder."""
    for path in [root, *sorted(root.rglob("*"))]:
        path.chmod(0o755 if path.is_dir() else files)
    for path in [*sorted(root.rglob("*"), reverse=True), root]:
        if path.is_dir():
            path.chmod(folders)


# ---------------------------------------------------------------------- every writer


N_SAMPLES = 120
IMAGES = np.random.default_rng(0).integers(0, 255, (N_SAMPLES, 16, 16, 3), dtype=np.uint8)
LABELS = np.arange(N_SAMPLES) % 5


def iterator() -> SequenceDatasetIterator:
    return SequenceDatasetIterator([IMAGES, LABELS])


def write_records(disk: Path) -> None:
    with RecordWriter(
        disk / "set", {"x": ColumnType("array", "uint8", (16, 16, 3)), "y": "i64"}
    ) as writer:
        for i in range(len(writer), N_SAMPLES):
            writer.append({"x": IMAGES[i], "y": int(LABELS[i])}, flush=i % 20 == 0)


def write_shards(disk: Path) -> None:
    with ShardedRecordWriter(disk / "set", {"x": "array"}, shardlen=25) as writer:
        for i in range(len(writer), N_SAMPLES):
            writer.append({"x": IMAGES[i]})


def converted_to(name: str, **options: Any) -> Callable[[Path], None]:
    def write(disk: Path) -> None:
        convert(iterator().as_dict("image", "label"), str(disk / name), progress=False, **options)

    return write


def write_a_stored_cache(disk: Path) -> None:
    cached = iterator().cache(storage=FileStorageConnector(disk / "store"), identifier="cache")
    assert len(list(cached)) == N_SAMPLES


def write_splits(disk: Path) -> None:
    samples = SequenceDatasetIterator([list(range(20_000))])
    save_splits(
        FileStorageConnector(disk / "store"),
        "splits.json",
        samples.split({"a": 0.5, "b": 0.5}, seed=1),
        replace=True,
    )


def store_resources(disk: Path) -> None:
    for number in range(4):
        FileStorageConnector(disk / "store").set_resource(
            f"set/{number}", IMAGES[number * 10 : number * 10 + 10].tobytes()
        )


WRITERS: dict[str, Callable[[Path], None]] = {
    "records": write_records,
    "shards": write_shards,
    **{
        f"converted to {kind}": converted_to("set", target_format=kind)
        for kind in ("records", "parquet", "webdataset", "images")
    },
    "converted to npz": converted_to("set.npz"),
    "converted to HDF5": converted_to("set.h5"),
    "converted to torch": converted_to("set.pt"),
    "stored cache": write_a_stored_cache,
    "saved splits": write_splits,
    "resources": store_resources,
}
#: From no page at all on; tmpfs counts in pages.
SIZES = [4096 * n_pages for n_pages in ((1, 2, 4, 7, 12, 22) if FULL else (1, 7))]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
@pytest.mark.parametrize("writer", WRITERS)
def test_after_a_storage_full_error_the_next_try_succeeds(tmp_path: Path, writer: str) -> None:
    write, n_full = WRITERS[writer], 0
    gc.collect()  # and no more look through what the tests before have left
    gc.freeze()
    for size in SIZES:
        with tmpfs(tmp_path / "disk", size) as disk:
            error: StorageFullError | None = None
            try:
                write(disk)
            except StorageFullError as caught:
                error = caught
            gc.collect()  # what is thrown away complains of nothing
            if error is not None:
                n_full += 1
                assert str(disk) in str(error)
                assert "bytes are free" in str(error)
                assert isinstance(error.__cause__, OSError)
                remount_larger(disk)
                write(disk)
            del error  # and what its traceback holds
            gc.collect()

    assert n_full > 0


# --------------------------------------------------------- flipped bits: an error, never wrong data


CONTENT = random.Random(2).randbytes(2_700_000)  # three blocks of a file, 42 chunks of MongoDB


def flips(
    stores: StoreKind, figures: Counter[str], n: int = 10
) -> Iterator[tuple[Mapping[str, Any], int]]:
    """A store with ``a/large``, of which one bit after the other is wrong: the first, the last, and
    random others.
    """
    store, chance, size = stores.new(), random.Random(SEED), len(CONTENT)
    with opened(store) as connector:
        connector.set_resource("a/large", CONTENT)
    n_flips = sized(n, 100 // stores.slowness, cost=stores.cost)
    for position in [0, 8 * size - 1, *(chance.randrange(8 * size) for _ in range(n_flips - 2))]:
        stores.flip_bit(store, "a/large", position)
        yield store, position
        figures["flips found"] += 1
        stores.flip_bit(store, "a/large", position)
    assert read(store, "a/large") == CONTENT
    stores.discard(store)


@pytest.mark.parametrize("stores", ["file", "cached"], indirect=True)
def test_verifying_finds_a_flipped_bit_of_an_unvouched_file(
    stores: StoreKind, figures: Counter[str]
) -> None:
    for store, _ in flips(stores, figures):
        with opened(store) as connector:
            assert connector.stat("a/large").sha256 is None
            with pytest.raises(ChecksumMismatchError):
                connector.verify_resource("a/large")


@pytest.mark.parametrize(
    "stores", ["mongodb", pytest.param("s3", marks=pytest.mark.full)], indirect=True
)
def test_a_flipped_bit_is_an_error_naming_resource_and_block(
    stores: StoreKind, figures: Counter[str]
) -> None:
    for store, position in flips(stores, figures):
        start = max(0, position // 8 - 10)
        with opened(store) as connector, connector.get_resource("a/large") as resource:
            with pytest.raises(DamagedBlockError) as caught:
                resource.read()
            with pytest.raises(DamagedBlockError):
                resource.read_at(start, 100)
            with pytest.raises(DamagedBlockError):
                resource.read_ranges([(0, 10), (start, 100)])
            far = len(CONTENT) - 10 if start < len(CONTENT) // 2 else 0
            assert resource.read_ranges([(far, 10)]) == [CONTENT[far : far + 10]]
            with pytest.raises(DataStackError):
                connector.verify_resource("a/large")

        assert caught.value.identifier == "a/large"
        assert caught.value.block == position // 8 // caught.value.block_bytes


def test_what_a_cache_holds_is_never_served_damaged(tmp_path: Path) -> None:
    stores, chance = CachedStores(tmp_path), random.Random(SEED)
    store = stores.new()
    with opened(store) as connector:
        connector.set_resource("x", CONTENT)
    for _ in range(sized(4, 100)):
        assert read(store, "x") == CONTENT
        local = [path for path in Path(store["folder"], "local").rglob("*") if path.is_file()]
        files = [path for path in local if path.stat().st_size >= len(CONTENT)]
        assert files, "the cache holds it"
        for file in files:
            flip_file(file, chance.randrange(8 * len(CONTENT)))

        assert read(store, "x") == CONTENT
