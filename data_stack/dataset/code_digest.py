"""Tells by which code a dataset is prepared: its author's modules, and what was set on the class and the object since."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import hashlib
import importlib.metadata
import json
import logging
import os
import pathlib
import re
import secrets
import sys
import sysconfig
import time
import types
from collections.abc import Iterable, Iterator, Mapping
from importlib.machinery import ModuleSpec, SourceFileLoader
from modulefinder import ModuleFinder
from typing import Any

from data_stack.dataset.recipes.functions import is_filled, unnamed_content
from data_stack.dataset.recipes.recipe_values import known_content
from data_stack.util.logger import logger

__all__ = ["changed_module", "code_digest", "module_digests"]

# What was edited after this may be another thing in memory than on disk. Factories import us, so they are loaded later.
_LOADED_AT = time.time()
_PACKAGE = __name__.partition(".")[0]
_MAIN = ("__main__", "__mp_main__")
#: Of a class or object: what is compared by what it says, and what is not the author's.
_NOT_OF_THE_CODE = {"card", "sources", "storage_connector", "_unwritten_manifest", "_abc_impl"}


class _Unknown(Exception):
    """A part of the code cannot be compared; the message says which and why."""


def code_digest(factory: object) -> str:
    """Names the code that prepares a dataset: 64 hex digits, equal where the same code would do the work.

    It covers the source (or, without source, the compiled file) of the modules of the factory's classes and of all modules of
    the same distribution that they import, directly or through each other, also inside of functions; where there is no
    distribution, of the same top-level package or the same folder. Of classes and functions that are in no file (a notebook's
    cells, an interactive session) it covers the compiled code and the values of the variables that it uses. To these come the
    version of the distribution and the attributes of the classes and of the object.

    Args:
        factory: the dataset's factory.

    Returns:
        The digest; one that will not occur again where a part of the code cannot be compared, which the log says.
    """
    classes = _own_classes(type(factory))
    try:
        tops = {_top_of(each) for each in classes}
        facts = [
            sorted(_modules(classes).items()),
            sorted(_versions(tops)),
            [_described_class(each) for each in classes],
            {name: unnamed_content(value, _known) for name, value in sorted(_attributes(factory))},
        ]
    except _Unknown as error:
        logger.info("%s: an interrupted preparation starts over, for %s", type(factory).__qualname__, error)
        return secrets.token_hex(32)
    return hashlib.sha256(json.dumps(facts, separators=(",", ":")).encode()).hexdigest()


def module_digests(factory: object) -> dict[str, str]:
    """SHA-256 of the modules with the code of a factory, as far as another process can import them."""
    try:
        return {name: digest for name, digest in _modules(_own_classes(type(factory))).items() if name not in _MAIN}
    except _Unknown:
        return {}


def changed_module(digests: Mapping[str, str]) -> str | None:
    """The first of these modules that is another one in this process; those that are not here at all do not count."""
    for name, digest in digests.items():
        spec = _spec(name)
        if spec is not None and hashlib.sha256(_bytes_of(spec)).hexdigest() != digest:
            return name
    return None


# ---------------------------------------------------------------------- modules


def _own_classes(kind: type) -> list[type]:
    """The classes of a factory below the one of ours that is marked as the authors' base."""
    base = next((each for each in kind.__mro__ if "_is_base_of_authors" in vars(each)), object)
    return [each for each in kind.__mro__ if each is not base and issubclass(each, base)]


def _top_of(kind: type) -> str:
    return _importable(kind.__module__).partition(".")[0]


def _importable(module: str) -> str:
    """The name of a module; of a program that was started by ``python -m`` the one that it can be imported by."""
    spec = getattr(sys.modules.get(module), "__spec__", None) if module in _MAIN else None
    return module if spec is None else spec.name.removesuffix(".__main__")


def _modules(classes: Iterable[type]) -> dict[str, str]:
    """SHA-256 of each module of the author's that the classes need, by name."""
    found: dict[str, str] = {}
    for kind in classes:
        name = _importable(kind.__module__)
        package, _, _ = name.rpartition(".")
        if name not in _MAIN and _spec(name) is not None:
            # Of us only the package of the dataset is its author's.
            tops = {package} if package.startswith(_PACKAGE) else _tops_beside(name.partition(".")[0])
            _follow(found, [name], tops, _home(name))
        elif name in sys.modules:
            _add_program(found, name, sys.modules[name])
        else:
            raise _Unknown(f"module {name!r} has no file")
    return found


def _add_program(found: dict[str, str], name: str, program: types.ModuleType) -> None:
    """Add a script with what it imports from its folder; or what a notebook has imported from the current one."""
    path = getattr(program, "__file__", None)
    if path is None and name not in _MAIN:
        raise _Unknown(f"module {name!r} has no file")
    if path is None:
        names = {
            getattr(each, "__name__" if isinstance(each, types.ModuleType) else "__module__", None)
            for each in list(vars(program).values())
        }
        _follow(found, [name for name in names if isinstance(name, str) and name not in _MAIN], set(), os.getcwd())
        return
    try:
        data = pathlib.Path(path).read_bytes()
        code = SourceFileLoader(name, path).source_to_code(data, path)
    except (OSError, SyntaxError, ValueError) as error:
        raise _Unknown(f"{path} cannot be read: {error}") from error
    _check_age(name, path)
    found[name] = hashlib.sha256(data).hexdigest()
    _follow(found, _imports(code, ""), set(), os.path.dirname(os.path.abspath(path)))


def _follow(found: dict[str, str], names: Iterable[str], tops: set[str], home: str | None) -> None:
    """Add the modules of that name, and those that they import, as far as they are in these packages or in that folder."""
    waiting, seen, is_beside = list(names), set(found), dict[str, bool]()
    while waiting:
        name = waiting.pop()
        top = name.partition(".")[0]
        if top not in is_beside:
            is_beside[top] = home is not None and _home(top) == home
        if name in seen or not (is_beside[top] or any(f"{name}.".startswith(f"{each}.") for each in tops)):
            continue
        seen.add(name)
        spec = _spec(name)
        if spec is None:
            continue  # not a module but something in one, or a package that is not installed
        if spec.origin is not None and spec.has_location:
            if name in sys.modules:
                _check_age(name, spec.origin)
            found[name] = hashlib.sha256(_bytes_of(spec)).hexdigest()
        waiting.append(name.rpartition(".")[0])
        waiting += _imports(_code_of(spec), name if spec.submodule_search_locations is not None else name.rpartition(".")[0])


def _spec(name: str) -> ModuleSpec | None:
    """Where a module is, importing nothing, not even its package."""
    places: Any = None
    spec = None
    for end, character in enumerate(f"{name}."):
        if character == ".":
            finders = [finder for finder in sys.meta_path if hasattr(finder, "find_spec")]
            try:
                spec = next(filter(None, (finder.find_spec(name[:end], places) for finder in finders)), None)
            except (ImportError, ValueError, AttributeError):
                return None
            if spec is None or (end < len(name) and spec.submodule_search_locations is None):
                return None
            places = spec.submodule_search_locations
    return spec


def _bytes_of(spec: ModuleSpec) -> bytes:
    """The source of a module, or else its file."""
    loader: Any = spec.loader
    with contextlib.suppress(ImportError, OSError, AttributeError, UnicodeError, SyntaxError):
        source = loader.get_source(spec.name)
        if source is not None:
            return str(source).encode("utf-8", "surrogatepass")
    try:
        return pathlib.Path(spec.origin or "").read_bytes() if spec.has_location else b""
    except OSError as error:
        raise _Unknown(f"module {spec.name!r} cannot be read: {error}") from error


def _code_of(spec: ModuleSpec) -> types.CodeType | None:
    loader: Any = spec.loader
    try:
        code: types.CodeType | None = loader.get_code(spec.name)
    except (ImportError, OSError, AttributeError, UnicodeError, SyntaxError, ValueError, EOFError):
        return None  # an extension, a namespace, or what could not be imported anyway
    return code


def _imports(code: types.CodeType | None, package: str) -> Iterator[str]:
    """The modules that compiled code names in import statements, also in its functions; some may be no modules."""
    for kind, what in ModuleFinder().scan_opcodes(code) if code is not None else ():
        if kind == "absolute_import":
            names, module = what
        elif kind == "relative_import":
            level, names, module = what
            parents = package.split(".")
            module = ".".join([*parents[: len(parents) - level + 1], *filter(None, [module])])
        else:
            continue
        yield module
        yield from (f"{module}.{name}" for name in names or () if name != "*")
    for constant in code.co_consts if code is not None else ():
        if isinstance(constant, types.CodeType):
            yield from _imports(constant, package)


def _check_age(name: str, path: str) -> None:
    with contextlib.suppress(OSError):  # a member of a zip archive
        if os.stat(path).st_mtime > _LOADED_AT:
            raise _Unknown(f"module {name!r} was edited while this process runs")


def _tops_beside(top: str) -> set[str]:
    """The top-level modules and packages of the distributions that bring ``top``."""
    brought = _brought_by()
    return {name for name, distributions in brought.items() if set(distributions) & set(brought.get(top, ()))} | {top}


def _versions(tops: set[str]) -> set[tuple[str, str]]:
    brought = _brought_by()
    return {(each, importlib.metadata.version(each)) for top in tops for each in brought.get(top, ())}


def _brought_by() -> Mapping[str, list[str]]:
    return _brought_by_those_on(tuple(sys.path))


@functools.lru_cache(maxsize=1)
def _brought_by_those_on(path: tuple[str, ...]) -> Mapping[str, list[str]]:
    with contextlib.suppress(Exception):  # the metadata of some other package may be damaged
        return importlib.metadata.packages_distributions()
    return {}


def _home(name: str) -> str | None:
    """The folder that a top-level module of no distribution lies in: what is beside it belongs to it."""
    top = name.partition(".")[0]
    spec = _spec(top)
    if spec is None or spec.origin is None or not spec.has_location or _brought_by().get(top):
        return None
    folder = os.path.dirname(os.path.abspath(spec.origin))
    folder = os.path.dirname(folder) if spec.submodule_search_locations is not None else folder
    return None if folder in {os.path.abspath(path) for path in sysconfig.get_paths().values()} else folder


# ---------------------------------------------------------------------- what is set on classes and objects


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    for name, member in getattr(value, "__dict__", {}).items():
        if name not in _NOT_OF_THE_CODE and not (name.startswith("__") and name.endswith("__")):
            yield name, member


def _described_class(kind: type) -> list[Any]:
    return [kind.__module__, kind.__qualname__, [[name, _described(member)] for name, member in sorted(_attributes(kind))]]


def _described(member: Any) -> Any:
    """What a class has under a name; functions that come from a file by where they stand in it, for that counts anyway."""
    if isinstance(member, property):
        return [_described(each) for each in (member.fget, member.fset, member.fdel)]
    if isinstance(member, functools.cached_property):
        return _described(member.func)
    function = getattr(member, "__func__", member)  # of static and class methods
    if isinstance(function, types.FunctionType) and _is_of_a_file(function):
        code = function.__code__
        cells = [
            cell.cell_contents
            for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True)
            if name != "__class__" and is_filled(cell)
        ]
        used = [cells, list(function.__defaults__ or ()), dict(function.__kwdefaults__ or {})]
        return [function.__module__, function.__qualname__, code.co_firstlineno, unnamed_content(used, _known)]
    return unnamed_content(function, _known)


def _is_of_a_file(function: types.FunctionType) -> bool:
    module = sys.modules.get(function.__module__)
    path = getattr(module, "__file__", None)
    return path is not None and os.path.abspath(path) == os.path.abspath(function.__code__.co_filename)


def _known(value: Any) -> Any:
    """Plain data for a value; ConfigError, which makes it like no other, where its content is not known."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        values = [getattr(value, field.name) for field in dataclasses.fields(value)]
        return [type(value).__module__, type(value).__qualname__, unnamed_content(values, _known)]
    if isinstance(value, enum.Enum):
        return [type(value).__module__, type(value).__qualname__, value.name]
    if isinstance(value, os.PathLike):
        return ["path", os.fspath(value)]
    if isinstance(value, logging.Logger):
        return ["logger", value.name]
    if isinstance(value, re.Pattern):
        return ["pattern", repr(value.pattern), value.flags]
    if isinstance(value, types.MappingProxyType):
        return ["mapping", unnamed_content(dict(value), _known)]
    if all(callable(getattr(value, name, None)) for name in ("get_resource", "set_resource", "has_resource")):
        return ["store"]
    return known_content(value)
