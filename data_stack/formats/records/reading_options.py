"""What is asked of a reader of records: its options, columns, and parts of samples."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from data_stack.codecs.provided import provided_codecs
from data_stack.codecs.registry import Codecs, registered_types
from data_stack.exception import ConfigError
from data_stack.util.suggestions import did_you_mean

__all__ = ["Mask", "check_column", "checked_options", "names_of"]

Mask = Mapping[str, Any]
"""What to read of a sample: by column True, False, or a range or slice of a sequence."""


def checked_options(codecs: Codecs | None, columns: Any, mapped: bool) -> dict[str, Any]:
    """The options of a reader as they are kept, with the codecs of plugins, which a spawned process may not know.

    Raises:
        ConfigError: one is none.
    """
    provided = {kind: codec for kind, codec in provided_codecs().items() if kind not in registered_types()}
    return {
        "codecs": {**provided, **(codecs or {})} if provided else codecs,
        "columns": None if columns is None else names_of("columns", columns),
        "mapped": mapped,
    }


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
