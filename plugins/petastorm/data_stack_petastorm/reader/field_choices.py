"""Choices of fields by ``schema_fields``: fields, names and regular expressions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from data_stack.exception import ConfigError


def check_choices(schema_fields: Any) -> list[Any]:
    """Return the choices as a list; an empty list for None, which chooses all fields.

    Raises:
        ConfigError: ``schema_fields`` is a single name, a mapping, or not iterable.
    """
    if schema_fields is None:
        return []
    is_single = isinstance(schema_fields, (str, Mapping))
    if is_single or not isinstance(schema_fields, Iterable):
        raise ConfigError(
            "schema_fields must be a list of names, regular expressions or fields, or an NGram, "
            f"got {schema_fields!r:.80}"
        )
    return list(schema_fields)


def is_field(choice: Any) -> bool:
    """Return whether a choice is a field, rather than a name or a regular expression."""
    return not isinstance(choice, (str, re.Pattern))


def pattern_of(choice: Any) -> str:
    """Return a regular expression of the whole names that a choice matches.

    A choice that is text may be a name or a regular expression: the returned expression matches
    both. It has no flags at its start, so it may be joined with others by ``|``.

    Raises:
        ConfigError: the choice is neither a field, nor a name, nor a regular expression.
    """
    if is_field(choice):
        name = getattr(choice, "name", None)
        if not isinstance(name, str):
            raise ConfigError(
                "schema_fields must contain fields, names and regular expressions, "
                f"got {choice!r:.80}"
            )
        return re.escape(name)
    try:
        compiled = re.compile(choice)
    except re.error:  # a name such as "speed (km"
        return re.escape(str(choice))
    # Flags at the start of an expression, "(?i)id", hold for all of it. Python only allows them at
    # the very start, so they become the flags of a group: "(?i:id)".
    flags = ""
    for letter in "imsx":
        if compiled.flags & re.RegexFlag[letter.upper()]:
            flags += letter
    text = re.sub(r"^\(\?[aiLmsux]+\)", "", compiled.pattern)
    return f"{re.escape(text)}|(?{flags}:{text})"
