"""Checks the options of readers of records."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from data_stack.codecs.provided import find_provided_codecs
from data_stack.codecs.registry import Codecs, registered_types
from data_stack.exception import ConfigError
from data_stack.util.suggestions import did_you_mean


def check_options(codecs: Codecs | None, columns: Any, mapped: bool) -> dict[str, Any]:
    """The options of a reader as it stores them, with the codecs of plugins, which a spawned process may not know.

    Raises:
        ConfigError: one is invalid.
    """
    provided = {kind: codec for kind, codec in find_provided_codecs().items() if kind not in registered_types()}
    return {
        "codecs": {**provided, **(codecs or {})} if provided else codecs,
        "columns": None if columns is None else names_of(columns),
        "mapped": mapped,
    }


def names_of(names: Any) -> list[str]:
    """Names of columns as a list, without duplicates.

    Raises:
        ConfigError: they are something else.
    """
    listed = None if isinstance(names, (str, bytes)) or not hasattr(names, "__iter__") else list(names)
    if listed is None or not all(isinstance(name, str) for name in listed) or len(set(listed)) != len(listed):
        raise ConfigError(f"columns must be a list of different names, got {names!r:.80}")
    if not listed:
        raise ConfigError("columns is empty; name at least one")
    return listed


def check_column(name: object, known: Collection[str]) -> None:
    """Check that a column exists.

    Raises:
        ConfigError: it does not.
    """
    if name not in known:
        raise ConfigError(f"unknown column {name!r:.80}{did_you_mean(name, known)}; the columns are {', '.join(known)}")
