"""What the functions of a program do, as plain data: their code, and all that it uses.

A name says which function a stack calls; a cache must also notice that the function was edited. So the content of a function is
its compiled code, its defaults and attributes, the variables of outer functions, and the global variables that it uses: tables,
regular expressions, frames, and other functions and classes, of which the content is taken likewise. What belongs to Python or to
an installed package counts by its name: it changes with a version, not with an edit.
"""

from __future__ import annotations

import contextlib
import dis
import enum
import functools
import importlib.util
import logging
import os
import sys
import sysconfig
import threading
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from data_stack.codecs.plain_data import canonical_json, json_digest
from data_stack.dataset.recipes.function_names import (
    class_name_of,
    code_of,
    names_in,
    shorten,
    write_function,
)
from data_stack.exception import ConfigError
from data_stack.io.integrity import block_digest

_PACKAGE = __name__.partition(".")[0]
_MAX_DEPTH = 100

#: What decides nothing about a value, or cannot differ between two programs.
_WITHOUT_CONTENT: tuple[type, ...] = (
    type(threading.Lock()),
    type(threading.RLock()),
    threading.Condition,
    threading.Event,
    threading.Semaphore,
    threading.local,
)

#: Of a class: what Python makes for each, or what says nothing about its objects.
_NOT_OF_A_CLASS = frozenset(
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

#: Members of classes in C, and of ``__slots__``: they have no content of their own.
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
        digest: 64 hex digits; None of what has no code in Python.
        reasons: a sentence for each part that is unknown, so that the digest may miss a change of it.
    """

    digest: str | None = None
    reasons: tuple[str, ...] = ()


def describe_code(
    value: Any, content: Callable[[Any], Any], *, follows: bool = True
) -> CodeDescription:
    """Describe what a function, a class or an object of a class does, named or not.

    Args:
        value: anything. The code of an object is that of its class.
        content: returns plain data for values that are no functions, classes or containers; ConfigError for unknown ones.
        follows: whether functions and classes of the program that it uses count by their content; False: by their names.
    """
    if not _has_code(value):
        return CodeDescription()
    parts = _Parts(content, follows)
    digest = parts.digest_of(value)
    return CodeDescription(digest, tuple(parts.reasons))


def _has_code(value: Any) -> bool:
    if type(value) is functools.partial:
        return _has_code(value.func) or any(map(_has_code, (*value.args, *value.keywords.values())))
    function = getattr(value, "__func__", getattr(value, "__wrapped__", value))
    if isinstance(function, types.FunctionType):
        return True
    kind = value if isinstance(value, type) else type(value)
    return not is_installed(kind) or (
        not isinstance(value, type)
        and isinstance(getattr(kind, "__call__", None), types.FunctionType)  # noqa: B004
    )


def is_installed(thing: Any) -> bool:
    """Whether a function, class or module is Python's, data_stack's or an installed package's, and not the program's own."""
    name = (
        thing.__name__
        if isinstance(thing, types.ModuleType)
        else getattr(thing, "__module__", None)
    )
    if not isinstance(name, str):
        return True
    if name in ("__main__", "__mp_main__"):
        return False
    top = name.partition(".")[0]
    if top in sys.builtin_module_names or top in sys.stdlib_module_names or top == _PACKAGE:
        return True
    module = sys.modules.get(name)
    path = getattr(module, "__file__", None)
    if path is None:  # a module made by hand, or a namespace package
        return module is not None and getattr(module, "__path__", None) is None and top == "numpy"
    return _is_in_folder_of_packages(os.path.abspath(path))


@functools.lru_cache(maxsize=4096)
def _is_in_folder_of_packages(path: str) -> bool:
    folders = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    parts = path.split(os.sep)
    is_below = any(folder and path.startswith(folder + os.sep) for folder in folders)
    return is_below or "site-packages" in parts or "dist-packages" in parts


class _Parts:
    """The parts of a function and of all that it uses, each once, as they may refer to each other.

    Attributes:
        reasons: a sentence for each unknown part.
    """

    def __init__(self, content: Callable[[Any], Any], follows: bool) -> None:
        self.reasons: list[str] = []
        self._content = content
        self._follows = follows
        #: By id, number and object; it keeps the objects, so that no other object gets one of these ids.
        self._numbers: dict[int, tuple[int, Any]] = {}
        #: With the name of the function that uses it.
        self._pending: list[tuple[Any, str]] = []
        self._user = ""

    def digest_of(self, value: Any) -> str:
        """The digest of a value, whose own code counts also where it is an installed package's."""
        if isinstance(value, type):
            root = self._number(value)
        elif isinstance(value, types.MethodType):
            root = [self._number(value.__func__), self.refer(value.__self__)]
        else:
            root = self._number(value)
        parts = []
        while self._pending:
            part, self._user = self._pending.pop(0)
            if isinstance(part, (type, types.FunctionType)):
                self._user = shorten(part)
            parts.append(self._describe(part))
        return json_digest([root, parts])

    # ------------------------------------------------------------------ references

    def refer(self, value: Any, depth: int = 0) -> Any:
        """Plain data of a value, in which functions, classes and objects of the program are numbers of parts."""
        kind = type(value)
        if value is None or kind in (bool, int, str):  # tables of a million words
            return value
        if kind is float:
            return self._content(value)
        if depth > _MAX_DEPTH:
            return self._unknown(value, "nested too deeply to be described")
        if kind in (list, tuple):
            return {kind.__name__: [self.refer(item, depth + 1) for item in value]}
        if kind in (set, frozenset):
            items = [self.refer(item, depth + 1) for item in value]
            return {kind.__name__: sorted(items, key=canonical_json)}
        if kind in (dict, types.MappingProxyType):
            pairs = [
                [self.refer(key, depth + 1), self.refer(item, depth + 1)]
                for key, item in value.items()
            ]
            return {kind.__name__: pairs}
        if kind is functools.partial:
            parts = [value.func, list(value.args), dict(value.keywords)]
            return {"partial": [self.refer(part, depth + 1) for part in parts]}
        if isinstance(value, types.ModuleType):
            return {"module": value.__name__}
        if isinstance(value, types.MethodType):
            return {
                "method": [
                    self.refer(value.__func__, depth + 1),
                    self.refer(value.__self__, depth + 1),
                ]
            }
        if isinstance(value, types.BuiltinMethodType) and not isinstance(
            value.__self__, (types.ModuleType, type(None))
        ):
            return {"method": [value.__name__, self.refer(value.__self__, depth + 1)]}
        if isinstance(value, (type, types.FunctionType)):
            is_named = is_installed(value) or not self._follows
            name = write_function(value, self._content) if is_named else None
            return self._number(value) if name is None else name
        if isinstance(value, (logging.Logger, *_WITHOUT_CONTENT)):
            return {"object": class_name_of(kind)}
        if isinstance(value, enum.Enum):
            parts = [self.refer(kind, depth + 1), value.name, self.refer(value.value, depth + 1)]
            return {"member": parts}
        if callable(value) and is_installed(kind) and is_installed(value):
            name = write_function(value, self._content)
            if name is not None:
                return name
        with contextlib.suppress(ConfigError, RecursionError):
            return self._content(value)
        return self._number(value)

    def _number(self, value: Any) -> Any:
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self._numbers), value
            self._pending.append((value, self._user))
        return {"part": self._numbers[id(value)][0]}

    def _unknown(self, value: Any, why: str) -> Any:
        object_name = f"an object of {class_name_of(type(value))}, which is {why}"
        reason = f"{self._user} uses {object_name}" if self._user else object_name
        if reason not in self.reasons:
            self.reasons.append(reason)
        return {"unknown": class_name_of(type(value))}

    # ------------------------------------------------------------------ parts

    def _describe(self, value: Any) -> Any:
        if isinstance(value, types.FunctionType):
            return {"function": self._function(value)}
        if isinstance(value, type):
            return {"class": self._class(value)}
        if isinstance(value, (staticmethod, classmethod)):
            return {type(value).__name__: self.refer(value.__func__)}
        if isinstance(value, property):
            return {"property": [self.refer(part) for part in (value.fget, value.fset, value.fdel)]}
        if _wraps_function(value):  # a memoized function
            return {"wrapper": [class_name_of(type(value)), self.refer(value.__wrapped__)]}
        return {"object": self._object(value)}

    def _function(self, function: types.FunctionType) -> list[Any]:
        registry = getattr(function, "registry", None)
        if isinstance(registry, types.MappingProxyType) and hasattr(function, "dispatch"):
            # singledispatch; the variables of its wrapper are a cache
            return [[self.refer(kind), self.refer(each)] for kind, each in registry.items()]
        code = function.__code__
        empty = types.CellType()  # of a variable that has no value yet
        cells = [
            None if cell == empty else self.refer(cell.cell_contents)
            for cell in function.__closure__ or ()
        ]
        attributes = {name: item for name, item in vars(function).items() if name != "__wrapped__"}
        return [
            code_of(code),
            self.refer(function.__defaults__),
            self.refer(function.__kwdefaults__),
            cells,
            self._globals(function),
            self.refer(attributes),
            [[name, self._imported(name, function)] for name in sorted(_imports_in(code))],
        ]

    def _globals(self, function: types.FunctionType) -> list[Any]:
        """The global variables that a function uses; of modules of the program, those whose names occur in it."""
        names = names_in(function.__code__)
        found = []
        for name in sorted(names & function.__globals__.keys()):
            value = function.__globals__[name]
            found.append([name, self._of_module(value, names, set())])
        return found

    def _of_module(self, value: Any, names: set[str], seen: set[int]) -> Any:
        if not isinstance(value, types.ModuleType) or is_installed(value) or id(value) in seen:
            return self.refer(value)
        seen.add(id(value))
        members = vars(value)
        used = [
            [name, self._of_module(members[name], names, seen)]
            for name in sorted(names & members.keys())
        ]
        return {"module": [value.__name__, used]}

    def _imported(self, name: str, function: types.FunctionType) -> Any:
        """A module that a function imports when it is called: of the program, by the bytes of its file."""
        package = function.__globals__.get("__package__") or ""
        for full_name in (name, f"{package}.{name}"):
            top = full_name.partition(".")[0]
            if not top or top in sys.stdlib_module_names or top == _PACKAGE:
                continue
            path = _file_of_module(top)
            if path is not None and _is_in_folder_of_packages(path):
                return None  # asking for a part of a package would import it
            path = _file_of_module(full_name)
            if path is None or not os.path.isfile(path):
                continue
            with open(path, "rb") as file:
                return block_digest(file.read()).hex()
        return None

    def _class(self, kind: type) -> list[Any]:
        members = [
            [name, self._member(member)]
            for name, member in sorted(vars(kind).items())
            if name not in _NOT_OF_A_CLASS
        ]
        metaclass = self.refer(type(kind))
        return [
            class_name_of(kind),
            metaclass,
            [self.refer(base) for base in kind.__bases__],
            members,
        ]

    def _member(self, member: Any) -> Any:
        if isinstance(member, _DESCRIPTORS):
            return {"descriptor": type(member).__name__}
        return self.refer(member)

    def _object(self, value: Any) -> Any:
        """An object by what ``pickle`` would store of it."""
        try:
            reduced = value.__reduce_ex__(2)
        except Exception:  # noqa: BLE001  # any class may raise anything
            return [self.refer(type(value)), self._unknown(value, "not known by its parts")]
        if isinstance(reduced, str):
            return [self.refer(type(value)), self._unknown(value, "pickled by its name only")]
        parts = [list(part) if isinstance(part, Iterator) else part for part in reduced]
        return [self.refer(type(value)), [self.refer(part) for part in parts]]


def _wraps_function(value: Any) -> bool:
    try:
        return hasattr(value, "__wrapped__")
    except Exception:  # noqa: BLE001  # an object that asks something else for its attributes may raise anything
        return False


def _file_of_module(name: str) -> str | None:
    """Where the code of a module is; None if that is unknown."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None
    return None if spec is None or spec.origin is None else os.path.abspath(spec.origin)


def _imports_in(code: types.CodeType) -> set[str]:
    """The names of the modules that a function imports when it is called."""
    found = {
        str(instruction.argval)
        for instruction in dis.get_instructions(code)
        if instruction.opname == "IMPORT_NAME"
    }
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _imports_in(constant)
    return found
