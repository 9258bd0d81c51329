"""Lazy imports of the names of a package, listed once in its stub ``__init__.pyi``."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Collection
from importlib import import_module
from pathlib import Path
from typing import Any


def attach_stub(
    package: str,
    file: str,
    *,
    optional: Collection[str] = (),
    explain: Callable[[str], str] = lambda name: "",
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """``__getattr__``, ``__dir__`` and ``__all__`` of a package whose stub imports all its names (PEP 562).

    ::

        __getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

    A type checker reads the stub itself. There, ``from package.module import name as name`` is a name of the package, and
    ``from package import module as module`` one of its modules.

    Args:
        package: its ``__name__``.
        file: its ``__file__``.
        optional: names that need an optional package. They and the modules are not in ``__all__``, so that a star import works
            without such packages.
        explain: returns what the error about an unknown name adds.
    """
    origins: dict[str, tuple[str, str]] = {}
    for node in ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            origins.update(
                {each.asname or each.name: (str(node.module), each.name) for each in node.names}
            )

    def import_name(name: str) -> Any:
        if name not in origins:
            raise AttributeError(
                f"module {package!r} has no attribute {name!r}{explain(name)}",
                name=name,
                obj=sys.modules[package],
            )
        module, attribute = origins[name]
        if module == package:
            return import_module(f"{module}.{attribute}")  # the import binds the name
        value = getattr(import_module(module), attribute)
        # Also undoes that importing a submodule of the same name puts the module in its place.
        setattr(sys.modules[package], name, value)
        return value

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *origins})

    public = [
        name for name, (module, _) in origins.items() if module != package and name not in optional
    ]
    return import_name, list_names, sorted(public)
