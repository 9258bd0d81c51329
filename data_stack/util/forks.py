"""Lets objects with locks, threads and handles begin afresh in a process that was forked."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any

__all__ = ["call_in_forks"]

_methods: dict[int, weakref.WeakMethod[Callable[[], Any]]] = {}


def call_in_forks(method: Callable[[], Any]) -> None:
    """Call a method of an object in every process that is forked from now on, before anything else runs there.

    A thread of the parent may have held a lock when it forked, and threads do not come along: so locks are made anew there, and
    what belongs to the parent is forgotten. Objects need no look at the process id whenever they are used.

    Args:
        method: bound to an object, which is not kept alive by this. It must not raise.
    """
    reference = weakref.WeakMethod(method, _forget)
    _methods[id(reference)] = reference


def _forget(reference: weakref.WeakMethod[Callable[[], Any]]) -> None:
    _methods.pop(id(reference), None)


def _call_all() -> None:
    for reference in list(_methods.values()):
        method = reference()
        if method is not None:
            method()


if hasattr(os, "register_at_fork"):  # not on Windows, where no process forks
    os.register_at_fork(after_in_child=_call_all)
