"""Explains a keyword argument that another library has: the error says its name in data_stack."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])


def explains_arguments(names: Mapping[str, str]) -> Callable[[_Function], _Function]:
    """Decorate a function, so that it explains keyword arguments of other libraries.

    The function then raises a TypeError that says how data_stack calls the argument.

    Args:
        names: arguments of other libraries, each with what does the same in data_stack.
    """

    def decorate(function: _Function) -> _Function:
        known_names = inspect.signature(function).parameters

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            for name in kwargs:
                if name in names and name not in known_names:
                    raise TypeError(
                        f"{function.__qualname__}() got an unexpected keyword argument {name!r}; "
                        f"here it is {names[name]}"
                    )
            return function(*args, **kwargs)

        return call  # type: ignore[return-value]  # wraps() keeps the signature

    return decorate
