"""What is kept of a source serves no other one: stored caches, saved splits and loader states of
replaced files.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import data_stack
from data_stack import formats
from data_stack.dataset.iterator import DatasetIteratorIF, SequenceDatasetIterator
from data_stack.exception import ConfigError, ResourceChangedError
from data_stack.formats import ImageFolderIterator, NumpyDatasetIterator, WebDatasetIterator
from data_stack.formats.conversion import convert
from data_stack.formats.parquet import ParquetDataset, col
from data_stack.formats.records import RecordReader
from data_stack.formats.registry import format_named, writable_formats
from data_stack.io.storage_connectors import FileStorageConnector

Array = npt.NDArray[Any]
N_SAMPLES = 200


def made(place: Path, values: Array, kind: str | None = None) -> Any:
    """The rows in a format, and pictures of them."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.suffix == ".npy":
        np.save(place, values)
    elif place.suffix == ".csv":
        place.write_text("a,b\n" + "".join(f"{a},{b}\n" for a, b in values))
    else:
        pictures = np.repeat(values, 12).reshape(len(values), 4, 6)
        samples = SequenceDatasetIterator([pictures, values[:, 0], values[:, 1]]).as_dict(
            "image", "a", "b"
        )
        try:
            convert(samples, place, target_format=kind, verify=False)
        except ConfigError:  # the format holds no pictures
            convert(samples, place, target_format=kind, columns="a,b", verify=False)
    return data_stack.load(str(place))


def numbers() -> Array:
    return np.random.default_rng(0).integers(0, 200, (N_SAMPLES, 2)).astype(np.uint8)


def other_in_the_middle(values: Array) -> Array:
    """Other values at one place, which no look at some samples finds."""
    changed: Array = values.copy()
    changed[N_SAMPLES // 2 + 3] ^= 1
    return changed


@pytest.mark.parametrize(
    "kind",
    [
        "x.npy",
        "x.csv",
        *(name for name, format_ in writable_formats().items() if format_.keeps_names),
    ],
)
def test_the_fingerprint_of_a_source_is_that_of_its_content(tmp_path: Path, kind: str) -> None:
    name, target = (
        (kind, None) if "." in kind else (f"x{next(iter(format_named(kind).suffixes), '')}", kind)
    )
    one, same = (
        made(tmp_path / "here" / name, numbers(), target),
        made(tmp_path / "there" / name, numbers(), target),
    )
    other = made(tmp_path / "other" / name, other_in_the_middle(numbers()), target)

    assert one.fingerprint() == same.fingerprint() != other.fingerprint()


# ------------------------------------------------------- what decides the samples besides the files


def test_arguments_of_a_source_belong_to_its_fingerprint(tmp_path: Path) -> None:
    table, text = tmp_path / "x.parquet", tmp_path / "x.csv"
    for name, kind in {
        "x.parquet": None,
        "x.csv": None,
        "rows": "records",
        "web": "webdataset",
        "images": "images",
    }.items():
        made(tmp_path / name, numbers()[:6], kind)
    shards = sorted((tmp_path / "web").glob("*.tar"))
    iterators = [
        ParquetDataset(table),
        ParquetDataset(table, columns=["a"]),
        ParquetDataset(table, columns=["b"]),
        ParquetDataset(table, filters=col("a") >= 0),
        formats.CSVDatasetIterator(text),
        formats.CSVDatasetIterator(text, dtype=np.float32),
        formats.CSVDatasetIterator(text, target=0),
        formats.CSVDatasetIterator(text, header=False, skip_lines=1),
        RecordReader(tmp_path / "rows"),
        RecordReader(tmp_path / "rows", columns=["b", "a"]),
        formats.WebDatasetIterator(shards),
        formats.WebDatasetIterator(shards, types={"a.cls": None}),
        formats.WebDatasetIterator(shards, fields=["b.cls"]),
        formats.ImageFolderIterator(tmp_path / "images"),
        formats.ImageFolderIterator(tmp_path / "images", decode=False),
    ]

    assert len({iterator.fingerprint() for iterator in iterators}) == len(iterators)


# ------------------------------------------------------------------ a source is what was read


def _write_parquet(folder: Path, value: int) -> DatasetIteratorIF:
    pq.write_table(pa.table({"a": np.full(4, value)}), folder / "new")
    os.replace(folder / "new", folder / "day.parquet")
    return ParquetDataset(folder / "day.parquet")


def _write_image(folder: Path, value: int) -> DatasetIteratorIF:
    (folder / "images/x").mkdir(parents=True, exist_ok=True)
    Image.new("L", (2, 2), value).save(folder / "new.png")
    os.replace(folder / "new.png", folder / "images/x/0.png")
    return ImageFolderIterator(folder / "images").select("image")


def _write_csv(folder: Path, value: int) -> DatasetIteratorIF:
    (folder / "new").write_text(f"a\n{value}\n")
    os.replace(folder / "new", folder / "day.csv")
    return data_stack.from_csv(folder / "day.csv")


def _write_npy(folder: Path, value: int) -> DatasetIteratorIF:
    np.save(folder / "new.npy", np.full(4, value))
    os.replace(folder / "new.npy", folder / "a.npy")
    return NumpyDatasetIterator({"a": folder / "a.npy"})


def _write_shard(folder: Path, value: int) -> DatasetIteratorIF:
    (folder / "shards").mkdir(exist_ok=True)
    with tarfile.open(folder / "new.tar", "w") as tar:
        member = tarfile.TarInfo("k.cls")
        member.size = 1
        tar.addfile(member, io.BytesIO(str(value).encode()))
    os.replace(folder / "new.tar", folder / "shards/0.tar")
    return WebDatasetIterator(folder / "shards/0.tar").select("cls")


_BUFFER = np.empty(4)


def _fill_buffer(folder: Path, value: int) -> DatasetIteratorIF:
    _BUFFER[:] = value
    return SequenceDatasetIterator([_BUFFER]).as_dict("a")


_WRITERS = [_write_parquet, _write_image, _write_csv, _write_npy, _write_shard, _fill_buffer]


def _value_of(iterator: DatasetIteratorIF) -> int:
    (value,) = iterator[0].values()
    return int(np.asarray(value).reshape(-1)[0])


@pytest.mark.parametrize("write", _WRITERS)
def test_samples_in_memory_are_what_was_read_then(tmp_path: Path, write: Any) -> None:
    parts = [write(tmp_path, value).in_memory() for value in (1, 2, 3)]

    assert len({part.fingerprint() for part in parts}) == 3
    cached = [part.cache(storage=tmp_path / "caches") for part in parts]
    assert [_value_of(part) for part in cached] == [1, 2, 3]


@pytest.mark.parametrize("write", _WRITERS)
def test_samples_in_memory_have_the_fingerprint_of_their_source(tmp_path: Path, write: Any) -> None:
    iterator = write(tmp_path, 1)

    kept = iterator.in_memory()
    before = kept.fingerprint()

    assert before == iterator.fingerprint()
    assert pickle.loads(pickle.dumps(kept)).fingerprint() == before
    write(tmp_path, 2)
    assert kept.fingerprint() == before


@pytest.mark.parametrize("write", [_write_parquet, _write_image, _write_npy, _write_shard])
def test_old_samples_are_never_cached_as_those_of_new_files(tmp_path: Path, write: Any) -> None:
    old = write(tmp_path, 1)
    assert _value_of(old) == 1

    new = write(tmp_path, 2)
    with contextlib.suppress(ResourceChangedError):
        _ = old.cache(storage=tmp_path / "caches")[0]

    assert _value_of(new.cache(storage=tmp_path / "caches")) == 2


def test_what_changes_while_it_is_stored_is_not_stored(tmp_path: Path) -> None:
    numbers = np.arange(4)

    class Storing(FileStorageConnector):
        def create(self, identifier: str, key: str | None = None) -> Any:
            numbers[3] = 9  # a thread of the program writes meanwhile
            return super().create(identifier, key)

    cached: Any = SequenceDatasetIterator([numbers]).cache(storage=Storing(tmp_path))
    with pytest.raises(ResourceChangedError, match="Load the dataset again"):
        cached.fill()
    assert not list(tmp_path.rglob("manifest.json"))


def test_a_shard_that_was_replaced_is_an_error(tmp_path: Path) -> None:
    _write_shard(tmp_path, 1)
    iterator = WebDatasetIterator(tmp_path / "shards/0.tar")
    assert len(iterator) == 1  # its headers were read, and no sample

    _write_shard(tmp_path, 2)

    with pytest.raises(ResourceChangedError, match=r"0\.tar"):
        iterator[0]
    with pytest.raises(ResourceChangedError, match=r"0\.tar"):
        iterator.fingerprint()


def test_an_array_changed_after_opening_has_no_fingerprint(tmp_path: Path) -> None:
    iterator = _write_npy(tmp_path, 1)
    assert _value_of(iterator) == 1

    with (tmp_path / "a.npy").open("r+b") as file:
        file.seek(-8, os.SEEK_END)
        file.write(b"changed!")
    os.utime(tmp_path / "a.npy", (1, 1))

    with pytest.raises(ResourceChangedError, match=r"a\.npy"):
        iterator.fingerprint()
