"""Progress bars on standard error."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from importlib import import_module
from typing import Any, TypeVar

_Item = TypeVar("_Item")

#: The default of ``progress`` in this thread; None: bars in notebooks and on terminals.
_default_progress: ContextVar[bool | None] = ContextVar("data_stack progress", default=None)


def shows_progress(progress: bool | None) -> bool:
    """Return whether to show a bar.

    Args:
        progress: whether the caller wants a bar; None for the default that :func:`progress_as`
            sets. Without such a default, bars are shown in notebooks and on terminals.
    """
    if progress is None:
        progress = _default_progress.get()
    if progress is not None:
        return progress
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    return is_terminal or _is_in_notebook()


@contextlib.contextmanager
def progress_as(progress: bool | None) -> Iterator[None]:
    """Set the default of ``progress`` for the block, in this thread; None changes nothing.

    This is for calls through code of users, such as a factory, that cannot pass ``progress`` on.
    """
    if progress is None:
        yield
        return
    token = _default_progress.set(progress)
    try:
        yield
    finally:
        _default_progress.reset(token)


def new_bar(
    items: Iterable[Any] | None = None,
    *,
    desc: str,
    total: int | None = None,
    initial: int = 0,
    unit: str = "it",
    unit_scale: bool = False,
    disable: bool = False,
) -> Any:
    """Return a bar of tqdm, which is removed when it is done.

    Args:
        items: what the bar iterates over; None for a bar that the caller moves.
        desc: stands in front of the bar.
        total: the number of steps, if it is not the length of ``items``.
        initial: the number of steps that were done before.
        unit: what a step is.
        unit_scale: whether large numbers of steps are written as 1k or 1M.
        disable: whether the bar is not shown.
    """
    # tqdm is imported only if a bar is made.
    tqdm = import_module("tqdm").tqdm
    return tqdm(
        items,
        desc=desc,
        total=total,
        initial=initial,
        unit=unit,
        unit_scale=unit_scale,
        disable=disable,
        leave=False,
    )


def with_bar(
    items: Iterable[_Item],
    progress: bool | None,
    *,
    desc: str,
    total: int | None = None,
    initial: int = 0,
    unit: str = "it",
) -> Iterable[_Item]:
    """Return ``items``, with a bar that counts them if bars are shown.

    Args:
        items: what to iterate over.
        progress: as for :func:`shows_progress`.
        desc: as for :func:`new_bar`.
        total: as for :func:`new_bar`.
        initial: as for :func:`new_bar`.
        unit: as for :func:`new_bar`.
    """
    if not shows_progress(progress):
        return items
    bar: Iterable[_Item] = new_bar(items, desc=desc, total=total, initial=initial, unit=unit)
    return bar


@contextlib.contextmanager
def byte_bar(title: str, progress: bool | None) -> Iterator[Callable[[int, int], None]]:
    """Yield a function ``draw(n_bytes, all_bytes)``, which does nothing if no bar is shown.

    Args:
        title: stands in front of the bar.
        progress: as for :func:`shows_progress`.
    """
    if not shows_progress(progress):
        yield _draw_nothing
        return

    with new_bar(desc=title, unit="B", unit_scale=True) as bar:

        def draw(n_bytes: int, all_bytes: int) -> None:
            bar.total = all_bytes
            bar.n = n_bytes
            bar.refresh()

        yield draw


def _draw_nothing(n_bytes: int, all_bytes: int) -> None:
    """Stand in for the function that draws a bar."""


def _is_in_notebook() -> bool:
    """Return whether this is the kernel of a notebook, found out as tqdm does."""
    ipython = sys.modules.get("IPython")
    if ipython is None:
        return False
    get_ipython = getattr(ipython, "get_ipython", None)
    if get_ipython is None:
        return False
    shell = get_ipython()
    return shell is not None and "IPKernelApp" in shell.config
