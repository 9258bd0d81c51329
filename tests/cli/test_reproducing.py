"""lock add, lock check, lock restore."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_runs import TWO_VERSIONS, Install, Run

from data_stack.cli.reproducing import parse_key


@pytest.fixture
def locked(command: Run, tmp_path: Path, install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock file of two datasets in the current folder, one of them an old version."""
    monkeypatch.chdir(tmp_path)
    install("wine-plugin", TWO_VERSIONS, ["New", "Old"], ["wine", "wine@1.0"])

    outcome = command("lock", "add", "digits", "wine@1.0")

    assert outcome.code == 0
    assert outcome.out == "data_stack.lock locks digits, wine\n"


@pytest.mark.usefixtures("locked")
def test_locked_datasets_are_as_the_lock_file_says(command: Run, tmp_path: Path) -> None:
    checked = command("lock", "check")
    restored = command("lock", "restore", "--storage", str(tmp_path / "other"))

    assert checked.code == 0
    assert checked.out == "all data is as the lock file says\n"
    assert restored.code == 0


@pytest.mark.usefixtures("locked")
def test_a_missing_plugin_differs_from_the_lock_file(
    command: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATA_STACK_DISABLE_PLUGINS", "wine-plugin")

    outcome = command("lock", "check", "--json")

    assert outcome.code == 1
    (difference,) = outcome.json
    assert (difference["name"], difference["what"]) == ("wine", "plugin")
    assert (
        "the package wine-plugin 1.0, which you may install if you trust its author"
        in difference["message"]
    )
    assert "pip install" not in difference["message"]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (None, None),
        ("0", 0),
        ("-1", -1),
        ("label", "label"),
        ("--1", "--1"),
        ("\N{SUPERSCRIPT TWO}", "\N{SUPERSCRIPT TWO}"),
        ("", ""),
    ],
)
def test_a_key_is_a_number_or_a_name(text: str | None, key: int | str | None) -> None:
    assert parse_key(text) == key
