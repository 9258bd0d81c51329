"""mcp: wrong command lines; ``tests/agents`` speaks with the server."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from command_runs import Run


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--store", "MISSING"], 1, "check the path"),
        (["--storage", "MISSING"], 1, "check the path"),
        (["--store", "x=MISSING", "--store", "x=y"], 2, "two stores are called 'x'"),
        (["--store", "MISSING", "--storage", "y"], 2, "two stores are called 'default'"),
        (["--store", "nope://user:canary@host"], 2, "no storage connector for nope:// URLs"),
        (["--json"], 2, "the protocol is JSON already"),
        (["--max-seconds", "0"], 2, "--max-seconds"),
    ],
)
def test_a_wrong_command_line_ends_at_once(
    command: Run, tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    words = [word.replace("MISSING", str(tmp_path / "missing")) for word in arguments]

    outcome = command("mcp", *words)

    assert outcome.code == code
    assert message in outcome.err
    assert outcome.out == ""
    assert "canary" not in outcome.err
    assert "DATA_STACK_OFFLINE" not in os.environ
