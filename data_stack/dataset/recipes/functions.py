"""Functions as plain data: by name, or without a name by a digest of their code."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import sys
import types
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from data_stack.codecs.plain_data import canonical_json, json_digest
from data_stack.exception import ConfigError

_Function = TypeVar("_Function", bound=Callable[..., Any])


NAMED: dict[str, Callable[..., Any]] = {}
"""The functions registered by :func:`named_function`."""

# Tells apart, in all processes, objects that cannot be described.
_PROCESS = os.urandom(8).hex()


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
        f"an object of {_class_name(type(function))}"
        if name is None
        else f"{_module_of(function) or 'unknown module'}:{name}"
    )


def describe_unnamed(value: Any, content: Callable[[Any], Any]) -> str:
    """A digest of an unnamed function or an object of any class.

    Of a function: its compiled code, defaults, and the values of outer and global variables that it uses, so that it is the
    same in all processes of one Python version. Of an object: what ``pickle`` would store, and the code of its class where
    that cannot be imported. Where these are unknown, the digest is unique to this object and process.

    Args:
        value: the function or object.
        content: returns plain data for any other value, or raises ConfigError.
    """
    try:
        return json_digest(_Content(content).of(value))
    except (ConfigError, RecursionError):
        return hashlib.sha256(f"{_PROCESS}:{id(value)}".encode()).hexdigest()


def code_content(value: Any, content: Callable[[Any], Any]) -> str | None:
    """A digest of the compiled code of a function or a callable object, named or not; None of what has none, as numpy's own.

    Args:
        value: anything.
        content: as for :func:`describe_unnamed`.
    """
    if isinstance(value, functools.partial):
        return code_content(value.func, content)
    wrapped = getattr(value, "__wrapped__", value)
    function = getattr(wrapped, "__func__", wrapped)
    if not isinstance(function, (types.FunctionType, type)):
        function = getattr(type(function), "__call__", None)  # noqa: B004  # not whether, but what is called
    if not isinstance(function, types.FunctionType):
        return None
    try:
        return json_digest(_Content(content).of(_parts_of(function)))
    except (ConfigError, RecursionError):
        return json_digest(_code(function.__code__))


class _Content:
    """Describes functions and objects by their parts; each of them once, as they may refer to each other."""

    def __init__(self, content: Callable[[Any], Any]) -> None:
        self._content = content
        self._seen: dict[
            int, tuple[int, Any]
        ] = {}  # keeps the objects, so that no other object gets one of these ids

    def of(self, value: Any, depth: int = 0) -> Any:
        if depth > 20:
            raise ConfigError("nested too deeply to be described")
        if isinstance(value, (list, tuple)):
            return {type(value).__name__: [self.of(item, depth + 1) for item in value]}
        if isinstance(value, dict):
            return {"dict": [[self.of(each, depth + 1) for each in item] for item in value.items()]}
        if isinstance(value, types.ModuleType):
            return {"module": value.__name__}
        name = (
            write_function(value, self._content)
            if callable(value) and type(value) is not functools.partial
            else None
        )
        if name is not None:
            return name
        if id(value) in self._seen:
            return {"seen": self._seen[id(value)][0]}
        if not isinstance(value, (types.FunctionType, type)):
            with contextlib.suppress(ConfigError):
                return self._content(value)
        self._seen[id(value)] = len(self._seen), value
        return {type(value).__name__: self.of(_parts_of(value), depth + 1)}


def _parts_of(value: Any) -> list[Any]:
    """What an object consists of: a function of its code and the values that it uses, a class of its functions and attributes.

    Raises:
        ConfigError: its parts are unknown.
    """
    if isinstance(value, types.FunctionType):
        empty = types.CellType()  # of a variable that has no value yet
        cells = [None if cell == empty else cell.cell_contents for cell in value.__closure__ or ()]
        used = {
            name: value.__globals__[name]
            for name in sorted(_names_in(value.__code__) & value.__globals__.keys())
        }
        return [
            canonical_json(_code(value.__code__)),
            value.__defaults__,
            value.__kwdefaults__,
            cells,
            used,
        ]
    if isinstance(value, type):
        functions = (types.FunctionType, staticmethod, classmethod, property)
        members = {
            name: member
            for name, member in sorted(vars(value).items())
            if (isinstance(member, functions) and not name.startswith("__annotate"))
            or not name.startswith("_")
        }
        return [_class_name(value), value.__bases__, members]
    if hasattr(value, "__wrapped__"):  # static methods, memoized functions
        return [value.__wrapped__]
    if isinstance(value, property):
        return [value.fget, value.fset, value.fdel]
    reduced: Any = ""
    with contextlib.suppress(Exception):  # any class may raise anything
        reduced = value.__reduce_ex__(2)
    if isinstance(reduced, str):
        raise ConfigError(
            f"{_class_name(type(value))} cannot be pickled but by name, so its parts are unknown"
        )
    return [list(part) if hasattr(part, "__next__") else part for part in reduced]


def is_of_a_file(member: Any) -> bool:
    """Whether a member of a class is a function that is defined in the file of its module, without a closure."""
    function = getattr(member, "__func__", getattr(member, "fget", getattr(member, "func", member)))
    if not isinstance(function, types.FunctionType) or set(function.__code__.co_freevars) - {
        "__class__"
    }:
        return False
    path = getattr(sys.modules.get(function.__module__), "__file__", None)
    return path is not None and os.path.abspath(path) == os.path.abspath(
        function.__code__.co_filename
    )


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


def _names_in(code: types.CodeType) -> set[str]:
    return set(code.co_names).union(
        *(_names_in(each) for each in code.co_consts if isinstance(each, types.CodeType))
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


def _class_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
