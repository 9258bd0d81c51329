"""Folders that ``save_to_disk`` wrote: ``datasets`` reads the same values."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pytest
from feature_lists import list_feature
from fuzz_readings import same

import data_stack
from data_stack.codecs import codec_of
from data_stack.exception import (
    ConfigError,
    DatasetFileCorruptError,
    DataStackError,
    LeftOutWarning,
)
from data_stack.formats.conversion import convert

Value = datasets.Value
FEATURES = datasets.Features(
    {
        "label": datasets.ClassLabel(names=["cat", "dog"]),
        "weight": Value("float32"),
        "text": Value("string"),
        "matrix": datasets.Array2D((2, 3), "float32"),
        "ragged": datasets.Array2D((None, 3), "float32"),
        "pairs": datasets.Sequence({"q": Value("int32")}),
        "words": list_feature(Value("string")),
        "long": datasets.LargeList(Value("int64")),
        "three": list_feature(Value("int8"), length=3),
        "image": datasets.Image(),
        "nested": {"a": [{"b": Value("int16")}], "when": Value("timestamp[s]")},
    }
)


def sample(number: int) -> dict[str, Any]:
    return {
        "label": number % 2,
        "weight": number / 3,
        "text": None if number == 2 else "ü" * number,
        "matrix": np.full((2, 3), number, np.float32),
        "ragged": np.full((number % 3 + 1, 3), number, np.float32),
        "pairs": {"q": list(range(number))},
        "words": [str(number)] * number,
        "long": [number],
        "three": [1, 2, number],
        "image": np.full((4, 5, 3), number, np.uint8),
        "nested": {"a": [{"b": number}], "when": number},
    }


@pytest.fixture(scope="module")
def dataset() -> datasets.Dataset:
    return datasets.Dataset.from_list([sample(n) for n in range(9)], features=FEATURES)


@pytest.fixture
def saved(tmp_path: Path, dataset: datasets.Dataset) -> Path:
    """Two splits, the names of which are none of splits, in two shards."""
    splits = datasets.DatasetDict({"train": dataset, "odd ones": dataset.select([7, 1, 3])})
    splits.save_to_disk(str(tmp_path / "saved"), num_shards={"train": 2, "odd ones": 1})
    return tmp_path / "saved"


def edit(path: Path, **changes: Any) -> None:
    """Change keys of a file with a JSON object."""
    content = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps(content))


def test_splits_and_features_are_those_of_datasets(saved: Path) -> None:
    splits = data_stack.load(str(saved))

    assert list(splits) == ["train", "odd ones"]
    for name, split in splits.items():
        expected = data_stack.from_huggingface(datasets.load_from_disk(str(saved))[name])
        assert same(list(split), list(expected))
        assert split.dataset_meta.class_names == ("cat", "dog")
        assert split.dataset_meta.target_pos == "label"
        for column in expected.column_names:
            assert same(split.read_column(column), expected.read_column(column))


def test_one_split_and_some_columns_are_loaded(saved: Path) -> None:
    loaded = data_stack.load(str(saved), split="odd ones", columns=["text", "label"])
    alone = data_stack.load(str(saved / "train"))

    assert loaded[0] == {"text": "ü" * 7, "label": 1}
    assert len(alone) == 9


def test_images_are_converted_to_a_mode(saved: Path) -> None:
    loaded = data_stack.load(str(saved), split="train", columns=["image"], image_mode="L")

    assert loaded[3]["image"].shape == (4, 5)


def test_an_image_that_is_a_path_is_never_opened(tmp_path: Path) -> None:
    secret = tmp_path / "secret.png"
    secret.write_bytes(b"not to be read")
    images = pa.array([{"bytes": None, "path": str(secret)}])
    table = pa.table({"image": images}).cast(
        datasets.Features({"image": datasets.Image()}).arrow_schema
    )
    datasets.Dataset(datasets.table.InMemoryTable(table)).save_to_disk(str(tmp_path / "saved"))
    # save_to_disk() embeds the file, so a hostile file is made here.
    state = json.loads((tmp_path / "saved" / "state.json").read_text())
    file_name = state["_data_files"][0]["filename"]
    with pa.ipc.new_stream(str(tmp_path / "saved" / file_name), table.schema) as writer:
        writer.write_table(table)

    rows: Any = data_stack.load(str(tmp_path / "saved"))

    with pytest.raises(ConfigError, match="opens no files that a dataset names"):
        rows[0]


def test_positions_of_rows_are_respected(saved: Path) -> None:
    table = pa.table({"indices": pa.array([8, 0, 0], pa.uint64())})
    with pa.ipc.new_stream(str(saved / "train" / "indices.arrow"), table.schema) as writer:
        writer.write_table(table)
    edit(saved / "train" / "state.json", _indices_data_files=[{"filename": "indices.arrow"}])

    rows: Any = data_stack.load(str(saved), split="train")

    assert [row["text"] for row in rows] == ["ü" * 8, "", ""]


@pytest.mark.parametrize("positions", [[9], [-1], [0.5]])
def test_positions_outside_of_the_rows_are_refused(saved: Path, positions: list[Any]) -> None:
    table = pa.table({"indices": positions})
    with pa.ipc.new_stream(str(saved / "train" / "indices.arrow"), table.schema) as writer:
        writer.write_table(table)
    edit(saved / "train" / "state.json", _indices_files=[{"filename": "indices.arrow"}])

    with pytest.raises(DatasetFileCorruptError, match="positions"):
        data_stack.load(str(saved), split="train")


@pytest.mark.parametrize(
    "name", ["../secret.arrow", "/etc/passwd", "..", "a\\b", "", 7, "\ud800.arrow", "a\0.arrow"]
)
def test_files_outside_of_the_folder_are_refused(saved: Path, name: Any) -> None:
    edit(saved / "train" / "state.json", _data_files=[{"filename": name}])

    with pytest.raises(DatasetFileCorruptError, match="no file of the folder"):
        data_stack.load(str(saved), split="train")


def test_splits_outside_of_the_folder_are_refused(saved: Path) -> None:
    edit(saved / "dataset_dict.json", splits=["../train"])

    with pytest.raises(DatasetFileCorruptError, match=r"'\.\./train', which is not there"):
        data_stack.load(str(saved))


def test_an_unknown_feature_is_refused_by_name(saved: Path) -> None:
    features = json.loads((saved / "train" / "dataset_info.json").read_text())["features"]
    features["text"] = {"_type": "Hologram"}
    edit(saved / "train" / "dataset_info.json", features=features)

    with pytest.raises(ConfigError, match=r"'text'.*unknown feature 'Hologram'"):
        data_stack.load(str(saved), split="train")


@pytest.mark.parametrize("pairs", [None, 7, {}, {"_type": 7}])
def test_a_feature_without_a_type_is_refused_by_name(saved: Path, pairs: Any) -> None:
    features = json.loads((saved / "train" / "dataset_info.json").read_text())["features"]
    features["pairs"] = {"_type": "Sequence", "feature": {"q": pairs}}
    edit(saved / "train" / "dataset_info.json", features=features)

    with pytest.raises(ConfigError, match=r"'pairs'.*unknown feature"):
        data_stack.load(str(saved), split="train")


@pytest.mark.parametrize("shape", [[-1, -1], [1 << 62, 2], [1 << 40, 1 << 40]])
def test_arrays_of_an_impossible_shape_are_refused(saved: Path, shape: list[int]) -> None:
    features = json.loads((saved / "train" / "dataset_info.json").read_text())["features"]
    features["matrix"]["shape"] = shape
    edit(saved / "train" / "dataset_info.json", features=features)

    with pytest.raises(DatasetFileCorruptError, match="states arrays of the shape"):
        data_stack.load(str(saved), split="train")


def test_features_that_are_not_those_of_the_files_are_refused(saved: Path) -> None:
    features = json.loads((saved / "train" / "dataset_info.json").read_text())["features"]
    edit(
        saved / "train" / "dataset_info.json",
        features={**features, "weight": {"_type": "Value", "dtype": "int8"}},
    )

    with pytest.raises(DatasetFileCorruptError, match=r"'weight'.*type float"):
        data_stack.load(str(saved), split="train")


def test_files_that_are_not_listed_are_named_in_a_warning(saved: Path) -> None:
    (saved / "train" / "cache-00ff.arrow").write_bytes(b"of a map")

    with pytest.warns(LeftOutWarning, match=r"cache-00ff\.arrow.*not listed in state\.json"):
        data_stack.load(str(saved), split="train")


@pytest.mark.parametrize("name", ["state.json", "dataset_info.json"])
def test_a_damaged_description_is_an_error(saved: Path, name: str) -> None:
    (saved / "train" / name).write_text("{")

    with pytest.raises(DatasetFileCorruptError, match=name.replace(".", r"\.")):
        data_stack.load(str(saved), split="train")


def test_translations_are_dicts(tmp_path: Path) -> None:
    features = datasets.Features(
        {
            "pair": datasets.Translation(["de", "fr"]),
            "more": datasets.TranslationVariableLanguages(["de", "fr"]),
        }
    )
    rows = [
        {"pair": {"de": "ja", "fr": "oui"}, "more": {"language": ["de"], "translation": ["ja"]}}
    ]
    with pa.ipc.new_stream(str(tmp_path / "a.arrow"), features.arrow_schema) as writer:
        writer.write_table(pa.Table.from_pylist(rows, features.arrow_schema))

    loaded: Any = data_stack.load(str(tmp_path / "a.arrow"))

    assert list(loaded) == rows


def test_a_saved_split_converts_to_records(saved: Path, tmp_path: Path) -> None:
    columns = "label,weight,text,matrix,three,image"

    report = convert(saved / "train", tmp_path / "records", columns=columns)

    assert report.source_format == "arrow"
    assert report.n_verified == 9


def pictures_of(kind: str, path: Path, contents: list[bytes | None]) -> Path:
    """Save pictures whose files have these contents."""
    features = datasets.Features({"image": datasets.Image(), "n": Value("int64")})
    images = []
    for content in contents:
        images.append(None if content is None else {"bytes": content, "path": None})
    columns = {"image": images, "n": list(range(len(images)))}
    datasets.Dataset.from_dict(columns, features=features).save_to_disk(str(path / kind))
    return path / kind


def test_pictures_are_converted_as_they_are_stored(tmp_path: Path) -> None:
    jpeg = codec_of("jpg")
    contents = [jpeg.encode(np.full((8, 6, 3), 9 * n, np.uint8)) for n in range(4)]
    saved = pictures_of("jpegs", tmp_path, list(contents))

    report = convert(str(saved), str(tmp_path / "pictures.tar"), columns="image,n")
    convert(str(saved), str(tmp_path / "again.arrow"))

    assert report.columns["image"] == "jpg"
    with tarfile.open(tmp_path / "pictures.tar") as archive:
        members = [member for member in archive if member.name.endswith("jpg")]
        assert [archive.extractfile(member).read() for member in members] == contents  # type: ignore[union-attr]  # files
    again = pa.ipc.open_file(str(tmp_path / "again.arrow")).read_all()
    assert again.column("image").to_pylist() == contents
    assert same(
        list(data_stack.load(str(tmp_path / "again.arrow"))), list(data_stack.load(str(saved)))
    )


def test_pictures_of_several_types_are_decoded(tmp_path: Path) -> None:
    pixels = np.full((8, 6, 3), 9, np.uint8)
    contents = [codec_of("png").encode(pixels), codec_of("jpg").encode(pixels)]
    saved = pictures_of("mixed", tmp_path, list(contents))

    report = convert(str(saved), str(tmp_path / "records"))

    assert report.columns["image"] == "array"
    assert same(list(data_stack.load(str(tmp_path / "records"))), list(data_stack.load(str(saved))))


def test_a_damaged_picture_is_not_copied(tmp_path: Path) -> None:
    whole = codec_of("png").encode(np.arange(600, dtype=np.uint8).reshape(10, 20, 3))
    saved = pictures_of("damaged", tmp_path, [whole, whole[:60]])

    with pytest.raises((DatasetFileCorruptError, ConfigError), match="image"):
        convert(str(saved), str(tmp_path / "records"))
    assert not (tmp_path / "records").exists()


def test_names_of_classes_survive_a_conversion(saved: Path, tmp_path: Path) -> None:
    first = tmp_path / "first.arrow"
    second = tmp_path / "second.arrows"

    convert(str(saved / "train"), str(first), columns="kind=label,weight")
    convert(data_stack.load(str(first)), str(second))

    for path in (first, second):
        loaded: Any = data_stack.load(str(path))
        assert loaded.dataset_meta.class_names == ("cat", "dog")
        assert loaded.read_column("kind").tolist() == [n % 2 for n in range(9)]
    theirs = datasets.Dataset.from_file(str(second))
    assert theirs.features["kind"] == FEATURES["label"]
    assert theirs["kind"][:] == [n % 2 for n in range(9)]


def test_a_folder_of_splits_has_no_samples_of_its_own(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(DataStackError, match=r"train|splits"):
        convert(saved, tmp_path / "records")


# ------------------------------------------------------------------ back to datasets


def test_a_split_goes_back_to_datasets_without_a_copy(saved: Path) -> None:
    loaded: Any = data_stack.load(str(saved), split="train")

    back = loaded.to_huggingface()

    expected = datasets.load_from_disk(str(saved))["train"]
    assert back.features == expected.features
    assert back.with_format("arrow")[:] == expected.with_format("arrow")[:]
    values = back.data.column("weight").chunk(0).buffers()[1]
    mapped = np.frombuffer(loaded.rows().files[0].map, np.uint8)
    first = mapped.__array_interface__["data"][0]
    assert first <= values.address < first + len(mapped)


def test_chosen_rows_go_back_to_datasets(saved: Path) -> None:
    loaded: Any = data_stack.load(str(saved), split="train")

    back = loaded[[8, 1, 1]].to_huggingface()

    assert back["text"][:] == ["ü" * 8, "ü", "ü"]
    assert back.features == FEATURES


def test_chosen_columns_keep_their_features(saved: Path) -> None:
    loaded: Any = data_stack.load(str(saved), split="train", columns=["text", "label"])

    back = loaded.to_huggingface()

    assert back.features == {name: FEATURES[name] for name in ("label", "text")}
    assert back["label"][:3] == [0, 1, 0]


def test_converted_images_are_not_the_stored_ones(saved: Path) -> None:
    loaded: Any = data_stack.load(str(saved), split="train", columns=["image"], image_mode="L")

    back = loaded.to_huggingface()

    assert np.asarray(back[3]["image"]).shape == (4, 5)
