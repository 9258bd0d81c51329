"""Draws pictures in a terminal as blocks of colour, two pixels in each character."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from rich.color import Color
from rich.console import Console
from rich.segment import Segment, Segments
from rich.style import Style
from rich.text import Text

from data_stack.exception import MissingDependencyError

try:
    from PIL import Image
except ImportError as error:
    raise MissingDependencyError("data-stack show", "Pillow", "images") from error

_MAX_COLUMNS = 24  # of a tile


def print_tiles(tiles: Sequence[npt.NDArray[np.uint8]], labels: Sequence[str], console: Console) -> None:
    """Print small pictures side by side, each above its label.

    Args:
        tiles: pixels, of shape ``(height, width)``, ``(height, width, 3)`` or ``(height, width, 4)``.
        labels: one for each tile.
        console: a terminal with colours.
    """
    width = min(max(max(pixels.shape[:2]) for pixels in tiles), _MAX_COLUMNS, console.width)
    in_row = max(1, (console.width + 1) // (width + 1))
    for start in range(0, len(tiles), in_row):
        canvas = np.full((width + width % 2, in_row * (width + 1) - 1, 3), -1)  # -1: empty
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
