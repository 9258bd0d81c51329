"""Finds the files of the current folder that the classes of a notebook use."""

from __future__ import annotations

import ast
import dis
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from data_stack.factories.code_files import PROGRAM_MODULES, is_code_file

#: Names by which code may import modules whose names nobody knows before the code runs.
_DYNAMIC: Final = {"importlib", "import_module", "__import__", "runpy", "exec", "eval"}

#: Attributes of a member of a class that hold its function: of class and static methods, of
#: properties, of partial functions and cached properties, and of decorated functions.
_ATTRIBUTES_WITH_FUNCTION: Final = ("__func__", "fget", "func", "__wrapped__")


class _Code(NamedTuple):
    """The compiled code of a function, and the globals that its names stand for."""

    code: types.CodeType
    namespace: Mapping[str, Any]


def find_notebook_files(classes: Iterable[type], folder: Path) -> list[Path] | None:
    """Find the files below a folder that hold the modules that classes of a notebook use.

    The names of these modules, or of their members, stand in the code of the classes, or of other
    functions and classes of the notebook that this code uses. Modules that the found files import
    count as well. Other files of the folder do not count.

    Args:
        classes: the classes.
        folder: where the notebook runs.

    Returns:
        The files, sorted; None if a part of the code may import modules whose names nobody knows
        before it runs.
    """
    module_names = _used_modules(classes)
    if module_names is None:
        return None

    # Find the files of these modules, and the folders from which they were imported.
    roots = {folder}
    paths_to_read = list[Path]()
    for module_name in module_names:
        first_name = module_name.partition(".")[0]
        module = sys.modules.get(module_name)
        if module is None:
            # It is imported when the code runs.
            paths_to_read.extend(_files_at(folder, first_name))
            continue
        path = _path_of(module)
        if path is not None and _is_below(path, folder):
            root = _root_of(path, module_name)
            roots.add(root)
            paths_to_read.extend(_files_at(root, first_name))

    # Read the files, and those that they import.
    paths = set[Path]()
    while paths_to_read:
        path = paths_to_read.pop()
        if path in paths:
            continue
        paths.add(path)
        if path.suffix != ".py":
            continue
        imported_names = _imports_in_file(path)
        if imported_names is None:
            return None
        for name in imported_names:
            for root in roots:
                paths_to_read.extend(_files_at(root, name))
    return sorted(paths)


# ---------------------------------------------------------------------------- code of the notebook


def _used_modules(classes: Iterable[type]) -> set[str] | None:
    """Return the names of the modules that classes of a notebook use.

    Returns:
        The names; None if the code may import modules whose names nobody knows.
    """
    module_names = set[str]()
    for code, namespace in _reachable_code(classes):
        names = _names_in(code)
        if names & _DYNAMIC:
            return None
        module_names |= _imports_of(code)
        for name in names & namespace.keys():
            module_names.add(_module_of(namespace[name]))
    return module_names


def _reachable_code(classes: Iterable[type]) -> Iterator[_Code]:
    """Yield the code of the methods of classes, and of what this code uses of the notebook."""
    values_to_visit: list[Any] = list(classes)
    visited_ids = set[int]()
    while values_to_visit:
        value = values_to_visit.pop()
        if id(value) in visited_ids:
            continue
        visited_ids.add(id(value))
        if isinstance(value, type):
            values_to_visit.extend(vars(value).values())
            continue
        function = _function_of(value)
        if function is None:
            continue
        yield _Code(function.__code__, function.__globals__)
        for used_value in _values_used_by(function):
            if getattr(used_value, "__module__", None) in PROGRAM_MODULES:
                values_to_visit.append(used_value)


def _function_of(value: Any) -> types.FunctionType | None:
    """Return the function in a member of a class, such as a property; None if there is none."""
    for name in _ATTRIBUTES_WITH_FUNCTION:
        inner = getattr(value, name, None)
        if isinstance(inner, types.FunctionType):
            return inner
    if isinstance(value, types.FunctionType):
        return value
    return None


def _values_used_by(function: types.FunctionType) -> list[Any]:
    """Return the values of the globals and of the outer variables that a function names."""
    values = []
    for name in _names_in(function.__code__):
        if name in function.__globals__:
            values.append(function.__globals__[name])
    for cell in function.__closure__ or ():
        try:
            values.append(cell.cell_contents)
        except ValueError:
            # The variable has no value yet.
            continue
    return values


def _names_in(code: types.CodeType) -> set[str]:
    """Return all names of globals and attributes in code, and in the functions within."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names_in(constant)
    return names


def _imports_of(code: types.CodeType) -> set[str]:
    """Return the names of the modules that code imports when it runs."""
    module_names = set[str]()
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME":
            module_names.add(str(instruction.argval))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            module_names |= _imports_of(constant)
    return module_names


def _module_of(value: Any) -> str:
    """Return the name of a module, or of the one that defines a function, class or object."""
    if isinstance(value, types.ModuleType):
        return value.__name__
    module_name = getattr(value, "__module__", None)
    if not module_name:
        module_name = type(value).__module__
    return str(module_name)


# ------------------------------------------------------------------------------------------- files


def _path_of(module: types.ModuleType) -> Path | None:
    path = getattr(module, "__file__", None)
    if not isinstance(path, str):
        return None
    return Path(path).absolute()


def _root_of(path: Path, module_name: str) -> Path:
    """Return the folder from which a module was imported: where its uppermost package lies."""
    n_packages = module_name.count(".")
    if path.stem == "__init__":
        n_packages += 1
    return path.parents[n_packages]


def _is_below(path: Path, folder: Path) -> bool:
    """Return whether a file is the user's below a folder, and not of a virtual environment."""
    return path.is_relative_to(folder) and "site-packages" not in path.parts


def _files_at(root: Path, name: str) -> list[Path]:
    """Return the files of a module or package of this name in a folder; none if there is none."""
    package = root / name
    if package.is_dir():
        candidates = package.glob("**/*")
    else:
        candidates = root.glob(f"{name}.*")
    return [path for path in candidates if is_code_file(path)]


def _imports_in_file(path: Path) -> set[str] | None:
    """Return the first names of all modules that a file imports.

    Returns:
        The names, without a dot; none for a file that cannot be parsed. None if the file may
        import modules whose names nobody knows before it runs.
    """
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return set()
    names = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names.add(alias.name.partition(".")[0])
        elif isinstance(node, ast.ImportFrom):
            if node.module:
                names.add(node.module.partition(".")[0])
            is_relative = node.level > 0
            if is_relative:
                # The names may be those of modules in the package, all of whose files count.
                names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.Name) and node.id in _DYNAMIC:
            return None
    if names & _DYNAMIC:
        return None
    return names
