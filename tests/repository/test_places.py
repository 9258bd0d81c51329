"""Files and folders are loaded as they lie."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import data_stack
from data_stack.exception import ConfigError, DatasetNotFoundError, RecipeError, UnknownSplitError
from data_stack.formats import convert, write_hdf5, write_npy, write_npz
from data_stack.repository.places import is_place

ROWS = [{"name": "a", "x": 1}, {"name": "b", "x": 2}]


def write_csv(path: Path) -> None:
    path.write_text("name,x\na,1\nb,2\n")


def write_pictures(folder: Path) -> None:
    for name, value in (("cat", 10), ("dog", 200)):
        (folder / name).mkdir(parents=True)
        Image.fromarray(np.full((4, 4), value, np.uint8)).save(folder / name / "0.png")


def write_jsonl(path: Path) -> None:
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, ROWS)).encode()))


def converted(path: Path) -> None:
    write_csv(path.with_name("rows.csv"))
    convert(data_stack.from_csv(path.with_name("rows.csv")), str(path))


TABLES: dict[str, Callable[[Path], object]] = {
    "x.csv": write_csv,
    "x.tsv": lambda path: path.write_text("name\tx\na\t1\nb\t2\n"),
    "x.jsonl.gz": write_jsonl,
    "x.parquet": converted,
    "records": converted,
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_recognised_by_its_name_or_content(name: str, tmp_path: Path) -> None:
    TABLES[name](tmp_path / name)
    rows: Any = data_stack.load(str(tmp_path / name), columns=["name", "x"])
    assert [{**row, "x": int(row["x"])} for row in rows] == ROWS
    with_target: Any = data_stack.load(str(tmp_path / name), target="x")
    assert with_target.dataset_meta.target_pos == "x"


def test_arrays_and_shards_are_recognised(tmp_path: Path) -> None:
    x = np.arange(12).reshape(4, 3)
    with open(tmp_path / "x.npy", "wb") as npy, open(tmp_path / "x.npz", "wb") as npz, open(tmp_path / "x.h5", "wb+") as hdf5:
        write_npy(npy, x)
        write_npz(npz, {"x": x})
        write_hdf5(hdf5, {"x": x})
    (tmp_path / "shards").mkdir()
    converted(tmp_path / "shards" / "0.tar")
    loaded: dict[str, Any] = {name: data_stack.load(str(tmp_path / name)) for name in ("x.npy", "x.npz", "x.h5", "shards")}
    assert loaded["x.npy"][1][0].tolist() == [3, 4, 5]
    assert loaded["x.npz"][1]["x"].tolist() == loaded["x.h5"][1]["x"].tolist() == [3, 4, 5]
    assert loaded["shards"][1]["name.txt"] == "b"


def test_folders_of_pictures_have_classes_and_splits(tmp_path: Path) -> None:
    write_pictures(tmp_path / "one")
    pictures: Any = data_stack.load(str(tmp_path / "one"))
    assert pictures.dataset_meta.class_names == ("cat", "dog")
    for split in ("test", "train"):
        write_pictures(tmp_path / "two" / split)
    (tmp_path / "two" / "README.md").touch()
    splits = data_stack.load(str(tmp_path / "two"))
    assert list(splits) == ["train", "test"]
    assert data_stack.describe(str(tmp_path / "two")).splits == ("train", "test")
    assert len(data_stack.load(str(tmp_path / "two"), split="test")) == 2
    with pytest.raises(UnknownSplitError, match="tset"):
        data_stack.load(str(tmp_path / "two"), split="tset")
    with pytest.raises(UnknownSplitError):
        data_stack.load(str(tmp_path / "one"), split="train")


def test_a_file_for_each_split_and_what_was_guessed_can_be_corrected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("test.csv", "train.csv"):
        write_csv(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    splits = data_stack.load(".", target="x", dtypes={"x": "float32"})
    assert list(splits) == ["train", "test"]
    assert splits["test"][1] == {"name": "b", "x": 2.0}
    (tmp_path / "test.csv").rename("test.txt")
    with pytest.raises(ConfigError, match="format="):
        data_stack.load("./test.txt")
    assert len(data_stack.load("./test.txt", format="csv")) == 2
    with pytest.raises(ConfigError, match="delimiter"):
        data_stack.load("./train.csv", delimeter=";")
    with pytest.raises(ConfigError, match="csvv"):
        data_stack.load("./train.csv", format="csvv")
    with pytest.raises(ConfigError, match="several formats"):
        write_jsonl(tmp_path / "more.jsonl.gz")
        data_stack.load(".")


def test_places_are_no_names_and_names_no_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(map(is_place, ["./a", "../a", "/a", "~/a", ".", "s3://a/b", Path("a")]))
    assert not any(map(is_place, ["digits", "digits@1.0.0", "pkg:digits", "hf:owner/name", "a.csv", None, 3]))
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "nothing-of-that-name")
    with pytest.raises(DatasetNotFoundError, match=r"\./nothing-of-that-name"):
        data_stack.load("nothing-of-that-name")
    for missing in ("./no", str(tmp_path / "empty")):
        (tmp_path / "empty").mkdir(exist_ok=True)
        with pytest.raises(ConfigError, match="nothing at"):
            data_stack.load(missing)
    write_csv(tmp_path / "x.csv")
    with pytest.raises(ConfigError, match="has no factory"):
        data_stack.plan("./x.csv")
    recipe = json.dumps(data_stack.load("digits", split="test").recipe())
    with pytest.raises(RecipeError, match="path or URL"):
        data_stack.from_recipe(recipe.replace('"digits"', '"./x.csv"'))
