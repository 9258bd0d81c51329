"""What shells complete, and that no plugin is imported for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from data_stack.cli.main import main

BROKEN = "raise RuntimeError('imported')"


@pytest.fixture
def complete(store: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """What bash completes at the end of a line."""

    def run(line: str) -> list[str]:
        words = f"data-stack {line}"
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
        monkeypatch.setenv("_DATA_STACK_COMPLETE", "bash_complete")
        with pytest.raises(SystemExit):
            main([])
        return capsys.readouterr().out.split()

    return run


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("comp", ["plain,completion"]),
        ("show di", ["plain,digits"]),
        ("verify iris dig", ["plain,digits"]),
        ("prepare --storage mon", ["file,mon", "plain,mongodb://"]),
        ("convert ir", ["file,ir", "plain,iris"]),
        ("list --no", ["plain,--no-color"]),
    ],
)
def test_a_line_is_completed(complete: Callable[[str], list[str]], line: str, completed: list[str]) -> None:
    assert complete(line) == completed


def test_completion_imports_no_plugin(complete: Callable[[str], list[str]], install: Callable[..., None]) -> None:
    install("broken-one", BROKEN)

    assert complete("report brok") == ["plain,broken-one"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script(command: Any, shell: str) -> None:
    assert f"_DATA_STACK_COMPLETE={shell}_complete" in command("completion", shell).out
