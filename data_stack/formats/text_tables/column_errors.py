"""Errors for columns that a table lacks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from data_stack.exception import ConfigError
from data_stack.util.suggestions import did_you_mean


class UnknownColumnError(ConfigError):
    """A table lacks a column that was asked for.

    Attributes:
        column: its name.
    """

    def __init__(self, message: str, column: str) -> None:
        super().__init__(message, column)
        self.column = column

    def __str__(self) -> str:
        return str(self.args[0])


class UnknownTypedColumnError(UnknownColumnError):
    """``dtypes`` names a column that a table lacks."""


def check_columns(name: str, wanted: Iterable[str] | None, columns: Sequence[str]) -> None:
    """Check that a table has all columns that were asked for.

    Args:
        name: the name of the file.
        wanted: the columns that were asked for; None for all.
        columns: the columns of the table.

    Raises:
        UnknownColumnError: it lacks one.
    """
    known = set(columns)
    for column in wanted or ():
        if column not in known:
            near = did_you_mean(column, columns)
            shown = ", ".join(columns)
            raise UnknownColumnError(
                f"{name!r} has no column {column!r:.80}{near}; it has {shown:.1000}", column
            )


def check_typed_columns(name: str, typed: Iterable[str], columns: Sequence[str]) -> None:
    """Check that a table has all columns of ``dtypes``.

    Args:
        name: the name of the file.
        typed: the columns with a dtype.
        columns: the columns of the table.

    Raises:
        UnknownTypedColumnError: it lacks one.
    """
    known = set(columns)
    for column in typed:
        if column not in known:
            near = did_you_mean(column, columns)
            shown = ", ".join(columns)
            raise UnknownTypedColumnError(
                f"{name!r} has no column {column!r:.80} for dtypes{near}; it has {shown:.1000}",
                column,
            )
