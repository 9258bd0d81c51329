"""Suggestions for misspelled names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["did_you_mean"]


def did_you_mean(wrong: object, known: Iterable[str]) -> str:
    """``" (did you mean 'train'?)"``, or an empty string without a similar name."""
    near = difflib.get_close_matches(str(wrong), known, n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
