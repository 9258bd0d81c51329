"""Digests what the functions of a program do: their code, and all that the code uses.

A fingerprint holds the names of functions. A cache must also notice that a function was edited. So
the digest of a function covers its compiled code, its defaults and attributes, the variables of
outer functions, and the global variables that it uses: tables, regular expressions, frames, and
also other functions and classes, which are covered in the same way. What belongs to Python or to an
installed package counts by its name, because it changes with a version, not by an edit.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import logging
import threading
import types
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from data_stack.codecs.plain_data import canonical_json, json_digest
from data_stack.dataset.recipes.compiled_code import (
    code_of,
    imports_in,
    names_in,
    values_of_cells,
)
from data_stack.dataset.recipes.function_names import class_name_of, shorten, write_function
from data_stack.dataset.recipes.installed_code import digest_of_imported_module, is_installed
from data_stack.exception import ConfigError

#: Values nested deeper than this count as unknown.
_MAX_DEPTH = 100

#: Objects of these classes count by their class alone, because they do not change what a function
#: returns.
_CLASSES_WITHOUT_CONTENT: tuple[type, ...] = (
    logging.Logger,
    type(threading.Lock()),
    type(threading.RLock()),
    threading.Condition,
    threading.Event,
    threading.Semaphore,
    threading.local,
)

#: Attributes that Python makes for each class, or that say nothing about the objects of a class.
_IGNORED_CLASS_ATTRIBUTES = frozenset(
    {
        "__dict__",
        "__weakref__",
        "__module__",
        "__qualname__",
        "__doc__",
        "__firstlineno__",
        "__static_attributes__",
        "__abstractmethods__",
        "__annotations__",
        "__annotations_cache__",
        "__annotate__",
        "__annotate_func__",
        "__parameters__",
        "__orig_bases__",
        "__dataclass_fields__",
        "__dataclass_params__",
        "__match_args__",
        "_abc_impl",
        "_member_map_",
        "_member_names_",
        "_value2member_map_",
        "_unhashable_values_",
        "_unhashable_values_map_",
        "_hashable_values_",
    }
)

#: The types of the members of classes in C, and of ``__slots__``. They have no content.
_DESCRIPTORS = (
    types.MemberDescriptorType,
    types.GetSetDescriptorType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
)


@dataclass(frozen=True)
class CodeDescription:
    """What is known of the code of a function.

    Attributes:
        digest: 64 hex digits; None for what has no code in Python.
        reasons: a sentence for each part that is unknown, so that the digest may miss a change of
            the part.
    """

    digest: str | None = None
    reasons: tuple[str, ...] = ()


def describe_code(
    value: Any, content: Callable[[Any], Any], *, follows: bool = True
) -> CodeDescription:
    """Describe what a function, a class or an object of a class does, named or not.

    Args:
        value: anything. The code of an object is that of its class.
        content: returns plain data for values that are not functions, classes or containers, or
            raises ConfigError for unknown ones.
        follows: whether functions and classes of the program that it uses count by their content;
            False: by their names.
    """
    if not _has_code(value):
        return CodeDescription()
    describer = _CodeDescriber(content, follows=follows)
    digest = describer.digest_of(value)
    return CodeDescription(digest, tuple(describer.reasons))


def _has_code(value: Any) -> bool:
    """Return whether a value has code that may be edited: of a function, or of the program."""
    if type(value) is functools.partial:
        parts = [value.func, *value.args, *value.keywords.values()]
        return any(_has_code(part) for part in parts)

    if isinstance(_unwrap(value), types.FunctionType):
        return True
    if isinstance(value, type):
        return not is_installed(value)
    value_class = type(value)
    if not is_installed(value_class):
        return True
    # callable() would also be true for a class whose calls are made in C.
    call_method = getattr(value_class, "__call__", None)  # noqa: B004
    return isinstance(call_method, types.FunctionType)


def _unwrap(value: Any) -> Any:
    """Return the function of a method or of a wrapper, such as that of a memoized function."""
    if hasattr(value, "__func__"):
        return value.__func__
    return getattr(value, "__wrapped__", value)


class _CodeDescriber:
    """Describes the parts of a function and of all that it uses.

    Each part is described once and has a number, as the parts may refer to each other.

    Args:
        content: as of :func:`describe_code`.
        follows: as of :func:`describe_code`.

    Attributes:
        reasons: a sentence for each unknown part.
    """

    reasons: list[str]
    _content: Callable[[Any], Any]
    _follows: bool
    #: Number and object of each part, by the id of the object. The objects are kept, so that no
    #: other object gets one of these ids.
    _numbers: dict[int, tuple[int, Any]]
    #: Parts that are to be described, with the name of the function that uses each.
    _pending: deque[tuple[Any, str]]
    #: The name of the function that is being described, for :attr:`reasons`.
    _user: str

    def __init__(self, content: Callable[[Any], Any], *, follows: bool) -> None:
        self.reasons = []
        self._content = content
        self._follows = follows
        self._numbers = {}
        self._pending = deque()
        self._user = ""

    def digest_of(self, value: Any) -> str:
        """Return the digest of a value, whose own code counts even if it is installed."""
        root: Any
        if isinstance(value, types.MethodType):
            root = [self._number(value.__func__), self._refer(value.__self__)]
        else:
            root = self._number(value)

        descriptions = []
        while self._pending:
            part, self._user = self._pending.popleft()
            if isinstance(part, (type, types.FunctionType)):
                self._user = shorten(part)
            descriptions.append(self._describe(part))
        return json_digest([root, descriptions])

    # ------------------------------------------------------------------ references to values

    def _refer(self, value: Any, depth: int = 0) -> Any:
        """Return plain data of a value.

        Functions, classes and objects of the program stand in it by the numbers of their parts.
        """
        value_type = type(value)
        # Numbers and text come first, because large tables consist of them.
        if value is None or value_type in (bool, int, str):
            return value
        if value_type is float:
            return self._content(value)
        if depth > _MAX_DEPTH:
            return self._note_unknown(value, "nested too deeply to be described")

        container = self._refer_to_container(value, depth + 1)
        if container is not None:
            return container
        if isinstance(value, types.ModuleType):
            return {"module": value.__name__}
        method = self._refer_to_method(value, depth + 1)
        if method is not None:
            return method
        if isinstance(value, (type, types.FunctionType)):
            return self._refer_to_function_or_class(value)
        if isinstance(value, _CLASSES_WITHOUT_CONTENT):
            return {"object": class_name_of(value_type)}
        if isinstance(value, enum.Enum):
            enum_class = self._refer(value_type, depth + 1)
            return {"member": [enum_class, value.name, self._refer(value.value, depth + 1)]}
        if callable(value) and is_installed(value_type) and is_installed(value):
            named = write_function(value, self._content)
            if named is not None:
                return named
        with contextlib.suppress(ConfigError, RecursionError):
            return self._content(value)
        return self._number(value)

    def _refer_to_container(self, value: Any, depth: int) -> dict[str, Any] | None:
        """Return plain data of a container of Python or of a partial; None of other values."""
        value_type = type(value)
        if value_type in (list, tuple):
            return {value_type.__name__: [self._refer(item, depth) for item in value]}
        if value_type in (set, frozenset):
            items = [self._refer(item, depth) for item in value]
            return {value_type.__name__: sorted(items, key=canonical_json)}
        if value_type in (dict, types.MappingProxyType):
            pairs = []
            for key, item in value.items():
                pairs.append([self._refer(key, depth), self._refer(item, depth)])
            return {value_type.__name__: pairs}
        if value_type is functools.partial:
            parts = [value.func, list(value.args), dict(value.keywords)]
            return {"partial": [self._refer(part, depth) for part in parts]}
        return None

    def _refer_to_method(self, value: Any, depth: int) -> dict[str, Any] | None:
        """Return plain data of a method of an object; None of other values."""
        if isinstance(value, types.MethodType):
            function = self._refer(value.__func__, depth)
            return {"method": [function, self._refer(value.__self__, depth)]}
        if isinstance(value, types.BuiltinMethodType):
            owner = value.__self__
            is_function = owner is None or isinstance(owner, types.ModuleType)
            if not is_function:
                return {"method": [value.__name__, self._refer(owner, depth)]}
        return None

    def _refer_to_function_or_class(self, value: Any) -> Any:
        """Return the name of a function or class that counts by its name, otherwise its number."""
        counts_by_name = is_installed(value) or not self._follows
        if counts_by_name:
            named = write_function(value, self._content)
            if named is not None:
                return named
        return self._number(value)

    def _number(self, value: Any) -> dict[str, int]:
        """Return a reference to a part, which is described later, if it is not yet."""
        if id(value) not in self._numbers:
            self._numbers[id(value)] = (len(self._numbers), value)
            self._pending.append((value, self._user))
        number, _ = self._numbers[id(value)]
        return {"part": number}

    def _note_unknown(self, value: Any, why: str) -> dict[str, str]:
        """Note in :attr:`reasons` why an object is unknown, and return plain data of its class."""
        class_name = class_name_of(type(value))
        reason = f"an object of {class_name}, which is {why}"
        if self._user:
            reason = f"{self._user} uses {reason}"
        if reason not in self.reasons:
            self.reasons.append(reason)
        return {"unknown": class_name}

    # ------------------------------------------------------------------ parts

    def _describe(self, value: Any) -> dict[str, Any]:
        if isinstance(value, types.FunctionType):
            return {"function": self._describe_function(value)}
        if isinstance(value, type):
            return {"class": self._describe_class(value)}
        if isinstance(value, (staticmethod, classmethod)):
            return {type(value).__name__: self._refer(value.__func__)}
        if isinstance(value, property):
            functions = (value.fget, value.fset, value.fdel)
            return {"property": [self._refer(function) for function in functions]}
        if _wraps_function(value):  # a memoized function
            return {"wrapper": [class_name_of(type(value)), self._refer(value.__wrapped__)]}
        return {"object": self._describe_object(value)}

    def _describe_function(self, function: types.FunctionType) -> list[Any]:
        if _is_single_dispatch(function):
            # The variables of its wrapper are a cache.
            pairs = []
            for cls, implementation in function.registry.items():  # type: ignore[attr-defined]
                pairs.append([self._refer(cls), self._refer(implementation)])
            return pairs

        # The order of these facts, and the order in which the parts are numbered, must stay:
        # caches keep the digests.
        code = function.__code__
        outer_variables = [self._refer(value) for value in values_of_cells(function)]
        attributes = dict(vars(function))
        attributes.pop("__wrapped__", None)
        return [
            code_of(code),
            self._refer(function.__defaults__),
            self._refer(function.__kwdefaults__),
            outer_variables,
            self._describe_globals(function),
            self._refer(attributes),
            _describe_imports(function),
        ]

    def _describe_globals(self, function: types.FunctionType) -> list[list[Any]]:
        """Describe the global variables that a function uses."""
        names = names_in(function.__code__)
        descriptions = []
        for name in sorted(names & function.__globals__.keys()):
            value = function.__globals__[name]
            descriptions.append([name, self._describe_global(value, names, set())])
        return descriptions

    def _describe_global(self, value: Any, names: set[str], seen: set[int]) -> Any:
        """Describe a global variable; of a module of the program, the variables that are used.

        Args:
            value: the value of the variable.
            names: the names that occur in the function.
            seen: the ids of the modules around this one, as modules may refer to each other.
        """
        is_of_program = isinstance(value, types.ModuleType) and not is_installed(value)
        if not is_of_program or id(value) in seen:
            return self._refer(value)
        seen.add(id(value))
        members = vars(value)
        used_members = []
        for name in sorted(names & members.keys()):
            used_members.append([name, self._describe_global(members[name], names, seen)])
        return {"module": [value.__name__, used_members]}

    def _describe_class(self, cls: type) -> list[Any]:
        members = []
        for name, member in sorted(vars(cls).items()):
            if name not in _IGNORED_CLASS_ATTRIBUTES:
                members.append([name, self._describe_member(member)])
        metaclass = self._refer(type(cls))
        bases = [self._refer(base) for base in cls.__bases__]
        return [class_name_of(cls), metaclass, bases, members]

    def _describe_member(self, member: Any) -> Any:
        if isinstance(member, _DESCRIPTORS):
            return {"descriptor": type(member).__name__}
        return self._refer(member)

    def _describe_object(self, value: Any) -> list[Any]:
        """Describe an object by what ``pickle`` would store of it."""
        try:
            reduced = value.__reduce_ex__(2)
        except Exception:  # noqa: BLE001  # any class may raise anything
            return self._describe_unknown_object(value, "not known by its parts")
        if isinstance(reduced, str):
            return self._describe_unknown_object(value, "pickled by its name only")
        parts = [list(part) if isinstance(part, Iterator) else part for part in reduced]
        return [self._refer(type(value)), [self._refer(part) for part in parts]]

    def _describe_unknown_object(self, value: Any, why: str) -> list[Any]:
        return [self._refer(type(value)), self._note_unknown(value, why)]


def _is_single_dispatch(function: types.FunctionType) -> bool:
    """Return whether a function is made by :func:`functools.singledispatch`."""
    registry = getattr(function, "registry", None)
    return isinstance(registry, types.MappingProxyType) and hasattr(function, "dispatch")


def _wraps_function(value: Any) -> bool:
    """Return whether an object keeps the function that it wraps, as a memoized function does."""
    try:
        return hasattr(value, "__wrapped__")
    except Exception:  # noqa: BLE001  # an object that asks another one for its attributes
        return False


def _describe_imports(function: types.FunctionType) -> list[list[Any]]:
    """Return the modules that a function imports when it is called.

    Returns:
        For each module its name, and a digest of its file if it is of the program, otherwise None.
    """
    package = function.__globals__.get("__package__") or ""
    descriptions: list[list[Any]] = []
    for name in sorted(imports_in(function.__code__)):
        descriptions.append([name, digest_of_imported_module(name, package)])
    return descriptions
