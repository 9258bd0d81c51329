"""Functions as plain data: a function is written by its name, and one without a name by what is known of it."""

from __future__ import annotations

import functools
import hashlib
import operator
import os
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from data_stack.codecs.plain_data import canonical_json
from data_stack.exception import ConfigError

__all__ = [
    "code_content",
    "function_at",
    "importable_name",
    "is_filled",
    "named_function",
    "registered_function",
    "shown",
    "unnamed_content",
    "why_unnamed",
    "written_function",
]

_Function = TypeVar("_Function", bound=Callable[..., Any])

_MAIN = ("__main__", "__mp_main__")
_PLAIN_OBJECT_BYTES = type("_", (), {}).__basicsize__  # more than that, and an object keeps something outside of its __dict__
_DEEPEST = 20
_MEMOIZED = type(functools.lru_cache(maxsize=1)(len))
_GETTERS = (operator.itemgetter, operator.attrgetter, operator.methodcaller)

# Of a class: what does not decide what its objects do, and differs between versions of Python or runs of a program.
_NO_BEHAVIOUR = {
    "__annotate__",
    "__annotate_func__",
    "__annotations__",
    "__annotations_cache__",
    "__dataclass_fields__",
    "__dataclass_params__",
    "__dict__",
    "__doc__",
    "__firstlineno__",
    "__module__",
    "__static_attributes__",
    "__weakref__",
    "_abc_impl",
}

_NAMED: dict[str, Callable[..., Any]] = {}

# What cannot be described is told apart by a number that no other object of any process has. Ids of objects are used again.
_PROCESS = os.urandom(8).hex()
_TOKENS: dict[int, tuple[weakref.ref[Any], str]] = {}


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
    given: object = name
    if not isinstance(given, str) or not given or ":" in given:
        raise ConfigError(f"the name of a function is a text without a colon, got {given!r:.80}")

    def registered(function: _Function) -> _Function:
        if not callable(function):
            raise ConfigError(f"only a function can be named {name!r}, not {function!r:.80}")
        other = _NAMED.get(name)
        if other is not None and other is not function and _home(other) != _home(function):
            raise ConfigError(f"the name {name!r} is that of {_home(other)}; give {_home(function)} another one")
        _NAMED[name] = function
        return function

    return registered


def registered_function(name: str) -> Callable[..., Any] | None:
    """The function that :func:`named_function` gave this name."""
    return _NAMED.get(name)


def written_function(function: Any, plain: Callable[[Any], Any]) -> dict[str, Any] | None:
    """``function`` by its name, or None if it has none.

    Args:
        function: any callable.
        plain: what becomes of the arguments of a ``functools.partial``.

    Returns:
        ``{"function": "module:qualified.name"}``, ``{"function": {"name": …}}``, or ``{"partial": …}``.
    """
    for name, named in _NAMED.items():
        if named is function or (isinstance(function, types.MethodType) and named == function):  # each access makes a method anew
            return {"function": {"name": name}}
    if type(function) is functools.partial:
        if written_function(function.func, plain) is None:
            return None
        return {
            "partial": {
                "function": plain(function.func),
                "arguments": [plain(argument) for argument in function.args],
                "keywords": {str(name): plain(argument) for name, argument in function.keywords.items()},
            }
        }
    importable = importable_name(function)
    return None if importable is None else {"function": importable}


def importable_name(function: Any) -> str | None:
    """``"module:qualified.name"`` if that leads to this very function, in every program that imports the module."""
    module, name = _module_of(function), _name_of(function)
    if module is None or name is None or module in _MAIN or module not in sys.modules:
        return None
    found = function_at(sys.modules[module], module, name)
    is_of_class = isinstance(function, (types.MethodType, types.BuiltinMethodType)) and isinstance(function.__self__, type)
    if found is function or (is_of_class and found == function):
        return f"{module}:{name}"
    return None


def function_at(module: types.ModuleType, module_name: str, qualified_name: str) -> Any:
    """What a module has under a name such as ``"function"`` or ``"Class.method"``, if it is the module's own; otherwise None.

    What it has imported from other modules is not its own, and neither are attributes of objects that are no classes. A
    module that can be imported by the name of another one, such as ``posixpath`` as ``os.path``, has nothing of its own there.
    """
    found: Any = module
    for part in qualified_name.split("."):
        if found is not module and not isinstance(found, type):
            return None
        try:
            found = getattr(found, part, None)
        except Exception:  # noqa: BLE001  # a module's __getattr__, or a descriptor, may be anybody's
            return None
    is_own = callable(found) and _module_of(found) == module_name and _name_of(found) == qualified_name
    return found if is_own else None


def shown(function: Any) -> str:
    """A function in the words of a message."""
    name = _name_of(function)
    if type(function) is functools.partial:
        return f"functools.partial of {shown(function.func)}"
    if name is None:
        return f"an object of {_class_name(type(function))}"
    return f"{_module_of(function) or 'unknown module'}:{name}"


def why_unnamed(function: Any) -> str:
    """Why a function has no name in a recipe, and what to do."""
    if type(function) is functools.partial:
        return why_unnamed(function.func)
    name = _name_of(function) or ""
    if isinstance(function, (types.MethodType, types.BuiltinMethodType)) and not isinstance(
        function.__self__, (type, types.ModuleType)
    ):
        reason = "belongs to an object"
    elif "<lambda>" in name:
        reason = "is a lambda"
    elif "<locals>" in name:
        reason = "is defined inside of another function"
    elif _module_of(function) in _MAIN:
        reason = "is defined in the program itself, not in a module"
    elif not name:
        reason = "is an object, not a function"
    else:
        reason = "cannot be found by its name"
    return (
        f"{shown(function)} {reason}; define it with def in a module that can be imported, "
        f"or give it a name with @data_stack.named_function"
    )


def unnamed_content(value: Any, content: Callable[[Any], Any]) -> str:
    """A digest of all that decides what an unnamed function does, or what an object of any class is.

    Of a function: its compiled code, defaults, and the values of outer and global variables that it uses, so that it is the
    same in all processes of one Python version. Of an object: its class and attributes; where it can be called, or a function
    uses it, its class is known by its name only if it can be imported, and otherwise by the code of its methods. Where that
    is not all, the digest is one that this object alone has, in this process alone.

    Args:
        value: the function or object.
        content: gives plain data that stands for the content of any other value; raises ConfigError where it cannot.
    """
    try:
        described = _Content(content, with_code=callable(value)).of(value, 0)
    except (ConfigError, RecursionError):
        return _token(value)
    return hashlib.sha256(canonical_json(described).encode("ascii")).hexdigest()


def code_content(value: Any, content: Callable[[Any], Any]) -> str | None:
    """A digest of the compiled code of a function or a callable object, named or not; None of what has none, as numpy's own.

    Args:
        value: anything.
        content: as for :func:`unnamed_content`.
    """
    if isinstance(value, functools.partial):
        return code_content(value.func, content)
    if isinstance(value, _MEMOIZED):
        return code_content(value.__wrapped__, content)
    function = getattr(value, "__func__", value)
    if not isinstance(function, (types.FunctionType, type)):
        function = getattr(type(function), "__call__", None)  # noqa: B004  # not whether, but what is called
    if not isinstance(function, types.FunctionType):
        return None
    try:
        described = _Content(content, with_code=True)._function(function, 0)
    except (ConfigError, RecursionError):
        described = [_code(function.__code__)]
    return hashlib.sha256(canonical_json(described).encode("ascii")).hexdigest()


class _Content:
    """Describes functions and objects by what they consist of; each of them once, for they may refer to each other."""

    def __init__(self, content: Callable[[Any], Any], *, with_code: bool) -> None:
        self._content, self._with_code = content, with_code
        self._seen: dict[int, int] = {}

    def of(self, value: Any, depth: int) -> Any:
        if depth > _DEEPEST:
            raise ConfigError("too deep to be described")
        if id(value) in self._seen:
            return {"seen": self._seen[id(value)]}
        if type(value) is functools.partial:
            return {"partial": [self.of(part, depth + 1) for part in (value.func, list(value.args), value.keywords)]}
        if isinstance(value, types.MethodType):
            return {"method": [self.of(value.__func__, depth + 1), self.of(value.__self__, depth + 1)]}
        if isinstance(value, types.ModuleType):
            return {"module": value.__name__}
        if isinstance(value, (list, tuple)):
            return {type(value).__name__: [self.of(item, depth + 1) for item in value]}
        if isinstance(value, dict):
            return {"dict": [[self.of(key, depth + 1), self.of(item, depth + 1)] for key, item in value.items()]}
        if callable(value):
            name = written_function(value, self._content)
            if name is not None:
                return name
        if isinstance(value, types.FunctionType):
            self._seen[id(value)] = len(self._seen)
            return {"code": self._function(value, depth + 1)}
        if isinstance(value, type):
            self._seen[id(value)] = len(self._seen)
            return {"class": self._class(value, depth + 1)}
        if isinstance(value, _MEMOIZED):
            return {"memoized": self.of(value.__wrapped__, depth + 1)}
        if isinstance(value, _GETTERS):
            return {"getter": self.of(value.__reduce__(), depth + 1)}
        try:
            return self._content(value)
        except ConfigError:
            return {"object": self._object(value, depth + 1)}

    def _function(self, function: types.FunctionType, depth: int) -> list[Any]:
        cells = [cell.cell_contents for cell in function.__closure__ or () if is_filled(cell)]
        names = sorted(_names_in(function.__code__) & function.__globals__.keys())
        return [
            _code(function.__code__),
            self.of(function.__defaults__, depth),
            self.of(function.__kwdefaults__, depth),
            self.of(cells, depth),
            [[name, self.of(function.__globals__[name], depth)] for name in names],
        ]

    def _object(self, value: Any, depth: int) -> list[Any]:
        kind = type(value)
        if not hasattr(value, "__dict__") or kind.__basicsize__ != _PLAIN_OBJECT_BYTES or isinstance(value, type):
            raise ConfigError(f"nobody knows what an object of {_class_name(kind)} consists of")
        self._seen[id(value)] = len(self._seen)
        attributes = [[str(name), self.of(item, depth)] for name, item in sorted(vars(value).items())]
        if not self._with_code or importable_name(kind) is not None:
            return [_class_name(kind), attributes]
        return [_class_name(kind), attributes, self.of(kind, depth)]

    def _class(self, kind: type, depth: int) -> list[Any]:
        members = [(name, member) for name, member in sorted(vars(kind).items()) if name not in _NO_BEHAVIOUR]
        return [
            _class_name(kind),
            self.of(type(kind), depth),
            self.of(kind.__bases__, depth),
            [[name, self._member(member, depth)] for name, member in members],
        ]

    def _member(self, member: Any, depth: int) -> Any:
        if isinstance(member, (staticmethod, classmethod)):
            return {type(member).__name__: self.of(member.__func__, depth)}
        if isinstance(member, property):
            return {"property": self.of([member.fget, member.fset, member.fdel], depth)}
        return self.of(member, depth)


def _code(code: types.CodeType) -> list[Any]:
    constants = [_code(each) if isinstance(each, types.CodeType) else _constant(each) for each in code.co_consts]
    table = getattr(code, "co_exceptiontable", b"")  # since Python 3.11
    signature = [code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags]
    return [code.co_code.hex(), table.hex(), signature, constants, list(code.co_names), list(code.co_varnames)]


def _constant(value: Any) -> Any:
    if isinstance(value, (tuple, frozenset)):
        items = [_constant(item) for item in value]
        return {type(value).__name__: sorted(items, key=canonical_json) if isinstance(value, frozenset) else items}
    return [type(value).__name__, repr(value)]


def _names_in(code: types.CodeType) -> set[str]:
    nested = [_names_in(each) for each in code.co_consts if isinstance(each, types.CodeType)]
    return set(code.co_names).union(*nested)


def is_filled(cell: types.CellType) -> bool:
    """Whether a variable of a closure has a value by now."""
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def _token(value: Any) -> str:
    known = _TOKENS.get(id(value))
    if known is not None and known[0]() is value:
        return known[1]
    token = hashlib.sha256(f"{_PROCESS}:{id(value)}:{os.urandom(8).hex()}".encode()).hexdigest()
    try:
        _TOKENS[id(value)] = weakref.ref(value, functools.partial(_forget, id(value))), token
    except TypeError:  # cannot be referred to weakly: as long as it lives, its id is its own
        return hashlib.sha256(f"{_PROCESS}:{id(value)}".encode()).hexdigest()
    return token


def _forget(number: int, reference: weakref.ref[Any]) -> None:
    if number in _TOKENS and _TOKENS[number][0] is reference:
        del _TOKENS[number]


def _module_of(function: Any) -> str | None:
    if isinstance(function, np.ufunc):
        return "numpy"
    owner = function if getattr(function, "__module__", None) is not None else getattr(function, "__objclass__", None)
    module = getattr(owner, "__module__", None)
    return module if isinstance(module, str) else None


def _name_of(function: Any) -> str | None:
    name = getattr(function, "__name__" if isinstance(function, np.ufunc) else "__qualname__", None)
    return name if isinstance(name, str) else None


def _home(function: Any) -> str:
    return f"{_module_of(function)}:{getattr(function, '__qualname__', type(function).__qualname__)}"


def _class_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
