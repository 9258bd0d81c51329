"""Values as short texts, long texts and pictures."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.dataset.display.kinds import look_at
from data_stack.dataset.display.pictures import Kind, as_png, png_of, shorten, span_of
from data_stack.dataset.reports.markup import printable

__all__ = ["PICTURED", "cell_text", "full_text", "picture_of"]

PICTURED: Final[frozenset[Kind]] = frozenset(("image", "mask", "series", "audio", "array"))
"""Kinds of values that have a picture."""

_CELL_CHARACTERS: Final = 160
_MOST_CHARACTERS: Final = 20_000
_MOST_NUMBERS: Final = 400
_SMALL, _LARGE = 192 * 192, 1024 * 1024
_WIDTH, _HEIGHT = 480, 160  # of lines
_COLOURS: Final = ((91, 139, 208), (217, 119, 74), (74, 165, 138), (176, 124, 198), (194, 161, 60), (138, 143, 152))


def cell_text(value: Any, class_names: Sequence[str] = ()) -> str:
    """A value as one short line; of a class its name."""
    return _class_name(value, class_names) or shorten(_plain(value), _CELL_CHARACTERS)


def full_text(value: Any, class_names: Sequence[str] = ()) -> str:
    """A value as text of at most 20,000 characters, with its line breaks; a class with its name."""
    if isinstance(value, str):
        more = f"\n… {len(value) - _MOST_CHARACTERS:,} more characters" if len(value) > _MOST_CHARACTERS else ""
        return printable(str.__str__(value)[:_MOST_CHARACTERS], keep="\n\t") + more
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufcMm" and value.ndim:
        return f"{value.dtype} {' × '.join(map(str, value.shape))}\n{np.array2string(value, threshold=_MOST_NUMBERS)}"
    name = _class_name(value, class_names)
    text = shorten(_plain(value), _MOST_CHARACTERS)
    return f"{name} ({text})" if name and name != text else text


def picture_of(value: Any, hint: str | None, over: Mapping[str, Any], *, is_large: bool) -> bytes:
    """A value as a PNG file, as a thumbnail or large; series and sound as lines.

    Args:
        value: see :func:`~data_stack.dataset.display.pictures.as_png`.
        hint: what the meta says of its column.
        over: ``boxes`` and ``mask`` to draw over it.
        is_large: of at most a million pixels, not 36,864.

    Raises:
        ConfigError: it has no picture.
    """
    look = look_at(value, hint)
    if look.kind in ("series", "audio"):
        return png_of(_draw_lines(look.data))
    return as_png(value, max_pixels=_LARGE if is_large else _SMALL, hint=hint, **over)


def _draw_lines(lines: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Numbers in time, shape ``(n, lines)``, on a transparent ground: in each column of pixels, all the values that are there."""
    low, high = span_of([lines], from_zero=False)
    pixels = np.zeros((_HEIGHT, _WIDTH, 4), dtype=np.uint8)
    places = np.linspace(0, len(lines) - 1, _WIDTH + 1).astype(np.intp).tolist()
    for line, colour in zip(lines.T, _COLOURS, strict=False):
        heights = (high - line.astype(np.float64)) / (high - low) * (_HEIGHT - 3)
        for column, (start, stop) in enumerate(itertools.pairwise(places)):
            there = heights[start : stop + 1][np.isfinite(heights[start : stop + 1])]
            if len(there):
                pixels[int(there.min()) : int(there.max()) + 3, column] = (*colour, 255)
    return pixels


def _plain(value: Any) -> Any:
    """A number or time of numpy without its type's name."""
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return str(value).replace("T", " ")
    return value.item() if isinstance(value, np.generic) and value.dtype.kind in "biuf" else value


def _class_name(value: Any, class_names: Sequence[str]) -> str:
    """The name of a class by its number or one-hot vector; empty if it has none."""
    if class_names and isinstance(value, np.ndarray) and value.ndim == 1 and value.size > 1:
        value = value.argmax()
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.item()
    is_number = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    return printable(class_names[int(value)]) if is_number and 0 <= value < len(class_names) else ""
