"""Lets objects with locks, threads and handles begin afresh in a process that was forked."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

__all__ = ["ForkLock", "call_in_forks"]

#: By the id of the reference to it, an object and what to call with it.
_methods: dict[int, tuple[weakref.ref[Any], Callable[[Any], Any]]] = {}


def call_in_forks(method: Callable[[], Any]) -> None:
    """Call a method of an object in every process that is forked from now on, before anything else runs there.

    A thread of the parent may have held a lock when it forked, and threads do not come along: so locks are made anew there, and
    what belongs to the parent is forgotten. Objects need no look at the process id whenever they are used.

    Args:
        method: bound to an object, which is not kept alive by this. It must not raise.
    """
    reference = weakref.ref(method.__self__, _forget)  # type: ignore[attr-defined]  # it is bound
    _methods[id(reference)] = reference, method.__func__  # type: ignore[attr-defined]  # likewise


class ForkLock:
    """A lock that is free in a forked process, whichever thread of its parent held it."""

    def __init__(self) -> None:
        self._renew()
        call_in_forks(self._renew)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def _renew(self) -> None:
        self._lock = threading.Lock()


def _forget(reference: weakref.ref[Any], methods: dict[int, Any] = _methods) -> None:  # at the end of Python globals may be gone
    methods.pop(id(reference), None)


def _call_all() -> None:
    for reference, function in list(_methods.values()):
        owner = reference()
        if owner is not None:
            function(owner)


if hasattr(os, "register_at_fork"):  # not on Windows, where no process forks
    os.register_at_fork(after_in_child=_call_all)
