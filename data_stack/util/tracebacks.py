"""Tracebacks for people who did not write data_stack."""

from __future__ import annotations

import sys
from types import TracebackType

_EXCLUDED = {"data_stack", *sys.stdlib_module_names}


def frames_of_others(traceback: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of data_stack and of Python's own modules; None if no frame remains."""
    theirs = []
    while traceback is not None:
        if str(traceback.tb_frame.f_globals.get("__name__")).partition(".")[0] not in _EXCLUDED:
            theirs.append(traceback)
        traceback = traceback.tb_next
    kept = None
    for each in reversed(theirs):
        kept = TracebackType(kept, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return kept
