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


def batch_bar(starts: range, what: str, unit: str, progress: bool | None) -> Iterator[int]:
    """The starts of batches, and a bar of what is done in the meantime.

    Args:
        starts: from the first position to the end, in steps of a batch.
        what: is done.
        unit: what the positions are of.
        progress: as :func:`shows_progress` takes it.
    """
    if not shows_progress(progress):
        yield from starts
        return
    from tqdm import tqdm  # only whoever looks pays for its import

    with tqdm(desc=what, total=starts.stop - starts.start, unit=unit, leave=False) as bar:
        for start in starts:
            yield start
            bar.update(min(starts.step, starts.stop - start))
