"""What a function takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

__all__ = ["has_parameter"]


def has_parameter(function: Callable[..., Any], name: str) -> bool:
    """Whether a function has a parameter of that name; False where nobody can tell, as of some that are written in C."""
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
