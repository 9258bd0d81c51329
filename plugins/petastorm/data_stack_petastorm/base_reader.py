"""The base of readers: what they have besides rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, TypeVar

_Self = TypeVar("_Self", bound="BaseReader")


class BaseReader(Iterator[Any]):
    """An iterator of rows that is a context manager; the end of the ``with`` block stops it."""

    @abstractmethod
    def stop(self) -> None:
        """End the workers."""

    def next(self) -> Any:
        """Return the next row, as ``next(reader)``."""
        return self.__next__()

    def join(self) -> None:
        """Do nothing: :meth:`stop` returns when the workers have ended."""

    def cleanup_cache(self) -> None:
        """Do nothing: a cache has a size limit, and the next reader uses it."""

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
