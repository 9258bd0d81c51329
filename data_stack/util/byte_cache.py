"""An LRU cache bounded by bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from data_stack.util.forks import fork_lock

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class ByteCache(Generic[_Key, _Value]):
    """An LRU cache of values by key. Threads may share it; a forked process has its own copy.

    Args:
        max_bytes: the limit of all values together; the last value stays even if it exceeds it.
        size_of: returns the size of a value in bytes.

    Attributes:
        n_bytes: the size of all values.
    """

    #: The values, the least recently used first.
    _values: OrderedDict[_Key, _Value]

    def __init__(self, max_bytes: int, size_of: Callable[[_Value], int]) -> None:
        self.n_bytes = 0
        self._max_bytes = max_bytes
        self._size_of = size_of
        self._values = OrderedDict()
        self._lock = fork_lock()

    def __len__(self) -> int:
        """Return the number of values."""
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        """Return whether a key has a value; this does not count as use."""
        return key in self._values

    def get(self, key: _Key) -> _Value | None:
        """Return a value, which becomes the most recently used; None if the key is missing."""
        values = self.get_many([key])
        return values.get(key)

    def get_many(self, keys: Iterable[_Key]) -> dict[_Key, _Value]:
        """Return the values of those keys that have one; they become the most recently used."""
        values: dict[_Key, _Value] = {}
        with self._lock:
            for key in keys:
                value = self._values.get(key)
                if value is not None:
                    self._values.move_to_end(key)
                    values[key] = value
        return values

    def put(self, key: _Key, value: _Value) -> None:
        """Add or replace a value, and remove the least recently used ones above the limit."""
        with self._lock:
            old_value = self._values.pop(key, None)
            if old_value is not None:
                self.n_bytes -= self._size_of(old_value)
            self._values[key] = value
            self.n_bytes += self._size_of(value)
            while self.n_bytes > self._max_bytes and len(self._values) > 1:
                _, oldest_value = self._values.popitem(last=False)
                self.n_bytes -= self._size_of(oldest_value)

    def drop(self, is_useless: Callable[[_Key], bool]) -> None:
        """Remove the values of the keys for which ``is_useless(key)`` is true."""
        with self._lock:
            useless_keys = [key for key in self._values if is_useless(key)]
            for key in useless_keys:
                self.n_bytes -= self._size_of(self._values.pop(key))
