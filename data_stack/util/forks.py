"""Resets objects with locks, threads and handles in forked processes."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

#: Objects and their methods, by the id of the weak reference.
_methods: dict[int, tuple[weakref.ref[Any], Callable[[Any], Any]]] = {}
_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def call_in_forks(method: Callable[[], Any]) -> None:
    """Call a method of an object at the start of every process that is forked from now on.

    Threads do not survive a fork, and one of them may have held a lock: so objects create new locks there, and release what
    belongs to the parent.

    Args:
        method: a bound method, of whose object only a weak reference is kept. It must not raise.
    """
    reference = weakref.ref(method.__self__, _forget)  # type: ignore[attr-defined]  # it is bound
    _methods[id(reference)] = reference, method.__func__  # type: ignore[attr-defined]  # likewise


def fork_lock() -> threading.Lock:
    """A lock that is free in a forked process, even if a thread of the parent held it.

    It is the interpreter's own: ``with`` takes and gives it back in C, where Ctrl-C cannot come between.
    """
    lock = threading.Lock()
    _locks.add(lock)
    return lock


def _forget(
    reference: weakref.ref[Any], methods: dict[int, Any] = _methods
) -> None:  # at the end of Python globals may be gone
    methods.pop(id(reference), None)


def _call_all() -> None:
    for lock in list(_locks):
        lock._at_fork_reinit()  # as the standard library renews its own
    for reference, function in list(_methods.values()):
        owner = reference()
        if owner is not None:
            function(owner)


os.register_at_fork(after_in_child=_call_all)
