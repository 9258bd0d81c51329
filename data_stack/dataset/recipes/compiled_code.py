"""The compiled code of functions as plain data."""

from __future__ import annotations

import dis
import types
from typing import Any

from data_stack.codecs.plain_data import canonical_json


def code_of(code: types.CodeType) -> str:
    """Return the compiled code of a function as text, without the lines where it stands."""
    return canonical_json(_describe(code))


def _describe(code: types.CodeType) -> list[Any]:
    # Caches keep digests of this list, so its form must stay.
    exception_table: bytes = getattr(code, "co_exceptiontable", b"")  # from Python 3.11 on
    return [
        code.co_code.hex(),
        exception_table.hex(),
        [_describe_constant(constant) for constant in code.co_consts],
        list(code.co_names),
    ]


def _describe_constant(constant: Any) -> Any:
    """Return a constant of a function, or a function inside of it, as plain data."""
    if isinstance(constant, types.CodeType):
        return _describe(constant)
    if isinstance(constant, frozenset):
        # The order of its items differs between processes.
        return repr(sorted(repr(item) for item in constant))
    return f"{type(constant).__name__} {constant!r}"


def names_in(code: types.CodeType) -> set[str]:
    """Return the names of global variables and attributes that a function uses.

    The names that functions inside of the function use are among them.
    """
    names = set(code.co_names)
    for inner_code in _codes_inside(code):
        names |= names_in(inner_code)
    return names


def imports_in(code: types.CodeType) -> set[str]:
    """Return the names of the modules that a function imports when it is called."""
    names = set()
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME":
            names.add(str(instruction.argval))
    for inner_code in _codes_inside(code):
        names |= imports_in(inner_code)
    return names


def values_of_cells(function: types.FunctionType) -> list[Any]:
    """Return the variables of outer functions that a function uses; None for unset ones."""
    # Reading the contents of an unset cell raises; such cells are equal.
    unset_cell = types.CellType()
    values: list[Any] = []
    for cell in function.__closure__ or ():
        is_set = cell != unset_cell
        values.append(cell.cell_contents if is_set else None)
    return values


def _codes_inside(code: types.CodeType) -> list[types.CodeType]:
    return [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
