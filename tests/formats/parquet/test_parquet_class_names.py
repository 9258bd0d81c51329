"""Names of classes in Parquet files: kept by ``convert``, read by us and by ``datasets``."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import data_stack
from data_stack.dataset.iterator import InformedDatasetIterator, SequenceDatasetIterator
from data_stack.dataset.meta import DatasetMeta, IteratorMeta
from data_stack.formats import convert
from data_stack.formats.class_name_metadata import metadata_of_class_names
from data_stack.formats.parquet import ParquetDataset, ParquetWriter

NAMES = ("cat", "dog", 'größe "x"')
LABELS = [0, 2, 1, 1]


def labelled(dtype: Any = np.int64) -> Any:
    """Rows ``(x, label)`` whose meta has the names of the classes."""
    rows = SequenceDatasetIterator([np.arange(4.0), np.array(LABELS, dtype=dtype)])
    meta = DatasetMeta(
        IteratorMeta(0, 1, 2), "rows", "rows", target_kind="label", class_names=NAMES
    )
    return InformedDatasetIterator(rows, meta)


def class_names_of(path: Path, target: str = "label") -> Any:
    loaded: Any = data_stack.load(str(path), target=target)
    return loaded.dataset_meta.class_names


def only_file(folder: Path) -> Path:
    (file,) = folder.glob("part-*.parquet")
    return file


@pytest.mark.parametrize("shardlen", [None, 3])
def test_class_names_survive_conversions(tmp_path: Path, shardlen: int | None) -> None:
    first = tmp_path / "first.parquet"
    second = tmp_path / "second.parquet"
    arrow = tmp_path / "third.arrow"

    convert(labelled(), str(first), columns="x=0,label=1", shardlen=shardlen)
    convert(str(first), str(second), columns="kind=label", shardlen=shardlen)
    convert(str(second), str(arrow))

    assert class_names_of(first) == NAMES
    assert class_names_of(second, "kind") == NAMES
    assert class_names_of(arrow, "kind") == NAMES
    loaded: Any = data_stack.load(str(second))
    assert loaded.read_column("kind").dtype == np.int64
    assert loaded.read_column("kind").tolist() == LABELS


def test_datasets_reads_the_names_of_classes(tmp_path: Path) -> None:
    import datasets  # takes a second

    convert(labelled(), str(tmp_path / "rows.parquet"), columns="x=0,label=1")
    file = only_file(tmp_path / "rows.parquet")

    theirs = datasets.Dataset.from_parquet(str(file), cache_dir=str(tmp_path / "cache"))

    assert theirs.features["label"] == datasets.ClassLabel(names=list(NAMES))
    assert theirs.features["x"] == datasets.Value("float64")
    assert theirs["label"][:] == LABELS


def test_names_that_datasets_wrote_are_read(tmp_path: Path) -> None:
    import datasets  # takes a second

    features = datasets.Features(
        {"label": datasets.ClassLabel(names=list(NAMES)), "x": datasets.Value("float64")}
    )
    theirs = datasets.Dataset.from_dict({"label": LABELS, "x": [0.0] * 4}, features=features)
    theirs.to_parquet(str(tmp_path / "theirs.parquet"))

    assert class_names_of(tmp_path / "theirs.parquet") == NAMES
    assert class_names_of(tmp_path / "theirs.parquet", "x") is None


def test_files_of_a_resumed_writer_keep_the_names(tmp_path: Path) -> None:
    for start in (0, 2):
        with ParquetWriter(tmp_path / "rows", class_names={"label": NAMES}) as writer:
            writer.append_columns({"label": np.array(LABELS[start : start + 2])})

    assert class_names_of(tmp_path / "rows") == NAMES
    assert ParquetDataset(tmp_path / "rows").read_column("label").tolist() == LABELS


@pytest.mark.parametrize(
    "value",
    [
        b"not json",
        b"[]",
        b'{"info": 7}',
        json.dumps({"info": {"features": {"label": {"_type": "ClassLabel", "names": 7}}}}).encode(),
        json.dumps({"info": {"features": {"label": 7}}}).encode(),
        b"[" * 100_000,
    ],
    ids=lambda value: repr(value[:20]),
)
def test_damaged_features_do_not_hide_the_columns(tmp_path: Path, value: bytes) -> None:
    table = pa.table({"label": LABELS}).replace_schema_metadata({b"huggingface": value})
    pq.write_table(table, tmp_path / "rows.parquet")

    assert class_names_of(tmp_path / "rows.parquet") is None
    report = convert(str(tmp_path / "rows.parquet"), str(tmp_path / "rows"))
    assert report.n_verified == 4


@pytest.mark.parametrize("target", ["rows", "rows.csv", "rows.npz", "rows.jsonl"])
def test_a_format_without_names_of_classes_says_so(
    tmp_path: Path, target: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        convert(labelled(), str(tmp_path / target), columns="x=0,label=1")

    assert "keeps the numbers of the 3 classes of column 'label', not their names" in caplog.text


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint64"])
def test_labels_of_other_types_keep_their_type_and_names(tmp_path: Path, dtype: str) -> None:
    import datasets  # takes a second

    metadata = metadata_of_class_names({"label": NAMES})
    table = pa.table({"label": np.array(LABELS, dtype=dtype)}).replace_schema_metadata(metadata)
    pq.write_table(table, tmp_path / "first.parquet")

    convert(str(tmp_path / "first.parquet"), str(tmp_path / "second.parquet"))

    assert class_names_of(tmp_path / "second.parquet") == NAMES
    loaded: Any = data_stack.load(str(tmp_path / "second.parquet"))
    assert loaded.read_column("label").dtype == dtype
    theirs = datasets.Dataset.from_parquet(
        str(only_file(tmp_path / "second.parquet")), cache_dir=str(tmp_path / "cache")
    )
    assert theirs.features["label"] == datasets.Value(dtype)
