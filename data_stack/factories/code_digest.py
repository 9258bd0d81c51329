"""Digests of the code that prepares a dataset: the files of its author's package, and the attributes of class and object."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import re
import secrets
import sys
import sysconfig
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from data_stack.dataset.recipes.functions import describe_unnamed, is_of_a_file
from data_stack.dataset.recipes.recipe_values import content_if_known
from data_stack.util.logger import logger

# A file that was edited later may differ from the loaded module. Factories import this module, so they are loaded later.
_LOADED_AT = time.time()
_PACKAGE = __name__.partition(".")[0]
_MAIN = ("__main__", "__mp_main__")
_CODE = {".py", ".pyc", ".so", ".pyd"}
#: Attributes that are compared elsewhere, or are not the author's.
_NOT_OF_THE_CODE = {"card", "sources", "storage_connector", "_opened_manifest", "_abc_impl"}


def code_digest(factory: object) -> str:
    """Digest of the code that prepares a dataset: 64 hex digits.

    It covers all files of the packages of the factory's classes (below namespace packages), and the files beside a program or a
    module without package. For classes and functions without a file (cells of a notebook) it covers the compiled code, the
    variables that it uses, and the files of the current folder; also the attributes of the classes and of the object. If a part
    of the code cannot be compared, the digest equals no other; the log says so if a file cannot be.
    """
    classes = _own_classes(type(factory))
    names = sorted({_importable(kind.__module__) for kind in classes})
    try:
        files = {name: _digest_of(name) for name in names}
        edited = [path for name in names for path in _files_of(name) if path.stat().st_mtime > _LOADED_AT]
        problem = f"{edited[0]} was edited while this process runs" if edited else None
    except OSError as error:
        problem = str(error)
    if problem is not None:
        logger.info("%s: its code cannot be compared: %s", type(factory).__qualname__, problem)
        return secrets.token_hex(32)
    facts = [
        files,
        [[kind.__module__, kind.__qualname__, _describe_attributes(kind)] for kind in classes],
        _describe_attributes(factory),
    ]
    return hashlib.sha256(json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


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


def _digest_of(module: str) -> str:
    digest = hashlib.sha256()
    for path in _files_of(module):
        data = path.read_bytes()
        digest.update(f"{path.name} {len(data)}\n".encode() + data)
    return digest.hexdigest()


def _files_of(module: str) -> list[Path]:
    """The files with the code of a module's package; empty for a module without file."""
    folders, pattern = [Path.cwd()], "*"
    if module in _MAIN:
        if (program := getattr(sys.modules[module], "__file__", None)) is not None:
            folders = [Path(program).absolute().parent]
    elif (spec := _spec_of_code(module)) is None or spec.origin is None or not spec.has_location:
        return []
    elif spec.submodule_search_locations is not None:
        folders, pattern = list(map(Path, spec.submodule_search_locations)), "**/*"
    else:
        path = Path(spec.origin).absolute()
        if path.parent in {Path(each).absolute() for each in sysconfig.get_paths().values()}:
            return [path]  # beside it are other packages
        folders = [path.parent]
    found = [path for folder in folders for path in (*folder.glob(pattern), *folder.glob("*/*.py"))]
    return sorted({path for path in found if path.suffix in _CODE and path.parent.name != "__pycache__" and path.is_file()})


def _spec_of_code(module: str) -> Any:
    """The spec of a module's uppermost package that is not a namespace package, or its own; None without one."""
    parts = module.split(".")
    # within data_stack, only the subpackage of the dataset
    first = len(parts) - 1 if parts[0] == _PACKAGE else 1
    with contextlib.suppress(ImportError, ValueError):
        for name in (".".join(parts[:n]) for n in range(first, len(parts) + 1)):
            spec = importlib.util.find_spec(name)
            if spec is None or spec.origin is not None:
                return spec
    return None


def _describe_attributes(value: Any) -> str:
    """A digest of what is set on a class or an object."""
    own = {name: member for name, member in sorted(getattr(value, "__dict__", {}).items()) if name not in _NOT_OF_THE_CODE}
    is_theirs = {name: re.fullmatch("__.*__", name) or is_of_a_file(member) for name, member in own.items()}
    return describe_unnamed({name: member for name, member in own.items() if not is_theirs[name]}, _content_of)


def _content_of(value: Any) -> Any:
    """Plain data for a value; ConfigError, on which :func:`describe_unnamed` looks into the object, if it is of another type."""
    if all(callable(getattr(value, name, None)) for name in ("get_resource", "set_resource", "has_resource")):
        return ["store"]
    return content_if_known(value)
