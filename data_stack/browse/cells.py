"""Converts values to texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from data_stack.show.kinds import shorten
from data_stack.show.markup import printable
from data_stack.show.samples import label_text

_CELL_CHARACTERS: Final = 160
_MAX_CHARACTERS: Final = 20_000
_MAX_NUMBERS: Final = 400


def cell_text(value: Any, class_names: Sequence[str] = ()) -> str:
    """A value as one short line; the name of a class."""
    return label_text(value, class_names, _CELL_CHARACTERS) if class_names else shorten(value, _CELL_CHARACTERS)


def full_text(value: Any, class_names: Sequence[str] = ()) -> str:
    """A value as text of at most 20,000 characters, with line breaks; a class with its name."""
    if isinstance(value, str):
        more = f"\n… {len(value) - _MAX_CHARACTERS:,} more characters" if len(value) > _MAX_CHARACTERS else ""
        return printable(str.__str__(value)[:_MAX_CHARACTERS], keep="\n\t") + more
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufcMm" and value.ndim:
        return f"{value.dtype} {' × '.join(map(str, value.shape))}\n{np.array2string(value, threshold=_MAX_NUMBERS)}"
    text, name = shorten(value, _MAX_CHARACTERS), cell_text(value, class_names)
    return f"{name} ({text})" if class_names and name != text else text
