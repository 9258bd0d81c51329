"""What the command shows on a terminal, and what it writes into a pipe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rich.cells import cell_len
from rich.text import Text

from data_stack.cli.settings import print_blocks, table
from data_stack.show.markup import Facts

Show = Callable[..., str]
ESCAPE = "\x1b["


def plain(shown: str) -> str:
    """``shown`` without the colours."""
    return Text.from_ansi(shown).plain


@pytest.mark.parametrize("width", [60, 120])
def test_tables_fit_the_terminal_and_lose_nothing(on_terminal: Show, command: Any, width: int) -> None:
    piped = command("report", "digits").out

    shown = plain(on_terminal("report", "digits", width=width))

    assert max(map(cell_len, shown.splitlines())) <= width
    digest = "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22"
    assert digest in piped
    assert width < 100 or digest in shown
    assert digest[:16] in shown


def test_a_terminal_has_colours_and_a_pipe_none(on_terminal: Show, command: Any) -> None:
    on_terminal("list", "--no-color")  # holds for one call

    assert ESCAPE in on_terminal("doctor")
    assert ESCAPE not in command("doctor").out


def test_colours_can_be_switched_off(on_terminal: Show) -> None:
    assert ESCAPE not in on_terminal("doctor", "--no-color")
    assert ESCAPE not in on_terminal("info", "digit", TERM="dumb")


def test_markup_and_escape_sequences_are_shown_as_text(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = "[red]a[/red] :smile: \x1b[2J"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")

    print_blocks([table(("name", hostile), [(hostile, "b")]), Facts([(hostile, hostile)])])

    assert capsys.readouterr().out.count("[red]a[/red] :smile: \\x1b[2J") == 4


def test_wide_characters_stay_in_their_column(capsys: pytest.CaptureFixture[str]) -> None:
    print_blocks([table(("name", "n"), [("数据集", "1"), ("digits", "2")], right=(1,))])

    assert capsys.readouterr().out.splitlines() == ["name    n", "------  -", "数据集  1", "digits  2"]
