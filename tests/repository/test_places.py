"""Files and folders are loaded as they lie."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scripted_s3 import LOGIN, ScriptedS3, is_listing, key_of

import data_stack
from data_stack.exception import (
    ConfigError,
    DatasetFileCorruptError,
    DatasetNotFoundError,
    LeftOutWarning,
    RecipeError,
    UnknownSplitError,
)
from data_stack.formats import convert, write_hdf5, write_npy, write_npz
from data_stack.formats.records import ShardedRecordWriter
from data_stack.repository.dataset_names import is_place

ROWS = [{"name": "a", "x": 1}, {"name": "b", "x": 2}]


def write_csv(path: Path) -> None:
    path.write_text("name,x\na,1\nb,2\n")


def load(path: Path, **options: Any) -> Any:
    return data_stack.load(str(path), **options)


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
    with (
        open(tmp_path / "x.npy", "wb") as npy,
        open(tmp_path / "x.npz", "wb") as npz,
        open(tmp_path / "x.h5", "wb+") as hdf5,
    ):
        write_npy(npy, x)
        write_npz(npz, {"x": x})
        write_hdf5(hdf5, {"x": x})
    (tmp_path / "shards").mkdir()
    converted(tmp_path / "shards" / "0.tar")
    (tmp_path / "shards" / "rows.csv").unlink()
    loaded: dict[str, Any] = {
        name: data_stack.load(str(tmp_path / name)) for name in ("x.npy", "x.npz", "x.h5", "shards")
    }
    assert loaded["x.npy"][1][0].tolist() == [3, 4, 5]
    assert loaded["x.npz"][1]["x"].tolist() == loaded["x.h5"][1]["x"].tolist() == [3, 4, 5]
    assert loaded["shards"][1]["name.txt"] == "b"


def test_bare_numbers_are_read_by_the_dtype_that_is_given(tmp_path: Path) -> None:
    tokens = np.arange(50_000, 50_100).astype("<u2")
    (tmp_path / "tokens.bin").write_bytes(tokens.tobytes())
    (tmp_path / "llm.bin").write_bytes(bytes(1024) + tokens.tobytes())
    (tmp_path / "tokens.dat").write_bytes(tokens.byteswap().tobytes())

    plain = load(tmp_path / "tokens.bin", dtype="uint16")
    windows = plain.windows(8, stride=8)
    with_header = load(tmp_path / "llm.bin", dtype=np.uint16, header_bytes=1024)
    big_endian = load(tmp_path / "tokens.dat", format="bin", dtype=">u2")

    assert len(plain) == 100
    assert plain[7] == (50_007,)
    assert windows[-1][0].tolist() == list(range(50_088, 50_096))
    assert [source.read_column(0).tolist() for source in (with_header, big_endian)] == [
        tokens.tolist()
    ] * 2
    assert len({source.fingerprint() for source in (plain, with_header, big_endian, windows)}) == 4
    assert plain.fingerprint() == load(tmp_path / "tokens.bin", dtype="u2").fingerprint()
    for wrong in (
        {},
        {"dtype": None},
        {"dtype": object},
        {"dtype": "S"},
        {"dtype": [("a", "u2"), ("b", "O")]},
    ):
        with pytest.raises(ConfigError, match="such as uint16, by dtype="):
            load(tmp_path / "tokens.bin", **wrong)
    with pytest.raises(ConfigError, match="no dtype 'uint17'"):
        load(tmp_path / "tokens.bin", dtype="uint17")
    with pytest.raises(ConfigError, match="header_bytes must be at least 0"):
        load(tmp_path / "tokens.bin", dtype="uint16", header_bytes=-1)
    with pytest.raises(ConfigError, match=r"has no option 'header'.*header_bytes"):
        load(tmp_path / "tokens.bin", dtype="uint16", header=1024)
    for options, problem in (
        (
            {"dtype": "f8", "header_bytes": 3},
            "197 bytes after its header of 3, which is not a multiple of the 8 of float64",
        ),
        ({"dtype": "u2", "header_bytes": 202}, "200 bytes, fewer than its header of 202"),
    ):
        broken = load(tmp_path / "tokens.bin", **options)
        with pytest.raises(DatasetFileCorruptError, match=problem):
            len(broken)


def test_an_object_store_is_listed_once_for_a_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in LOGIN.items():
        monkeypatch.setenv(name, value)
    with ScriptedS3() as s3:
        with ShardedRecordWriter(
            s3.store(), {"x": "i64", "text": "utf8"}, prefix="train", shardlen=2
        ) as writer:
            writer.extend({"x": [0, 1, 2, 3], "text": list("abcd")})
        s3.requests.clear()

        rows: Any = data_stack.load(
            f"s3://data/f/train?endpointUrl={s3.url}&region=us-east-1&cache={tmp_path}"
        )
        assert rows.read_batch(range(4))["text"].tolist() == list("abcd")

    listings = [request for request in s3.requests if is_listing(request)]
    names = [
        os.path.basename(key_of(request)) for request in s3.requests if not is_listing(request)
    ]
    assert len(listings) == 2
    assert sorted(names) == sorted(2 * ["manifest.json~", "text.bag~", "text.idx~", "x.bag~"])


def test_files_of_bare_numbers_are_splits_unless_others_are_there(tmp_path: Path) -> None:
    for name in ("train", "val"):
        (tmp_path / f"{name}.bin").write_bytes(bytes(200))
    tokens = load(tmp_path, dtype="uint16")
    assert {name: len(split) for name, split in tokens.items()} == {"train": 100, "val": 100}

    write_csv(tmp_path / "train.csv")

    with pytest.warns(LeftOutWarning, match=r"'train\.bin', 'val\.bin'"):
        assert list(load(tmp_path)) == ["train"]


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


def test_files_are_splits_and_guesses_can_be_corrected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_places_are_no_names_and_names_no_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert all(map(is_place, ["./a", "../a", "/a", "~/a", "a/", ".", "s3://a/b", Path("a")]))
    assert not any(
        map(is_place, ["digits", "digits@1.0.0", "pkg:digits", "hf:owner/name", "a.csv", None, 3])
    )
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "nothing-of-that-name")
    with pytest.raises(DatasetNotFoundError, match=r"\./nothing-of-that-name"):
        data_stack.load("nothing-of-that-name")
    for missing in ("./no", str(tmp_path / "empty")):
        (tmp_path / "empty").mkdir(exist_ok=True)
        with pytest.raises(ConfigError, match=r"nothing at|is empty"):
            data_stack.load(missing)
    write_csv(tmp_path / "x.csv")
    with pytest.raises(ConfigError, match="has no factory"):
        data_stack.plan("./x.csv")
    with pytest.raises(ConfigError, match=r"'\./x\.csv' is read where it lies: leave out storage="):
        data_stack.load("./x.csv", storage="memory://")
    recipe = json.dumps(data_stack.load("digits", split="test").recipe())
    with pytest.raises(RecipeError, match="path or URL"):
        data_stack.from_recipe(recipe.replace('"digits"', '"./x.csv"'))
