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


@pytest.mark.parametrize("term", ["xterm-256color", "truecolor"])
def test_other_terminals_show_blocks_with_labels(on_terminal: Show, term: str) -> None:
    environment = {"COLORTERM": "truecolor"} if term == "truecolor" else {"COLORTERM": ""}

    shown = on_terminal("show", "digits", "-n", "10", width=60, answer=PLAIN, **environment)

    assert shown.count("▀") == 10 * 8 * 4
    assert ("38;2;" in shown, "38;5;" in shown) == ((True, False) if term == "truecolor" else (False, True))
    lines = re.sub(r"\x1b\[[^@-~]*[@-~]|\x1b_.*?\x1b\\", "", shown).splitlines()
    assert max(map(len, lines)) <= 60
    assert [line.split() for line in lines if line.strip("▀ ")] == [list("012345"), list("6789")]


def test_a_terminal_that_does_not_answer_shows_blocks_too(on_terminal: Show) -> None:
    assert "▀" in on_terminal("show", "digits", "-n", "1")


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
