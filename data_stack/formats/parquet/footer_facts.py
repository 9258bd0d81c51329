"""Reads and checks footers without pyarrow, whose C++ code ends the process for some crafted footers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from data_stack.formats.parquet.footer_structs import LONG, Struct, read_struct

_Integers = npt.NDArray[np.int64]

_OPTIONAL, _REPEATED = 1, 2
#: From UNCOMPRESSED to LZ4_RAW.
_COMPRESSIONS: Final = range(8)
_BYTE_ARRAY, _FIXED_BYTES = 6, 7
#: Bytes per value of each physical type; for FIXED_LEN_BYTE_ARRAY the schema states them.
_VALUE_BYTES: Final = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8, _BYTE_ARRAY: 0}


@dataclass(frozen=True)
class FooterFacts:
    """Row groups and columns according to a footer.

    Attributes:
        columns: for each field the numbers of its Parquet columns: a struct has several.
        is_required: whether a column has a value in every row, shape ``(n_columns,)``.
        value_bytes: bytes per value; 0 where values differ in their size, shape ``(n_columns,)``.
        n_rows: rows of each row group, shape ``(n_row_groups,)``.
        n_values: values including nulls, or elements of lists, shape ``(n_row_groups, n_columns)``, like those below.
        n_nulls: nulls; -1 where unknown.
        n_bytes: stored bytes.
        starts: offsets in the file.
        n_raw_bytes: bytes before compression.
    """

    columns: dict[str, list[int]]
    is_required: npt.NDArray[np.bool_]
    value_bytes: _Integers
    n_rows: _Integers
    n_values: _Integers
    n_nulls: _Integers
    n_bytes: _Integers
    starts: _Integers
    n_raw_bytes: _Integers

    def values_per_row(self) -> dict[str, int | None]:
        """Values per row of each field: -1 if rows differ or do not exist, None if a value may be null."""
        found: dict[str, int | None] = dict.fromkeys(self.columns, -1)
        groups = [group for group, n_rows in enumerate(self.n_rows.tolist()) if n_rows]
        n_rows, n_values, n_nulls = self.n_rows.tolist(), self.n_values.tolist(), self.n_nulls.tolist()
        is_required = self.is_required.tolist()
        for name, numbers in self.columns.items() if groups else ():
            if any(n_nulls[group][number] for number in numbers if not is_required[number] for group in groups):  # -1: unknown
                found[name] = None
            else:
                each = n_values[groups[0]][numbers[0]] // n_rows[groups[0]]
                if all(n_values[group][numbers[0]] == each * n_rows[group] for group in groups):
                    found[name] = each
        return found


class _Column(NamedTuple):
    """A column of the schema: its path, physical type, bytes per value, and levels."""

    path: tuple[str, ...]
    type: int
    value_bytes: int
    definition_level: int
    repetition_level: int


def footer_facts(footer: bytes, file_bytes: int | None) -> FooterFacts:
    """Parse a footer, and check that it agrees with itself and its file.

    Args:
        footer: the serialized ``FileMetaData``, without length and magic.
        file_bytes: size of the file; None for a footer that describes other files.

    Raises:
        ValueError: the footer is damaged; the message says how.
    """
    try:
        metadata, _ = read_struct(footer, 0, 0)
        columns = _columns(metadata[2])
        groups = metadata.get(4, [])
        rows = [group[LONG | 3] for group in groups]
        chunks = [
            [_check(column, chunk, n, file_bytes, number) for column, chunk in zip(columns, group[1], strict=True)]
            for number, (group, n) in enumerate(zip(groups, rows, strict=True))
        ]
        n_rows = np.array(rows, np.int64)
        if n_rows.sum() != metadata[LONG | 3]:
            raise ValueError(f"it states {metadata[LONG | 3]} rows, its row groups have {n_rows.sum()}")
    except (IndexError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"its footer lacks a required field ({error!s:.60})") from error
    facts = np.array(chunks, np.int64).reshape(len(groups), len(columns), 5)
    by_field: dict[str, list[int]] = {}
    for number, column in enumerate(columns):
        by_field.setdefault(column.path[0], []).append(number)
    is_required = np.array([column.definition_level == 0 for column in columns], np.bool_)
    value_bytes = np.array([column.value_bytes for column in columns], np.int64)
    return FooterFacts(by_field, is_required, value_bytes, n_rows, *(facts[:, :, kind] for kind in range(5)))


def _columns(elements: Sequence[Struct]) -> list[_Column]:
    """The columns of a schema. It is a tree in depth-first order."""
    columns: list[_Column] = []
    parents: list[tuple[int, tuple[str, ...], int, int]] = [(elements[0].get(5, 0), (), 0, 0)]  # children left, path, levels
    for element in elements[1:]:
        while parents and not parents[-1][0]:
            parents.pop()
        if not parents or len(parents) > 100:
            raise ValueError("its schema is not a tree of columns")
        n_left, path, definition, repetition = parents[-1]
        parents[-1] = n_left - 1, path, definition, repetition
        kind = element.get(3, 0)
        path = (*path, element[4].decode())
        definition, repetition = definition + (kind in (_OPTIONAL, _REPEATED)), repetition + (kind == _REPEATED)
        if element.get(5):
            parents.append((element[5], path, definition, repetition))
        elif 1 in element:
            value_bytes = element.get(2, 0) if element[1] == _FIXED_BYTES else _VALUE_BYTES[element[1]]
            columns.append(_Column(path, element[1], value_bytes, definition, repetition))
    return columns


def _check(column: _Column, chunk: Struct, n_rows: int, file_bytes: int | None, group: int) -> tuple[int, int, int, int, int]:
    """Check a column of a row group; return its values, nulls, stored bytes, offset and raw bytes."""
    if 8 in chunk or 9 in chunk:
        raise ValueError("it is encrypted; encrypted files are not supported")
    meta = chunk[3]
    n_values, n_raw_bytes, n_bytes, start = meta[LONG | 5], meta[LONG | 6], meta[LONG | 7], meta[LONG | 9]
    if 0 < meta.get(LONG | 11, 0) < start:
        start = meta[LONG | 11]
    fault = ""
    if meta[1] != column.type:
        fault = "has another type than in the schema"
    elif meta[4] not in _COMPRESSIONS:
        fault = f"has the unknown compression {meta[4]}"
    elif min(n_rows, n_values, n_raw_bytes, n_bytes, start) < 0 or (not column.repetition_level and n_values != n_rows):
        fault = f"has {n_values} values in {n_rows} rows, in {n_bytes} bytes at {start}"
    elif file_bytes is not None and start + n_bytes > file_bytes:
        fault = f"has bytes {start} to {start + n_bytes}, but the file has {file_bytes}"
    n_nulls = -1
    statistics = meta.get(12)
    if statistics is not None:
        for bound in (1, 2, 5, 6):
            if bound in statistics and 0 < len(statistics[bound]) < column.value_bytes:
                fault = "has a truncated minimum or maximum"
        n_nulls = statistics.get(LONG | 3, -1)
        if n_nulls > n_values:
            n_nulls = -1
    sizes = meta.get(16)
    if sizes is not None:
        if LONG | 1 in sizes and column.type != _BYTE_ARRAY:
            fault = "has statistics of texts, but no texts"
        for histogram, level in ((2, column.repetition_level), (3, column.definition_level)):
            if len(sizes.get(histogram, ())) not in (0, level + 1):
                fault = "has a histogram with the wrong number of levels"
    if fault:
        raise ValueError(f"its footer is damaged: column {'.'.join(column.path)!r:.80} of row group {group} {fault}")
    return n_values, max(n_nulls, -1), n_bytes, start, n_raw_bytes
