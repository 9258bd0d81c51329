"""What a new user types wrongly is an error that says what to type."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_runs import Run


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in the working folder, whose name no dataset has."""
    path = tmp_path / "pets.csv"
    path.write_text("name,label\nrex,dog\nmia,cat\n")
    monkeypatch.chdir(tmp_path)
    return path


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("command_name", ["head", "show", "report", "info"])
def test_every_command_on_samples_takes_a_file_without_dot(command: Run, command_name: str) -> None:
    outcome = command(command_name, "pets.csv")

    assert outcome.code == 0, outcome.err
    assert "pets.csv" in outcome.out or "rex" in outcome.out


@pytest.mark.usefixtures("table")
def test_diff_takes_files_without_dot(command: Run) -> None:
    outcome = command("diff", "pets.csv", "pets.csv")

    assert outcome.code == 0, outcome.err
    assert "equal" in outcome.out


def test_a_dataset_takes_precedence_over_a_file(
    command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("digits").write_text("no dataset")

    outcome = command("head", "digits", "-n", "1")

    assert outcome.code == 0, outcome.err
    assert "uint8" in outcome.out


@pytest.mark.usefixtures("table")
def test_verify_of_a_file_without_dot_says_what_to_write(command: Run) -> None:
    command("prepare", "digits")

    refused = command("verify", "pets.csv")
    verified = command("verify", "./pets.csv")

    assert refused.code == 2
    assert "write './pets.csv'" in refused.err
    assert verified.code == 0, verified.err
    assert "0 faults" in verified.out


@pytest.mark.usefixtures("table")
def test_info_of_a_file_says_its_format(command: Run) -> None:
    outcome = command("info", "pets.csv")

    assert "Files of the format csv." in outcome.out


@pytest.mark.parametrize(
    ("typed", "ours"),
    [("ls", "list"), ("describe", "info"), ("stats", "report --statistics"), ("cp", "copy")],
)
def test_a_command_of_another_program_says_ours(command: Run, typed: str, ours: str) -> None:
    outcome = command(typed, "digits")

    assert outcome.code == 2
    assert f"no command '{typed}'; here it is `data-stack {ours}`" in outcome.err


def test_a_preparation_that_was_asked_for_says_so(command: Run) -> None:
    command("prepare", "digits")

    outcome = command("prepare", "digits", "--again")

    assert outcome.code == 0
    assert "prepared again: this was asked for" in outcome.err
