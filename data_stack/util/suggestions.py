"""Suggestions for misspelled names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice
from typing import Final

#: A file of strangers may have many and long names, and comparing them takes quadratic time. So
#: only this number of names is compared, and only names of at most this number of characters.
_MAX_NAMES: Final = 10_000
_MAX_CHARACTERS: Final = 100


def did_you_mean(wrong: object, known: Iterable[object]) -> str:
    """Return ``" (did you mean 'train'?)"``, or an empty text if no other known name is similar.

    Args:
        wrong: the unknown name, in any case. If it is not a text, no name is similar.
        known: the names that exist. Those that are not texts are skipped.
    """
    if not isinstance(wrong, str):
        return ""
    known_names: dict[str, str] = {}
    for name in islice(known, _MAX_NAMES):
        if isinstance(name, str) and len(name) <= _MAX_CHARACTERS:
            known_names[name.casefold()] = name
    folded = wrong[:_MAX_CHARACTERS].casefold()
    similar = difflib.get_close_matches(folded, known_names, n=1)
    if not similar:
        return ""
    suggestion = known_names[similar[0]]
    if suggestion == wrong:
        return ""
    return f" (did you mean {suggestion!r}?)"
