"""Any iterator as a record dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from data_stack.dataset.iterator import DatasetIterator, DatasetIteratorIF, SequenceDatasetIterator
from data_stack.exception import ConfigError
from data_stack.formats import records
from data_stack.formats.records import Column, inferred_spec, write_records


class Samples(DatasetIterator):
    """Dicts, counting how they are asked for."""

    def __init__(self, samples: list[Any]) -> None:
        self.samples, self.n_single = samples, 0

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        self.n_single += 1
        return self.samples[index]


def all_kinds(i: int) -> dict[str, Any]:
    return {
        "array": np.arange(i % 3, dtype=np.uint8),
        "blob": b"b" * i,
        "flag": i % 2 == 0,
        "fraction": i / 3,
        "narrow": np.float32(i),
        "number": i,
        "tensor": torch.full((2,), i),
        "text": f"t{i}",
        "tree": {"a": [i, "b"]},
    }


def test_the_columns_are_taken_from_the_first_sample() -> None:
    assert inferred_spec(all_kinds(1)) == {
        "array": Column("array", "uint8"),
        "blob": "bytes",
        "flag": Column("array", "bool", ()),
        "fraction": Column("array", "float64", ()),
        "narrow": Column("array", "float32", ()),
        "number": "i64",
        "tensor": Column("array", "int64"),
        "text": "utf8",
        "tree": "tree",
    }
    with pytest.raises(ConfigError, match="column 'x' has cannot be told from a NoneType"):
        inferred_spec({"x": None})


def test_samples_of_all_kinds_come_back_as_they_were(tmp_path: Path) -> None:
    samples = [all_kinds(i) for i in range(30)]

    n_samples = write_records(tmp_path / "a", Samples(samples))

    assert n_samples == write_records(tmp_path / "of a list", samples) == 30
    with records.open(tmp_path / "a") as reader:
        for expected, actual in zip(samples, reader, strict=True):
            np.testing.assert_array_equal(actual.pop("array"), expected.pop("array"))
            np.testing.assert_array_equal(actual.pop("tensor"), expected.pop("tensor").numpy())
            assert actual == expected


def test_tuples_are_written_under_names_and_whole_batches_at_once(tmp_path: Path) -> None:
    images, labels = np.arange(60_000, dtype=np.uint8).reshape(1000, 60), list(range(1000))
    iterator = SequenceDatasetIterator([images, labels])

    write_records(tmp_path / "a", iterator, names=["image", "label"], progress=True)

    with records.open(tmp_path / "a") as reader:
        assert reader.spec == {"image": "array", "label": "i64"}
        np.testing.assert_array_equal(reader.read_column("image"), images)
        assert reader.read_column("label").tolist() == labels


def test_what_was_interrupted_is_gone_on_with(tmp_path: Path) -> None:
    samples: list[Any] = [{"id": i, "text": f"t{i}"} for i in range(50)]
    with pytest.raises(ConfigError, match="sample 40"):
        write_records(tmp_path / "a", Samples([*samples[:40], {"id": "no number", "text": ""}]))
    resumed = Samples(samples)

    write_records(tmp_path / "a", resumed)
    write_records(tmp_path / "b", Samples(samples))

    assert resumed.n_single < 15
    for path in (tmp_path / "b").iterdir():
        assert (tmp_path / "a" / path.name).read_bytes() == path.read_bytes()


def test_shards_are_written_and_gone_on_with(tmp_path: Path) -> None:
    iterator: DatasetIteratorIF = Samples([{"id": i} for i in range(25)])

    assert write_records(tmp_path / "a", iterator, shardlen=10) == 25
    assert write_records(tmp_path / "a", iterator, shardlen=10) == 25

    with records.open(tmp_path / "a") as reader:
        assert reader.read_column("id").tolist() == list(range(25))


def test_samples_whose_columns_are_unknown_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give write_records"):
        write_records(tmp_path / "a", Samples([]))
    with pytest.raises(ConfigError, match="need names"):
        write_records(tmp_path / "a", Samples([(1, 2)]))
    assert write_records(tmp_path / "a", Samples([]), {"id": "i64"}) == 0
