"""Names of functions: registered, importable, or as messages show them."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from data_stack.exception import ConfigError

_Function = TypeVar("_Function", bound=Callable[..., Any])

NAMED: dict[str, Callable[..., Any]] = {}
"""The functions registered by :func:`named_function`, by their names."""

#: Names of the module that was started as a program, here and in processes of multiprocessing.
_PROGRAM_MODULES = ("__main__", "__mp_main__")


def named_function(name: str) -> Callable[[_Function], _Function]:
    """Give a function a name for recipes; a decorator.

    It is for functions that have no name by which they could be imported: in a notebook, a script,
    a closure.

    ::

        @data_stack.named_function("halved")
        def halved(sample): ...

    A recipe then says ``halved``, and ``data_stack.from_recipe`` finds the function in every
    program that has given that name before. The name stands for what the function does: a function
    that does something else needs another name.

    Args:
        name: any text without a colon.

    Raises:
        ConfigError: the name is empty, has a colon, or is that of another function. A function
            that is defined again, as by running a notebook's cell twice, takes its own place.
    """
    if not name or ":" in name:
        raise ConfigError(f"the name of a function is a text without a colon, got {name!r:.80}")

    def register(function: _Function) -> _Function:
        other = NAMED.setdefault(name, function)
        if shorten(other) != shorten(function):
            raise ConfigError(
                f"the name {name!r} is taken by {shorten(other)}; "
                f"use another name for {shorten(function)}"
            )
        NAMED[name] = function
        return function

    return register


def write_function(function: Any, plain: Callable[[Any], Any]) -> dict[str, Any] | None:
    """Describe a function by its name.

    Args:
        function: any callable.
        plain: describes the arguments of a ``functools.partial``.

    Returns:
        ``{"function": "module:qualified.name"}``, ``{"function": {"name": …}}``, or
        ``{"partial": …}``; None if the function has no name by which it can be found.
    """
    registered_name = _registered_name(function)
    if registered_name is not None:
        return {"function": {"name": registered_name}}
    if type(function) is functools.partial:
        return _write_partial(function, plain)
    if _is_importable(function):
        return {"function": f"{_module_of(function)}:{_qualified_name(function)}"}
    return None


def _registered_name(function: Any) -> str | None:
    """Return the name that :func:`named_function` gave to a function; None if it gave none."""
    for name, named in NAMED.items():
        # Python makes a new object whenever a method is read. These objects are equal.
        is_same_method = isinstance(function, types.MethodType) and named == function
        if named is function or is_same_method:
            return name
    return None


def _write_partial(
    partial: functools.partial[Any], plain: Callable[[Any], Any]
) -> dict[str, Any] | None:
    if write_function(partial.func, plain) is None:
        return None
    arguments = [plain(argument) for argument in partial.args]
    keywords = {name: plain(argument) for name, argument in partial.keywords.items()}
    function = plain(partial.func)
    return {"partial": {"function": function, "arguments": arguments, "keywords": keywords}}


def _is_importable(function: Any) -> bool:
    """Return whether another process finds the function by its name in its module.

    The module that was started as a program is not importable.
    """
    module_name = _module_of(function)
    qualified_name = _qualified_name(function)
    if module_name is None or qualified_name is None:
        return False
    if module_name in _PROGRAM_MODULES or module_name not in sys.modules:
        return False
    importable = function_at(sys.modules[module_name], module_name, qualified_name)
    if importable is function:
        return True
    # Python makes a new object whenever a class method is read. These objects are equal.
    is_class_method = isinstance(getattr(function, "__self__", None), type)
    return is_class_method and bool(importable == function)


def function_at(module: types.ModuleType, module_name: str, qualified_name: str) -> Any:
    """Return the function or class that a module defines.

    Names that the module imports from other modules do not count, nor attributes of objects other
    than classes. A module that is imported by the name of another module, such as ``posixpath`` as
    ``os.path``, defines nothing there.

    Args:
        module: the module.
        module_name: the name by which the module was imported.
        qualified_name: a name such as ``"function"`` or ``"Class.method"``.

    Returns:
        The function or class; None if the module defines nothing under that name.
    """
    value: Any = module
    for part in qualified_name.split("."):
        if value is module:
            value = vars(module).get(part)
        elif isinstance(value, type):
            value = getattr(value, part, None)
        else:
            return None

    own_name = (_module_of(value), _qualified_name(value))
    if not callable(value) or own_name != (module_name, qualified_name):
        return None
    return value


def shorten(function: Any) -> str:
    """Return a function as messages show it."""
    if type(function) is functools.partial:
        return f"functools.partial of {shorten(function.func)}"
    name = _qualified_name(function)
    if name is None:
        return f"an object of {class_name_of(type(function))}"
    module_name = _module_of(function) or "unknown module"
    return f"{module_name}:{name}"


def class_name_of(cls: type) -> str:
    """Return the name of a class with its module."""
    return f"{cls.__module__}.{cls.__qualname__}"


def _module_of(function: Any) -> str | None:
    """Return the name of the module that defines a function; None if that is unknown."""
    if isinstance(function, np.ufunc):
        return "numpy"
    module_name = getattr(function, "__module__", None)
    if not module_name:
        # A method of a class in C, such as str.upper, knows its class only.
        owner = getattr(function, "__objclass__", None)
        module_name = getattr(owner, "__module__", None)
    return module_name if isinstance(module_name, str) else None


def _qualified_name(function: Any) -> str | None:
    attribute = "__name__" if isinstance(function, np.ufunc) else "__qualname__"
    name = getattr(function, attribute, None)
    return name if isinstance(name, str) else None
