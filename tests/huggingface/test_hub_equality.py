"""What ``hf:`` loads is what ``datasets`` loads of the same repository: splits, rows, their order, names and types."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from hub_server import HubServer, Repo
from kept_samples import exact

import data_stack
from data_stack.dataset.encoders import EncodingError
from data_stack.exception import CatalogueError

ParquetOf = Any  # the function in conftest.py, which cannot be imported from here


def rows_of(start: int, n: int = 3) -> dict[str, Any]:
    """Rows with a number that says where they come from, and without any metadata of ``datasets``."""
    return {"x": list(range(start, start + n)), "text": [f"{start}-{i}" for i in range(n)]}


SPLITS = [{"split": "zoo", "path": ["z*.parquet", "a*.parquet"]}, {"split": "train", "path": ["b.parquet", ".hidden/*"]}]
MARKED: list[dict[str, Any]] = [{"config_name": "a", "data_dir": "a"}, {"config_name": "b", "data_dir": "b", "default": True}]
#: Configurations of a card, and paths.
LAYOUTS: dict[str, tuple[list[dict[str, Any]], str]] = {
    "several words of one split": ([], "val dev validation a-valid train b/dev-2"),
    "folders": ([], "test/b eval/a training/a train/z x/my-train/c"),
    "shards": ([], " ".join(f"data/{split}-0000{n}-of-00002" for split in ("test", "zoo", "extra", "train") for n in (1, 0))),
    "no split": ([], "b a/c __sub .hidden/a __x/y"),
    "patterns": ([{"config_name": "default", "data_files": SPLITS}], "a1 z1 a0 z0 b .hidden/c"),
    "a configuration that is marked": (MARKED, "a/train b/val b/dev b/test"),
    "notes beside": ([], "train test train-notes.md config.json run_train.py"),
}


def load_both(
    hub: HubServer, folder: Path, card: Mapping[str, Any], files: Mapping[str, bytes], **options: Any
) -> tuple[Any, Any]:
    """The splits that ``datasets`` reads of a folder, and ours of a Hub with the same files."""
    readme = f"---\n{yaml.safe_dump(dict(card), sort_keys=False)}---\n".encode() if card else b"# A dataset\n"
    listed = {**files, "README.md": readme}
    for path, data in listed.items():
        (folder / "repo" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "repo" / path).write_bytes(data)
    repo = hub.repos["team/repo"] = Repo(card=dict(card))
    repo.commit(listed)
    theirs = datasets.load_dataset(str(folder / "repo"), cache_dir=str(folder / "cache"))
    return theirs, data_stack.load("hf:team/repo", **options)


def assert_equal(theirs: Any, ours: Any) -> None:
    """Splits and their order, columns and their order, and all samples with their types."""
    assert list(ours) == list(theirs)
    for split, dataset in theirs.items():
        expected = data_stack.from_huggingface(dataset)
        assert [list(sample) for sample in ours[split]] == [list(dataset.features)] * len(dataset)
        assert [_of_python(sample) for sample in ours[split]] == [_of_python(sample) for sample in expected]
        positions = range(len(dataset))
        assert exact(ours[split].read_batch(positions)) == exact(expected.read_batch(positions))


def _of_python(sample: Any) -> Any:
    return exact({name: value.item() if isinstance(value, np.generic) else value for name, value in sample.items()})


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_splits_and_rows_have_the_order_of_datasets(
    hub: HubServer, tmp_path: Path, parquet_of: ParquetOf, layout: str, lazy: bool
) -> None:
    configs, names = LAYOUTS[layout]
    card = {"configs": configs} if configs else {}
    paths = [name if name.endswith((".md", ".json", ".py")) else f"{name}.parquet" for name in names.split()]
    files = {path: parquet_of(rows_of(10 * n)) if path.endswith("parquet") else b"-" for n, path in enumerate(paths)}

    theirs, ours = load_both(hub, tmp_path, card, files, lazy=lazy)

    assert_equal(theirs, ours)


def without_metadata(data: bytes) -> bytes:
    """A Parquet file without what ``datasets`` has written into its schema."""
    table = pq.read_table(io.BytesIO(data)).replace_schema_metadata(None)
    pq.write_table(table, stream := io.BytesIO())
    return stream.getvalue()


def test_files_of_several_formats_are_an_error_as_of_datasets(hub: HubServer, tmp_path: Path, parquet_of: ParquetOf) -> None:
    files = {"train.parquet": parquet_of(rows_of(0)), "test.csv": b"x,text\n1,a\n"}

    with pytest.raises(ValueError, match="same data file format"):
        load_both(hub, tmp_path, {}, files)
    with pytest.raises(CatalogueError, match=r"files of several formats \(train: parquet, test: csv\)"):
        data_stack.load("hf:team/repo")


@pytest.mark.parametrize(("has_configs", "is_listed"), [(False, False), (False, True), (True, False), (True, None)])
def test_types_of_the_card_that_files_store_otherwise(
    hub: HubServer,
    tmp_path: Path,
    parquet_of: ParquetOf,
    monkeypatch: pytest.MonkeyPatch,
    has_configs: bool,
    is_listed: bool | None,
) -> None:
    png = data_stack.codecs.PngCodec().encode(np.arange(12, dtype=np.uint8).reshape(3, 4))
    rows = {
        "name": ["dog", "cat", None],
        "file": [png, None, png],
        "coloured": [{"bytes": png, "path": None}] * 3,
        "weight": [1, None, 3],
        "day": ["a", "b", "c"],
        "answers": [{"text": ["x"], "start": [1]}, {"text": [], "start": []}, {"text": ["y", "z"], "start": [1, 2]}],
        "tokens": [["a"], ["b", "c"], []],
        "nested": [{"a": 1, "b": {"c": "x"}}] * 3,
        "pair": [[1, 2], [3, 4], [5, 6]],
        "cube": [np.arange(8, dtype=np.int64).reshape(2, 2, 2).tolist()] * 3,
    }
    features = datasets.Features(
        {
            "name": datasets.ClassLabel(names=["cat", "dog"]),
            "file": datasets.Image(),
            "coloured": datasets.Image(mode="RGB"),
            "weight": datasets.Value("float32"),
            "day": datasets.Value("large_string"),
            "answers": {"text": datasets.List(datasets.Value("string")), "start": datasets.List(datasets.Value("int32"))},
            "tokens": datasets.LargeList(datasets.Value("string")),
            "nested": {"a": datasets.Value("int64"), "b": {"c": datasets.Value("string")}},
            "pair": datasets.List(datasets.Value("int32"), length=2),
            "cube": datasets.Array3D((2, 2, 2), "uint8"),
        }
    )
    info = {"config_name": "plain" if has_configs else "default", "features": features._to_yaml_list()}
    card: dict[str, Any] = {} if is_listed is None else {"dataset_info": [info] if is_listed else info}
    if has_configs:
        card["configs"] = [{"config_name": "plain", "data_files": [{"split": "train", "path": "train*"}]}]
    if is_listed is None:  # among the configurations
        card["configs"][0]["features"] = info["features"]

    theirs, ours = load_both(hub, tmp_path, card, {"train.parquet": without_metadata(parquet_of(rows))})

    assert theirs["train"].features == features
    assert_equal(theirs, ours)
    assert ours["train"].dataset_meta.class_names == ("cat", "dog")
    data_stack.default_repository.cache_clear()
    monkeypatch.setenv("DATA_STACK_OFFLINE", "1")
    again = data_stack.from_recipe(ours["train"].recipe())
    assert [exact(sample) for sample in again] == [exact(sample) for sample in ours["train"]]


@pytest.mark.parametrize("told", [False, True])
def test_converted_files_have_the_default_configuration_and_the_order_of_splits_of_the_card(
    hub: HubServer, parquet_of: ParquetOf, told: bool
) -> None:
    splits = ["zoo", "train", "extra", "test", "validation"]
    configs = [{"config_name": name, "data_files": f"{name}.csv"} for name in ("a", "b")]
    infos = [{"config_name": "b", "splits": [{"name": split} for split in splits[:3]]}] if told else []
    repo = hub.repos["team/lines"] = Repo(card={"configs": [configs[0], {**configs[1], "default": True}], "dataset_info": infos})
    repo.commit({"a.csv": b"x\n1\n", "b.csv": b"x\n2\n"})
    parts = {f"b/{split}/0000.parquet": parquet_of({"x": [split]}) for split in splits[1:]}
    parts |= {f"b/zoo-part{n}/{m:04}.parquet": parquet_of({"x": [f"{n}.{m}"]}) for n in (10, 0, 2) for m in (1, 0)}
    repo.commit({"a/train/0000.parquet": parquet_of({"x": ["a"]}), **parts}, "refs/convert/parquet")

    loaded = data_stack.load("hf:team/lines")

    order = ["zoo", "train", "extra", "validation", "test"] if told else ["train", "validation", "test", "extra", "zoo"]
    assert list(loaded) == order
    assert [sample["x"] for sample in loaded["train"]] == ["train"]
    assert [sample["x"] for sample in loaded["zoo"]] == ["0.0", "0.1", "2.0", "2.1", "10.0", "10.1"]


@pytest.mark.parametrize("path", ["test.parquet", "test*.parquet", "folder"])
def test_files_that_a_card_lists_and_that_are_not_there_are_an_error_as_of_datasets(
    hub: HubServer, tmp_path: Path, parquet_of: ParquetOf, path: str
) -> None:
    data_files = [{"split": "train", "path": "train.parquet"}, {"split": "test", "path": path}]
    card = {"configs": [{"config_name": "default", "data_files": data_files}]}
    files = {name: parquet_of(rows_of(0)) for name in ("train.parquet", "folder/a.parquet")}

    with pytest.raises((ValueError, FileNotFoundError), match=r"same data file format|Unable to find"):
        load_both(hub, tmp_path, card, files)
    with pytest.raises(CatalogueError, match=r"configs in the card of hf:team/repo are damaged \((the file|no files match)"):
        data_stack.load("hf:team/repo")


@pytest.mark.parametrize(
    ("values", "feature"),
    [
        ([1, 300], datasets.Value("int8")),
        ([[1], [1, 300]], datasets.List(datasets.Value("int8"))),
        ([[[1.0, 2.5]], [[1.5, 2.0]]], datasets.Array2D((1, 2), "int32")),
        (["cat", "owl"], datasets.ClassLabel(names=["cat", "dog"])),
    ],
)
def test_values_that_the_features_of_a_card_do_not_hold_are_an_error_as_of_datasets(
    hub: HubServer, tmp_path: Path, parquet_of: ParquetOf, values: list[Any], feature: Any
) -> None:
    card = {"dataset_info": {"features": datasets.Features({"x": feature})._to_yaml_list()}}
    files = {"train.parquet": without_metadata(parquet_of({"x": values}))}

    with pytest.raises(datasets.exceptions.DatasetGenerationError):
        load_both(hub, tmp_path, card, files)
    with pytest.raises(EncodingError, match=r"column 'x': at position [01], "):
        data_stack.load("hf:team/repo", split="train", lazy=True).read_batch([0, 1])
