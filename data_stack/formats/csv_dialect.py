"""Checks the options that say how a CSV file is written."""

from __future__ import annotations

import csv
from typing import Any, Final

from data_stack.exception import ConfigError

#: What to do about quotes that cannot be read exactly.
QUOTING_ADVICE: Final = (
    "correct the file, or, if quotes are ordinary characters in it, pass quoting=csv.QUOTE_NONE"
)

#: The values of ``quoting`` by the names that users may pass.
_QUOTING_BY_NAME: Final = {
    "minimal": csv.QUOTE_MINIMAL,
    "all": csv.QUOTE_ALL,
    "none": csv.QUOTE_NONE,
}


def check_quoting(quoting: Any) -> int:
    """Return ``csv.QUOTE_MINIMAL`` or ``csv.QUOTE_NONE`` for what a user passed as ``quoting``.

    Args:
        quoting: ``csv.QUOTE_MINIMAL`` or ``csv.QUOTE_ALL``, which are read alike: a quote at the
            start of a field opens a quoted field; ``csv.QUOTE_NONE``: quotes are ordinary
            characters. Or their names: ``"minimal"``, ``"all"``, ``"none"``.

    Raises:
        ConfigError: ``quoting`` is something else.
    """
    value = quoting
    if isinstance(quoting, str):
        value = _QUOTING_BY_NAME.get(quoting.lower())
    # True equals csv.QUOTE_ALL, and False csv.QUOTE_MINIMAL.
    is_truth_value = isinstance(value, bool)
    if value in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL) and not is_truth_value:
        return csv.QUOTE_MINIMAL
    if value == csv.QUOTE_NONE and not is_truth_value:
        return csv.QUOTE_NONE
    raise ConfigError(
        "quoting must be csv.QUOTE_MINIMAL, csv.QUOTE_ALL or csv.QUOTE_NONE, "
        f"or 'minimal', 'all' or 'none', got {quoting!r:.60}; "
        "dtypes={'name': str} keeps numbers as text"
    )


def check_delimiter(delimiter: Any) -> str:
    """Return the delimiter, one ASCII character.

    Raises:
        ConfigError: it is something else, or a quote or a line break.
    """
    is_one_character = isinstance(delimiter, str) and len(delimiter) == 1 and delimiter.isascii()
    if not is_one_character or delimiter in '"\r\n\0':
        raise ConfigError(
            "delimiter must be one ASCII character, no quote and no line break, "
            f"got {delimiter!r:.60}"
        )
    return str(delimiter)
