"""The base class of readers and writers, which are closed at the end of a ``with`` block."""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import TypeVar

_Self = TypeVar("_Self", bound="Closing")


class Closing:
    """A context manager that calls :meth:`close` at the end of its block.

    An error of the block takes precedence over an error of :meth:`close`.

    Attributes:
        closed: whether it is closed.
    """

    closed: bool = False

    def close(self) -> None:
        """Close all files. Closing again does nothing."""
        self.closed = True

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error_type is None:
            self.close()
            return
        with contextlib.suppress(Exception):
            self.close()
