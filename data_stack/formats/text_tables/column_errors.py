"""The errors of columns that a text table lacks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from data_stack.exception import ConfigError
from data_stack.util.suggestions import did_you_mean


class UnknownColumnError(ConfigError):
    """A table lacks a column that was asked for.

    Attributes:
        column: the name of the column.
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
    if wanted is None:
        return
    known = set(columns)
    for column in wanted:
        if column not in known:
            message = _describe_lack(name, column, columns, purpose="")
            raise UnknownColumnError(message, column)


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
            message = _describe_lack(name, column, columns, purpose=" for dtypes")
            raise UnknownTypedColumnError(message, column)


def _describe_lack(name: str, column: str, columns: Sequence[str], *, purpose: str) -> str:
    """Return the message for a column that a file lacks."""
    suggestion = did_you_mean(column, columns)
    return (
        f"{name!r} has no column {column!r:.80}{purpose}{suggestion}; "
        f"it has {', '.join(columns):.1000}"
    )
