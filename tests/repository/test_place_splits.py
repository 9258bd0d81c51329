"""The splits of a place are found by one rule in all formats and stores."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import data_stack
from data_stack.exception import ConfigError, LeftOutWarning, UnknownSplitError
from data_stack.formats import convert, write_hdf5, write_npy, write_npz
from data_stack.formats.parquet import ParquetDataset
from data_stack.formats.records import RecordWriter
from data_stack.io.location import location_of
from data_stack.io.storage_connectors import InMemoryStorageConnector
from data_stack.repository.places import Place

# ------------------------------------------------------------------ a file or folder in each format


def write_tar(path: Path, values: list[int]) -> None:
    with tarfile.open(path, "w") as tar:
        for number, value in enumerate(values):
            key = path.name.removesuffix(".tar").replace(".", "-")
            member = tarfile.TarInfo(f"{key}-{number}.cls")
            member.size = len(str(value))
            tar.addfile(member, io.BytesIO(str(value).encode()))


def write_picture(path: Path, value: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((2, 2), value, np.uint8)).save(path)


def write_pictures(path: Path, values: list[int]) -> None:
    for number, value in enumerate(values):
        write_picture(path / f"{number}.png", value)


def write_records(path: Path, values: list[int]) -> None:
    with RecordWriter(path, {"x": "i64"}) as writer:
        writer.extend({"x": values})


def write_torch(path: Path, values: list[int]) -> None:
    import torch

    torch.save({"x": torch.tensor(values)}, path)


def write_bytes_of(write: Callable[..., Any], values: Any) -> Callable[[Path, list[int]], None]:
    def write_file(path: Path, given: list[int]) -> None:
        with open(path, "wb+") as file:
            write(file, values(given))

    return write_file


WRITERS: dict[str, Callable[[Path, list[int]], Any]] = {
    ".csv": lambda path, values: path.write_text("x\n" + "".join(f"{x}\n" for x in values)),
    ".tsv": lambda path, values: path.write_text("x\ty\n" + "".join(f"{x}\t1\n" for x in values)),
    ".jsonl": lambda path, values: path.write_text(
        "".join(json.dumps({"x": x}) + "\n" for x in values)
    ),
    ".parquet": lambda path, values: pq.write_table(pa.table({"x": values}), path),
    ".tar": write_tar,
    ".npy": write_bytes_of(write_npy, np.array),
    ".npz": write_bytes_of(write_npz, lambda values: {"x": np.array(values)}),
    ".h5": write_bytes_of(write_hdf5, lambda values: {"x": np.array(values)}),
    ".pt": write_torch,
    " records": write_records,
    " pictures": write_pictures,
}
WRITERS_OF_FILES = [suffix for suffix in WRITERS if suffix.startswith(".")]


def values_of(samples: Any) -> list[int]:
    """The values that were written, of samples in any format."""
    read = []
    for sample in samples:
        value = sample[0] if isinstance(sample, tuple) else sample.get("x", sample.get("cls"))
        read.append(int(sample["image"][0, 0] if value is None else value))
    return read


@pytest.fixture(params=["folder", "store"])
def load(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Any]:
    """Loads the temporary folder, where it is, or from a store."""

    def of_folder(**options: Any) -> Any:
        return data_stack.load(str(tmp_path), **options)

    def of_store(**options: Any) -> Any:
        store = InMemoryStorageConnector()
        for path in tmp_path.rglob("*"):
            if path.is_file():
                store.set_resource(
                    f"place/{path.relative_to(tmp_path)}", io.BytesIO(path.read_bytes())
                )
        return Place("place", location_of((store, "place"))).load(**options)

    return of_folder if request.param == "folder" else of_store


def write(folder: Path, suffix: str, values: dict[str, list[int]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    suffix_of_name = "" if suffix.startswith(" ") else suffix
    for name, numbers in values.items():
        WRITERS[suffix](folder / f"{name}{suffix_of_name}", numbers)


def values_by_split(loaded: Any) -> dict[str, list[int]]:
    assert isinstance(loaded, dict)
    return {name: values_of(samples) for name, samples in loaded.items()}


# ---------------------------------------------------------------------- one rule for all formats


@pytest.mark.parametrize("suffix", WRITERS)
def test_files_and_folders_named_as_splits_are_splits(
    suffix: str, tmp_path: Path, load: Callable[..., Any]
) -> None:
    write(tmp_path, suffix, {"test": [4, 5], "train": [1, 2, 3]})

    loaded = load()

    assert list(loaded) == ["train", "test"]
    assert values_by_split(loaded) == {"train": [1, 2, 3], "test": [4, 5]}
    assert values_of(load(split="test")) == [4, 5]
    assert values_of(load(split="train+test")) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("suffix", WRITERS)
def test_numbered_parts_are_one_split(
    suffix: str, tmp_path: Path, load: Callable[..., Any]
) -> None:
    parts = {
        "train-00000-of-00002": [1, 2],
        "train-00001-of-00002": [3],
        "val.0": [4],
        "val.1": [5],
    }
    write(tmp_path, suffix, parts)

    assert values_by_split(load()) == {"train": [1, 2, 3], "val": [4, 5]}


@pytest.mark.parametrize(
    ("folder", "name", "suffix"),
    [
        ("", "train", ".parquet"),
        ("", "rows", ".parquet"),
        ("", "rows", ".csv"),
        ("", "rows", ".tar"),
        ("data", "train", ".parquet"),
        ("data", "rows", ".parquet"),
        ("train", "rows", ".csv"),
        ("train", "rows", ".parquet"),
        ("train", "rows", ".tar"),
        ("data/train", "rows", ".jsonl"),
        ("data/train", "rows", ".parquet"),
        ("train/year=2024", "rows", ".parquet"),
    ],
)
def test_a_missing_part_is_named_in_a_warning(
    folder: str, name: str, suffix: str, tmp_path: Path, load: Callable[..., Any]
) -> None:
    write(
        tmp_path / folder,
        suffix,
        {f"{name}-00000-of-00003": [1], f"{name}-00002-of-00003": [3]},
    )

    with pytest.warns(LeftOutWarning, match=rf"2 of 3 '.*{name}-\*-of-00003{suffix}'") as warned:
        load()

    assert len(warned) == 1


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".npy"])
def test_hidden_files_are_no_datasets(suffix: str, tmp_path: Path) -> None:
    write(tmp_path, suffix, {"a": [1], "b": [2], "._a": [3]})

    assert values_by_split(data_stack.load(tmp_path)) == {"a": [1], "b": [2]}


@pytest.mark.parametrize("suffix", WRITERS)
def test_the_folder_data_holds_the_splits(
    suffix: str, tmp_path: Path, load: Callable[..., Any]
) -> None:
    (tmp_path / "README.md").write_text("---\nlicense: mit\n---\n")
    write(tmp_path / "data", suffix, {"dev_part2": [3], "dev_part1": [2], "training": [1]})

    assert values_by_split(load()) == {"training": [1], "dev": [2, 3]}


@pytest.mark.parametrize("suffix", WRITERS_OF_FILES)
def test_folders_named_as_splits_hold_parts(
    suffix: str, tmp_path: Path, load: Callable[..., Any]
) -> None:
    write(tmp_path / "train", suffix, {"part-0": [1], "part-1": [2]})
    write(tmp_path / "test", suffix, {"part-0": [3]})

    assert values_by_split(load()) == {"train": [1, 2], "test": [3]}


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".tar", " records"])
def test_other_names_beside_splits_are_splits(
    suffix: str, tmp_path: Path, load: Callable[..., Any]
) -> None:
    write(tmp_path, suffix, {"train": [1], "test": [2], "extra": [3]})

    assert values_by_split(load()) == {"train": [1], "extra": [3], "test": [2]}


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".tar", " pictures"])
def test_names_that_contain_words_are_splits(
    suffix: str, tmp_path: Path, load: Callable[..., Any]
) -> None:
    write(tmp_path, suffix, {"mnist_train": [1], "mnist_test": [2]})

    assert values_by_split(load()) == {"mnist_test": [2], "mnist_train": [1]}


@pytest.mark.parametrize("suffix", [".parquet", ".tar"])
def test_files_of_other_names_are_one_dataset(
    suffix: str, tmp_path: Path, load: Callable[..., Any]
) -> None:
    write(tmp_path, suffix, {"part-0": [1], "part-1": [2]})

    assert values_of(load()) == [1, 2]
    with pytest.raises(UnknownSplitError, match="it is one dataset"):
        load(split="part-0")


def test_names_with_dots_are_names(tmp_path: Path, load: Callable[..., Any]) -> None:
    write(tmp_path, ".csv", {"prices.v1": [1], "prices.v2": [2]})

    assert values_by_split(load()) == {"prices.v1": [1], "prices.v2": [2]}


def test_parts_in_a_folder_of_a_split_are_one_dataset(tmp_path: Path) -> None:
    write(tmp_path / "train", ".parquet", {"train-0": [1], "train-1": [2]})

    assert values_of(data_stack.load(str(tmp_path / "train"))) == [1, 2]


def test_the_format_can_be_said_of_splits(tmp_path: Path, load: Callable[..., Any]) -> None:
    write(tmp_path, ".csv", {"train": [1], "test": [2]})
    (tmp_path / "test.npz").write_bytes(b"")

    assert values_by_split(load(format="csv")) == {"train": [1], "test": [2]}


def test_a_list_of_shards_makes_a_folder_one_dataset(tmp_path: Path) -> None:
    write(tmp_path, ".tar", {"train-0": [1], "test-0": [2]})
    shards = [{"url": name, "nsamples": 1} for name in ("train-0.tar", "test-0.tar")]
    (tmp_path / "shardindex.json").write_text(json.dumps({"shardlist": shards}))

    assert values_of(data_stack.load(str(tmp_path))) == [1, 2]


# ---------------------------------------------------------------------- nothing is lost in silence


def test_a_split_of_unknown_format_is_refused(tmp_path: Path, load: Callable[..., Any]) -> None:
    write(tmp_path, ".csv", {"train": [1]})
    (tmp_path / "test.json").write_text("[]")

    with pytest.raises(
        ConfigError, match=r"test\.json is named as a split, but its suffix '\.json'"
    ):
        load()


def test_files_that_are_never_samples_are_no_splits(
    tmp_path: Path, load: Callable[..., Any]
) -> None:
    write(tmp_path, ".csv", {"train": [1]})
    for name in ("test.py", "eval.log", "train.json", "valid.yaml", "LICENSE"):
        (tmp_path / name).write_text("")

    with pytest.warns(LeftOutWarning, match=r"1 of what is there is left out.*'train\.json'"):
        loaded = load()

    assert values_by_split(loaded) == {"train": [1]}


def test_files_that_are_no_parts_of_a_split_are_refused(
    tmp_path: Path, load: Callable[..., Any]
) -> None:
    write(tmp_path / "train", ".npy", {"images": [1], "labels": [2]})
    write(tmp_path / "test", ".npy", {"images": [1], "labels": [2]})

    with pytest.raises(ConfigError, match=r"its files images\.npy, labels\.npy are not parts"):
        load()


def test_splits_of_several_formats_are_refused(tmp_path: Path, load: Callable[..., Any]) -> None:
    write(tmp_path, ".csv", {"train": [1]})
    write(tmp_path, ".jsonl", {"test": [1]})

    with pytest.raises(ConfigError, match=r"several formats: .*train\.csv \(csv\)"):
        load()


def test_samples_beside_the_folder_data_are_warned_of(
    tmp_path: Path, load: Callable[..., Any]
) -> None:
    write(tmp_path / "data", ".parquet", {"train": [1], "test": [2]})
    write(tmp_path, ".parquet", {"more": [3]})

    with pytest.warns(LeftOutWarning, match=r"1 of what is there is left out.*'more\.parquet'"):
        loaded = load()

    assert values_by_split(loaded) == {"train": [1], "test": [2]}


def test_a_dataset_of_parquet_files_named_as_splits_warns(tmp_path: Path) -> None:
    write(tmp_path, ".parquet", {"train": [1], "test": [2]})

    with pytest.warns(
        UserWarning, match="read as one dataset, but its names are those of the splits"
    ):
        rows = ParquetDataset(tmp_path)

    assert values_of(rows) == [2, 1]


@pytest.mark.parametrize("suffix", [".parquet", ".tar", ".csv", " pictures"])
def test_splits_are_not_converted_into_one_dataset(suffix: str, tmp_path: Path) -> None:
    write(tmp_path / "place", suffix, {"train": [1], "test": [2]})

    with pytest.raises(ConfigError, match="has the splits train, test; convert each: pass"):
        convert(tmp_path / "place", tmp_path / "out")
    assert not (tmp_path / "out").exists()


# ---------------------------------------------------------------------- classes of pictures


def pictures(folder: Path, *paths: str) -> None:
    for path in paths:
        write_picture(folder / path)


def labels(samples: Any) -> set[tuple[str, int]]:
    return {(sample["class"], sample["label"]) for sample in samples}


def test_class_numbers_are_made_over_all_splits(tmp_path: Path, load: Callable[..., Any]) -> None:
    pictures(tmp_path, "train/ant/1.png", "train/cat/1.png", "test/bee/1.png", "test/cat/1.png")

    splits = load()

    numbers = {("ant", 0), ("bee", 1), ("cat", 2)}
    assert labels(splits["train"]) | labels(splits["test"]) == numbers
    assert labels(load(split="train+test")) == numbers
    assert labels(load(split="test")) == {("bee", 1), ("cat", 2)}
    for split in ("train", "test"):
        assert splits[split].dataset_meta.class_names == ("ant", "bee", "cat")
        assert load(split=split).dataset_meta.class_names == ("ant", "bee", "cat")
    assert load(split="all").dataset_meta.class_names == ("ant", "bee", "cat")


def test_nested_folders_are_classes(tmp_path: Path, load: Callable[..., Any]) -> None:
    pictures(tmp_path, "round/circle/1.png", "round/ellipse/1.png", "edged/big/square/1.png")
    pictures(tmp_path, "edged/big/triangle/1.png", "edged/small/1.png")

    loaded = load()

    assert loaded.dataset_meta.class_names == (
        "edged/big/square",
        "edged/big/triangle",
        "edged/small",
        "round/circle",
        "round/ellipse",
    )


def test_folders_with_dots_are_classes(tmp_path: Path, load: Callable[..., Any]) -> None:
    pictures(tmp_path, "001.Black_footed_Albatross/1.png", "002.Laysan_Albatross/1.png")

    assert load().dataset_meta.class_names == ("001.Black_footed_Albatross", "002.Laysan_Albatross")


def test_a_class_may_have_the_name_of_a_split(tmp_path: Path, load: Callable[..., Any]) -> None:
    pictures(tmp_path, "bus/1.png", "car/1.png", "train/1.png")

    assert load().dataset_meta.class_names == ("bus", "car", "train")


def test_a_split_beside_an_unlabelled_one_is_a_split(
    tmp_path: Path, load: Callable[..., Any]
) -> None:
    pictures(tmp_path, "train/cat/1.png", "train/dog/1.png", "unlabeled/1.png")

    with pytest.warns(UserWarning, match="no folder of unlabeled names a class"):
        splits = load()

    assert list(splits) == ["train", "unlabeled"]
    assert labels(splits["train"]) == {("cat", 0), ("dog", 1)}


def test_the_layout_of_tiny_imagenet_is_read_whole(
    tmp_path: Path, load: Callable[..., Any]
) -> None:
    pictures(tmp_path, "train/n01/images/1.JPEG", "train/n02/images/2.JPEG")
    pictures(tmp_path, "val/images/3.JPEG", "test/images/4.JPEG")
    (tmp_path / "train" / "n01" / "n01_boxes.txt").write_text("")
    (tmp_path / "val" / "val_annotations.txt").write_text("")

    with (
        pytest.warns(LeftOutWarning, match=r"n01_boxes\.txt|val_annotations\.txt"),
        pytest.warns(UserWarning, match="no folder of test, val names a class"),
    ):
        splits = load()

    assert {name: len(samples) for name, samples in splits.items()} == {
        "train": 2,
        "test": 1,
        "val": 1,
    }
    assert labels(splits["train"]) == {("n01", 0), ("n02", 1)}
    assert set(splits["val"][0]) == {"image", "path"}


def test_metadata_beside_the_splits_are_those_of_each(
    tmp_path: Path, load: Callable[..., Any]
) -> None:
    pictures(tmp_path, "train/1.png", "train/2.png", "test/1.png")
    rows = [
        {"file_name": f"{name}.png", "age": age}
        for age, name in enumerate(["train/1", "test/1", "train/2"])
    ]
    (tmp_path / "metadata.jsonl").write_text("\n".join(map(json.dumps, rows)))

    splits = load()

    ages = {name: samples.read_column("age").tolist() for name, samples in splits.items()}
    assert ages == {"train": [0, 2], "test": [1]}


def test_broken_pictures_keep_the_numbers_of_classes(
    tmp_path: Path, load: Callable[..., Any]
) -> None:
    pictures(tmp_path, "train/ant/1.png", "train/bee/1.png", "test/bee/1.png")
    (tmp_path / "train" / "ant" / "1.png").write_bytes(b"")

    splits = load(on_error="skip")

    assert labels(splits["train"]) == labels(splits["test"]) == {("bee", 1)}


def test_the_classes_of_another_folder_can_be_given(tmp_path: Path) -> None:
    pictures(tmp_path, "train/ant/1.png", "train/bee/1.png", "test/bee/1.png", "new/fly/1.png")
    train: Any = data_stack.load(str(tmp_path / "train"))
    class_names = train.dataset_meta.class_names

    test: Any = data_stack.load(str(tmp_path / "test"), class_names=class_names)

    assert labels(test) == {("bee", 1)}
    assert test.dataset_meta.class_names == ("ant", "bee")
    with pytest.raises(ConfigError, match="in the folder of class 'fly', which is not among"):
        data_stack.from_folder(tmp_path / "new", class_names=class_names)
    with pytest.raises(ConfigError, match="class_names must be a list of names"):
        data_stack.from_folder(tmp_path / "test", class_names="bee")
    with pytest.raises(ConfigError, match="class_names has a name twice"):
        data_stack.from_folder(tmp_path / "test", class_names=["bee", "bee"])


def test_a_folder_of_splits_is_warned_of_as_classes(tmp_path: Path) -> None:
    pictures(tmp_path, "train/cat/1.png", "train/dog/1.png", "test/cat/1.png")

    with pytest.warns(
        UserWarning, match="read as one dataset, but its names are those of the splits"
    ):
        data_stack.from_folder(tmp_path)


# ---------------------------------------------------------------------- types and targets of tables


def write_texts(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        (folder / name.replace("_", ".", 1)).write_text(text)


@pytest.mark.parametrize(
    ("train", "test", "values"),
    [
        ("007\nx8\n", "007\n8\n", (["007", "x8"], ["007", "8"])),
        ("1\n", "1.5\n", ([1.0], [1.5])),
        ("9007199254740993\n", "0.5\n", (["9007199254740993"], ["0.5"])),
        ("1\n", "18446744073709551615\n", ([1], [18446744073709551615])),
        ("-1\n", "18446744073709551615\n", (["-1"], ["18446744073709551615"])),
        ("1\n", "true\n", (["1"], ["true"])),
        ("2020-01-02\n", "x\n", (["2020-01-02"], ["x"])),
    ],
)
def test_columns_have_one_type_in_all_splits(
    train: str, test: str, values: Any, tmp_path: Path, load: Callable[..., Any]
) -> None:
    write_texts(tmp_path, train_csv=f"x\n{train}", test_csv=f"x\n{test}")

    splits = load()

    read = [[sample["x"] for sample in splits[name]] for name in ("train", "test")]
    assert tuple(read) == values
    assert [type(value) for value in read[1]] == [type(value) for value in read[0]][: len(read[1])]
    assert [sample["x"] for sample in load(split="test")] == values[1]


def test_dates_and_times_are_times_in_all_splits(tmp_path: Path, load: Callable[..., Any]) -> None:
    write_texts(tmp_path, train_csv="t\n2020-01-01\n", test_csv="t\n2020-01-01 10:30:00\n")

    splits = load()

    times = [splits[name].read_column("t") for name in ("train", "test")]
    assert times[0].dtype == times[1].dtype
    assert [time[0] for time in times] == [
        np.datetime64("2020-01-01T00:00:00"),
        np.datetime64("2020-01-01T10:30:00"),
    ]


def test_an_empty_column_has_the_type_of_other_splits(
    tmp_path: Path, load: Callable[..., Any]
) -> None:
    write_texts(tmp_path, train_csv="x,y\n1,2\n", test_csv="x,y\n3,\n")

    splits = load()

    assert splits["test"].column_types == {"x": "int64", "y": "int64 or None"}


def test_numbered_parts_have_one_type(tmp_path: Path, load: Callable[..., Any]) -> None:
    (tmp_path / "train-0.csv").write_text("x\n007\n")
    (tmp_path / "train-1.csv").write_text("x\nx8\n")

    assert [sample["x"] for sample in load()["train"]] == ["007", "x8"]


@pytest.mark.parametrize(
    ("suffix", "with_both", "with_x"),
    [
        ("csv", b"x,y\n1,2\n", b"x\n3\n"),
        # Without the time, so that the processes of pytest collect the same names.
        ("csv.gz", gzip.compress(b"x,y\n1,2\n", mtime=0), gzip.compress(b"x\n3\n", mtime=0)),
        ("tsv", b"x\ty\n1\t2\n", b"x\n3\n"),
        ("jsonl", b'{"x": 1, "y": 2}\n', b'{"x": 3}\n'),
    ],
)
@pytest.mark.parametrize("poor_part", [0, 1])
def test_a_part_without_a_column_of_others_is_warned_of(
    tmp_path: Path,
    load: Callable[..., Any],
    suffix: str,
    with_both: bytes,
    with_x: bytes,
    poor_part: int,
) -> None:
    (tmp_path / f"train-{poor_part}.{suffix}").write_bytes(with_x)
    (tmp_path / f"train-{1 - poor_part}.{suffix}").write_bytes(with_both)

    with pytest.warns(UserWarning, match=rf"train-{poor_part}\.{suffix}.* lacks columns .*: 'y'"):
        train = load()["train"]

    assert sorted(sample["x"] for sample in train) == [1, 3]
    assert sorted(load(columns=["x"])["train"].read_column("x")) == [1, 3]


def test_tables_that_are_no_splits_have_types_of_their_own(
    tmp_path: Path, load: Callable[..., Any]
) -> None:
    write_texts(tmp_path, users_csv="x\n1\n", items_csv="x\na\n")

    loaded = load()

    assert (loaded["users"][0]["x"], loaded["items"][0]["x"]) == (1, "a")


def test_numbers_of_json_lines_have_one_type(tmp_path: Path, load: Callable[..., Any]) -> None:
    write_texts(tmp_path, train_jsonl='{"x": 1, "y": null}\n', test_jsonl='{"x": 1.5, "y": "a"}\n')

    splits = load()

    assert splits["train"].column_types == {"x": "float64", "y": "str or None"}
    assert splits["test"].column_types == {"x": "float64", "y": "str"}


def test_json_lines_of_numbers_and_texts_are_refused(
    tmp_path: Path, load: Callable[..., Any]
) -> None:
    write_texts(tmp_path, train_jsonl='{"x": 1}\n', test_jsonl='{"x": "1"}\n')

    with pytest.raises(ConfigError, match=r"column 'x' is int64 in .*train\.jsonl.*, string in"):
        load()
    assert load(dtypes={"x": "str"})["train"][0] == {"x": "1"}


def test_objects_of_json_lines_may_differ(tmp_path: Path, load: Callable[..., Any]) -> None:
    write_texts(tmp_path, train_jsonl='{"x": {"a": 1}}\n', test_jsonl='{"x": {"b": 1}}\n')

    splits = load()

    assert (splits["train"][0], splits["test"][0]) == ({"x": {"a": 1}}, {"x": {"b": 1}})


@pytest.mark.parametrize("options", [{}, {"dtypes": {"y": "float32"}}, {"columns": ["x", "y"]}])
def test_a_test_file_without_the_target_is_read_without_it(
    options: dict[str, Any], tmp_path: Path, load: Callable[..., Any]
) -> None:
    write_texts(tmp_path, train_csv="x,y\n1,2\n", test_csv="x\n3\n")

    splits = load(target="y", **options)

    assert splits["train"].dataset_meta.target_pos == "y"
    assert list(splits["test"]) == list(load(split="test", target="y", **options)) == [{"x": 3}]


def test_a_parquet_test_file_may_lack_the_target(tmp_path: Path, load: Callable[..., Any]) -> None:
    pq.write_table(pa.table({"x": [1], "y": [2]}), tmp_path / "train.parquet")
    pq.write_table(pa.table({"x": [3]}), tmp_path / "test.parquet")

    assert load(target="y")["train"].dataset_meta.target_pos == "y"
    assert list(load(split="test", target="y")) == [{"x": 3}]


def test_a_target_that_no_split_has_is_refused(tmp_path: Path, load: Callable[..., Any]) -> None:
    write_texts(tmp_path, train_csv="x,y\n1,2\n", test_csv="x\n3\n")

    with pytest.raises(ConfigError, match="target 'z' is not a column"):
        load(target="z")
    with pytest.raises(ConfigError, match="has no column 'z' for dtypes"):
        load(dtypes={"z": "int64"})


def test_types_of_files_that_say_them_are_warned_of(
    tmp_path: Path, load: Callable[..., Any]
) -> None:
    pq.write_table(pa.table({"x": [1]}), tmp_path / "train.parquet")
    pq.write_table(pa.table({"x": ["1"]}), tmp_path / "test.parquet")

    with pytest.warns(UserWarning, match="column 'x' differs between splits: it is int64 in train"):
        load()


@pytest.mark.parametrize(
    ("train", "test", "values"),
    [("x7", "007", ["x7", "007"]), ("1", "1.5", [1.0, 1.5]), ("9007199254740993", "0.5", None)],
)
def test_metadata_of_pictures_have_one_type_in_all_splits(
    train: str, test: str, values: Any, tmp_path: Path, load: Callable[..., Any]
) -> None:
    for split, text in (("train", train), ("test", test)):
        pictures(tmp_path, f"{split}/1.png")
        (tmp_path / split / "metadata.csv").write_text(f"file_name,id\n1.png,{text}\n")

    splits = load()

    read = [splits[split][0]["id"] for split in ("train", "test")]
    assert read == ([train, test] if values is None else values)
    assert type(read[0]) is type(read[1])
    assert load(split="test")[0]["id"] == read[1]
