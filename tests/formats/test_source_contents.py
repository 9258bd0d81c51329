"""What is kept of a source serves no other one: stored caches, saved splits and loader states of replaced files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import data_stack
from data_stack import formats
from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.formats.conversion import convert
from data_stack.formats.conversion.formats import convertible_formats, format_named
from data_stack.formats.parquet import ParquetDataset, col
from data_stack.formats.records import RecordReader

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
        convert(samples, place, target_format=kind, verify=False)
    return data_stack.load(str(place))


def numbers() -> Array:
    return np.random.default_rng(0).integers(0, 200, (N_SAMPLES, 2)).astype(np.uint8)


def other_in_the_middle(values: Array) -> Array:
    """Other values at one place, which no look at some samples finds."""
    changed: Array = values.copy()
    changed[N_SAMPLES // 2 + 3] ^= 1
    return changed


@pytest.mark.parametrize("kind", ["x.npy", "x.csv", *convertible_formats()])
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


# ---------------------------------------------------------------------- what decides the samples besides the files


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
