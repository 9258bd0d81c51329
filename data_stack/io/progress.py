"""Decides whether progress bars are drawn, the same way everywhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator


def shows_progress(progress: bool | None) -> bool:
    """What the caller said; None means only if standard error is a terminal."""
    return (sys.stderr is not None and sys.stderr.isatty()) if progress is None else progress


@contextlib.contextmanager
def byte_bar(what: str, progress: bool | None) -> Iterator[Callable[[int, int], None]]:
    """Gives what draws how many bytes of how many are done, on standard error, if there is somebody to look at it."""
    if not shows_progress(progress):
        yield lambda n_bytes, all_bytes: None
        return
    from tqdm import tqdm  # only whoever looks pays for its import

    with tqdm(desc=what, unit="B", unit_scale=True, leave=False) as bar:

        def draw(n_bytes: int, all_bytes: int) -> None:
            bar.total, bar.n = all_bytes, n_bytes
            bar.refresh()

        yield draw
