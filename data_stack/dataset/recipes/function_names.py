"""Functions by name: registered, importable, or as messages show them."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from data_stack.codecs.plain_data import canonical_json
from data_stack.exception import ConfigError

_Function = TypeVar("_Function", bound=Callable[..., Any])


NAMED: dict[str, Callable[..., Any]] = {}
"""The functions registered by :func:`named_function`."""


def named_function(name: str) -> Callable[[_Function], _Function]:
    """Give a function a name for recipes, where it has none by which it could be imported: in a notebook, a script, a closure.

    ::

        @data_stack.named_function("halved")
        def halved(sample): ...

    A recipe then says ``halved``, and ``data_stack.from_recipe`` finds it in every program that has given that name before. The
    name stands for what the function does: one that does something else needs another name.

    Args:
        name: any text without a colon.

    Raises:
        ConfigError: the name is empty, has a colon, or is that of another function. A function defined again, as by running
            a notebook's cell twice, takes its own place.
    """
    if not name or ":" in name:
        raise ConfigError(f"the name of a function is a text without a colon, got {name!r:.80}")

    def register(function: _Function) -> _Function:
        other = NAMED.setdefault(name, function)
        if shorten(other) != shorten(function):
            raise ConfigError(
                f"the name {name!r} is taken by {shorten(other)}; use another name for {shorten(function)}"
            )
        NAMED[name] = function
        return function

    return register


def write_function(function: Any, plain: Callable[[Any], Any]) -> dict[str, Any] | None:
    """``function`` by its name, or None if it has none.

    Args:
        function: any callable.
        plain: what becomes of the arguments of a ``functools.partial``.

    Returns:
        ``{"function": "module:qualified.name"}``, ``{"function": {"name": …}}``, or ``{"partial": …}``.
    """
    for name, named in NAMED.items():
        if named is function or (
            isinstance(function, types.MethodType) and named == function
        ):  # each access makes a new method
            return {"function": {"name": name}}
    if type(function) is functools.partial:
        if write_function(function.func, plain) is None:
            return None
        arguments, keywords = (
            map(plain, function.args),
            {name: plain(value) for name, value in function.keywords.items()},
        )
        return {
            "partial": {
                "function": plain(function.func),
                "arguments": list(arguments),
                "keywords": keywords,
            }
        }
    module, qualified_name = _module_of(function), _name_of(function)
    if (
        module is None
        or qualified_name is None
        or module in ("__main__", "__mp_main__")
        or module not in sys.modules
    ):
        return None
    found = function_at(sys.modules[module], module, qualified_name)
    is_of_class = isinstance(
        getattr(function, "__self__", None), type
    )  # each access makes a new method
    return (
        {"function": f"{module}:{qualified_name}"}
        if found is function or (is_of_class and found == function)
        else None
    )


def function_at(module: types.ModuleType, module_name: str, qualified_name: str) -> Any:
    """The function or class that a module defines under a name such as ``"function"`` or ``"Class.method"``, or None.

    Names that it imports from other modules do not count, nor attributes of objects other than classes. A module that is
    imported by the name of another one, such as ``posixpath`` as ``os.path``, defines nothing there.
    """
    found: Any = module
    for part in qualified_name.split("."):
        if found is not module and not isinstance(found, type):
            return None
        found = vars(found).get(part) if found is module else getattr(found, part, None)
    return (
        found
        if callable(found) and (_module_of(found), _name_of(found)) == (module_name, qualified_name)
        else None
    )


def shorten(function: Any) -> str:
    """A function as messages show it."""
    name = _name_of(function)
    if type(function) is functools.partial:
        return f"functools.partial of {shorten(function.func)}"
    return (
        f"an object of {class_name_of(type(function))}"
        if name is None
        else f"{_module_of(function) or 'unknown module'}:{name}"
    )


def code_of(code: types.CodeType) -> str:
    """The compiled code of a function as text, without the lines where it stands."""
    return canonical_json(_code(code))


def _code(code: types.CodeType) -> list[Any]:
    constants: list[Any] = []
    for each in code.co_consts:
        named = (
            repr(sorted(map(repr, each)))
            if isinstance(each, frozenset)
            else f"{type(each).__name__} {each!r}"
        )
        constants.append(_code(each) if isinstance(each, types.CodeType) else named)
    return [
        code.co_code.hex(),
        getattr(code, "co_exceptiontable", b"").hex(),
        constants,
        list(code.co_names),
    ]


def names_in(code: types.CodeType) -> set[str]:
    """The names of global variables and attributes that a function uses, and the functions in it."""
    return set(code.co_names).union(
        *(names_in(each) for each in code.co_consts if isinstance(each, types.CodeType))
    )


def _module_of(function: Any) -> str | None:
    module = getattr(function, "__module__", None) or getattr(
        getattr(function, "__objclass__", None), "__module__", None
    )
    return (
        "numpy" if isinstance(function, np.ufunc) else module if isinstance(module, str) else None
    )


def _name_of(function: Any) -> str | None:
    name = getattr(function, "__name__" if isinstance(function, np.ufunc) else "__qualname__", None)
    return name if isinstance(name, str) else None


def class_name_of(kind: type) -> str:
    """The name of a class with its module."""
    return f"{kind.__module__}.{kind.__qualname__}"
