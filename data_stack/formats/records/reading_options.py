"""What is asked of a reader of records: its options, columns, and parts of samples."""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from data_stack.exception import ConfigError
from data_stack.formats.records.layout import MAX_RECORDS
from data_stack.util.suggestions import did_you_mean

__all__ = ["DEFAULTS", "Mask", "check_column", "checked_options", "checked_part", "names_of"]

Mask = Mapping[str, Any]
"""What to read of a sample: by column True, False, or a range or slice of a sequence."""

#: Of the options, those that a pickle leaves out.
DEFAULTS: Mapping[str, Any] = {
    "codecs": None,
    "columns": None,
    "mapped": True,
    "verified": True,
    "incomplete": "raise",
}


def checked_options(**options: Any) -> dict[str, Any]:
    """The options of a reader as they are kept.

    Raises:
        ConfigError: one is none.
    """
    if options["incomplete"] not in ("raise", "prefix"):
        raise ConfigError(f"incomplete is 'raise' or 'prefix', not {options['incomplete']!r:.80}")
    columns = options["columns"]
    options["columns"] = None if columns is None else names_of("columns", columns)
    return {name: bool(value) if isinstance(DEFAULTS[name], bool) else value for name, value in options.items()}


def names_of(what: str, names: Any) -> list[str]:
    """Several names of columns, each once.

    Raises:
        ConfigError: they are none.
    """
    listed = None if isinstance(names, (str, bytes)) or not hasattr(names, "__iter__") else list(names)
    if listed is None or not all(isinstance(name, str) for name in listed) or len(set(listed)) != len(listed):
        raise ConfigError(f"{what} are named by a list of strings, each once, not by {names!r:.80}")
    if what == "columns" and not listed:
        raise ConfigError("at least one column is to be read")
    return listed


def check_column(name: object, known: Collection[str]) -> None:
    """Refuse a column that is not there.

    Raises:
        ConfigError: it is not.
    """
    if name not in known:
        raise ConfigError(f"there is no column {name!r:.80}{did_you_mean(str(name), known)}; there are: {', '.join(known)}")


def checked_part(name: str, part: Any, is_sequence: bool) -> bool | slice:
    """A part of a column that is asked for, as True, False or a slice from 0 on, of step 1."""
    if isinstance(part, (bool, np.bool_)):
        return bool(part)
    if not isinstance(part, (range, slice)):
        raise ConfigError(f"a part of column {name!r} is True, False, or a range of its sequence, not {part!r:.80}")
    if not is_sequence:
        raise ConfigError(f"column {name!r} has one value for each sample, and no range of it can be read")
    try:
        start = 0 if part.start is None else operator.index(part.start)
        stop = MAX_RECORDS if part.stop is None else operator.index(part.stop)
        step = 1 if part.step is None else operator.index(part.step)
    except TypeError:
        raise ConfigError(f"a range of column {name!r} has integers, not {part!r:.80}") from None
    if step != 1 or not 0 <= start <= stop:
        raise ConfigError(f"a range of column {name!r} has step 1, and begins at 0 or later and before it ends; not {part!r:.80}")
    return slice(start, stop)
