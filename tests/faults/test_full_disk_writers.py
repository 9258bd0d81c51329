"""Every writer on a disk that is too small: a StorageFullError that names the path, and the next try, with room, succeeds."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sizes import FULL
from small_disk import remount_larger, tmpfs

from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.exception import StorageFullError
from data_stack.formats.conversion import convert
from data_stack.formats.records import Column, RecordWriter, ShardedRecordWriter
from data_stack.io.storage_connectors import FileStorageConnector
from data_stack.stores.splits import save_splits

N_SAMPLES = 120
IMAGES = np.random.default_rng(0).integers(0, 255, (N_SAMPLES, 16, 16, 3), dtype=np.uint8)
LABELS = np.arange(N_SAMPLES) % 5


def iterator() -> SequenceDatasetIterator:
    return SequenceDatasetIterator([IMAGES, LABELS])


def write_records(disk: Path) -> None:
    with RecordWriter(disk / "set", {"x": Column("array", "uint8", (16, 16, 3)), "y": "i64"}) as writer:
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
    save_splits(FileStorageConnector(disk / "store"), "splits.json", samples.split({"a": 0.5, "b": 0.5}, seed=1), replace=True)


def store_resources(disk: Path) -> None:
    for number in range(4):
        FileStorageConnector(disk / "store").set_resource(f"set/{number}", IMAGES[number * 10 : number * 10 + 10].tobytes())


WRITERS: dict[str, Callable[[Path], None]] = {
    "records": write_records,
    "shards": write_shards,
    **{
        f"converted to {kind}": converted_to("set", target_format=kind) for kind in ("records", "parquet", "webdataset", "images")
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


@pytest.fixture(autouse=True, scope="module")
def _little_to_look_through() -> None:
    """For ``gc.collect()``: not what the tests before have left in caches."""
    gc.collect()
    gc.freeze()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
@pytest.mark.parametrize("writer", WRITERS)
def test_a_full_disk_is_a_storage_full_error_and_the_next_try_succeeds(tmp_path: Path, writer: str) -> None:
    write, n_full = WRITERS[writer], 0
    for size in SIZES:
        with tmpfs(tmp_path / "disk", size) as disk:
            error = full_error_of(write, disk)
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


def full_error_of(write: Callable[[Path], None], disk: Path) -> StorageFullError | None:
    try:
        write(disk)
    except StorageFullError as error:
        return error
    return None
