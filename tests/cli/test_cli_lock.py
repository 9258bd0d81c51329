"""The commands ``data-stack lock``, and what they say of versions and licences."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

OLD_AND_NEW = """
    from data_stack import DatasetCard, DatasetFactory, SequenceDatasetIterator

    class New(DatasetFactory):
        card = DatasetCard("wine", "2.0", license="CC-BY-NC-4.0")
        splits = ("all",)

        def open(self, split, prepared):
            return SequenceDatasetIterator([[self.card.version], [0], [0]])

    class Old(New):
        card = DatasetCard("wine", "1.0", license="CC-BY-NC-4.0")
"""


def test_a_locked_dataset_is_checked_restored_and_differs_if_its_plugin_does(
    command: Any, tmp_path: Path, install: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    install("wine-plugin", OLD_AND_NEW, ["New", "Old"], ["wine", "wine@1.0"])

    added = command("lock", "add", "digits", "wine@1.0")
    checked, restored = command("lock", "check"), command("lock", "restore", "--storage", str(tmp_path / "other"))
    monkeypatch.setenv("DATA_STACK_DISABLE_PLUGINS", "wine-plugin")
    without = command("lock", "check", "--json")

    assert (added.code, added.out) == (0, "data_stack.lock locks digits, wine\n")
    assert (checked.code, checked.out) == (0, "all data is as the lock file says\n")
    assert restored.code == 0
    assert without.code == 1
    assert [(each["name"], each["what"]) for each in without.json] == [("wine", "plugin")]
    assert "pip install wine-plugin==1.0" in without.json[0]["message"]


def test_list_shows_versions_and_a_policy_refuses_to_prepare(
    command: Any, install: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    install("wine-plugin", OLD_AND_NEW, ["New", "Old"], ["wine", "wine@1.0"])
    rows = {row["name"]: row for row in command("list", "--versions", "--json").json}
    monkeypatch.setenv("DATA_STACK_LICENCE_POLICY", "*-NC-*")
    refused = command("prepare", "wine")

    assert rows["wine"]["versions"] == ["2.0", "1.0"]
    assert "wine@1.0" not in rows
    assert "2.0, 1.0" in command("list", "--versions").out
    assert refused.code == 1
    assert "its licence is CC-BY-NC-4.0" in refused.err


def test_a_lock_file_that_is_not_there_is_told(command: Any, tmp_path: Path) -> None:
    outcome = command("lock", "check", "--file", str(tmp_path / "none.lock"))

    assert outcome.code == 1
    assert "data-stack lock add NAME" in outcome.err


def test_a_moved_file_is_given_by_source_and_samples_can_be_left_out(command: Any, tmp_path: Path) -> None:
    import data_stack

    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    path = str(tmp_path / "data_stack.lock")
    data_stack.lock(path=path, stack=data_stack.from_csv(tmp_path / "x.csv"))
    (tmp_path / "x.csv").rename(tmp_path / "y.csv")
    new = str(tmp_path / "y.csv")

    assert command("lock", "restore", "--file", path).code == 1
    assert command("lock", "restore", "--file", path, "--no-samples", "--source", f"x.csv={new}").code == 0
    for wrong, message in (("x.csv", "not of the form OLD=NEW"), (f"z.csv={new}", "no stack of the lock reads 'z.csv'")):
        outcome = command("lock", "restore", "--file", path, "--source", wrong)
        assert outcome.code != 0
        assert message in outcome.err
