"""The error of a value that an encoder cannot encode; it knows where the value was."""

from __future__ import annotations

from data_stack.exception import ConfigError


class EncodingError(ConfigError):
    """A value is unknown to an encoder, or of a kind that it does not encode.

    Attributes:
        problem: the value and what is wrong with it.
        position: of the sample in the column, or in the encoded iterator.
        where: the column or feature, from outside to inside; empty if unknown.
    """

    def __init__(self, problem: str, position: int, where: tuple[str, ...] = ()) -> None:
        super().__init__(problem, position, where)
        self.problem, self.position, self.where = problem, position, where

    def __str__(self) -> str:
        return (
            "".join(f"{each}: " for each in self.where)
            + f"at position {self.position}, {self.problem}"
        )

    def within(self, where: str, position: int | None = None) -> EncodingError:
        """The same error with the name of the column, and the position in the iterator."""
        return EncodingError(
            self.problem, self.position if position is None else position, (where, *self.where)
        )
