"""An LRU cache bounded by bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from data_stack.util.forks import call_in_forks

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class ByteCache(Generic[_Key, _Value]):
    """An LRU cache of values by key. Threads may share it; a forked process has its own copy.

    Args:
        max_bytes: the limit of all values together; the last value stays even if it exceeds it.
        size_of: returns the size of a value in bytes.
    """

    def __init__(self, max_bytes: int, size_of: Callable[[_Value], int]) -> None:
        self._max_bytes, self._size_of = max_bytes, size_of
        self._values: OrderedDict[_Key, _Value] = OrderedDict()
        self._n_bytes = 0
        self._lock = threading.Lock()
        call_in_forks(self._begin_in_fork)

    @property
    def n_bytes(self) -> int:
        """The size of all values."""
        return self._n_bytes

    def __len__(self) -> int:
        """The number of values."""
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        """Whether a key has a value; this does not count as use."""
        return key in self._values

    def get(self, key: _Key) -> _Value | None:
        """A value, which becomes the most recently used; None if the key is missing."""
        return self.get_many((key,)).get(key)

    def get_many(self, keys: Iterable[_Key]) -> dict[_Key, _Value]:
        """The values of those keys that have one."""
        found: dict[_Key, _Value] = {}
        with self._lock:
            for key in keys:
                value = self._values.get(key)
                if value is not None:
                    self._values.move_to_end(key)
                    found[key] = value
        return found

    def put(self, key: _Key, value: _Value) -> None:
        """Add or replace a value; removes the least recently used ones."""
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
        """Remove all values."""
        with self._lock:
            self._values.clear()
            self._n_bytes = 0

    def _begin_in_fork(self) -> None:
        # a thread of the parent may have held the lock before counting a value
        self._lock = threading.Lock()
        self._n_bytes = sum(map(self._size_of, self._values.values()))
