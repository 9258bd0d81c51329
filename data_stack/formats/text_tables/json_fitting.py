"""Checks, fast, whether JSON lines have known types."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from data_stack.formats.text_tables.byte_counts import count_characters
from data_stack.formats.text_tables.exact_numbers import FIRST_INEXACT, has_tiny_numbers
from data_stack.formats.text_tables.far_times import may_be_misread
from data_stack.formats.text_tables.json_shapes import keys_in
from data_stack.formats.text_tables.json_types import CellType, JsonType

#: The bytes that a line of a plain object begins and ends with.
_OPENING_BRACE: Final = ord("{")
_CLOSING_BRACE: Final = ord("}")
_LINE_BREAK: Final = ord("\n")

#: The maximum number of cells for the keys of objects in columns: 64 MiB.
_MAX_NESTED_CELLS: Final = 1 << 23

#: Keys whose occurrences are counted by a search for ``"key":``.
_PLAIN_KEY: Final = re.compile(r"[A-Za-z0-9_]+")


def count_present(
    text: bytes, types: Mapping[str, CellType], shapes: Mapping[str, pa.DataType | None]
) -> dict[str, int] | None:
    """Return how many values each key has in some lines, if their values are of known types.

    pyarrow parses the lines, which takes a seventh of the time that Python takes. It refuses keys
    that occur twice or are unknown, and values of other types. What it would take in another way
    than :class:`JsonLinesTable` does, is left to that.

    Args:
        text: whole lines.
        types: the types of all keys.
        shapes: for each key of JSON text, the type of Arrow that its values may have, see
            :func:`~data_stack.formats.text_tables.json_shapes.join_shapes`; None if there is none.

    Returns:
        The number of values that are not null; None if the lines may be invalid, or their values of
        other types.
    """
    types_to_parse: dict[str, pa.DataType] = {}
    for name, type_ in types.items():
        type_to_parse = shapes.get(name) if isinstance(type_, JsonType) else type_
        if type_to_parse is None or may_be_misread(type_to_parse):
            return None
        types_to_parse[name] = type_to_parse
    if not types_to_parse or _needs_many_cells(text, types_to_parse):
        return None
    n_lines = _count_plain_lines(text)
    if n_lines is None or not _is_utf8(text):
        return None
    table = _parse(text, types_to_parse)
    # Two objects in one line are two rows for pyarrow.
    if table is None or table.num_rows != n_lines:
        return None
    is_as_expected = _has_types(table, types_to_parse)
    if not is_as_expected or not _is_exact(table, types, text):
        return None
    return {name: n_lines - table.column(name).null_count for name in types}


def _needs_many_cells(text: bytes, types: Mapping[str, pa.DataType]) -> bool:
    """Return whether a cell for each key of each object takes much memory."""
    n_nested_keys = 0
    for type_ in types.values():
        n_nested_keys += sum(1 for _ in keys_in(type_))
    if not n_nested_keys:
        return False
    return n_nested_keys * count_characters(text, b"{") > _MAX_NESTED_CELLS


def _parse(text: bytes, types: Mapping[str, Any]) -> pa.Table | None:
    """Return lines as a table of some types; None if they do not fit."""
    parse_options = pyarrow.json.ParseOptions(
        explicit_schema=pa.schema(list(types.items())), unexpected_field_behavior="error"
    )
    read_options = pyarrow.json.ReadOptions(use_threads=False, block_size=len(text) + 1)
    try:
        return pyarrow.json.read_json(pa.BufferReader(text), read_options, parse_options)
    except MemoryError:
        raise
    except (pa.ArrowException, ValueError, OverflowError):
        return None


def _count_plain_lines(text: bytes) -> int | None:
    """Return the number of lines, if each begins with ``{`` and ends with ``}``.

    Then no object goes over several lines: behind a ``}`` within an object, no ``{`` may follow.
    """
    codes = np.frombuffer(text, np.uint8)
    if text.endswith(b"\n"):
        codes = codes[:-1]
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


def _has_types(table: pa.Table, types: Mapping[str, pa.DataType]) -> bool:
    return all(table.column(name).type == type_ for name, type_ in types.items())


# ---------------------------------------------------------------------- exact values


def _is_exact(table: pa.Table, types: Mapping[str, CellType], text: bytes) -> bool:
    """Return whether the cells of a table are certainly the values of the text.

    A float may be an integer that float64 rounds, or a number that it rounds to 0 or infinity. A
    null in a struct may be a missing key, which no other struct of the column may have. In a column
    of JSON text, which has the values of the text itself, numbers may be of any size, and keys may
    be missing.

    Args:
        table: the lines, as pyarrow parsed them.
        types: the types of its columns.
        text: the lines.
    """
    has_zero = False
    keys = _KeyCounter(table)
    for name, type_ in types.items():
        is_json = isinstance(type_, JsonType)
        for chunk in table.column(name).chunks:
            if not is_json and not keys.add(chunk):
                return False
            for floats in _floats_in(chunk):
                if not _are_within_bounds(floats, is_json=is_json):
                    return False
                has_zero = has_zero or bool(pc.any(pc.equal(floats, 0.0)).as_py())
    if has_zero and has_tiny_numbers(text):
        return False
    return keys.are_all_present(text)


def _are_within_bounds(floats: pa.Array, *, is_json: bool) -> bool:
    """Return whether floats are finite and, unless they are of JSON text, no large integers."""
    bounds = pc.min_max(floats)
    lowest = bounds["min"].as_py()
    highest = bounds["max"].as_py()
    if lowest is None:
        return True
    limit = FIRST_INEXACT
    if is_json:
        limit = math.inf
    return bool(lowest > -limit and highest < limit)


def _floats_in(cells: pa.Array) -> Iterator[pa.Array]:
    """Yield all floats in cells: those of each place."""
    if pa.types.is_floating(cells.type):
        yield cells
    elif pa.types.is_list(cells.type):
        yield from _floats_in(cells.flatten())
    elif pa.types.is_struct(cells.type):
        for child in _children(cells):
            yield from _floats_in(child)


class _KeyCounter:
    """Tells whether all structs of some columns have all of their keys, of which some are null.

    A key occurs at most once in each object. So all objects have it, if it occurs in the text as
    often as there are objects that may have it.

    Args:
        table: the lines, as pyarrow parsed them. All keys of the text are in its types.
    """

    #: The names of all keys at all places.
    _names: list[str]

    #: For each name, the number of objects that may have such a key, lines included.
    _n_objects: Counter[str]

    #: The names of the keys that are null in some object.
    _nullable: set[str]

    def __init__(self, table: pa.Table) -> None:
        self._names = []
        for field in table.schema:
            self._names.append(field.name)
            self._names.extend(keys_in(field.type))
        self._n_objects = Counter()
        for name in table.column_names:
            self._n_objects[name] = table.num_rows
        self._nullable = set()

    def add(self, cells: pa.Array) -> bool:
        """Count the objects in cells. Return whether each place has keys."""
        if pa.types.is_list(cells.type):
            return self.add(cells.flatten())
        if not pa.types.is_struct(cells.type):
            return True
        if not cells.type.num_fields:
            return False
        n_objects = len(cells) - cells.null_count
        for field, child in zip(cells.type, _children(cells), strict=True):
            self._n_objects[field.name] += n_objects
            if child.null_count:
                self._nullable.add(field.name)
            if not self.add(child):
                return False
        return True

    def are_all_present(self, text: bytes) -> bool:
        """Return whether no key is certainly missing in an object that was counted."""
        if not self._nullable:
            return True
        # Another key could end with the same characters, and a comma could be taken for a key.
        if not all(_PLAIN_KEY.fullmatch(name) for name in self._names):
            return False
        for name in self._nullable:
            if text.count(b'"%s":' % name.encode()) != self._n_objects[name]:
                return False
        return True


def _children(cells: pa.StructArray) -> list[pa.Array]:
    """Return the fields of the structs that are not null."""
    children: list[pa.Array] = cells.drop_null().flatten()
    return children
