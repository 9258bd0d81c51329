"""The base of loaders that make one pass at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class LoaderBase:
    """Passes over batches, one pass at a time; subclasses implement ``_iter_impl``."""

    #: Whether a pass is going on; None before the first one, as in Petastorm.
    _in_iter: bool | None

    def __init__(self) -> None:
        self._in_iter = None

    def _iter_impl(self) -> Iterator[Any]:
        """Iterate over the batches of one pass."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        """Begin another pass.

        Raises (while iterating):
            RuntimeError: another iterator of this loader is in use.
        """
        if self._in_iter:
            raise RuntimeError(
                "You must finish a full pass of Petastorm DataLoader before making another pass "
                "from the beginning: two passes would take rows from one reader. Make a reader and "
                "a loader for each pass"
            )
        self._in_iter = True
        try:
            yield from self._iter_impl()
        finally:
            self._in_iter = False
