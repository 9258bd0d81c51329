"""Parameters of functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def has_parameter(function: Callable[..., Any], name: str, *, any_keywords: bool = False) -> bool:
    """Whether a function has a parameter of that name; False if it has no signature, as some functions in C.

    Args:
        function: any.
        name: of the parameter.
        any_keywords: whether ``**keywords`` counts.
    """
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
    return name in parameters or (any_keywords and any(each.kind is each.VAR_KEYWORD for each in parameters.values()))
