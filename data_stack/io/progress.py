"""Decides whether progress bars are drawn, and how, the same way everywhere."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from importlib import import_module
from typing import Any, TypeVar

__all__ = [
    "batch_bar",
    "byte_bar",
    "new_bar",
    "progress_as",
    "shows_progress",
    "with_bar",
]

_Item = TypeVar("_Item")

_wanted: ContextVar[bool | None] = ContextVar("data_stack progress", default=None)


def shows_progress(progress: bool | None) -> bool:
    """What the caller said; None for what :func:`progress_as` says around it, else for bars in notebooks and on terminals."""
    wanted = _wanted.get() if progress is None else progress
    if wanted is not None:
        return wanted
    return _is_in_notebook() or (sys.stderr is not None and sys.stderr.isatty())


@contextlib.contextmanager
def progress_as(progress: bool | None) -> Iterator[None]:
    """Decide for all that runs inside, in this thread, and leaves it open; None decides nothing.

    For calls that cannot hand it on, since what is between them is the code of others.
    """
    if progress is None:
        yield
        return
    token = _wanted.set(progress)
    try:
        yield
    finally:
        _wanted.reset(token)


def new_bar(*arguments: Any, **options: Any) -> Any:
    """A bar of tqdm: of widgets in a notebook that has ipywidgets, of text on standard error elsewhere; gone once it is done.

    Args:
        arguments: what to iterate over, if anything.
        options: as ``tqdm.tqdm`` takes them.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there are no widgets, so that a notebook's bar will be text
        # Imported here, for only those who look pay for it; the one for notebooks brings asyncio.
        module = import_module("tqdm.auto" if _is_in_notebook() else "tqdm")
    return module.tqdm(*arguments, leave=False, **options)


def with_bar(items: Iterable[_Item], progress: bool | None, **options: Any) -> Iterable[_Item]:
    """``items``, and a bar of how many of them are done; ``options`` as :func:`new_bar` takes them."""
    if not shows_progress(progress):
        return items
    shown: Iterable[_Item] = new_bar(items, **options)
    return shown


def _is_in_notebook() -> bool:
    """Whether this is the kernel of a notebook, as tqdm finds out."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and "IPKernelApp" in shell.config


@contextlib.contextmanager
def byte_bar(what: str, progress: bool | None) -> Iterator[Callable[[int, int], None]]:
    """Gives what draws how many bytes of how many are done, on standard error, if there is somebody to look at it."""
    if not shows_progress(progress):
        yield lambda n_bytes, all_bytes: None
        return
    with new_bar(desc=what, unit="B", unit_scale=True) as bar:

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
    with new_bar(desc=what, total=starts.stop - starts.start, unit=unit) as bar:
        for start in starts:
            yield start
            bar.update(min(starts.step, starts.stop - start))
