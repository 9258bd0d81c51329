"""Digests of functions without a name, and of objects of any class, for fingerprints.

Fingerprints are stored with splits and caches, so these digests must stay as they are. The digests
of :mod:`~data_stack.dataset.recipes.code_description`, for caches, cover more of a function.
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import sys
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from data_stack.codecs.plain_data import json_digest
from data_stack.dataset.recipes.compiled_code import code_of, names_in, values_of_cells
from data_stack.dataset.recipes.function_names import class_name_of, write_function
from data_stack.exception import ConfigError
from data_stack.util.forks import fork_lock

#: Values nested deeper than this count as unknown.
_MAX_DEPTH = 20


def describe_unnamed(value: Any, content: Callable[[Any], Any]) -> str:
    """Return a digest of a function without a name, or of an object of any class.

    The digest of a function covers its compiled code, its defaults, and the values of outer and
    global variables that it uses, so it is the same in all processes of one version of Python. The
    digest of an object covers what ``pickle`` would store, and the code of its class if the class
    cannot be imported. If these are unknown, the digest is unique to this object and process.

    Args:
        value: the function or object.
        content: returns plain data for any other value, or raises ConfigError.

    Returns:
        64 hex digits.
    """
    try:
        return json_digest(_PartsDescriber(content).describe(value))
    except (ConfigError, RecursionError):
        return _digest_of_identity(value)


def is_of_a_file(member: Any) -> bool:
    """Return whether a member of a class is a function of its module's file, without a closure."""
    function = _function_of_member(member)
    if not isinstance(function, types.FunctionType):
        return False
    outer_variables = set(function.__code__.co_freevars) - {"__class__"}
    if outer_variables:
        return False
    path = getattr(sys.modules.get(function.__module__), "__file__", None)
    if path is None:
        return False
    is_same_file: bool = os.path.abspath(path) == os.path.abspath(function.__code__.co_filename)
    return is_same_file


def _function_of_member(member: Any) -> Any:
    """Return the function of a static method, class method, property or cached property."""
    for attribute in ("__func__", "fget", "func"):
        if hasattr(member, attribute):
            return getattr(member, attribute)
    return member


class _PartsDescriber:
    """Describes functions and objects by their parts.

    Args:
        content: as of :func:`describe_unnamed`.
    """

    _content: Callable[[Any], Any]
    #: Number and object of each function and object, by its id, as they may refer to each other.
    #: The objects are kept, so that no other object gets one of these ids.
    _seen: dict[int, tuple[int, Any]]

    def __init__(self, content: Callable[[Any], Any]) -> None:
        self._content = content
        self._seen = {}

    def describe(self, value: Any, depth: int = 0) -> Any:
        """Return plain data of a value.

        Raises:
            ConfigError: a part is unknown, or nested too deeply.
        """
        if depth > _MAX_DEPTH:
            raise ConfigError("nested too deeply to be described")
        value_type = type(value)
        if value_type in (list, tuple):
            return {value_type.__name__: [self.describe(item, depth + 1) for item in value]}
        if value_type is dict:
            return {"dict": self._describe_pairs(value, depth + 1)}
        if isinstance(value, types.ModuleType):
            return {"module": value.__name__}
        if callable(value) and value_type is not functools.partial:
            named = write_function(value, self._content)
            if named is not None:
                return named

        if id(value) in self._seen:
            number, _ = self._seen[id(value)]
            return {"seen": number}
        if not isinstance(value, (types.FunctionType, type)):
            with contextlib.suppress(ConfigError):
                return self._content(value)
        self._seen[id(value)] = (len(self._seen), value)
        return {value_type.__name__: self.describe(_parts_of(value), depth + 1)}

    def _describe_pairs(self, values: dict[Any, Any], depth: int) -> list[list[Any]]:
        return [
            [self.describe(key, depth), self.describe(item, depth)] for key, item in values.items()
        ]


def _parts_of(value: Any) -> list[Any]:
    """Return what an object consists of.

    Raises:
        ConfigError: the parts are unknown.
    """
    if isinstance(value, types.FunctionType):
        return _parts_of_function(value)
    if isinstance(value, type):
        return _parts_of_class(value)
    if hasattr(value, "__wrapped__"):  # a static method, a memoized function
        return [value.__wrapped__]
    if isinstance(value, property):
        return [value.fget, value.fset, value.fdel]
    return _parts_of_object(value)


def _parts_of_function(function: types.FunctionType) -> list[Any]:
    names = names_in(function.__code__) & function.__globals__.keys()
    used_globals = {name: function.__globals__[name] for name in sorted(names)}
    return [
        code_of(function.__code__),
        function.__defaults__,
        function.__kwdefaults__,
        values_of_cells(function),
        used_globals,
    ]


def _parts_of_class(cls: type) -> list[Any]:
    members = {}
    for name, member in sorted(vars(cls).items()):
        is_function = isinstance(member, (types.FunctionType, staticmethod, classmethod, property))
        is_made_by_python = name.startswith("__annotate")
        is_public = not name.startswith("_")
        if is_public or (is_function and not is_made_by_python):
            members[name] = member
    return [class_name_of(cls), cls.__bases__, members]


def _parts_of_object(value: Any) -> list[Any]:
    """Return what ``pickle`` would store of an object."""
    reduced: Any = ""
    with contextlib.suppress(Exception):  # any class may raise anything
        reduced = value.__reduce_ex__(2)
    if isinstance(reduced, str):
        raise ConfigError(
            f"{class_name_of(type(value))} cannot be pickled but by name, so its parts are unknown"
        )
    return [list(part) if hasattr(part, "__next__") else part for part in reduced]


# ------------------------------------------------------------------------- objects without content


@dataclass(frozen=True, eq=False, slots=True)
class _Token:
    """The digest of an object that cannot be described.

    Attributes:
        digest: 64 random hex digits.
        reference: a weak reference to the object, which tells it apart from later objects with
            the same id.
    """

    digest: str
    reference: Callable[[], Any]


#: The tokens of objects, by the ids of the objects.
_tokens: dict[int, list[_Token]] = {}
_tokens_lock = fork_lock()


def _digest_of_identity(value: Any) -> str:
    """Return a digest that stays as long as this object lives, and that no other object ever has.

    An object that has no weak references, such as a dict, gets another digest each time.
    """
    with _tokens_lock:
        tokens = _tokens.get(id(value), [])
        for token in tokens:
            if token.reference() is value:
                return token.digest

        digest = secrets.token_hex(32)
        with contextlib.suppress(TypeError):  # it has no weak references
            new_token = _Token(digest, weakref.ref(value))
            living_tokens = [token for token in tokens if token.reference() is not None]
            _tokens[id(value)] = [*living_tokens, new_token]
        return digest
