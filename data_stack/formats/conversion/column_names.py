"""Parses the names of the columns to convert."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from data_stack.exception import ConfigError


def parse_columns(
    columns: str | Iterable[str] | Mapping[str, str] | None,
) -> dict[str, str] | None:
    """Parse ``"a,b=c"``, ``["a", "b=c"]`` or ``{"a": "a", "b": "c"}`` into old names by new names.

    Returns:
        None for None, which means all columns.

    Raises:
        ConfigError: the syntax is wrong, or a column is named twice.
    """
    if columns is None:
        return None
    if isinstance(columns, Mapping):
        return dict(columns)

    parts = columns.split(",") if isinstance(columns, str) else columns
    parsed: dict[str, str] = {}
    for part in parts:
        new_name, equals_sign, old_name = part.partition("=")
        lacks_old_name = bool(equals_sign) and not old_name
        if not new_name or lacks_old_name or new_name in parsed:
            raise ConfigError(f"columns must be a,b or new=old, each once, got {part!r:.80}")
        parsed[new_name] = old_name or new_name
    if not parsed:
        raise ConfigError("columns is empty; name at least one")
    return parsed
