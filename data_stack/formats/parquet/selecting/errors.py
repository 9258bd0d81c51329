"""What is raised where a predicate cannot be applied to the values of a dataset."""

from __future__ import annotations

from data_stack.exception import ConfigError

__all__ = ["PredicateError"]


class PredicateError(ConfigError):
    """A predicate cannot be applied to the values it was given; what it raised itself is chained.

    Attributes:
        reason: what is wrong, and what to do.
        row: position of the row in the columns that were given to ``mask``; None if no single row is to blame.
    """

    def __init__(self, reason: str, row: int | None = None) -> None:
        super().__init__(reason, row)
        self.reason, self.row = reason, row

    def __str__(self) -> str:
        return self.reason if self.row is None else f"row {self.row} of those looked at: {self.reason}"
