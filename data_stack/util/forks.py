"""Resets objects with locks, threads and handles in forked processes."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

#: Methods to call in forks, each as a weak reference to its object and the function of its class,
#: by the id of the reference.
_methods: dict[int, tuple[weakref.ref[Any], Callable[[Any], Any]]] = {}

#: How often this process was about to fork, and its parents before it.
_n_forks = 0

#: Locks that become free in a forked process.
_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def call_in_forks(method: Callable[[], Any]) -> None:
    """Call a method of an object at the start of every process that is forked from now on.

    Threads do not survive a fork, and one of them may have held a lock. So objects create new
    locks there, and release what belongs to the parent.

    Args:
        method: a bound method, which must not raise. Only a weak reference to its object is kept.
    """
    owner = method.__self__  # type: ignore[attr-defined]  # it is bound
    function = method.__func__  # type: ignore[attr-defined]  # it is bound
    reference = weakref.ref(owner, _forget)
    _methods[id(reference)] = (reference, function)


def n_forks() -> int:
    """Return how often this process has forked so far, and its parents before it.

    A fork shares memory with this process that was mapped as shared when it began.
    """
    return _n_forks


def fork_lock() -> threading.Lock:
    """Return a lock that is free in a forked process, even if a thread of the parent held it.

    It is a ``threading.Lock``, which ``with`` acquires and releases in C. So Ctrl-C cannot come
    between the two and leave it locked.
    """
    lock = threading.Lock()
    _locks.add(lock)
    return lock


def _forget(reference: weakref.ref[Any], methods: dict[int, Any] = _methods) -> None:
    """Remove the method of an object that has ended.

    ``methods`` is an argument because globals may be gone when Python ends.
    """
    methods.pop(id(reference), None)


def _reset_all() -> None:
    """In a forked process, free the locks, then call the methods."""
    for lock in list(_locks):
        lock._at_fork_reinit()  # as the standard library renews its own
    for reference, function in list(_methods.values()):
        owner = reference()
        if owner is not None:
            function(owner)


def _count_fork() -> None:
    global _n_forks
    _n_forks += 1


os.register_at_fork(before=_count_fork, after_in_child=_reset_all)
