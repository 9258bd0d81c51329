"""The error of a value that an encoder cannot take: it knows where the value was."""

from __future__ import annotations

from data_stack.exception import ConfigError

__all__ = ["EncodingError"]


class EncodingError(ConfigError):
    """A value is unknown to an encoder, or of a kind that it does not encode.

    Attributes:
        problem: what is wrong with which value.
        position: of the value's sample, in what the encoder was given; in an encoded iterator, its position there.
        where: the column or feature, from outside to inside; empty if nobody named it.
    """

    def __init__(self, problem: str, position: int, where: tuple[str, ...] = ()) -> None:
        super().__init__(problem, position, where)
        self.problem, self.position, self.where = problem, position, where

    def __str__(self) -> str:
        return "".join(f"{each}: " for each in self.where) + f"at position {self.position}, {self.problem}"

    def within(self, where: str, position: int | None = None) -> EncodingError:
        """The same error, told by who knows more: the column's name, the position outside."""
        return EncodingError(self.problem, self.position if position is None else position, (where, *self.where))
