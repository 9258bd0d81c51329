"""What writers of datasets have in common: how a ``with`` block ends."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self


class DatasetWriter(ABC):
    """A writer whose ``with`` block completes the dataset if it ends cleanly, and abandons it if it raises."""

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
            with contextlib.suppress(Exception):  # the caller must see the first error
                self.abandon()
