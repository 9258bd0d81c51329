"""Values as short texts, long texts and pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from data_stack.dataset.display.pictures import Kind, as_png, shorten
from data_stack.dataset.reports.markup import printable

__all__ = ["PICTURED", "cell_text", "full_text", "picture_of"]

PICTURED: Final[frozenset[Kind]] = frozenset(("image", "mask", "series", "array"))
"""Kinds of values that have a picture."""

_CELL_CHARACTERS: Final = 160
_MOST_CHARACTERS: Final = 20_000
_MOST_NUMBERS: Final = 400
_SMALL, _LARGE = 192 * 192, 1024 * 1024


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
    """A value as a PNG file, as a thumbnail or large.

    Args:
        value: see :func:`~data_stack.dataset.display.pictures.as_png`.
        hint: what the meta says of its column.
        over: ``boxes`` and ``mask`` to draw over it.
        is_large: of at most a million pixels, not 36,864.

    Raises:
        ConfigError: it has no picture.
    """
    return as_png(value, max_pixels=_LARGE if is_large else _SMALL, hint=hint, **over)


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
