"""Folders of this machine are listed with the links in them that may be followed."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from data_stack.exception import MaliciousFilePathError, MissingFileError, StorageError
from data_stack.io.folder import folder_of
from data_stack.io.location import location_of
from data_stack.io.tree import FOLLOW_LINKS, LEADS_BACK, LEADS_OUT, LeftOut, walk_folder


def write(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write(tmp_path / "place" / "cats" / "1.png")
    write(tmp_path / "outside" / "2.png")
    return tmp_path / "place"


def test_all_files_are_listed_at_any_depth(place: Path) -> None:
    write(place / ".hidden" / "a b")
    write(place / "cats" / "deep" / "er" / "ü")

    found = walk_folder(str(place))

    assert found.files == [".hidden/a b", "cats/1.png", "cats/deep/er/ü"]
    assert found.left_out == []
    assert walk_folder(str(place), "cats/deep").files == ["cats/deep/er/ü"]


def test_a_missing_folder_has_no_files(tmp_path: Path) -> None:
    assert walk_folder(str(tmp_path / "nothing")).files == []


def test_a_path_that_leads_out_has_no_files(place: Path) -> None:
    (place / "linked").symlink_to(place.parent / "outside")

    assert walk_folder(str(place), str(place.parent / "outside")).files == []
    assert walk_folder(str(place), "linked").left_out == [LeftOut("linked", LEADS_OUT)]
    assert walk_folder(str(place), "linked/deep").files == []


def test_links_that_stay_below_the_place_are_followed(place: Path) -> None:
    (place / "tigers").symlink_to("cats")
    (place / "cats" / "again.png").symlink_to(place / "cats" / "1.png")

    found = folder_of(place).list_files()

    assert found == ["cats/1.png", "cats/again.png", "tigers/1.png", "tigers/again.png"]
    assert folder_of(place).read("tigers/again.png") == b"x"
    assert folder_of(place).list_names() == ["cats", "tigers"]


def test_a_folder_may_link_within_its_place(place: Path) -> None:
    write(place / "shared" / "3.png")
    (place / "cats" / "more").symlink_to("../shared")

    assert folder_of(place, "cats").list_files() == ["1.png", "more/3.png"]
    assert folder_of(place / "cats").list_files() == ["1.png"]


def test_a_linked_folder_outside_is_left_out(place: Path) -> None:
    (place / "dogs").symlink_to("../outside")

    files, left_out = folder_of(place).survey()

    assert files == ["cats/1.png"]
    assert left_out == [LeftOut("dogs", LEADS_OUT)]
    assert folder_of(place).list_names() == ["cats"]


def test_a_file_behind_a_link_that_leads_out_is_refused(place: Path) -> None:
    (place / "cats" / "2.png").symlink_to(place.parent / "outside" / "2.png")
    folder = folder_of(place)

    assert folder.list_files() == ["cats/1.png", "cats/2.png"]
    for opener in (folder, pickle.loads(pickle.dumps(folder))):
        with pytest.raises(MaliciousFilePathError, match=FOLLOW_LINKS):
            opener.open("cats/2.png")


def test_the_user_names_paths_that_links_may_lead_to(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = place.parent / "outside"
    (place / "dogs").symlink_to(outside)
    (place / "cats" / "2.png").symlink_to(outside / "2.png")
    monkeypatch.setenv(FOLLOW_LINKS, os.pathsep.join(["/nowhere", "relative", str(outside)]))

    folder = folder_of(place)

    assert folder.list_files() == ["cats/1.png", "cats/2.png", "dogs/2.png"]
    assert folder.read("cats/2.png") == b"x"


def test_what_the_user_names_is_followed_anywhere(place: Path) -> None:
    link = place / "out.png"
    link.symlink_to("../outside/2.png")
    (place / "linked").symlink_to("../outside")

    with location_of(link).open() as resource:
        assert resource.read() == b"x"
    assert location_of(link).local_file() == str(link)
    assert location_of(place / "linked").as_folder().list_files() == ["2.png"]


def test_a_snapshot_of_hugging_face_links_to_its_blobs(tmp_path: Path) -> None:
    repository = tmp_path / "hub" / "datasets--me--pets"
    write(repository / "blobs" / "0abc", "blob")
    write(tmp_path / "hub" / "datasets--other--x" / "blobs" / "0abc", "another")
    data = repository / "snapshots" / "d00d" / "data"
    data.mkdir(parents=True)
    (data / "train.csv").symlink_to("../../../blobs/0abc")
    (data / "other.csv").symlink_to("../../../../datasets--other--x/blobs/0abc")

    for place in (data, data.parent):
        folder = folder_of(place)
        below = "" if place == data else "data/"
        assert folder.read(f"{below}train.csv") == b"blob"
        with pytest.raises(MaliciousFilePathError):
            folder.open(f"{below}other.csv")


def test_links_in_circles_end(place: Path) -> None:
    (place / "cats" / "up").symlink_to("..")
    (place / "a").mkdir()
    (place / "b").mkdir()
    (place / "a" / "b").symlink_to("../b")
    (place / "b" / "a").symlink_to("../a")

    found = walk_folder(str(place))

    assert found.files == ["cats/1.png"]
    assert LeftOut("cats/up", LEADS_BACK) in found.left_out
    assert {left_out.rule for left_out in found.left_out} == {LEADS_BACK}


def test_folders_that_link_to_each_other_are_a_trap(tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(9)]
    for folder in folders:
        folder.mkdir()
    for folder in folders:
        for other in folders:
            (folder / f"to{other.name}").symlink_to(other)

    with pytest.raises(StorageError, match="folders behind links"):
        walk_folder(str(tmp_path))


def test_a_dangling_link_is_an_error_when_opened(place: Path) -> None:
    (place / "cats" / "gone.png").symlink_to("nowhere")
    folder = folder_of(place)

    assert "cats/gone.png" in folder.list_files()
    with pytest.raises(MissingFileError, match="gone"):
        folder.open("cats/gone.png")
