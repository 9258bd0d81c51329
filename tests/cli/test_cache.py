"""cache: what this machine keeps of large text files."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from command_runs import Run

import data_stack
from data_stack.formats.text_tables import kept_folder, pinned_file, reading, text_copy


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the texts, in which those of small files are kept as well."""
    monkeypatch.setattr(reading, "MAX_TABLE_BYTES", 0)
    monkeypatch.setattr(text_copy, "MAX_BYTES_IN_MEMORY", 0)
    monkeypatch.setattr(pinned_file, "SETTLING_NS", -(10**18))
    monkeypatch.setenv(kept_folder.FOLDER_VARIABLE, str(tmp_path / "kept"))
    return tmp_path / "kept"


@pytest.fixture
def packed(tmp_path: Path, folder: Path) -> Path:
    """A compressed file of 9,000 bytes of text, which was opened."""
    path = tmp_path / "a.jsonl.gz"
    assert not folder.exists()
    path.write_bytes(gzip.compress(b'{"a": 1}\n' * 1000))
    data_stack.from_jsonl(str(path))
    return path


def test_cache_lists_the_texts_with_their_files(command: Run, folder: Path, packed: Path) -> None:
    listed = command("cache")
    facts = command("cache", "--json").json

    assert str(packed) in listed.out
    assert f"1 text (9.0 kB), 0 index files (0 B) kept in {folder}" in listed.out
    assert facts["texts"][0]["of"] == str(packed)
    assert facts["texts"][0]["bytes"] == facts["bytes_of_texts"] == 9000


@pytest.mark.usefixtures("packed")
def test_cache_clear_removes_the_texts(command: Run, folder: Path) -> None:
    (folder / "notes.txt").write_text("of the user")

    cleared = command("cache", "--clear")

    assert "1 text (9.0 kB), 0 index files (0 B) removed from" in cleared.out
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


def test_cache_of_a_missing_folder_is_empty(command: Run, folder: Path) -> None:
    outcome = command("cache")

    assert (outcome.code, outcome.out.startswith("0 texts (0 B)")) == (0, True)
    assert not folder.exists()
