"""The contract of collations, which turn columns into a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from data_stack.values.stacking import Batch


class Collation(ABC):
    """Turns columns into a batch. It pickles, and threads share it."""

    @abstractmethod
    def collate(self, batch: Batch) -> Any:
        """Collate a batch of columns, as ``read_batch`` returns them.

        The collation may keep and modify the columns.

        Raises:
            ConfigError: a column does not exist, or its values do not fit into one array.
        """
        raise NotImplementedError
