"""What programs and plugins may import about functions in recipes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from data_stack.dataset.recipes.code_description import describe_code
from data_stack.dataset.recipes.function_names import named_function as named_function
from data_stack.dataset.recipes.function_names import shorten as shorten


def code_content(value: Any, content: Callable[[Any], Any]) -> str | None:
    """Return a digest of the code of a function or a callable object, and of all that it uses.

    Args:
        value: anything, named or not.
        content: returns plain data for values that are not functions, classes or containers, or
            raises ConfigError for unknown ones.

    Returns:
        A SHA-256, as 64 hex digits; None for what has no code.
    """
    return describe_code(value, content).digest
