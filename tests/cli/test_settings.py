"""The options that every command has."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_runs import Run

#: A store that does not answer; each request waits for 0.2 s.
UNREACHABLE = "mongodb://user:canary@127.0.0.1:1/db?timeoutSeconds=0.2"

COMMANDS_THAT_ONLY_READ = [["verify"], ["list"], ["info", "digits"], ["du"], ["gc"]]


def test_common_options_may_stand_before_or_after_the_command(command: Run, tmp_path: Path) -> None:
    other = str(tmp_path / "other")

    before = command("--storage", other, "--json", "prepare", "iris")
    after = command("prepare", "--json", "iris", "--storage", other)

    assert before.json["name"] == "iris"
    assert after.json["name"] == "iris"
    assert (tmp_path / "other" / "iris" / "1.0.0" / "manifest.json").is_file()


def test_the_option_nearer_to_the_end_wins(command: Run, tmp_path: Path) -> None:
    first = tmp_path / "first"
    last = tmp_path / "last"

    outcome = command("--storage", str(first), "prepare", "iris", "--storage", str(last))

    assert outcome.code == 0
    assert last.is_dir()
    assert not first.exists()


@pytest.mark.parametrize("place", ["typo", "file", "file/below", "cached"])
def test_a_missing_store_is_an_error_and_is_not_made(
    command: Run, tmp_path: Path, place: str
) -> None:
    (tmp_path / "file").write_bytes(b"no store")
    path = str(tmp_path / place)
    storage = path
    if place == "cached":
        path = f"{tmp_path}/typo"
        storage = f"file://{path}?cache={tmp_path}/cache"

    for arguments in COMMANDS_THAT_ONLY_READ:
        outcome = command(*arguments, "--storage", storage)

        assert (outcome.code, outcome.out) == (1, "")
        assert path in outcome.err
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    "arguments", [["prepare", "iris", "--storage"], ["doctor", "--storage"], ["copy", "STORE"]]
)
def test_an_unreachable_store_is_named_without_its_password(
    command: Run, filled_store: Path, caplog: pytest.LogCaptureFixture, arguments: list[str]
) -> None:
    words = [str(filled_store) if word == "STORE" else word for word in arguments]

    outcome = command("--debug", *words, UNREACHABLE)

    assert outcome.code == 1
    assert "canary" not in outcome.out + outcome.err + caplog.text
    assert "127.0.0.1:1" in outcome.out + outcome.err
    is_reported_by_doctor = arguments[0] == "doctor"
    assert ("Traceback" in outcome.err) != is_reported_by_doctor
