"""What writers of datasets have in common: how a ``with`` block ends."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self


class DatasetWriter(ABC):
    """A writer of a dataset, to be used in a ``with`` block.

    The block completes the dataset if it ends cleanly, and abandons it if it raises.
    """

    @abstractmethod
    def close(self) -> None:
        """Complete the dataset; does nothing after :meth:`abandon`."""

    @abstractmethod
    def abandon(self) -> None:
        """Give up what is not complete; does nothing after :meth:`close`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        try:
            if exc_type is None:
                self.close()
        finally:
            # The caller must see the first error, not one of abandoning.
            with contextlib.suppress(Exception):
                self.abandon()
