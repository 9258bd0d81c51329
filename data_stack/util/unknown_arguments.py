"""Errors of unknown keyword arguments that say what other libraries' arguments are called here."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])


def explains_arguments(names: Mapping[str, str]) -> Callable[[_Function], _Function]:
    """Decorate a function: the TypeError of an argument that others have says what it is called here.

    Args:
        names: of arguments of other libraries, each with what does the same here.
    """

    def decorate(function: _Function) -> _Function:
        known = inspect.signature(function).parameters

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            for name in kwargs:
                if name in names and name not in known:
                    raise TypeError(
                        f"{function.__qualname__}() got an unexpected keyword argument {name!r}; "
                        f"here it is {names[name]}"
                    )
            return function(*args, **kwargs)

        return call  # type: ignore[return-value]  # wraps() keeps the signature

    return decorate
