"""Installed datasets as Croissant documents, which MLCommons' own library reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlcroissant
import pytest
from croissant_documents import parquet
from data_stack_croissant.column_types import describe_type
from written_dataset import Written

import data_stack
from data_stack import DatasetCard, DatasetFactory
from data_stack.cli.main import main
from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.exception import ConfigError
from data_stack.formats.parquet import ParquetDataset
from data_stack.io.folder import folder_of
from data_stack.io.resource_definition import ResourceDefinition

ROWS = {
    "train": [{"id": index, "weight": index / 4, "name": f"nº {index}"} for index in range(5)],
    "test": [{"id": 9, "weight": 0.5, "name": "last"}],
}


class Weights(Written):
    """Weights of things."""

    card = DatasetCard(
        "weights",
        "1.2.0",
        license="MIT",
        homepage="https://example.org/weights",
        citation="Me, 2026",
    )
    splits = ("train", "test")
    files = {
        **{
            f"train/part-{part}.parquet": parquet(rows)
            for part, rows in enumerate((ROWS["train"][:3], ROWS["train"][3:]))
        },
        "test/part-0.parquet": parquet(ROWS["test"]),
    }

    def open(self, split: str, prepared: Any) -> Any:
        return ParquetDataset(folder_of(prepared, split))


def register(factory: type[DatasetFactory]) -> str:
    data_stack.default_repository().register(factory.card.name, factory, replace=True)
    return factory.card.name


def test_card_files_splits_and_columns_are_described(
    tmp_path: Path,
) -> None:
    data_stack.load("digits", storage=tmp_path)

    document = data_stack.to_croissant("digits", tmp_path)

    read = mlcroissant.Dataset(jsonld=json.loads(json.dumps(document)))
    assert read.metadata.ctx.issues.errors == set()
    assert all("datePublished" in warning for warning in read.metadata.ctx.issues.warnings)
    assert (document["name"], document["version"]) == ("digits", "1.0.0")
    assert document["license"] == "https://spdx.org/licenses/CC-BY-4.0.html"
    files = {node["@id"]: node for node in document["distribution"]}
    assert files["files/raw/digits.csv.gz"]["contentUrl"].startswith("https://")
    assert files["files/preprocessed/test/images.npy"]["contentSize"] == "23168 B"
    record_sets = {node["@id"]: node for node in document["recordSet"]}
    columns = record_sets["test/columns"]["data"]
    assert [list(row.values()) for row in columns[:2]] == [
        ["image", "cr:UInt8", "8,8"],
        ["label", "cr:Int64", ""],
    ]
    assert str(tmp_path) not in json.dumps(document)
    assert json.dumps(document) == json.dumps(data_stack.to_croissant("digits", tmp_path))


def test_mlcroissant_reads_the_samples_of_parquet_files(tmp_path: Path) -> None:
    splits = data_stack.load(register(Weights), storage=tmp_path)
    place = tmp_path / "weights" / "1.2.0" / "croissant.json"
    place.write_text(json.dumps(data_stack.to_croissant("weights", tmp_path)))

    records = {split: list(mlcroissant.Dataset(jsonld=place).records(split)) for split in ROWS}
    back = data_stack.from_croissant(place, tmp_path / "store")

    assert records["test"] == [
        {"test/dataset_split": b"test", "test/id": 9, "test/weight": 0.5, "test/name": b"last"}
    ]
    assert [row["train/id"] for row in records["train"]] == [row["id"] for row in ROWS["train"]]
    assert {split: list(back[split]) for split in ROWS} == ROWS
    assert splits["test"][0] == ROWS["test"][0]


@pytest.mark.parametrize("names", [("dev", "dev_2", "dev_2_extra"), ("a-b", "a", "b")])
def test_splits_with_similar_names_keep_their_files(tmp_path: Path, names: tuple[str, ...]) -> None:
    class Parts(Written):
        card = DatasetCard("parts", "1")
        splits = names

        files = {
            f"{name}/part-{part}.parquet": parquet([{"n": 10 * number + part}])
            for number, name in enumerate(names)
            for part in range(2)
        }

        def open(self, split: str, prepared: Any) -> Any:
            return ParquetDataset(folder_of(prepared, split))

    data_stack.load(register(Parts), storage=tmp_path)
    place = tmp_path / "parts" / "1" / "croissant.json"
    place.write_text(json.dumps(data_stack.to_croissant("parts", tmp_path)))

    back = data_stack.from_croissant(place, tmp_path / "store")

    expected = {name: [10 * number, 10 * number + 1] for number, name in enumerate(names)}
    assert {name: [sample["n"] for sample in back[name]] for name in names} == expected


def test_other_files_are_listed_with_names_and_columns(tmp_path: Path) -> None:
    data_stack.load("digits", storage=tmp_path)
    place = tmp_path / "digits" / "1.0.0" / "croissant.json"
    place.write_text(json.dumps(data_stack.to_croissant("digits", tmp_path)))

    back = data_stack.from_croissant(place, tmp_path / "store")
    theirs = mlcroissant.Dataset(jsonld=place)

    assert list(back["test"]) == [
        {"file": f"preprocessed/test/{name}.npy"} for name in ("images", "targets")
    ]
    assert back["test/columns"][0] == {"column": "image", "type": "cr:UInt8", "shape": "8,8"}
    for record_set in theirs.metadata.record_sets:
        assert list(theirs.records(record_set.uuid))


def test_a_source_without_any_digest_has_to_be_prepared_first(tmp_path: Path) -> None:
    class Loose(DatasetFactory):
        card = DatasetCard("loose", "1")
        sources = (ResourceDefinition("raw/a.txt", (tmp_path / "a.txt").as_uri()),)
        splits = ("all",)

        def open(self, split: str, prepared: Any) -> Any:
            return SequenceDatasetIterator([[1, 2]])

    (tmp_path / "a.txt").write_text("12")
    name = register(Loose)

    with pytest.raises(ConfigError, match=r"raw/a.txt.*prepare the dataset first"):
        data_stack.to_croissant(name, tmp_path / "store")
    data_stack.load(name, storage=tmp_path / "store")
    document = data_stack.to_croissant(name, tmp_path / "store")

    assert document["distribution"][0]["contentUrl"] == "raw/a.txt"
    mlcroissant.Dataset(jsonld=document)


def test_the_command_writes_the_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "croissant.json"

    assert main(["croissant", "digits", "-o", str(target), "--storage", str(tmp_path)]) == 0
    told = capsys.readouterr().err
    assert main(["croissant", "digits", "--storage", str(tmp_path)]) == 0

    assert json.loads(target.read_text()) == json.loads(capsys.readouterr().out)
    assert "the dataset is not prepared" in told


@pytest.mark.parametrize(
    ("value", "data_type", "shape"),
    [
        ([[1], [2, 3]], "cr:Int64", "2,-1"),
        ([[], [2, 3]], "cr:Int64", "2,-1"),
        ([[1], [0.5, 3]], "cr:Float64", "2,-1"),
        ([[[1, 2]], [[3, 4], [5, 6]]], "cr:Int64", "2,-1,2"),
        ([[1], 2], "cr:Int64", "2"),
        ([["a"], ["b", "c"]], "sc:Text", "2,-1"),
        ([1, 2], "cr:Int64", "2"),
    ],
)
def test_lists_of_different_lengths_have_a_type(value: Any, data_type: str, shape: str) -> None:
    described = describe_type(value, None)

    assert described == {"dataType": data_type, "isArray": True, "arrayShape": shape}


def test_a_dataset_of_nested_lists_is_described(tmp_path: Path) -> None:
    class Boxes(Written):
        card = DatasetCard("boxes", "1")
        splits = ("train", "test")
        files = {"train.jsonl": b'{"boxes": [[1], [2, 3]]}\n', "test.jsonl": b""}

        def open(self, split: str, prepared: Any) -> Any:
            return SequenceDatasetIterator([[[[1], [2, 3]]]])

    data_stack.load(register(Boxes), storage=tmp_path)

    document = data_stack.to_croissant("boxes", tmp_path)

    columns = {node["@id"]: node for node in document["recordSet"]}["train/columns"]["data"]
    assert list(columns[0].values()) == ["sample", "cr:Int64", "2,-1"]
