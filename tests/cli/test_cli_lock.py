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


def test_list_names_a_dataset_of_two_versions_once_and_a_policy_refuses_to_prepare(
    command: Any, install: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    install("wine-plugin", OLD_AND_NEW, ["New", "Old"], ["wine", "wine@1.0"])
    names = [row["name"] for row in command("list", "--json").json]
    monkeypatch.setenv("DATA_STACK_LICENCE_POLICY", "*-NC-*")
    refused = command("prepare", "wine")

    assert (names.count("wine"), "wine@1.0" in names) == (1, False)
    assert refused.code == 1
    assert "its licence is CC-BY-NC-4.0" in refused.err
