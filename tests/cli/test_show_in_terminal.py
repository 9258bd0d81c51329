"""What ``data-stack show`` draws on terminals, and writes into pipes."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.cells import cell_len
from rich.console import Console

from data_stack.cli.pictures import print_tiles

Show = Callable[..., str]


@pytest.mark.parametrize(("colours", "code"), [("truecolor", "38;2;"), ("", "38;5;")])
def test_terminals_show_blocks_with_labels(on_terminal: Show, colours: str, code: str) -> None:
    shown = on_terminal("show", "digits", "-n", "10", width=60, COLORTERM=colours)

    assert (shown.count("▀"), shown.count(code)) == (10 * 8 * 4, 10 * 8 * 4)
    lines = re.sub(r"\x1b\[[^@-~]*[@-~]", "", shown).splitlines()
    assert max(map(len, lines)) <= 60
    assert [line.split() for line in lines if line.strip("▀ ")] == [list("012345"), list("6789")]


def test_a_pipe_gets_a_line_for_each_sample(command: Any) -> None:
    digits, iris = command("show", "digits", "-n", "10", "--split", "test"), command("show", "iris", "-n", "3", "--json").json

    assert [line.split()[1] for line in digits.out.splitlines()[2:]] == list("0123456789")
    assert [row["label"] for row in iris] == ["setosa", "versicolor", "virginica"]
    assert command("show", "iris", "-n", "2", "--seed", "1").code == 0


@pytest.mark.parametrize("shape", [(1, 1), (1, 200, 4), (41, 30, 3)])
def test_pictures_of_any_shape_fit(shape: tuple[int, ...]) -> None:
    console = Console(file=io.StringIO(), width=20, color_system=None)

    print_tiles([Image.fromarray(np.zeros(shape, np.uint8))] * 3, ["a" * 30, "b", "数据集" * 9], console)

    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]  # it is a StringIO
    assert max(map(cell_len, lines)) <= 20
    assert any("▀" in line for line in lines)
