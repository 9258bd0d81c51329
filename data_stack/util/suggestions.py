"""Suggestions for misspelled names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice

_MAX_CHARACTERS, _MAX_NAMES = 100, 10_000  # of hostile files


def did_you_mean(wrong: object, known: Iterable[object]) -> str:
    """``" (did you mean 'train'?)"``, or an empty string if no other known string is similar, regardless of case."""
    if not isinstance(wrong, str):  # a hostile value may have no text
        return ""
    strings = (
        name
        for name in islice(known, _MAX_NAMES)
        if isinstance(name, str) and len(name) <= _MAX_CHARACTERS
    )
    names = {name.casefold(): name for name in strings}
    near = difflib.get_close_matches(wrong[:_MAX_CHARACTERS].casefold(), names, n=1)
    return f" (did you mean {names[near[0]]!r}?)" if near and names[near[0]] != wrong else ""
