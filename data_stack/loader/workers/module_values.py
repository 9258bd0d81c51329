"""The plain values of modules, which programs set as settings of their functions."""

from __future__ import annotations

import sys
import types
from collections import deque
from collections.abc import Iterable
from typing import Any, Final

#: Packages whose modules hold no settings of the user's functions, and many counters.
_LIBRARIES: Final = frozenset(
    {*sys.stdlib_module_names, "data_stack", "numpy", "torch", "pandas", "pyarrow"}
)

#: With more modules, looking would take too long.
_MAX_MODULES = 300

#: The number of members of the largest container that counts as a plain value.
_MAX_MEMBERS = 100

#: How deep containers may lie in each other.
_MAX_DEPTH = 3


def plain_values(modules: Iterable[str], *, with_others: bool = True) -> dict[tuple[str, str], Any]:
    """Return the plain values of modules: numbers, texts, and tuples, lists and dicts of them.

    Args:
        modules: the names of modules; those that are not imported here are left out.
        with_others: whether to add the modules that these use, and so on.

    Returns:
        The value of each module and name.
    """
    waiting = deque(modules)
    seen = set(waiting)
    values: dict[tuple[str, str], Any] = {}
    while waiting and len(seen) <= _MAX_MODULES:
        module_name = waiting.popleft()
        module = sys.modules.get(module_name)
        package_name = module_name.partition(".")[0]
        if module is None or package_name in _LIBRARIES:
            continue
        for name, value in list(vars(module).items()):
            if name.startswith("__"):
                continue
            if _is_plain(value):
                values[module_name, name] = value
            elif with_others:
                used_module = _module_of(value)
                if used_module is not None and used_module not in seen:
                    seen.add(used_module)
                    waiting.append(used_module)
    return values


def _is_plain(value: Any, depth: int = _MAX_DEPTH) -> bool:
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return True
    if depth == 0:
        return False
    if type(value) in (tuple, list) and len(value) <= _MAX_MEMBERS:
        return all(_is_plain(member, depth - 1) for member in value)
    if type(value) is dict and len(value) <= _MAX_MEMBERS:
        members = [*value.keys(), *value.values()]
        return all(_is_plain(member, depth - 1) for member in members)
    return False


def _module_of(value: Any) -> str | None:
    """Return the name of a module, or of the module of a class or function; None for others."""
    if isinstance(value, types.ModuleType):
        return value.__name__
    if isinstance(value, (type, types.FunctionType)) and isinstance(value.__module__, str):
        return value.__module__
    return None
