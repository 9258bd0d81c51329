"""The options that say how a CSV file is written."""

from __future__ import annotations

import csv
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from data_stack.exception import ConfigError
from data_stack.formats.csv_dialect import check_delimiter, check_quoting


@dataclass(frozen=True)
class CSVOptions:
    """How a CSV file is written; :func:`data_stack.from_csv` documents each attribute.

    Raises:
        ConfigError: an option is of another type.
    """

    delimiter: str = ","
    missing: Collection[str] = ("",)
    header: bool | None = None
    names: Sequence[str] | None = None
    quoting: Any = csv.QUOTE_MINIMAL

    def __post_init__(self) -> None:
        check_delimiter(self.delimiter)
        check_quoting(self.quoting)
        if self.header not in (None, True, False):
            raise ConfigError(f"header must be True, False or None, got {self.header!r:.60}")
        if self.names is not None and not _are_names(self.names):
            raise ConfigError(
                f"names must be a list of names, one for each column, got {self.names!r:.80}"
            )

    @property
    def has_quotes(self) -> bool:
        """Whether quotes quote."""
        return bool(self.csv_quoting != csv.QUOTE_NONE)

    @property
    def csv_quoting(self) -> Any:
        """``csv.QUOTE_MINIMAL`` or ``csv.QUOTE_NONE``, for Python's ``csv.reader``."""
        return check_quoting(self.quoting)

    @property
    def has_header(self) -> bool:
        """Whether the first row holds names."""
        return self.header is not False

    @property
    def is_header_assumed(self) -> bool:
        """Whether nothing but our default says that the first row holds names."""
        return self.header is None and self.names is None


def _are_names(names: Sequence[str]) -> bool:
    # A text is a sequence of texts, too.
    if isinstance(names, str):
        return False
    return all(isinstance(name, str) for name in names)
