"""Folders of images, one folder a class, with and without metadata."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from writing import image_bytes

import data_stack
from data_stack.exception import ConfigError, DatasetFileCorruptError, MaliciousFilePathError
from data_stack.formats.image_folder import ImageFolderIterator
from data_stack.formats.image_folder_writer import write_image_folder

PIXELS = np.random.default_rng(0).integers(0, 255, (6, 5, 4, 3), dtype=np.uint8)


FILES = {"dog/2.png": 0, "cat/10.PNG": 1, "cat/9.png": 2, "ant/deep/1.png": 3}
ORDER = ["ant/deep/1.png", "cat/10.PNG", "cat/9.png", "dog/2.png"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, number in FILES.items():
        path = tmp_path / "pets" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image_bytes(PIXELS[number]))
    (tmp_path / "pets" / "README.txt").write_text("not an image")
    return tmp_path / "pets"


# ------------------------------------------------------------------ reading


def test_samples_are_sorted_by_class_and_path(folder: Path) -> None:
    iterator = ImageFolderIterator(folder)

    assert iterator.class_names == ("ant", "cat", "dog")
    assert [(each["path"], each["class"], each["label"]) for each in iterator] == [
        (path, path.split("/")[0], label) for path, label in zip(ORDER, [0, 1, 1, 2], strict=True)
    ]
    np.testing.assert_array_equal(iterator[3]["image"], PIXELS[0])
    assert pickle.loads(pickle.dumps(iterator))[1]["path"] == ORDER[1]


def test_labels_are_read_without_the_images(folder: Path) -> None:
    for name in FILES:
        (folder / name).write_bytes(b"damaged")
    iterator = ImageFolderIterator(folder)

    assert iterator.read_column("label", [3, -4]).tolist() == [2, 0]
    assert ImageFolderIterator(folder, decode=False)[0]["image"] == b"damaged"
    with pytest.raises(DatasetFileCorruptError, match=r"ant/deep/1\.png cannot be decoded"):
        iterator[0]


def test_links_are_followed_inside_and_refused_outside(folder: Path) -> None:
    (folder / "cat" / "link.png").symlink_to(folder / "dog" / "2.png")
    (folder / "dog" / "circle").symlink_to(folder)

    paths = ImageFolderIterator(folder).read_column("path").tolist()

    assert "cat/link.png" in paths
    assert len(paths) == 5
    (folder / "dog" / "out.png").symlink_to("/etc/hostname")
    with pytest.raises(MaliciousFilePathError, match="outside the folder"):
        list(ImageFolderIterator(folder))


def test_metadata_files_list_the_images_and_add_fields(folder: Path) -> None:
    lines = [
        "file_name,age,weight,name",
        *(f"{name},{number},{number}.5,0{number}x" for name, number in FILES.items()),
    ]
    (folder / "metadata.csv").write_text("\n".join(lines))
    of_csv = ImageFolderIterator(folder)[1]
    (folder / "metadata.csv").unlink()
    rows = [
        {"file_name": name, "age": number, "note": None if number else "ü"}
        for name, number in FILES.items()
    ]
    (folder / "metadata.jsonl").write_text("\n".join(map(json.dumps, rows)))

    iterator = ImageFolderIterator(folder)

    assert {key: of_csv[key] for key in ("age", "weight", "name")} == {
        "age": 1,
        "weight": 1.5,
        "name": "01x",
    }
    assert iterator.fields == ("image", "age", "note")
    assert [(each["age"], each["note"]) for each in iterator] == [
        (0, "ü"),
        (1, None),
        (2, None),
        (3, None),
    ]
    np.testing.assert_array_equal(iterator[0]["image"], PIXELS[0])
    assert ImageFolderIterator(folder, metadata=False).class_names == ("ant", "cat", "dog")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("metadata.jsonl", "{", "line 1, column 2: invalid JSON"),
        ("metadata.jsonl", "[1]", "line 1: expected an object"),
        ("metadata.jsonl", '{"file_name": "x", "a": 1e400}', "float64 has no number 1e400"),
        ("metadata.jsonl", '{"file_name": "../../etc/passwd"}', "does not exist"),
        ("metadata.jsonl", '{"file_name": "dog/2.png"}', "has no row for 'ant/deep/1.png'; add it"),
        ("metadata.csv", "file_name,a\ndog/2.png", "line 2: 1 columns"),
        ("metadata.csv", "name,a\ndog/2.png,1", "no column 'file_name'.*it has name, a"),
        ("metadata.csv", "\xff\xfe", "CSV file in utf-8"),
    ],
)
def test_metadata_that_are_damaged_or_do_not_fit_are_errors(
    folder: Path, name: str, text: str, message: str
) -> None:
    (folder / name).write_bytes(text.encode("latin-1"))

    with pytest.raises(DatasetFileCorruptError, match=message):
        len(ImageFolderIterator(folder))


# ------------------------------------------------------------------ writing


def test_images_are_written_into_a_folder_for_each_class(tmp_path: Path) -> None:
    jpg = image_bytes(PIXELS[1], "JPEG")
    samples = [
        {"image": PIXELS[0], "class": "dog", "score": np.float32(0.5)},
        {"image": jpg, "class": "cat", "score": 1},
    ]

    assert write_image_folder(tmp_path / "out", samples) == 2

    assert sorted(os.listdir(tmp_path / "out")) == ["cat", "dog", "metadata.jsonl"]
    assert (tmp_path / "out/cat/000001.jpg").read_bytes() == jpg
    assert [(each["class"], each["score"]) for each in ImageFolderIterator(tmp_path / "out")] == [
        ("dog", 0.5),
        ("cat", 1),
    ]
    assert ImageFolderIterator(tmp_path / "out", metadata=False).class_names == ("cat", "dog")


def test_a_folder_that_is_not_finished_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        write_image_folder(
            tmp_path / "out", [{"image": PIXELS[0], "label": 0}, {"image": b"no image"}]
        )

    with pytest.raises(DatasetFileCorruptError, match="is unfinished"):
        len(ImageFolderIterator(tmp_path / "out"))
    with pytest.raises(ConfigError):
        write_image_folder(tmp_path / "out", [])


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        ({"class": "a"}, "the image of sample 0"),
        ({"image": b"%PDF-1.4", "class": "a"}, "not a known image format"),
        ({"image": PIXELS[0].astype(np.float32)}, "cannot be stored as PNG"),
        ({"image": PIXELS[0], "class": "../a"}, "not a valid name of a folder"),
        ({"image": PIXELS[0], "x": np.zeros(2)}, "metadata of sample 0"),
        ({"image": PIXELS[0], "x": float("nan")}, "metadata of sample 0"),
    ],
)
def test_what_no_folder_of_images_holds_is_refused_whole(
    tmp_path: Path, sample: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        write_image_folder(tmp_path / "out", [sample])


# ------------------------------------------------------------------ broken images


@pytest.fixture
def broken(folder: Path) -> Path:
    (folder / "cat/9.png").write_bytes((folder / "cat/9.png").read_bytes()[:60])
    (folder / "dog/2.png").write_bytes(b"")
    (folder / "zebra").mkdir()
    (folder / "zebra/1.png").write_bytes(b"no image at all")
    return folder


def test_broken_images_are_left_out_counted_and_listed(
    broken: Path, caplog: pytest.LogCaptureFixture
) -> None:
    iterator: Any = data_stack.load(str(broken), on_error="skip")

    assert [(each["path"], each["label"]) for each in iterator] == [
        ("ant/deep/1.png", 0),
        ("cat/10.PNG", 1),
    ]
    assert iterator.dataset_meta.class_names == ("ant", "cat", "dog", "zebra")
    assert sorted(iterator.broken) == ["cat/9.png", "dog/2.png", "zebra/1.png"]
    assert "zebra/1.png cannot be decoded" in iterator.broken["zebra/1.png"]
    assert repr(iterator).startswith(
        "<InformedDatasetIterator: 2 samples without 3 broken images of "
    )
    assert "without 3 broken images" in str(iterator.explain())
    assert "3 of 5 images are broken and left out" in caplog.text
    assert [len(iterator.read_column(name)) for name in ("image", "class")] == [2, 2]


def test_broken_images_are_errors_unless_they_are_to_be_skipped(broken: Path) -> None:
    iterator: Any = data_stack.load(str(broken))

    assert (len(iterator), iterator.broken) == (5, {})
    with pytest.raises(DatasetFileCorruptError, match=r"cat/9.png cannot be decoded"):
        list(iterator)
    with pytest.raises(ConfigError, match="on_error must be 'raise' or 'skip', got 'ignore'"):
        data_stack.load(str(broken), on_error="ignore")
    with pytest.raises(ConfigError, match="has no option 'on_error'"):
        (broken / "a.csv").write_text("x\n1\n")
        data_stack.load(str(broken / "a.csv"), on_error="skip")
