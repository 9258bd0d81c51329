"""Lazy imports of the names of a package, listed once in its stub ``__init__.pyi``."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

_NO_NAMES: Mapping[str, str] = MappingProxyType({})


class _Origin(NamedTuple):
    """Where a name of a package is defined."""

    module: str
    name: str


def attach_stub(
    package: str,
    file: str,
    *,
    optional: Collection[str] = (),
    earlier_names: Mapping[str, str] = _NO_NAMES,
    explain: Callable[[str], str] = lambda name: "",
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package (PEP 562).

    Its stub imports all its names::

        __getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

    A type checker reads the stub itself. There, ``from package.module import name as name`` is a
    name of the package, and ``from package import module as module`` one of its modules.

    Args:
        package: its ``__name__``.
        file: its ``__file__``.
        optional: names that need an optional package. They and the modules are not in ``__all__``,
            so that a star import works without such packages.
        earlier_names: names that the package gave before, which programs use, each with its new
            name. They are in no list and do not warn.
        explain: returns what the error about an unknown name adds.
    """
    origins = _read_stub(Path(file).with_suffix(".pyi"))

    def import_name(name: str) -> Any:
        if name in earlier_names:
            return import_name(earlier_names[name])
        if name not in origins:
            raise AttributeError(
                f"module {package!r} has no attribute {name!r}{explain(name)}",
                name=name,
                obj=sys.modules[package],
            )
        origin = origins[name]
        if origin.module == package:
            # A module of the package: its import also binds the name.
            return import_module(f"{package}.{origin.name}")
        value = getattr(import_module(origin.module), origin.name)
        # This also undoes that importing a submodule of the same name puts the module in its place.
        setattr(sys.modules[package], name, value)
        return value

    def list_names() -> list[str]:
        imported_names = vars(sys.modules[package]).keys()
        return sorted(imported_names | origins.keys())

    public_names = []
    for name, origin in origins.items():
        is_module = origin.module == package
        if not is_module and name not in optional:
            public_names.append(name)
    return import_name, list_names, sorted(public_names)


def _read_stub(path: Path) -> dict[str, _Origin]:
    """Return where the names that a stub imports are defined, by the name in the stub."""
    origins: dict[str, _Origin] = {}
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        if not isinstance(statement, ast.ImportFrom):
            continue
        for alias in statement.names:
            name_here = alias.asname or alias.name
            origins[name_here] = _Origin(str(statement.module), alias.name)
    return origins
