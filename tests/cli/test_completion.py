"""A line is completed without importing a plugin."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_runs import Install

from data_stack.cli.main import main


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("comp", []),
        ("verify iris brok", ["plain,broken-one"]),
        ("prepare --storage mon", ["file,mon"]),
        ("list --off", ["plain,--offline"]),
    ],
)
def test_a_line_is_completed_and_no_plugin_is_imported(
    store: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    install: Install,
    line: str,
    completed: list[str],
) -> None:
    install("broken-one", "raise RuntimeError('imported')")
    words = f"data-stack {line}"
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    monkeypatch.setenv("_DATA_STACK_COMPLETE", "bash_complete")

    with pytest.raises(SystemExit):
        main([])

    assert capsys.readouterr().out.split() == completed
