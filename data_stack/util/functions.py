"""Parameters of functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from data_stack.exception import ConfigError


def has_parameter(function: Callable[..., Any], name: str) -> bool:
    """Whether a function has a parameter of this name; False for functions in C that have no signature."""
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def check_takes(function: Callable[..., Any], arguments: Sequence[str], advice: str) -> None:
    """Check now that a function can be called with these positional arguments, not when it is called for the first sample.

    Args:
        function: any; one without a signature, as some in C, passes.
        arguments: what it will receive, in words.
        advice: what to do.

    Raises:
        ConfigError: its parameters are others.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        name = getattr(function, "__qualname__", None) or repr(function)
        raise ConfigError(
            f"{name}{signature} receives {len(arguments)} argument{'s' * (len(arguments) != 1)}, {' and '.join(arguments)}: "
            f"{error}. {advice}"
        ) from None
