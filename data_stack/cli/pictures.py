"""Draws pictures in a terminal as blocks of colour, two pixels in each character."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from rich.color import Color
from rich.console import Console
from rich.segment import Segment, Segments
from rich.style import Style
from rich.text import Text

if TYPE_CHECKING:
    from PIL.Image import Image

_MAX_COLUMNS = 24  # of a tile


def print_tiles(tiles: Sequence[Image], labels: Sequence[str], console: Console) -> None:
    """Print small pictures side by side, each above its label.

    Args:
        tiles: images in any mode.
        labels: one for each tile.
        console: a terminal with colours.
    """
    width = min(max(max(tile.size) for tile in tiles), _MAX_COLUMNS, console.width)
    in_row = max(1, (console.width + 1) // (width + 1))
    for start in range(0, len(tiles), in_row):
        canvas = np.full((width + width % 2, in_row * (width + 1) - 1, 3), -1)  # -1: empty
        for left, tile in zip(range(0, canvas.shape[1], width + 1), tiles[start : start + in_row], strict=False):
            image = tile.convert("RGB")
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
