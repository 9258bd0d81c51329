"""Tells which modules the fork server may import, so that its forks share their memory.

These are modules of data_stack, and packages that take long to import. A module of the user is
not among them: it may start threads, open connections, or be edited before the next process starts.
"""

from __future__ import annotations

import itertools
import sys
import types
from collections.abc import Iterable
from typing import Any, Final

#: Packages that take long to import, and have no threads and no connections until they are used.
_SLOW_PACKAGES: Final = frozenset({"PIL", "cv2", "h5py", "numpy", "pandas", "pyarrow", "torch"})


def modules_imported_since(n_modules: int) -> list[str]:
    """Return the modules of this process that the fork server may import for later processes.

    Of the slow packages, it is the package alone. Names of earlier modules are not read: reading
    a name counts a reference, which copies a page that this process shares with the fork server.

    Args:
        n_modules: the number of modules that this process had loaded before.
    """
    n_new = max(0, len(sys.modules) - n_modules)
    names = []
    for name in itertools.islice(reversed(sys.modules), n_new):
        if name in _SLOW_PACKAGES or name.startswith("data_stack."):
            names.append(name)
    return names


def modules_to_unpickle(pickled_modules: Iterable[str]) -> set[str]:
    """Return the modules that the fork server may import before its forks unpickle a value.

    A module of the user counts by the slow packages that its own names refer to: a fork that
    imports the module imports these packages.

    Args:
        pickled_modules: the modules of the functions and classes in the value, as
            :func:`~data_stack.processes.pickling.dump` returns them.
    """
    names = set()
    for module_name in pickled_modules:
        if _may_be_held(module_name):
            names.add(module_name)
        elif module_name != "__main__" and module_name in sys.modules:
            # Not of the program itself, which other processes do not import.
            names |= _held_modules_behind(sys.modules[module_name])
    return names


def _held_modules_behind(module: types.ModuleType) -> set[str]:
    """Return the modules to which a module's names refer, and which the fork server may import."""
    names = set()
    for value in list(vars(module).values()):
        module_name = _module_name_of(value)
        if _may_be_held(module_name):
            names.add(module_name)
    return names


def _module_name_of(value: Any) -> str:
    """Return the name of a module, or of the module of a class or function; "" of other values.

    Of other values, only the type is looked at: a value that is made on demand stays unmade.
    """
    value_type = type(value)
    name = None
    if issubclass(value_type, types.ModuleType):
        name = vars(value).get("__name__")
    elif issubclass(value_type, (type, types.FunctionType, types.BuiltinFunctionType)):
        name = value.__module__
    return name if isinstance(name, str) else ""


def _may_be_held(module_name: str) -> bool:
    """Return whether the fork server may import a module."""
    package = module_name.partition(".")[0]
    return package in _SLOW_PACKAGES or package == "data_stack"
