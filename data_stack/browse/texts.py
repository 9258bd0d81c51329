"""Shows values and errors as the texts of a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from data_stack.show.display_value import shorten
from data_stack.show.markup import printable, readable
from data_stack.show.sample_parts import label_text

#: The maximum number of characters of a value in a grid of samples.
_MAX_CELL_CHARACTERS: Final = 160

#: The maximum number of characters of a value on the page of its sample.
_MAX_CHARACTERS: Final = 20_000

#: The maximum number of characters of an error.
_MAX_ERROR_CHARACTERS: Final = 1000

#: Of a longer array, the page shows the beginning and the end of each axis.
_MAX_PRINTED_NUMBERS: Final = 400


def error_text(error: Exception) -> str:
    """Return an error as one line."""
    return readable(f"{type(error).__name__}: {error}", _MAX_ERROR_CHARACTERS)


def cell_text(value: Any, class_names: Sequence[str] = ()) -> str:
    """Return a value as one short line; a class as its name."""
    if class_names:
        return label_text(value, class_names, _MAX_CELL_CHARACTERS)
    return shorten(value, _MAX_CELL_CHARACTERS)


def full_text(value: Any, class_names: Sequence[str] = ()) -> str:
    """Return a value as text of at most 20,000 characters, with line breaks.

    A class is shown with its name, and an array with its dtype and shape.
    """
    if isinstance(value, str):
        # A subclass of str may define another __str__, such as an Enum.
        text = printable(str.__str__(value)[:_MAX_CHARACTERS], keep="\n\t")
        n_more = len(value) - _MAX_CHARACTERS
        if n_more > 0:
            text += f"\n… {n_more:,} more characters"
        return text
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufcMm" and value.ndim:
        shape = " × ".join(str(size) for size in value.shape)
        numbers = np.array2string(value, threshold=_MAX_PRINTED_NUMBERS)
        return f"{value.dtype} {shape}\n{numbers}"
    text = shorten(value, _MAX_CHARACTERS)
    name = cell_text(value, class_names)
    if class_names and name != text:
        return f"{name} ({text})"
    return text
