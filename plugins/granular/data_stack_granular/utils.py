"""What the readers and writers share: they are closed at the end of a ``with`` block."""

from __future__ import annotations

from types import TracebackType
from typing import TypeVar

__all__ = ["Closing"]

_Self = TypeVar("_Self", bound="Closing")


class Closing:
    """A context manager that calls ``close()``; an error of the block goes before one of closing.

    Attributes:
        closed: whether it was closed.
    """

    closed = False

    def close(self) -> None:
        """Let go of all files. Closing again does nothing."""
        self.closed = True

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.close()
        except Exception:
            if exc_type is None:
                raise
