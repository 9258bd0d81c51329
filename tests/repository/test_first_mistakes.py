"""What a new user writes wrongly is an error that says what to write."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import data_stack
from data_stack.codecs import codec_of
from data_stack.exception import ConfigError, DatasetFileCorruptError, DataStackError
from data_stack.formats import convert, write_hdf5, write_npz
from data_stack.formats.image_folder import ImageFolderIterator

N_ROWS = 12

#: A file of each format of tables, as written by :func:`files`.
TABLES = ("t.csv", "t.jsonl", "t.parquet", "t.npz", "t.h5", "records")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same two columns in each format, below the working folder."""
    columns = {"label": np.arange(N_ROWS) % 3, "x": np.arange(N_ROWS) * 1.5}
    rows = [
        {"label": int(label), "x": float(x)}
        for label, x in zip(columns["label"], columns["x"], strict=True)
    ]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "t.csv").write_text(
        "label,x\n" + "".join(f"{row['label']},{row['x']}\n" for row in rows)
    )
    with (tmp_path / "t.npz").open("wb") as npz, (tmp_path / "t.h5").open("wb+") as hdf5:
        write_npz(npz, columns)
        write_hdf5(hdf5, columns)
    samples = data_stack.from_numpy(columns)
    convert(samples, tmp_path / "t.parquet", progress=False)
    convert(samples, tmp_path / "records", progress=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            "label",
            r"columns must be a list of names, got 'label'; one column is columns=\['label'\]",
        ),
        ("x", r"one column is columns=\['x'\]"),
        ({"label", "x"}, "in the order of the columns"),
        ({"label": "x"}, "rename"),
        (5, "columns must be a list of names"),
        ([], "need at least one column"),
        (["label", "label"], "selected twice"),
        (["lable"], "lable"),
    ],
)
def test_columns_that_are_no_list_of_names_are_refused(
    name: str, columns: Any, message: str
) -> None:
    with pytest.raises(DataStackError, match=message):
        data_stack.load(f"./{name}", columns=columns)


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("name", TABLES)
def test_a_stack_without_target_says_how_to_name_one(name: str) -> None:
    table: Any = data_stack.load(f"./{name}")

    uses: list[Callable[[], Any]] = [
        lambda: table.split([0.5, 0.5], seed=1, stratify=True),
        lambda: table.balance(seed=1),
        lambda: table.one_hot()[0],
        lambda: table.unique(),
    ]

    for use_target in uses:
        with pytest.raises(ConfigError, match=r"no column 1.*name the column.*target='NAME'"):
            use_target()
    with_target: Any = data_stack.load(f"./{name}", target="label")
    assert sorted(with_target.unique().tolist()) == [0, 1, 2]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("./tt.csv", r"there is nothing at .*tt\.csv \(did you mean 't\.csv'\?\)$"),
        ("./no/where/t.csv", r"there is nothing at .*: the folder .*no/where does not exist$"),
        ("./*.csv", "patterns of names are not expanded"),
        ("./t?.csv", "patterns of names are not expanded"),
        ("./picture.jpg", "a picture is one sample of the folder that it is in"),
        ("./data_stack.json", "it describes the dataset of its folder"),
        ("csv", r"To open files, pass their path: data_stack.load\('./train.csv'\)"),
        ("imagefolder", "To open files, pass their path"),
        (None, "a dataset is named by a text, .* got None"),
        (5, "a dataset is named by a text, .* got 5"),
    ],
)
def test_a_name_of_nothing_says_what_may_be_meant(files: Path, name: Any, message: str) -> None:
    (files / "picture.jpg").write_bytes(b"\xff\xd8\xff")
    (files / "data_stack.json").write_text("{}")

    with pytest.raises(DataStackError, match=message):
        data_stack.load(name)


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_proc": 4}, "workers=4"),
        ({"num_workers": 4}, "workers=4"),
        ({"batch_size": 4}, "Loader"),
        ({"shuffle": True}, "shuffle"),
        ({"label": "label"}, "`target=`"),
        ({"sep": ";"}, "`delimiter=`"),
        ({"usecols": ["x"]}, "`columns=`"),
        ({"data_files": "t.csv"}, "the path is the name"),
    ],
)
def test_an_option_of_another_library_says_ours(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"here it is .*{message}"):
        data_stack.load("./t.csv", **options)


@pytest.mark.usefixtures("files")
def test_one_dataset_is_loaded_without_split() -> None:
    with pytest.raises(ConfigError, match="it is one dataset, which is loaded without split="):
        data_stack.load("./t.csv", split="train")


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda table: table.split([0.5, 0.5], by="label"), "pass group_by='label'"),
        (lambda table: table.split([0.5, 0.5], group="label"), "here it is `group_by=`"),
        (lambda table: table.split(test_size=0.2), r"here it is `\[0.8, 0.2\]`"),
        (lambda table: table.select(["label"]), r"as in select\('image', 'label'\)"),
        (lambda table: table.select(range(3)), r"dataset\[range\(10\)\] take samples"),
    ],
)
def test_a_wrong_call_of_a_method_says_the_right_one(
    use: Callable[[Any], Any], message: str
) -> None:
    table: Any = data_stack.load("./t.csv")

    with pytest.raises((ConfigError, TypeError), match=message):
        use(table)


def test_a_dict_of_splits_names_its_splits() -> None:
    splits: Any = data_stack.load("digits")

    with pytest.raises(KeyError, match=r"no split 'tset' \(did you mean 'test'\?\); .*'train'"):
        splits["tset"]
    with pytest.raises(ConfigError, match=r"a dict of the splits .*as in splits\['train'\]"):
        data_stack.Loader(splits, 64)
    assert splits.get("tset") is None
    assert "tset" not in splits


def test_an_unreadable_array_says_how_to_leave_it_out(tmp_path: Path) -> None:
    path = tmp_path / "m.npz"
    np.savez(path, x=np.arange(3), o=np.array([{}, {}, {}], dtype=object))

    with pytest.raises(DatasetFileCorruptError, match=r"m\.npz': array 'o' .*columns=\[…\]"):
        data_stack.load(path)
    assert len(data_stack.load(path, columns=["x"])) == 3


@pytest.mark.parametrize("target", ["records", "shards.parquet", "tars"])
def test_a_damaged_picture_is_named_by_its_file(tmp_path: Path, target: str) -> None:
    png = codec_of("png").encode(np.zeros((8, 8), np.uint8))
    (tmp_path / "pets/cat").mkdir(parents=True)
    (tmp_path / "pets/cat/0.png").write_bytes(png)
    (tmp_path / "pets/cat/1.png").write_bytes(png[:40])
    target_format = "webdataset" if target == "tars" else None

    with pytest.raises(DataStackError, match=r"pets/cat/1\.png cannot be decoded.*on_error='skip'"):
        convert(
            str(tmp_path / "pets"), tmp_path / target, target_format=target_format, progress=False
        )
    with pytest.raises(DatasetFileCorruptError, match=r"1\.png .*on_error='skip'"):
        ImageFolderIterator(tmp_path / "pets")[1]
    whole = ImageFolderIterator(tmp_path / "pets", on_error="skip")
    assert len(whole) == 1
    assert "on_error" not in str(whole.broken)


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("name", ["t.xlsx", "t.pkl", "t.txt", "t.json", "t.zst"])
def test_no_folder_of_records_is_called_like_a_file(name: str) -> None:
    with pytest.raises(ConfigError, match=r"cannot detect the format of .*choose one by"):
        convert("t.csv", name, progress=False)

    assert not Path(name).exists()
