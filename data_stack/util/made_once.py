"""Values that a process makes once, at their first use."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from data_stack.util.forks import fork_lock

_Value = TypeVar("_Value")
_ReturnedValue = TypeVar("_ReturnedValue", covariant=True)


class MadeOnce(Protocol[_ReturnedValue]):
    """A function that returns the same value at each call."""

    def __call__(self) -> _ReturnedValue:
        """Return the value, which the first call makes."""

    def cache_clear(self) -> None:
        """Forget the value, so that the next call makes another one; for tests."""


def made_once(make: Callable[[], _Value]) -> MadeOnce[_Value]:
    """Let a function without arguments make its value at the first call only; a decorator.

    Of several threads that call it first, one makes the value, and the others wait for it. With
    ``functools.cache`` each of them would make one: what a thread registers with its own would be
    unknown to the others.

    Args:
        make: makes the value. It must not call the decorated function.
    """
    lock = fork_lock()
    make_or_find = functools.cache(make)

    @functools.wraps(make)
    def get() -> _Value:
        with lock:
            return make_or_find()

    decorated: Any = get
    decorated.cache_clear = make_or_find.cache_clear
    made: MadeOnce[_Value] = decorated
    return made
