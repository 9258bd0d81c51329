"""The index of the images of a folder, as a function of their paths."""

from __future__ import annotations

from pathlib import Path

import pytest

from data_stack.exception import ConfigError
from data_stack.formats.class_folders import ClassFolders, find_class_folders
from data_stack.formats.image_index import index_by_classes
from data_stack.io.folder import LocalFolder

FOLDER = LocalFolder(Path("/pets"))
NO_CLASSES = ClassFolders((), {})


def test_images_are_sorted_by_class_then_by_path() -> None:
    images = ["dog/2.png", "cat/b.png", "dog/1.png", "cat/a.png"]

    index = index_by_classes(FOLDER, images, find_class_folders({"": images}))

    assert index.paths == ["cat/a.png", "cat/b.png", "dog/1.png", "dog/2.png"]
    assert index.columns["label"] == [0, 0, 1, 1]
    assert index.columns["class"] == ["cat", "cat", "dog", "dog"]
    assert index.class_names == ("cat", "dog")
    assert images[0] == "dog/2.png"


def test_given_classes_number_the_labels() -> None:
    images = ["cat/1.png", "dog/1.png"]
    class_folders = find_class_folders({"": images})

    index = index_by_classes(FOLDER, images, class_folders, ("dog", "cat"))

    assert index.paths == ["cat/1.png", "dog/1.png"]
    assert index.columns["label"] == [1, 0]


def test_images_without_folders_have_no_classes() -> None:
    index = index_by_classes(FOLDER, ["2.png", "1.png"], NO_CLASSES)

    assert index.columns == {"path": ["1.png", "2.png"]}
    assert index.class_names == ()


def test_images_beside_folders_of_images_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"images, such as '1\.png', and folders of images"):
        index_by_classes(FOLDER, ["1.png", "cat/1.png"], NO_CLASSES)


def test_a_class_that_is_not_given_is_refused() -> None:
    class_folders = find_class_folders({"": ["cat/1.png", "dog/1.png"]})

    with pytest.raises(ConfigError, match="of class 'dog', which is not among the classes cat"):
        index_by_classes(FOLDER, ["cat/1.png", "dog/1.png"], class_folders, ("cat",))


def test_a_selection_keeps_paths_and_columns_together() -> None:
    index = index_by_classes(FOLDER, ["a.png", "b.png", "c.png"], NO_CLASSES).select([2, 0])

    assert index.paths == ["c.png", "a.png"]
    assert index.columns == {"path": ["c.png", "a.png"]}
