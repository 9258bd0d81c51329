"""Damage in real files: which samples it hits, in every format and kind of workers."""

from __future__ import annotations

import errno
import io
import json
import os
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damaged_numbers import DamagedNumbers

import data_stack
from data_stack.codecs.codec import Codec
from data_stack.codecs.decoding import decode_file
from data_stack.dataset.iterator import DatasetIteratorIF, SequenceDatasetIterator
from data_stack.exception import (
    DatasetFileCorruptError,
    LoadingError,
    MissingDependencyError,
    MissingFileError,
    StorageError,
)
from data_stack.formats import NumpyDatasetIterator, convert
from data_stack.io.parsing import reading
from data_stack.io.storage_connectors.object_store import FsspecStorageConnector
from data_stack.loader import Loader
from data_stack.loader.error_policy import OnError
from data_stack.loader.workers.base import WorkerKind

N = 40


@dataclass(frozen=True)
class Damaged:
    """A dataset with damage.

    Attributes:
        open: opens it.
        expected: the positions of the samples that are damaged.
        identify: returns the position of each sample of a batch, by its values.
        location: a part of the location of the first damaged sample.
    """

    open: Callable[[], DatasetIteratorIF]
    expected: list[int]
    identify: Callable[[Any], list[int]]
    location: str


def flip(path: Path, at: int, n: int = 1) -> None:
    """Change bytes of a file."""
    content = bytearray(path.read_bytes())
    for place in range(at, at + n):
        content[place] ^= 0xFF
    path.write_bytes(content)


def pictures() -> list[np.ndarray[Any, Any]]:
    random = np.random.default_rng(0)
    return [random.integers(0, 256, (40, 40, 3)).astype(np.uint8) for _ in range(N)]


def ids_of(batch: Any) -> list[int]:
    numbers: list[int] = np.asarray(batch["id"]).astype(int).tolist()
    return numbers


# ------------------------------------------------------------------------- datasets with damage


def records_with_a_flipped_bit(folder: Path) -> Damaged:
    """Records of 4,800 bytes, of which 13 or 14 are in a block of 65,536 bytes with a checksum."""
    rows = SequenceDatasetIterator([np.arange(N), np.stack(pictures())]).as_dict("id", "image")
    convert(rows, folder / "data", target_format="records")
    path = folder / "data" / "image.bag"
    size = path.stat().st_size
    header = size - N * 4800
    flip(path, 100_000)
    record_bytes = size / N
    first = int(65_536 // record_bytes)
    last = int(131_071 // record_bytes)
    assert header < size
    return Damaged(
        lambda: data_stack.load(folder / "data"),
        list(range(first, last + 1)),
        ids_of,
        f"record {first} of ",
    )


def truncated_pictures(folder: Path) -> Damaged:
    """A folder with a JPEG that ends early, a PNG with a wrong checksum, and an empty file."""
    from PIL import Image

    (folder / "data").mkdir()
    for number, picture in enumerate(pictures()):
        suffix = "jpg" if number % 2 else "png"
        picture[0, 0] = number
        Image.fromarray(picture).save(folder / "data" / f"{number:02}.{suffix}")
    jpeg = folder / "data" / "05.jpg"
    jpeg.write_bytes(jpeg.read_bytes()[:900])
    flip(folder / "data" / "10.png", 1000)
    (folder / "data" / "21.jpg").write_bytes(b"")
    numbers = SequenceDatasetIterator([np.arange(N)]).as_dict("id")

    def open_pictures() -> Any:
        images = data_stack.load(folder / "data")
        return images.map(as_picture).zip(numbers)

    return Damaged(open_pictures, [5, 10, 21], ids_of, "05.jpg")


def as_picture(sample: Any) -> dict[str, Any]:
    values = list(sample.values()) if isinstance(sample, dict) else list(sample)
    return {"image": values[0]}


def parquet_with_a_damaged_page(folder: Path) -> Damaged:
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = [os.urandom(200).hex() for _ in range(N)]
    table = pa.table({"id": np.arange(N), "text": texts})
    path = folder / "data.parquet"
    pq.write_table(table, path, row_group_size=10, use_dictionary=False, write_page_checksum=True)
    column = pq.ParquetFile(path).metadata.row_group(2).column(1)
    flip(path, column.data_page_offset + column.total_compressed_size - 500)
    return Damaged(
        lambda: data_stack.load(path),
        list(range(20, 30)),
        ids_of,
        "row 0 of row group 2 of ",
    )


def tar_with_broken_members(folder: Path) -> Damaged:
    from PIL import Image

    path = folder / "data-000000.tar"
    with tarfile.open(path, "w") as archive:
        for number, picture in enumerate(pictures()):
            buffer = io.BytesIO()
            Image.fromarray(picture).save(buffer, "PNG")
            png = bytearray(buffer.getvalue())
            text = json.dumps({"id": number})
            if number == 6:
                png[100] ^= 0xFF
            if number == 7:
                text = '{"id": '
            members = {"png": bytes(png), "json": text.encode(), "cls": str(number).encode()}
            for suffix, content in members.items():
                member = tarfile.TarInfo(f"{number:04}.{suffix}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return Damaged(
        lambda: data_stack.load(path),
        [6, 7],
        lambda batch: [int(value["id"]) for value in batch["json"]],
        "'0006' of ",
    )


def arrow_with_a_damaged_batch(folder: Path) -> Damaged:
    import pyarrow as pa

    texts = [os.urandom(200).hex() for _ in range(N)]
    table = pa.table({"id": np.arange(N), "text": texts})
    path = folder / "data.arrow"
    with pa.ipc.new_file(path, table.schema) as writer:
        for start in range(0, N, 10):
            writer.write_table(table.slice(start, 10))
    flip(path, path.read_bytes().index(texts[17].encode()), 8)
    return Damaged(lambda: data_stack.load(path), [17], ids_of, "row 7 of record batch 1 of ")


DATASETS = [
    records_with_a_flipped_bit,
    truncated_pictures,
    parquet_with_a_damaged_page,
    tar_with_broken_members,
    arrow_with_a_damaged_batch,
]


@pytest.fixture(scope="module", params=DATASETS, ids=lambda make: make.__name__)
def damaged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Damaged:
    made: Damaged = request.param(tmp_path_factory.mktemp("damaged"))
    return made


def positions_in(loader: Loader, damaged: Damaged) -> list[list[int]]:
    return [damaged.identify(batch) for batch in loader]


@pytest.mark.parametrize("kind", ["inline", "threads", "processes"])
def test_only_damaged_samples_are_skipped(damaged: Damaged, kind: WorkerKind) -> None:
    iterator = damaged.open()
    loader = Loader(iterator, 8, shuffle=True, on_error="skip", worker_kind=kind, workers=None)

    first = positions_in(loader, damaged)
    second = positions_in(loader, damaged)

    intact = sorted(set(range(N)) - set(damaged.expected))
    assert sorted(number for batch in first for number in batch) == intact
    assert sorted(number for batch in second for number in batch) == intact
    assert len(first) == len(second) == 5
    assert sorted(sample.position for sample in loader.damaged_samples()) == damaged.expected
    assert loader.stats().damaged == {"DatasetFileCorruptError": len(damaged.expected)}
    locations = {sample.position: sample.location for sample in loader.damaged_samples()}
    assert damaged.location in str(locations[damaged.expected[0]])


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_kinds_of_workers_read_the_same(damaged: Damaged, on_error: OnError) -> None:
    batches_of_kinds = []
    for kind in ("inline", "threads", "processes"):
        with Loader(
            damaged.open(), 8, shuffle=True, on_error=on_error, worker_kind=kind, epochs=2
        ) as loader:
            batches_of_kinds.append(positions_in(loader, damaged))

    inline, threads, processes = batches_of_kinds
    assert inline == threads == processes
    assert not set(damaged.expected) & {number for batch in inline for number in batch}
    if on_error == "replace":
        assert [len(batch) for batch in inline] == [8] * 10


def test_four_ranks_run_the_same_number_of_steps(damaged: Damaged) -> None:
    for on_error in ("skip", "replace"):
        n_steps = set()
        for rank in range(4):
            loader = Loader(
                damaged.open(), 3, shuffle=True, on_error=on_error, shard=(rank, 4), workers=0
            )
            n_steps.add(len(positions_in(loader, damaged)))
        assert n_steps == {4}


def test_a_cache_keeps_no_damage(tmp_path: Path) -> None:
    from PIL import Image

    for number in range(4):
        Image.new("RGB", (8, 8)).save(tmp_path / f"{number}.png")
    intact = (tmp_path / "2.png").read_bytes()
    (tmp_path / "2.png").write_bytes(intact[:40])
    cached = data_stack.load(tmp_path).cache()
    loader = Loader(cached, 4, on_error="skip", worker_kind="inline")
    list(loader)
    assert loader.stats().n_samples == 3

    with pytest.raises(DatasetFileCorruptError):
        cached[2]
    with pytest.raises(DatasetFileCorruptError):
        cached[2]


def test_an_unfilled_stored_cache_raises_at_once(tmp_path: Path) -> None:
    numbers = DamagedNumbers(N, [30], reads=tmp_path / "reads")
    cached = numbers.cache(storage=tmp_path / "store", version="1")

    with pytest.raises(LoadingError, match="number 30 is damaged"):
        list(Loader(cached, 4, on_error="skip", worker_kind="inline"))

    assert numbers.numbers_read().count(30) <= 3


def test_packed_sequences_of_a_damaged_document_are_damaged() -> None:
    documents = DamagedNumbers(N, [])
    packed = documents.map(as_document).pack(8, "tokens")
    len(packed)  # the lengths of all documents have been read
    documents.damaged = frozenset([13])
    loader = Loader(packed, 4, on_error="skip", worker_kind="inline")

    numbers = set()
    for batch in loader:
        numbers |= set(np.unique(batch["tokens"]).tolist())

    assert 0 < len(loader.damaged_samples()) < len(packed) / 2
    assert all("numbers.bin" in str(sample.location) for sample in loader.damaged_samples())
    assert 13 not in numbers
    assert {0, N - 1} <= numbers


def as_document(sample: Any) -> dict[str, Any]:
    return {"tokens": np.full(6, sample[0], np.int32)}


def test_windows_over_a_damaged_sample_are_damaged() -> None:
    windows = DamagedNumbers(12, [5]).windows(3)
    loader = Loader(windows, 4, on_error="skip", worker_kind="inline")

    list(loader)

    assert [sample.position for sample in loader.damaged_samples()] == [3, 4, 5]


# ----------------------------------------------------------------------- a store with checksums


def test_damaged_blocks_of_a_store_are_skipped(tmp_path: Path) -> None:
    connector = FsspecStorageConnector(f"file://{tmp_path / 'store'}")
    values = np.arange(1 << 20, dtype=np.int64).reshape(-1, 64)
    buffer = io.BytesIO()
    np.save(buffer, values)
    buffer.seek(0)
    connector.set_resource("values.npy", buffer)
    objects = (tmp_path / "store" / ".data_stack" / "objects").rglob("*")
    flip(max(objects, key=lambda path: path.stat().st_size), 4_000_000)
    iterator = NumpyDatasetIterator([(connector, "values.npy")])
    loader = Loader(iterator, 512, on_error="skip", max_errors=10_000, worker_kind="inline")

    list(loader)

    assert set(loader.stats().damaged) == {"DamagedBlockError"}
    positions = sorted(sample.position for sample in loader.damaged_samples())
    assert positions == list(range(positions[0], positions[0] + len(positions)))
    assert 65_536 // 512 <= len(positions) <= 65_536 // 512 + 1


# --------------------------------------------------------------------------- what is no damage


def test_a_file_that_is_gone_is_raised(tmp_path: Path) -> None:
    from PIL import Image

    for number in range(4):
        Image.new("RGB", (8, 8)).save(tmp_path / f"{number}.png")
    images = data_stack.load(tmp_path)
    len(images)
    (tmp_path / "2.png").unlink()

    with pytest.raises(LoadingError) as caught:
        list(Loader(images, 4, on_error="skip", worker_kind="inline"))
    assert isinstance(caught.value.__cause__, MissingFileError)

    named = Loader(images, 4, on_error="skip", errors=FileNotFoundError, worker_kind="inline")
    list(named)
    assert named.stats().damaged == {"MissingFileError": 1}


def test_a_disk_that_fails_is_no_damaged_file() -> None:
    with pytest.raises(StorageError, match=r"a\.npz"), reading("a.npz", ".npz file"):
        raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(DatasetFileCorruptError, match=r"a\.npz"), reading("a.npz", ".npz file"):
        raise OSError("bad magic")


class NeedsPackage(Codec):
    """A codec whose package is missing."""

    name = "needs package"
    aliases = ("np",)
    is_compressed = True

    def encode(self, value: Any) -> bytes:
        raise NotImplementedError

    def decode(self, record: bytes) -> Any:
        raise MissingDependencyError("this codec", "a-package", "images")


def test_a_missing_package_is_no_damaged_file() -> None:
    with pytest.raises(MissingDependencyError):
        decode_file(NeedsPackage(), b"abc", "a.np")
