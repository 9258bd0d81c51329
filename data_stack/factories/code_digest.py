"""Digests of the code that prepares a dataset: the files of its author's package, and the attributes of class and object."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import json
import secrets
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from data_stack.dataset.recipes.functions import describe_unnamed, is_of_a_file
from data_stack.dataset.recipes.recipe_values import content_if_known
from data_stack.util.distributions import distributions_of
from data_stack.util.logger import logger

# A file that was edited later may differ from the loaded module. Factories import this module, so they are loaded later.
_LOADED_AT = time.time()
_PACKAGE = __name__.partition(".")[0]
_MAIN = ("__main__", "__mp_main__")
_CODE = {".py", ".pyc", ".so", ".pyd"}
#: Attributes that are compared elsewhere, or are not the author's.
_NOT_OF_THE_CODE = {"card", "sources", "storage_connector", "_unwritten_manifest", "_opened_manifest", "_abc_impl"}


class _Unknown(Exception):
    """A part of the code has no digest; the message names the part and the reason."""


def code_digest(factory: object) -> str:
    """Digest of the code that prepares a dataset: 64 hex digits.

    It covers all files of the packages of the factory's classes (below namespace packages), and the files beside a program or a
    module without package. For classes and functions without a file (cells of a notebook) it covers the compiled code, the
    variables that it uses, and the files of the current folder; also the versions of the distributions, and the attributes of
    the classes and of the object. If a part of the code has no digest, the result is random, and the reason is logged.
    """
    try:
        return _code_digest(factory)
    except (_Unknown, OSError) as error:
        logger.info("%s: an interrupted preparation starts over: %s", type(factory).__qualname__, error)
        return secrets.token_hex(32)


def known_code_digest(factory: object) -> str | None:
    """The :func:`code_digest`; None if a part of the code has no digest."""
    try:
        return _code_digest(factory)
    except (_Unknown, OSError) as error:
        logger.info("%s: its code has no digest: %s", type(factory).__qualname__, error)
        return None


def _code_digest(factory: object) -> str:
    classes = _own_classes(type(factory))
    for kind in classes:
        for path in _files_of(_importable(kind.__module__)):
            if path.stat().st_mtime > _LOADED_AT:
                raise _Unknown(f"{path} was edited while this process runs")
    facts = [
        sorted({name: _digest_of(name) for name in (_importable(kind.__module__) for kind in classes)}.items()),
        sorted({version for kind in classes for version in distributions_of(kind.__module__.partition(".")[0])}),
        [[kind.__module__, kind.__qualname__, _describe(dict(_attributes(kind)))] for kind in classes],
        _describe(dict(_attributes(factory))),
    ]
    return hashlib.sha256(json.dumps(facts, separators=(",", ":")).encode()).hexdigest()


def module_digests(factory: object) -> dict[str, str]:
    """SHA-256 of the code around the modules of a factory, by the names of those that other processes can import."""
    names = {_importable(kind.__module__) for kind in _own_classes(type(factory))}
    return {name: _digest_of(name) for name in names if name not in _MAIN and _files_of(name)}


def find_changed_module(digests: Mapping[str, str]) -> str | None:
    """The first of these modules whose code differs in this process; modules that are missing here do not count."""
    return next((name for name, digest in digests.items() if _files_of(name) and _digest_of(name) != digest), None)


def _own_classes(kind: type) -> list[type]:
    """The classes of a factory below the marked base class."""
    base = next((each for each in kind.__mro__ if "_is_base_of_authors" in vars(each)), object)
    return [each for each in kind.__mro__ if each is not base and issubclass(each, base)]


def _importable(module: str) -> str:
    """The name of a module; of a program started by ``python -m``, its importable name."""
    spec = getattr(sys.modules.get(module), "__spec__", None) if module in _MAIN else None
    return module if spec is None else spec.name.removesuffix(".__main__")


# ---------------------------------------------------------------------- files


def _digest_of(module: str) -> str:
    digest = hashlib.sha256()
    for path in _files_of(module):
        data = path.read_bytes()
        digest.update(f"{path.name} {len(data)}\n".encode() + data)
    return digest.hexdigest()


def _files_of(module: str) -> list[Path]:
    """The files with the code of a module's package; empty for a module without file."""
    if module in _MAIN:
        program = getattr(sys.modules[module], "__file__", None)
        return _beside(Path.cwd() if program is None else Path(program).absolute().parent)
    spec = _spec_of_code(module)
    if spec is None:
        return []
    if spec.submodule_search_locations is not None:
        found = [path for folder in spec.submodule_search_locations for path in Path(folder).rglob("*")]
        return sorted(path for path in found if path.suffix in _CODE and path.parent.name != "__pycache__")
    if spec.origin is None or not spec.has_location:
        return []
    path = Path(spec.origin).absolute()
    is_installed = path.parent in {Path(each).absolute() for each in sysconfig.get_paths().values()}
    return [path] if is_installed else _beside(path.parent)


def _spec_of_code(module: str) -> ModuleSpec | None:
    """The spec of a module's uppermost package that is not a namespace package, or its own."""
    parts = module.split(".")
    # within data_stack, only the subpackage of the dataset
    first = len(parts) - 1 if parts[0] == _PACKAGE else 1
    names = [".".join(parts[:n]) for n in range(first, len(parts) + 1)]
    with contextlib.suppress(ImportError, ValueError):
        for name in names:
            spec = importlib.util.find_spec(name)
            if spec is None or spec.origin is not None:
                return spec
    return None


def _beside(folder: Path) -> list[Path]:
    found = [*folder.glob("*"), *folder.glob("*/*.py")]
    return sorted(path for path in found if path.suffix in _CODE and path.is_file())


# ---------------------------------------------------------------------- what is set on classes and objects


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    for name, member in sorted(getattr(value, "__dict__", {}).items()):
        if name not in _NOT_OF_THE_CODE and not (name.startswith("__") and name.endswith("__")) and not is_of_a_file(member):
            yield name, member


def _describe(attributes: dict[str, Any]) -> str:
    return describe_unnamed(attributes, _content_of)


def _content_of(value: Any) -> Any:
    """Plain data for a value; ConfigError, on which :func:`describe_unnamed` looks into the object, if it is of another type."""
    if all(callable(getattr(value, name, None)) for name in ("get_resource", "set_resource", "has_resource")):
        return ["store"]
    return content_if_known(value)
