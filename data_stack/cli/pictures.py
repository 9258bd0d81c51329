"""Pictures in a terminal: by its graphics protocol (kitty's or sixel) where it has one, otherwise as blocks of colour."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import io
import os
import re
import select
import struct
import sys
import termios
import time
import tty
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from data_stack.exception import MissingDependencyError

try:
    from PIL import Image
except ImportError as error:
    raise MissingDependencyError("data-stack show", "Pillow", "images") from error

if TYPE_CHECKING:
    from rich.console import Console

Protocol = Literal["kitty", "sixel"]

# https://sw.kovidgoyal.net/kitty/graphics-protocol/#querying-support-and-available-transmission-mediums
_ASK_KITTY, _KITTY = b"\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\", b"\x1b_Gi=31;OK"
# All terminals answer this with their attributes, of which 4 is sixel: https://vt100.net/docs/vt510-rm/DA1.html
_ASK_ATTRIBUTES, _ATTRIBUTES = b"\x1b[c", re.compile(rb"\x1b\[\?([\d;]*)c")
_CHUNK = 4096  # characters that kitty takes at once
_COLUMN_PIXELS = 8  # of a terminal that does not say
_MOST_COLUMNS = 24  # of a tile


def find_protocol(timeout_seconds: float = 1.0) -> Protocol | None:
    """Ask the terminal of standard output for its graphics protocol; None if it has none, or does not answer in time."""
    if os.environ.get("TERM") == "linux":  # it prints the question
        return None
    try:
        handle = os.open(os.ttyname(sys.stdout.fileno()), os.O_RDWR | os.O_NOCTTY)
    except OSError:
        return None
    try:
        with contextlib.suppress(OSError):  # it is not the terminal that controls this process
            if os.tcgetpgrp(handle) != os.getpgrp():
                return None  # a job in the background is stopped if it changes the terminal
        answer = _ask(handle, time.monotonic() + timeout_seconds)
    except (OSError, termios.error):
        return None
    finally:
        os.close(handle)
    attributes = _ATTRIBUTES.search(answer)
    return "kitty" if _KITTY in answer else "sixel" if attributes and b"4" in attributes[1].split(b";") else None


def _ask(handle: int, deadline: float) -> bytes:
    """What the terminal answers until it has told its attributes."""
    before, answer = termios.tcgetattr(handle), b""
    try:
        tty.setcbreak(handle)
        os.write(handle, _ASK_KITTY + _ASK_ATTRIBUTES)
        while not _ATTRIBUTES.search(answer) and select.select([handle], [], [], max(0, deadline - time.monotonic()))[0]:
            answer += os.read(handle, 1024)
    finally:
        termios.tcsetattr(handle, termios.TCSAFLUSH, before)
    return answer


def print_picture(image: Image.Image, protocol: Protocol, console: Console) -> None:
    """Write a picture, made to fit the terminal's width."""
    pixels = struct.unpack("HHHH", fcntl.ioctl(sys.stdout.fileno(), termios.TIOCGWINSZ, bytes(8)))[2]
    width = min(image.width, pixels or console.width * _COLUMN_PIXELS)
    image = image.convert("RGB").resize((width, max(1, image.height * width // image.width)))
    console.file.write("".join(_kitty(image) if protocol == "kitty" else _sixel(image)) + "\n")


def _kitty(image: Image.Image) -> Iterator[str]:
    file = io.BytesIO()
    image.save(file, "png")
    data = base64.b64encode(file.getvalue()).decode("ascii")
    for start in range(0, len(data), _CHUNK):
        has_more = int(start + _CHUNK < len(data))
        yield f"\x1b_G{'' if start else 'a=T,f=100,q=2,'}m={has_more};{data[start : start + _CHUNK]}\x1b\\"


def _sixel(image: Image.Image) -> Iterator[str]:
    """Bands of six rows, each colour in turn: https://vt100.net/docs/vt3xx-gp/chapter14.html."""
    indexed = image.quantize(256)
    pixels, colours = np.asarray(indexed), np.reshape(indexed.getpalette() or [], (-1, 3)) * 100 // 255
    yield f'\x1bPq"1;1;{image.width};{image.height}'
    yield from (f"#{number};2;{red};{green};{blue}" for number, (red, green, blue) in enumerate(colours.tolist()))
    for top in range(0, image.height, 6):
        band = pixels[top : top + 6]
        for colour in np.unique(band).tolist():
            row = bytes((2 ** np.arange(len(band)) @ (band == colour) + 63).astype(np.uint8)).decode("ascii")
            runs = re.sub(r"(.)\1{3,}", lambda run: f"!{len(run[0])}{run[1]}", row)
            yield f"#{colour}{runs}$"
        yield "-"
    yield "\x1b\\"


def print_tiles(tiles: Sequence[npt.NDArray[np.uint8]], labels: Sequence[str], console: Console) -> None:
    """Print small pictures side by side above their labels, with two pixels in each character.

    Args:
        tiles: pixels, of shape ``(height, width)``, ``(height, width, 3)`` or ``(height, width, 4)``.
        labels: of each.
        console: a terminal with colours.
    """
    from rich.color import Color
    from rich.segment import Segment, Segments
    from rich.style import Style
    from rich.text import Text

    width = min(max(max(pixels.shape[:2]) for pixels in tiles), _MOST_COLUMNS, console.width)
    in_row = max(1, (console.width + 1) // (width + 1))
    for start in range(0, len(tiles), in_row):
        canvas = np.full((width + width % 2, in_row * (width + 1) - 1, 3), -1)  # -1: nothing is drawn
        for left, pixels in zip(range(0, canvas.shape[1], width + 1), tiles[start : start + in_row], strict=False):
            image = Image.fromarray(pixels).convert("RGB")
            image.thumbnail((width, width))
            canvas[: image.height, left : left + image.width] = image
        for upper, lower in zip(canvas[::2].tolist(), canvas[1::2].tolist(), strict=True):
            colours: list[list[Color | None]] = [
                [Color.from_rgb(*rgb) if rgb[0] >= 0 else None for rgb in pair] for pair in zip(upper, lower, strict=True)
            ]
            if any(map(any, colours)):
                cells = [Segment("▀" if top else " ", Style(color=top, bgcolor=bottom)) for top, bottom in colours]
                console.print(Segments([*cells, Segment.line()]))
        texts = [Text(label) for label in labels[start : start + in_row]]
        for text in texts:
            text.truncate(width, overflow="ellipsis", pad=True)
        console.print(Text(" ").join(texts))
