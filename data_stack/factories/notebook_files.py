"""The files of the current folder that a class of a notebook uses: of the modules that its code imports."""

from __future__ import annotations

import ast
import contextlib
import dis
import sys
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

_MAIN: Final = ("__main__", "__mp_main__")
_CODE: Final = {".py", ".pyc", ".so", ".pyd"}
#: Names by which code may import what nobody can see by reading it.
_DYNAMIC: Final = {"importlib", "import_module", "__import__", "runpy", "exec", "eval"}


def find_notebook_files(kinds: Iterable[type], folder: Path) -> list[Path] | None:
    """Find the files of the modules below a folder that classes of a notebook use, sorted.

    They are the modules whose names or members stand in the code of the classes, and of all functions and classes of the notebook
    that it uses, with the modules that these import in turn. Other files of the folder do not count.

    Args:
        kinds: the classes.
        folder: where the notebook runs.

    Returns:
        The files; None if a part of the code may import modules whose names nobody knows before it runs.
    """
    modules = set[str]()
    for code, namespace in _reachable_code(kinds):
        names = _names_in(code)
        if names & _DYNAMIC:
            return None
        modules |= _imports_of(code)
        for name in names & namespace.keys():
            modules.add(_module_of(namespace[name]))
    roots = {folder}
    pending = list[Path]()
    for name in modules:
        module = sys.modules.get(name)
        path = _path_of(module)
        if path is not None and _is_below(path, folder):
            root = path.parents[name.count(".") + (path.stem == "__init__")]
            roots.add(root)
            pending += _files_at(root, name.partition(".")[0])
        elif module is None:  # it is imported when the code runs
            pending += _files_at(folder, name.partition(".")[0])
    found = set[Path]()
    while pending:
        path = pending.pop()
        if path in found:
            continue
        found.add(path)
        imported = _imports_in_file(path) if path.suffix == ".py" else set[str]()
        if imported is None:
            return None
        for name in imported:
            for root in roots:
                pending += _files_at(root, name)
    return sorted(found)


def _reachable_code(kinds: Iterable[type]) -> Iterator[tuple[types.CodeType, dict[str, Any]]]:
    """The code of the methods of classes, and of what it names of the notebook, each with its globals."""
    pending: list[Any] = list(kinds)
    seen = set[int]()
    while pending:
        value = pending.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, type):
            pending += vars(value).values()
            continue
        function = _function_of(value)
        if function is None:
            continue
        code, namespace = function.__code__, function.__globals__
        yield code, namespace
        used = [namespace[name] for name in _names_in(code) if name in namespace]
        used += [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
        pending += [each for each in used if getattr(each, "__module__", None) in _MAIN]


def _function_of(value: Any) -> types.FunctionType | None:
    """The function in a member of a class, such as a property or class method; None if there is none."""
    for name in ("__func__", "fget", "func", "__wrapped__"):
        inner = getattr(value, name, None)
        if isinstance(inner, types.FunctionType):
            return inner
    return value if isinstance(value, types.FunctionType) else None


def _is_filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _names_in(code: types.CodeType) -> set[str]:
    """All names of globals and attributes in code, and in the functions within."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names_in(constant)
    return names


def _imports_of(code: types.CodeType) -> set[str]:
    """The modules that code imports when it runs."""
    names = {
        str(step.argval) for step in dis.get_instructions(code) if step.opname == "IMPORT_NAME"
    }
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _imports_of(constant)
    return names


def _module_of(value: Any) -> str:
    """The name of a module, or of the one where a function, class or object comes from."""
    if isinstance(value, types.ModuleType):
        return value.__name__
    return str(getattr(value, "__module__", None) or type(value).__module__)


def _path_of(module: types.ModuleType | None) -> Path | None:
    path = getattr(module, "__file__", None)
    return Path(path).absolute() if isinstance(path, str) else None


def _is_below(path: Path, folder: Path) -> bool:
    """Whether a file is one of the user's below a folder, not of a virtual environment there."""
    return path.is_relative_to(folder) and "site-packages" not in path.parts


def _files_at(root: Path, name: str) -> list[Path]:
    """The files of a module or package of this name in a folder; empty if there is none."""
    if (root / name).is_dir():
        return [path for path in (root / name).glob("**/*") if _is_code(path)]
    return [path for path in root.glob(f"{name}.*") if _is_code(path)]


def _is_code(path: Path) -> bool:
    return path.suffix in _CODE and path.parent.name != "__pycache__" and path.is_file()


def _imports_in_file(path: Path) -> set[str] | None:
    """The first names of all modules that a file imports; None if it may import others."""
    names = set[str]()
    with contextlib.suppress(SyntaxError, ValueError):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                names.update(alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                names.add((node.module or "").partition(".")[0])
                if node.level:  # of a package, all of whose files count
                    names.update(alias.name for alias in node.names)
            elif isinstance(node, ast.Name) and node.id in _DYNAMIC:
                return None
    return {name for name in names if name} if not names & _DYNAMIC else None
