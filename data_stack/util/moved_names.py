"""Finds names by the old path from which they have moved to another module."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from data_stack.util.program_lines import warn_deprecated


def find_moved_names(
    old_module: str, new_paths: Mapping[str, str], *, since: str, removed_in: str
) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module from which names have moved (PEP 562).

    When a program uses a moved name, the function returns the object, and warns.

    Args:
        old_module: the ``__name__`` of the module.
        new_paths: the new path of each moved name, such as ``"data_stack.engines.ProcessEngine"``.
            The new module is imported when the name is used.
        since: the version that has moved the names.
        removed_in: the version without the old path, a major one.
    """

    def get_moved(name: str) -> Any:
        if name not in new_paths:
            raise AttributeError(f"module {old_module!r} has no attribute {name!r}", name=name)
        new_path = new_paths[name]
        warn_deprecated(
            f"{old_module}.{name}", instead=new_path, since=since, removed_in=removed_in
        )
        new_module, _, new_name = new_path.rpartition(".")
        return getattr(importlib.import_module(new_module), new_name)

    return get_moved
