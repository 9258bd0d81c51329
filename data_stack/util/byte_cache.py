"""Keeps the values that were used last, as many as fit into so many bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from data_stack.util.forks import call_in_forks

__all__ = ["ByteCache"]

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class ByteCache(Generic[_Key, _Value]):
    """Values by key, the ones used last. Threads may share it; a forked process has a copy of its own.

    Args:
        max_bytes: what all values may take together; the value that came last is kept in any case.
        size_of: how many bytes a value takes.
    """

    def __init__(self, max_bytes: int, size_of: Callable[[_Value], int]) -> None:
        self._max_bytes, self._size_of = max_bytes, size_of
        self._values: OrderedDict[_Key, _Value] = OrderedDict()
        self._n_bytes = 0
        self._lock = threading.Lock()
        call_in_forks(self._begin_in_fork)

    @property
    def n_bytes(self) -> int:
        """What is kept now."""
        return self._n_bytes

    def __len__(self) -> int:
        """How many values are kept."""
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        """Whether a value is kept; this does not count as use."""
        return key in self._values

    def get(self, key: _Key) -> _Value | None:
        """A value, which is the last one to go from now on; None if it is not kept."""
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def get_many(self, keys: Iterable[_Key]) -> dict[_Key, _Value]:
        """Those of several values that are kept."""
        found: dict[_Key, _Value] = {}
        with self._lock:
            for key in keys:
                value = self._values.get(key)
                if value is not None:
                    self._values.move_to_end(key)
                    found[key] = value
        return found

    def put(self, key: _Key, value: _Value) -> None:
        """Keep a value, in place of one with this key; the values that were not used for longest go for it."""
        with self._lock:
            old = self._values.pop(key, None)
            if old is not None:
                self._n_bytes -= self._size_of(old)
            self._values[key] = value
            self._n_bytes += self._size_of(value)
            while self._n_bytes > self._max_bytes and len(self._values) > 1:
                _, oldest = self._values.popitem(last=False)
                self._n_bytes -= self._size_of(oldest)

    def clear(self) -> None:
        """Let go of all values."""
        with self._lock:
            self._values.clear()
            self._n_bytes = 0

    def _begin_in_fork(self) -> None:
        # another thread of the parent may have held the lock, and not have counted yet
        self._lock = threading.Lock()
        self._n_bytes = sum(map(self._size_of, self._values.values()))
