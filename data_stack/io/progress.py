"""Decides whether progress bars are drawn, the same way everywhere."""

from __future__ import annotations

import sys


def shows_progress(progress: bool | None) -> bool:
    """What the caller said; None means only if standard error is a terminal."""
    return (sys.stderr is not None and sys.stderr.isatty()) if progress is None else progress
