"""copy, remove."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_runs import Run


def test_copy_brings_a_dataset_that_is_ready_there(
    command: Run, filled_store: Path, tmp_path: Path
) -> None:
    target = tmp_path / "there"

    outcome = command("copy", str(filled_store), str(target), "digits")
    prepared = command("prepare", "digits", "--storage", str(target), "--json")

    assert (outcome.code, outcome.err) == (0, "")
    assert "digits/1.0.0 is ready in" in outcome.out
    assert "6 copied (188.7 kB)" in outcome.out
    assert prepared.json["already_ready"] is True
    assert not (target / "iris").exists()


def test_remove_tells_what_it_frees_and_needs_no_plugin(
    command: Run, filled_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATA_STACK_DISABLE_PLUGINS", "digits")

    planned = command("remove", "digits", "--dry-run")
    removed = command("remove", "digits", "--version", "1.0.0", "--json")

    assert planned.out.startswith("would remove digits/1.0.0: 6 resources, 188.7 kB")
    assert removed.json["n_resources"] == 6
    assert [version["folder"] for version in removed.json["removed"]] == ["digits/1.0.0"]
    assert [path for path in filled_store.glob("digits/**/*") if path.is_file()] == []


def test_remove_leaves_other_datasets_as_they_are(command: Run, filled_store: Path) -> None:
    command("remove", "digits")

    assert command("verify", "iris").code == 0
    assert command("remove", "digits").code == 2


def test_a_version_and_all_versions_exclude_each_other(command: Run, filled_store: Path) -> None:
    outcome = command("remove", "iris", "--version", "1.0.0", "--all-versions")

    assert outcome.code == 2
