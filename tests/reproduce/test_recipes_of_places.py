"""Files and folders of one's own in recipes and lock files: by their path and the digests of their
files.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import data_stack
from data_stack import from_recipe
from data_stack.exception import ConfigError, RecipeError
from data_stack.formats import convert
from data_stack.reproduce.lock_file import LockFile


def write_images(folder: Path) -> None:
    for class_number, name in enumerate(("cat", "dog")):
        (folder / name).mkdir(parents=True)
        for number in range(3):
            pixels = np.full((4, 4, 3), 10 * class_number + number, np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")


def write_table(path: Path) -> None:
    path.write_text("a,b\n1,2\n3,4\n")


def write_array(path: Path) -> None:
    np.save(path, np.arange(12).reshape(4, 3))


def write_archive(path: Path) -> None:
    np.savez(path, x=np.arange(5), y=np.arange(5) % 2)


def write_records(folder: Path) -> None:
    convert(data_stack.from_numpy({"x": np.arange(5)}), folder)


def write_parquet(folder: Path) -> None:
    convert(data_stack.from_numpy({"x": np.arange(5)}), folder, target_format="parquet")


PLACES: dict[str, Callable[[Path], None]] = {
    "photos": write_images,
    "table.csv": write_table,
    "array.npy": write_array,
    "arrays.npz": write_archive,
    "records": write_records,
    "parquet": write_parquet,
}


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "project" / "data" / str(request.param)
    path.parent.mkdir(parents=True)
    PLACES[request.param](path)
    return path


def test_a_place_of_any_format_is_locked_and_restored(place: Path) -> None:
    stack = data_stack.load(place).shuffle(seed=1)
    lock_path = place.parents[1] / "data_stack.lock"

    data_stack.lock(path=lock_path, stack=stack)

    assert f"data/{place.name}" in lock_path.read_text()
    assert LockFile.read(lock_path).restore("memory://") == []


def test_a_lock_and_its_place_may_move_together(place: Path, tmp_path: Path) -> None:
    stack = data_stack.load(place).shuffle(seed=1)
    data_stack.lock(path=place.parents[1] / "data_stack.lock", stack=stack)

    place.parents[1].rename(tmp_path / "elsewhere")

    assert LockFile.read(tmp_path / "elsewhere" / "data_stack.lock").restore("memory://") == []


def test_a_changed_file_of_a_locked_place_is_found(tmp_path: Path) -> None:
    write_images(tmp_path / "photos")
    data_stack.lock(path=tmp_path / "lock", stack=data_stack.load(tmp_path / "photos"))
    Image.new("RGB", (4, 4), "red").save(tmp_path / "photos" / "cat" / "0.png")

    (difference,) = LockFile.read(tmp_path / "lock").restore("memory://")

    assert (difference.what, difference.is_harmless) == ("stack", False)
    assert "The files differ from those of the recipe" in difference.message


def test_a_recipe_opens_a_place_with_its_options(tmp_path: Path) -> None:
    write_images(tmp_path / "photos")
    opened = data_stack.load(tmp_path / "photos", columns=["label", "image"])
    recipe = json.loads(json.dumps(opened.take(4).recipe()))

    again = from_recipe(recipe)

    assert again.column_names == ["label", "image"]
    assert again.fingerprint() == opened.take(4).fingerprint()
    assert again.recipe() == recipe


def test_a_recipe_names_the_split_of_a_place(tmp_path: Path) -> None:
    for split in ("train", "test"):
        write_table(tmp_path / f"{split}.csv")
    stack = data_stack.load(tmp_path, split="train[:1]+test")

    again = from_recipe(json.dumps(stack.recipe()))

    assert len(again) == 3
    assert again.fingerprint() == stack.fingerprint()


def test_moved_data_stand_for_a_place_as_sources(tmp_path: Path) -> None:
    write_images(tmp_path / "photos")
    recipe = data_stack.load(tmp_path / "photos").take(3).recipe()
    (tmp_path / "photos").rename(tmp_path / "moved")

    with pytest.raises(RecipeError, match="there is no file or folder"):
        from_recipe(recipe)
    again = from_recipe(recipe, sources=[data_stack.load(tmp_path / "moved")])

    assert len(again) == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"path": "https://example.org/x.csv"}, "not a URL"),
        ({"path": "/dev/zero"}, "there is no file or folder"),
        ({"path": 3}, "a place has the arguments"),
        ({"options": {"dict": [["split", "train"]]}}, "cannot be opened"),
        ({"options": {"dict": [["no_option", 1]]}}, "no option 'no_option'"),
        ({"split": "test"}, "no split 'test'"),
        ({"samples": "0" * 64}, "have the fingerprint"),
        ({"more": 1}, "a place has the arguments"),
    ],
)
def test_a_recipe_of_strangers_cannot_open_other_places(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    write_table(tmp_path / "x.csv")
    recipe = data_stack.load(tmp_path / "x.csv").recipe()
    recipe["nodes"][0]["arguments"].update(changes)

    with pytest.raises(RecipeError, match=message):
        from_recipe(recipe)


def test_a_source_of_a_class_says_how_to_lock_it(tmp_path: Path) -> None:
    write_array(tmp_path / "x.npy")
    source = data_stack.formats.NumpyDatasetIterator([tmp_path / "x.npy"])

    with pytest.raises(ConfigError, match=r"data_stack\.load\(path\)"):
        data_stack.lock(path=tmp_path / "lock", stack=source)
