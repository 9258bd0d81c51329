"""The error of a value that an encoder cannot encode."""

from __future__ import annotations

from data_stack.exception import ConfigError


class EncodingError(ConfigError):
    """A value is unknown to an encoder, or of a kind that it does not encode.

    Attributes:
        problem: the value and what is wrong with it.
        position: the position of the sample in the column, or in the encoded iterator.
        where: the column or feature, from outside to inside; empty if unknown.
    """

    def __init__(self, problem: str, position: int, where: tuple[str, ...] = ()) -> None:
        super().__init__(problem, position, where)
        self.problem = problem
        self.position = position
        self.where = where

    def __str__(self) -> str:
        prefix = "".join(f"{name}: " for name in self.where)
        return f"{prefix}at position {self.position}, {self.problem}"

    def within(self, where: str, position: int | None = None) -> EncodingError:
        """Return the same error, as a caller that knows more of the value raises it.

        Args:
            where: the name of the column or feature, added before those that the error has.
            position: the position of the sample in the iterator; None: that of the error.
        """
        if position is None:
            position = self.position
        return EncodingError(self.problem, position, (where, *self.where))
