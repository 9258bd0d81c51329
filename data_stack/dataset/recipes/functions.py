"""Functions as plain data: by name, or without a name by a digest of their code."""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

from data_stack.codecs.plain_data import json_digest
from data_stack.dataset.recipes.code_description import describe_code
from data_stack.dataset.recipes.function_names import NAMED as NAMED
from data_stack.dataset.recipes.function_names import class_name_of, code_of, names_in
from data_stack.dataset.recipes.function_names import function_at as function_at
from data_stack.dataset.recipes.function_names import named_function as named_function
from data_stack.dataset.recipes.function_names import shorten as shorten
from data_stack.dataset.recipes.function_names import write_function as write_function
from data_stack.exception import ConfigError
from data_stack.util.forks import fork_lock

# By id, digests of objects that cannot be described, each with a weak reference to its object.
_tokens: dict[int, list[tuple[str, Callable[[], Any]]]] = {}
_lock = fork_lock()


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
        return _digest_of_object(value)


def code_content(value: Any, content: Callable[[Any], Any]) -> str | None:
    """A digest of the code of a function or a callable object, named or not, and of all that it uses; None of what has none.

    Args:
        value: anything.
        content: as for :func:`describe_unnamed`.
    """
    return describe_code(value, content).digest


def _digest_of_object(value: Any) -> str:
    """A digest that is the same for this object as long as it lives, and that no other object ever has."""
    with _lock:
        for token, reference in _tokens.get(id(value), ()):
            if reference() is value:
                return token
        token = secrets.token_hex(32)
        with contextlib.suppress(
            TypeError
        ):  # what has no weak references, such as a dict, gets another one each time
            # An object that is gone leaves its id to another one, which the reference tells apart.
            known = [pair for pair in _tokens.get(id(value), ()) if pair[1]() is not None]
            _tokens[id(value)] = [*known, (token, weakref.ref(value))]
        return token


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
        if type(value) in (list, tuple):
            return {type(value).__name__: [self.of(item, depth + 1) for item in value]}
        if type(value) is dict:
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
            for name in sorted(names_in(value.__code__) & value.__globals__.keys())
        }
        return [
            code_of(value.__code__),
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
        return [class_name_of(value), value.__bases__, members]
    if hasattr(value, "__wrapped__"):  # static methods, memoized functions
        return [value.__wrapped__]
    if isinstance(value, property):
        return [value.fget, value.fset, value.fdel]
    reduced: Any = ""
    with contextlib.suppress(Exception):  # any class may raise anything
        reduced = value.__reduce_ex__(2)
    if isinstance(reduced, str):
        raise ConfigError(
            f"{class_name_of(type(value))} cannot be pickled but by name, so its parts are unknown"
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
