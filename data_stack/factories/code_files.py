"""Finds the files that hold the code around a module."""

from __future__ import annotations

import importlib.util
import sys
import sysconfig
from collections.abc import Iterable
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Final

#: Names of the module that was started as a program, here and in processes of multiprocessing.
PROGRAM_MODULES: Final = ("__main__", "__mp_main__")

#: The package of this module, ``"data_stack"``.
_OUR_PACKAGE = __name__.partition(".")[0]

_CODE_SUFFIXES = {".py", ".pyc", ".so", ".pyd"}


def code_files(module_name: str) -> list[Path]:
    """Return the files with the code around a module, sorted.

    - For a module in a package: all files of the uppermost package that is not a namespace package.
    - For a program, or a module without a package: the files in the same folder.
    - For a notebook or a prompt: the files in the current folder.
    - For a module without a file, or one that cannot be imported: none.
    """
    if module_name in PROGRAM_MODULES:
        return _list_code([_folder_of_program(module_name)], "*")

    spec = _spec_of_package(module_name)
    if spec is None or spec.origin is None or not spec.has_location:
        return []

    package_folders = spec.submodule_search_locations
    if package_folders is not None:
        return _list_code([Path(folder) for folder in package_folders], "**/*")

    # The module is in no package.
    path = Path(spec.origin).absolute()
    if _is_folder_of_installed_modules(path.parent):
        # The other files of the folder belong to other packages.
        return [path]
    return _list_code([path.parent], "*")


def importable_name(module_name: str) -> str:
    """Return the name by which another process can import a module.

    The name differs from ``module_name`` for a program that was started by ``python -m name``.
    """
    if module_name not in PROGRAM_MODULES:
        return module_name
    spec = getattr(sys.modules.get(module_name), "__spec__", None)
    if spec is None:
        return module_name
    name: str = spec.name
    return name.removesuffix(".__main__")


def is_notebook(module_name: str) -> bool:
    """Return whether a module is the program of this process, and has no file.

    This is so in a notebook, and at a prompt.
    """
    return module_name in PROGRAM_MODULES and _path_of_program(module_name) is None


def is_code_file(path: Path) -> bool:
    """Return whether a path is a file of code, other than Python's cache of compiled code."""
    if path.suffix not in _CODE_SUFFIXES:
        return False
    if path.parent.name == "__pycache__":
        return False
    return path.is_file()


def _path_of_program(module_name: str) -> str | None:
    path: str | None = getattr(sys.modules[module_name], "__file__", None)
    return path


def _folder_of_program(module_name: str) -> Path:
    """Return the folder of a program; the current folder for a notebook or a prompt."""
    program_path = _path_of_program(module_name)
    if program_path is None:
        return Path.cwd()
    return Path(program_path).absolute().parent


def _spec_of_package(module_name: str) -> ModuleSpec | None:
    """Return the import spec of the uppermost package of a module.

    Namespace packages do not count, as the packages in them have different authors. Nor do the
    packages above a dataset in data_stack itself: only the package of the dataset counts.

    Returns:
        The spec of the package, or of the module itself if it is in no package; None if the
        module cannot be imported.
    """
    parts = module_name.split(".")
    min_n_parts = 1
    if parts[0] == _OUR_PACKAGE:
        min_n_parts = len(parts) - 1

    for n_parts in range(min_n_parts, len(parts) + 1):
        name = ".".join(parts[:n_parts])
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            return None
        if spec is None:
            return None
        is_namespace = spec.origin is None
        if not is_namespace:
            return spec
    return None


def _is_folder_of_installed_modules(folder: Path) -> bool:
    """Return whether a folder is one of Python's own, such as ``site-packages``."""
    folders_of_python = {Path(path).absolute() for path in sysconfig.get_paths().values()}
    return folder in folders_of_python


def _list_code(folders: Iterable[Path], pattern: str) -> list[Path]:
    """Return the code files in some folders, sorted.

    Args:
        folders: the folders.
        pattern: a glob pattern of the files. Python files in direct subfolders are listed too,
            as they may be packages that a program imports.
    """
    paths = set[Path]()
    for folder in folders:
        paths.update(folder.glob(pattern))
        paths.update(folder.glob("*/*.py"))
    return sorted(path for path in paths if is_code_file(path))
