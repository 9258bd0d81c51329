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

    def __init__(self, max_bytes: int, size_of: Callable[[_Value], int]) -> None:
        self._max_bytes, self._size_of = max_bytes, size_of
        self._values: OrderedDict[_Key, _Value] = OrderedDict()
        self.n_bytes, self._lock = 0, fork_lock()

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
                if (value := self._values.get(key)) is not None:
                    self._values.move_to_end(key)
                    found[key] = value
        return found

    def put(self, key: _Key, value: _Value) -> None:
        """Add or replace a value; removes the least recently used ones."""
        with self._lock:
            self.n_bytes += self._size_of(value)
            if (old := self._values.pop(key, None)) is not None:
                self.n_bytes -= self._size_of(old)
            self._values[key] = value
            while self.n_bytes > self._max_bytes and len(self._values) > 1:
                self.n_bytes -= self._size_of(self._values.popitem(last=False)[1])

    def drop(self, is_useless: Callable[[_Key], bool]) -> None:
        """Remove the values of some keys."""
        with self._lock:
            for key in list(filter(is_useless, self._values)):
                self.n_bytes -= self._size_of(self._values.pop(key))
