"""Indexes of large files that are kept: used again, damaged, of changed files, full folders."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from full_disk import files_limited

import data_stack
from data_stack.formats.text_tables import indexed_text, kept_folder, pinned_file, reading


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the indexes, in which those of small files are kept as well."""
    monkeypatch.setattr(reading, "MAX_TABLE_BYTES", 0)
    monkeypatch.setattr(indexed_text, "MAX_BYTES_IN_MEMORY", 0)
    monkeypatch.setattr(indexed_text, "MIN_BYTES_TO_KEEP", 0)
    monkeypatch.setenv(kept_folder.FOLDER_VARIABLE, str(tmp_path / "indexes"))
    return tmp_path / "indexes"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "a.jsonl", '{"a": 1, "v": {"x": 1}}\n{"a": null, "v": [2]}\n')


def write(path: Path, text: str, seconds_ago: float = 100) -> Path:
    """Write a file as if that were some time ago, as far as a program can."""
    path.write_text(text)
    changed_at = time.time() - seconds_ago
    os.utime(path, (changed_at, changed_at))
    return path


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files count as settled at once: a program cannot set the time of the last change back."""
    monkeypatch.setattr(pinned_file, "SETTLING_NS", -(10**18))


def described(path: Path, **options: Any) -> Any:
    rows: Any = data_stack.from_jsonl(str(path), **options)
    return [repr(list(rows)), rows.column_types, rows.fingerprint(), rows.recipe()]


def inodes(folder: Path) -> dict[str, int]:
    """The inode of each kept file, which changes when it is made again."""
    return {file.name: file.stat().st_ino for file in folder.iterdir()}


def test_a_kept_index_opens_the_same_rows_and_stays(path: Path, folder: Path) -> None:
    first = described(path)
    kept = inodes(folder)

    assert described(path) == first
    assert inodes(folder) == kept
    assert len(kept) == 2
    assert described(path, dtypes={"a": "float32"}) != first
    assert described(path, columns=["a"]) != first
    assert len(inodes(folder)) == 4


@pytest.mark.usefixtures("folder")
def test_another_file_at_the_path_has_its_own_index(path: Path) -> None:
    described(path)
    status = path.stat()
    write(path, '{"a": 1, "v": {"x": 1}}\n{"a":  777, "v": [2]}\n')
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    assert data_stack.load(path)[1]["a"] == 777


def test_damaged_files_are_made_again(path: Path, folder: Path) -> None:
    first = described(path)
    for kept_file in folder.iterdir():
        data = kept_file.read_bytes()
        for damaged in (data[:-1], b"", data[:20] + b"7" + data[21:], b"\xff" * len(data)):
            kept_file.write_bytes(damaged)
            assert described(path) == first
            assert kept_file.read_bytes() == data


def test_an_index_of_another_file_is_made_again(path: Path, folder: Path) -> None:
    other_path = write(path.with_name("b.jsonl"), '{"a": 1}\n{"a": 1, "v": {"x": 3, "y": null}}\n')
    first = described(path)
    kept_files = {file.suffix: file for file in folder.iterdir()}
    described(other_path)
    for file in set(folder.iterdir()) - set(kept_files.values()):
        file.replace(kept_files[file.suffix])

    assert described(path) == first
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("suffix", [".rows", ".json"])
def test_a_pipe_in_place_of_a_kept_file_is_not_opened(
    path: Path, folder: Path, suffix: str
) -> None:
    first = described(path)
    (kept_file,) = folder.glob(f"*{suffix}")
    kept_file.unlink()
    os.mkfifo(kept_file)

    assert described(path) == first
    assert kept_file.is_file()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to other users")
def test_the_index_of_another_user_is_not_read(path: Path, folder: Path) -> None:
    first = described(path)
    kept = inodes(folder)
    for kept_file in folder.iterdir():
        os.chown(kept_file, 12345, -1)

    assert described(path) == first
    assert set(inodes(folder)) == set(kept)
    assert {file.stat().st_uid for file in folder.iterdir()} == {0}


def test_a_folder_that_cannot_be_written_to_is_no_error(path: Path, folder: Path) -> None:
    folder.write_text("a file")

    first = described(path)

    assert described(path) == first
    assert folder.read_text() == "a file"


def test_a_full_disk_keeps_nothing_and_is_no_error(path: Path, folder: Path) -> None:
    with files_limited(10):
        first = described(path)

    assert list(folder.iterdir()) == []
    assert described(path) == first
    assert len(list(folder.iterdir())) == 2


def test_the_indexes_used_longest_ago_are_removed(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_folder, "MAX_INDEX_BYTES", 900)
    for number in range(10):
        described(write(tmp_path / f"{number}.jsonl", f'{{"a": {number}}}\n'))
    unfinished = folder / "row_index_x.unfinished"
    foreign = [folder / name for name in ("notes.txt", "old.json", "my.rows", "x.unfinished")]
    for file in (unfinished, *foreign):
        file.write_bytes(b"of the user")
        os.utime(file, (0, 0))

    described(write(tmp_path / "last.jsonl", '{"a": 1}\n'))

    sizes = [file.stat().st_size for file in folder.iterdir() if file not in foreign]
    assert 0 < sum(sizes) <= 900
    assert not unfinished.exists()
    assert all(file.exists() for file in foreign)


def test_small_files_and_files_written_just_now_keep_nothing(
    path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pinned_file, "SETTLING_NS", 1000 * 10**9)
    described(write(path, '{"a": 1}\n'))
    monkeypatch.setattr(pinned_file, "SETTLING_NS", -(10**18))
    monkeypatch.setattr(indexed_text, "MIN_BYTES_TO_KEEP", 1 << 20)
    described(path)

    assert not folder.exists()
