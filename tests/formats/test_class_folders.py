"""Folders of pictures say which class they hold, over all splits of a place."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from data_stack.formats.class_folders import ClassFolders, find_class_folders


def classes_of(*paths: str, others: tuple[str, ...] = ()) -> tuple[str, ...]:
    return find_class_folders({"": paths}, others).class_names


def test_the_class_is_the_name_of_the_folder() -> None:
    found = find_class_folders({"": ["dog/2.png", "cat/1.png"]})

    assert found.class_names == ("cat", "dog")
    assert found.class_of("dog/2.png") == "dog"
    assert found.class_of("bird/1.png") is None
    assert classes_of("cat/1.png") == ("cat",)


def test_nested_folders_are_classes() -> None:
    assert classes_of(
        "round/circle/1", "round/ellipse/1", "edged/square/1", "edged/triangle/1"
    ) == (
        "edged/square",
        "edged/triangle",
        "round/circle",
        "round/ellipse",
    )


def test_an_only_folder_is_no_part_of_the_name() -> None:
    assert classes_of("n01/images/1", "n02/images/1") == ("n01", "n02")
    assert classes_of("images/001.a/1", "images/002.b/1") == ("001.a", "002.b")
    assert classes_of("cat/deep/1", "dog/1") == ("cat", "dog")


def test_folders_below_pictures_are_of_the_same_class() -> None:
    found = find_class_folders({"": ["cat/1.png", "cat/more/2.png", "cat/most/3.png", "dog/1.png"]})

    assert found.class_names == ("cat", "dog")
    assert found.class_of("cat/more/2.png") == "cat"


def test_classes_have_one_number_over_all_splits() -> None:
    found = find_class_folders({"train": ["ant/1", "bee/1", "cat/1"], "test": ["bee/1", "dog/1"]})

    assert found.class_names == ("ant", "bee", "cat", "dog")


def test_nested_classes_are_those_of_all_splits() -> None:
    found = find_class_folders(
        {"train": ["round/a/1", "round/b/1", "flat/1"], "test": ["round/a/1"]}
    )

    assert found.class_names == ("flat", "round/a", "round/b")
    assert found.class_of("round/a/1") == "round/a"


def test_a_folder_within_classes_of_other_splits_names_no_class() -> None:
    found = find_class_folders({"train": ["n01/images/1", "n02/images/1"], "val": ["images/1"]})

    assert found.class_names == ("n01", "n02")
    assert (found.class_of("images/1"), found.class_of("n02/images/1")) == ("", "n02")


def test_a_class_without_pictures_keeps_its_number() -> None:
    assert classes_of("cat/1.png", "dog/1.png", others=("bird/notes.txt", "README")) == (
        "bird",
        "cat",
        "dog",
    )


def test_pictures_without_folders_have_no_class() -> None:
    assert find_class_folders({"": ["1.png"]}) == ClassFolders((), {})
    assert find_class_folders({"": ["1.png"]}).class_of("1.png") == ""


_PARTS = st.lists(st.sampled_from("abc"), min_size=1, max_size=3)


@given(st.lists(_PARTS, min_size=1, max_size=12))
def test_pictures_share_a_class_exactly_if_they_share_its_folder(folders: list[list[str]]) -> None:
    paths = ["/".join([*parts, "1.png"]) for parts in folders]
    with_pictures = {tuple(parts) for parts in folders}

    found = find_class_folders({"": paths})

    classes: dict[tuple[str, ...], set[str | None]] = {}
    for path, parts in zip(paths, folders, strict=True):
        highest = next(
            tuple(parts[:count])
            for count in range(1, len(parts) + 1)
            if tuple(parts[:count]) in with_pictures
        )
        classes.setdefault(highest, set()).add(found.class_of(path))
    names = [name for of_folder in classes.values() for name in of_folder]
    assert all(len(of_folder) == 1 for of_folder in classes.values())
    assert len(set(names)) == len(classes)
    assert set(names) == set(found.class_names)
