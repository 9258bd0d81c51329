"""Progress bars."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from importlib import import_module
from typing import Any, TypeVar

_Item = TypeVar("_Item")

_wanted: ContextVar[bool | None] = ContextVar("data_stack progress", default=None)


def shows_progress(progress: bool | None) -> bool:
    """``progress`` if given, else the value of :func:`progress_as`; by default bars in notebooks and on terminals."""
    wanted = _wanted.get() if progress is None else progress
    if wanted is not None:
        return wanted
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    is_in_notebook = shell is not None and "IPKernelApp" in shell.config  # as tqdm checks it
    return is_in_notebook or (sys.stderr is not None and sys.stderr.isatty())


@contextlib.contextmanager
def progress_as(progress: bool | None) -> Iterator[None]:
    """Set the default of ``progress`` inside, in this thread; None changes nothing.

    For calls through client code that cannot pass it on.
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
    """A tqdm bar on standard error, removed when done.

    Args:
        arguments: as for ``tqdm.tqdm``.
        options: as for ``tqdm.tqdm``.
    """
    return import_module("tqdm").tqdm(*arguments, leave=False, **options)  # imported only if a bar is shown


def with_bar(items: Iterable[_Item], progress: bool | None, **options: Any) -> Iterable[_Item]:
    """``items``, with a bar; ``options`` as for :func:`new_bar`."""
    if not shows_progress(progress):
        return items
    return new_bar(items, **options)  # type: ignore[no-any-return]


@contextlib.contextmanager
def byte_bar(what: str, progress: bool | None) -> Iterator[Callable[[int, int], None]]:
    """A function ``draw(n_bytes, all_bytes)``, which does nothing if no bar is shown."""
    if not shows_progress(progress):
        yield lambda n_bytes, all_bytes: None
        return
    with new_bar(desc=what, unit="B", unit_scale=True) as bar:

        def draw(n_bytes: int, all_bytes: int) -> None:
            bar.total, bar.n = all_bytes, n_bytes
            bar.refresh()

        yield draw
