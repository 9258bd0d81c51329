"""What ``data-stack show`` draws on terminals with and without pictures, and writes into pipes."""

from __future__ import annotations

import base64
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
KITTY, SIXEL, PLAIN = b"\x1b_Gi=31;OK\x1b\\\x1b[?62c", b"\x1b[?62;4;22c", b"\x1b[?62;22c"


def decode_sixel(text: str) -> Image.Image:
    """The picture of a sixel sequence, as https://vt100.net/docs/vt3xx-gp/chapter14.html has it."""
    found = re.search(r"\x1bPq\"1;1;(\d+);(\d+)(.*)\x1b\\", text, re.DOTALL)
    assert found is not None
    width, height, body = int(found[1]), int(found[2]), found[3]
    pixels = np.zeros((height + 6, width, 3), np.uint8)
    palette: dict[int, list[int]] = {}
    x, y, colour = 0, 0, [0, 0, 0]
    for number, rgb, count, sixel, control in re.findall(
        r"#(\d+)((?:;\d+)*)|!(\d+)(.)|([$-])|", re.sub(r"(?<!\d)([?-~])", r"!1\1", body)
    ):
        if number:
            colour = palette.setdefault(int(number), [int(each) * 255 // 100 for each in rgb.split(";")[2:]])
        elif count:
            for bit in range(6):
                if (ord(sixel) - 63) >> bit & 1:
                    pixels[y + bit, x : x + int(count)] = colour
            x += int(count)
        elif control:
            x, y = 0, y + 6 * (control == "-")
    return Image.fromarray(pixels[:height])


@pytest.mark.parametrize("answer", [KITTY, SIXEL])
def test_a_terminal_with_graphics_shows_the_contact_sheet(on_terminal: Show, command: Any, answer: bytes, tmp_path: Any) -> None:
    command("show", "digits", "-n", "3", "-o", str(tmp_path / "sheet.png"))

    shown = on_terminal("show", "digits", "-n", "3", answer=answer)

    if answer is SIXEL:
        picture = decode_sixel(shown)
    else:
        chunks = re.findall(r"\x1b_G(?:a=T,f=100,q=2,)?m=[01];(.*?)\x1b", shown)
        picture = Image.open(io.BytesIO(base64.b64decode("".join(chunks))))
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert picture.size == sheet.size
        difference = np.asarray(picture.convert("RGB"), np.int16) - np.asarray(sheet.convert("RGB"), np.int16)
    assert np.abs(difference).max() <= (0 if answer is KITTY else 8)


@pytest.mark.parametrize(("colours", "code"), [("truecolor", "38;2;"), ("", "38;5;")])
def test_other_terminals_show_blocks_with_labels(on_terminal: Show, colours: str, code: str) -> None:
    shown = on_terminal("show", "digits", "-n", "10", width=60, answer=PLAIN, COLORTERM=colours)

    assert (shown.count("▀"), shown.count(code)) == (10 * 8 * 4, 10 * 8 * 4)
    lines = re.sub(r"\x1b\[[^@-~]*[@-~]|\x1b_.*?\x1b\\", "", shown).splitlines()
    assert max(map(len, lines)) <= 60
    assert [line.split() for line in lines if line.strip("▀ ")] == [list("012345"), list("6789")]


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_without_colours_samples_are_lines_and_the_terminal_is_not_asked(on_terminal: Show, environment: dict[str, str]) -> None:
    shown = on_terminal("show", "digits", "-n", "2", **environment)

    assert "\x1b" not in shown
    assert "uint8 8 × 8" in shown


def test_a_pipe_gets_a_line_for_each_sample(command: Any) -> None:
    digits, iris = command("show", "digits", "-n", "10", "--split", "test"), command("show", "iris", "-n", "3", "--json").json

    assert [line.split()[1] for line in digits.out.splitlines()[2:]] == list("0123456789")
    assert [row["label"] for row in iris] == ["setosa", "versicolor", "virginica"]
    assert command("show", "iris", "-n", "2", "--seed", "1").code == 0


@pytest.mark.parametrize("shape", [(1, 1), (3, 5, 3), (1, 200, 4), (200, 1), (41, 30, 3)])
def test_pictures_of_any_shape_fit(shape: tuple[int, ...]) -> None:
    console = Console(file=io.StringIO(), width=20, color_system=None)

    print_tiles([np.zeros(shape, np.uint8)] * 3, ["a" * 30, "b", "数据集" * 9], console)

    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]  # it is a StringIO
    assert max(map(cell_len, lines)) <= 20
    assert any("▀" in line for line in lines)
