"""Checks, fast, whether JSON lines have known types."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from data_stack.formats.text_tables.exact_numbers import FIRST_INEXACT
from data_stack.formats.text_tables.json_types import CellType, JsonType

#: The bytes that a line of a plain object begins and ends with.
_OPENING_BRACE: Final = ord("{")
_CLOSING_BRACE: Final = ord("}")
_LINE_BREAK: Final = ord("\n")


def count_present(text: bytes, types: Mapping[str, CellType]) -> dict[str, int] | None:
    """Return how many values each key has in some lines, if their values are of known types.

    pyarrow parses the lines, which takes a seventh of the time that Python takes. It refuses keys
    that occur twice or are unknown, and values of other types. What it would take in another way
    than :class:`JsonLinesTable` does, is left to that.

    Args:
        text: whole lines, whose floats are neither infinite nor rounded to 0.
        types: the types of all keys.

    Returns:
        The number of values that are not null; None if the lines may be invalid, or their values of
        other types.
    """
    if not types or any(isinstance(type_, JsonType) for type_ in types.values()):
        return None
    n_lines = _count_plain_lines(text)
    if n_lines is None or not _is_utf8(text):
        return None
    table = _parse(text, types)
    # Two objects in one line are two rows for pyarrow.
    if table is None or table.num_rows != n_lines:
        return None
    n_present = {}
    for name, type_ in types.items():
        cells = table.column(name)
        if cells.type != type_ or not all(_is_exact(chunk) for chunk in cells.chunks):
            return None
        n_present[name] = n_lines - cells.null_count
    return n_present


def _parse(text: bytes, types: Mapping[str, Any]) -> pa.Table | None:
    """Return lines as a table of some types; None if they do not fit."""
    parse_options = pyarrow.json.ParseOptions(
        explicit_schema=pa.schema(list(types.items())), unexpected_field_behavior="error"
    )
    read_options = pyarrow.json.ReadOptions(use_threads=False, block_size=len(text) + 1)
    try:
        return pyarrow.json.read_json(io.BytesIO(text), read_options, parse_options)
    except MemoryError:
        raise
    except (pa.ArrowException, ValueError, OverflowError):
        return None


def _count_plain_lines(text: bytes) -> int | None:
    """Return the number of lines, if each begins with ``{`` and ends with ``}``.

    Then no object goes over several lines: behind a ``}`` within an object, no ``{`` may follow.
    """
    codes = np.frombuffer(text.removesuffix(b"\n"), np.uint8)
    if not len(codes):
        return None
    line_breaks = np.flatnonzero(codes == _LINE_BREAK)
    starts = np.append(0, line_breaks + 1)
    lasts = np.append(line_breaks, len(codes)) - 1
    if (lasts < starts).any():
        return None
    are_plain = (codes[starts] == _OPENING_BRACE) & (codes[lasts] == _CLOSING_BRACE)
    return len(starts) if bool(are_plain.all()) else None


def _is_utf8(text: bytes) -> bool:
    """Return whether a text is valid UTF-8."""
    try:
        str(text, "utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _is_exact(cells: pa.Array) -> bool:
    """Return whether cells are certainly the values of the text.

    A float may be an integer that float64 rounds. A null in a struct may be a missing key, which
    no other struct of the column may have.
    """
    type_ = cells.type
    if pa.types.is_floating(type_):
        bounds = pc.min_max(cells)
        lowest, highest = bounds["min"].as_py(), bounds["max"].as_py()
        return lowest is None or (lowest > -FIRST_INEXACT and highest < FIRST_INEXACT)
    if pa.types.is_list(type_):
        return _is_exact(cells.flatten())
    if pa.types.is_struct(type_):
        if not type_.num_fields:
            return False
        return all(not child.null_count and _is_exact(child) for child in _children(cells))
    return True


def _children(cells: pa.StructArray) -> list[pa.Array]:
    """Return the fields of the structs that are not null."""
    children: list[pa.Array] = cells.drop_null().flatten()
    return children
