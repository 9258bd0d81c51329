"""Counts calls, for tests of how the work grows: a time would depend on the machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType


def count_calls(function: Callable[[], object], name: str | None = None) -> int:
    """Return how many functions of Python and C are called in this thread.

    Args:
        function: called once.
        name: counts only functions of this name; None for all.
    """
    n_calls = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal n_calls
        if event == "call":
            called_name = frame.f_code.co_name
        elif event == "c_call":
            called_name = getattr(argument, "__name__", "")
        else:
            return
        if name is None or called_name == name:
            n_calls += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(before)
    return n_calls
