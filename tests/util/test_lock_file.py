"""File locks of the operating system."""

from __future__ import annotations

from pathlib import Path

import pytest

from data_stack.util.group_rights import make_folder
from data_stack.util.lock_file import open_locked


def test_a_file_of_the_current_folder_is_locked_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    holder = open_locked("name.lock")
    second = open_locked("name.lock")

    assert holder is not None
    assert second is None
    holder.close()


def test_a_lock_ends_when_its_file_is_closed(tmp_path: Path) -> None:
    path = str(tmp_path / "new folder" / "name.lock")

    for _ in range(2):
        holder = open_locked(path)
        assert holder is not None
        holder.close()


def test_a_folder_is_made_in_the_current_folder_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    make_folder("new folder")

    assert (tmp_path / "new folder").is_dir()
