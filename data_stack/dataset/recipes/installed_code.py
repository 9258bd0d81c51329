"""Tells the code of a program from that of Python, of data_stack and of installed packages."""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
import sysconfig
import types
from typing import Any

from data_stack.io.integrity import block_digest

#: The package of this module, ``"data_stack"``.
_OUR_PACKAGE = __name__.partition(".")[0]

#: Names of the module that was started as a program, here and in processes of multiprocessing.
_PROGRAM_MODULES = ("__main__", "__mp_main__")

#: Names of folders of packages, wherever they lie.
_FOLDER_NAMES_OF_PACKAGES = ("site-packages", "dist-packages")


def is_installed(thing: Any) -> bool:
    """Return whether a function, class or module is not the program's own.

    It may be Python's, data_stack's or an installed package's.
    """
    if isinstance(thing, types.ModuleType):
        module_name: Any = thing.__name__
    else:
        module_name = getattr(thing, "__module__", None)
    if not isinstance(module_name, str):
        return True
    if module_name in _PROGRAM_MODULES:
        return False

    package = module_name.partition(".")[0]
    is_of_python = package in sys.builtin_module_names or package in sys.stdlib_module_names
    if is_of_python or package == _OUR_PACKAGE:
        return True

    module = sys.modules.get(module_name)
    path = getattr(module, "__file__", None)
    if path is not None:
        return _is_in_folder_of_packages(os.path.abspath(path))
    # Modules without a file are made by hand, or namespace packages. numpy makes some by hand.
    is_made_by_hand = module is not None and getattr(module, "__path__", None) is None
    return is_made_by_hand and package == "numpy"


def digest_of_imported_module(name: str, package: str) -> str | None:
    """Return a digest of the file of a module of the program.

    Args:
        name: the name of the module, as an ``import`` statement says it.
        package: the name of the package of the module that imports it; empty if there is none.

    Returns:
        A SHA-256 as hex digits; None if the module is not the program's, or has no file.
    """
    # The name may be that of a module beside the one that imports it.
    possible_names = [name]
    if package:
        possible_names.append(f"{package}.{name}")
    for full_name in possible_names:
        top = full_name.partition(".")[0]
        if not top or top in sys.stdlib_module_names or top == _OUR_PACKAGE:
            continue
        top_path = _file_of_module(top)
        if top_path is not None and _is_in_folder_of_packages(top_path):
            # Asking for the file of a module in a package would import the package.
            return None
        path = _file_of_module(full_name)
        if path is None or not os.path.isfile(path):
            continue
        with open(path, "rb") as file:
            return block_digest(file.read()).hex()
    return None


def _file_of_module(name: str) -> str | None:
    """Return the path of the code of a module; None if it is unknown."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None
    if spec is None or spec.origin is None:
        return None
    return os.path.abspath(spec.origin)


@functools.lru_cache(maxsize=4096)
def _is_in_folder_of_packages(path: str) -> bool:
    path_names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = {sysconfig.get_path(name) for name in path_names}
    if any(folder and path.startswith(folder + os.sep) for folder in folders):
        return True
    parts = path.split(os.sep)
    return any(name in parts for name in _FOLDER_NAMES_OF_PACKAGES)
