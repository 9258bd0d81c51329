"""Reads and checks footers without pyarrow, whose C++ code ends the process for some crafted footers.

They are stored in Thrift's compact protocol:
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

Struct = dict[int, Any]
"""Values by field number: 32-bit integers, bytes, booleans, lists and structs; 64-bit integers by ``LONG | number``.

pyarrow ignores a field whose integer has another width than the standard requires. Here, too, such a field is missing.
"""

LONG: Final = 1 << 16
#: By the kind of an integer; no field that we need has 8 or 16 bits.
_WIDTHS: Final = {3: 1 << 17, 4: 1 << 17, 6: LONG}

#: Levels of nested structs; a footer has six.
_MAX_DEPTH: Final = 16


def read_struct(data: bytes, at: int, depth: int) -> tuple[Struct, int]:
    """Read a struct; return it and its end.

    Args:
        data: the bytes of a footer.
        at: the offset of the struct.
        depth: number of structs around it.

    Raises:
        ValueError: the footer is damaged.
        IndexError: it ends too early.
    """
    if depth > _MAX_DEPTH:
        raise ValueError("its footer is nested too deeply")
    found: Struct = {}
    number = 0
    while head := data[at]:
        at += 1
        kind = head & 0x0F
        if head > 0x0F:
            number += head >> 4
        else:
            number, at = _integer(data, at)
        if not 0 < number < 1 << 15:
            raise ValueError(f"its footer has an invalid field {number}")
        if kind <= 2:
            found[number] = kind == 1
        else:
            found[number | _WIDTHS.get(kind, 0)], at = _value(data, at, kind, depth)
    return found, at + 1


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind == 12:
        return read_struct(data, at, depth + 1)
    if kind in (9, 10):
        return _list(data, at, depth + 1)
    if kind in (4, 5, 6):
        return _integer(data, at)
    if kind == 8:
        length, at = _read_unsigned(data, at)
        if at + length > len(data):
            raise IndexError("its end")
        return data[at : at + length], at + length
    if kind in (1, 2, 3):  # in a list a boolean takes a byte
        return data[at], at + 1
    if kind == 7:
        return None, at + 8
    raise ValueError(f"its footer has a value of the invalid kind {kind}")


def _list(data: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    if depth > _MAX_DEPTH:
        raise ValueError("its footer is nested too deeply")
    head, at = data[at], at + 1
    length, kind = head >> 4, head & 0x0F
    if length == 15:
        length, at = _read_unsigned(data, at)
    if length > len(data) - at:  # each value takes at least one byte
        raise IndexError("its end")
    found = []
    for _ in range(length):
        value, at = _value(data, at, kind, depth)
        found.append(value)
    return found, at


def _integer(data: bytes, at: int) -> tuple[int, int]:
    number, at = _read_unsigned(data, at)
    return (number >> 1) ^ -(number & 1), at


def _read_unsigned(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
        if shift > 63:
            raise ValueError("its footer has a number of more than 64 bits")


# ---------------------------------------------------------------------- the headers of pages

#: Most headers take tens of bytes; those with statistics of long texts take more.
_HEADER_BYTES: Final = 256
_MAX_HEADER_BYTES: Final = 16 << 20
_TYPE, _UNPACKED, _STORED = 1, 2, 3


def bytes_claimed_by_pages(source: Any, start: int, end: int) -> tuple[int, int]:
    """Add up the uncompressed sizes that page headers state.

    Args:
        source: an open file of pyarrow.
        start: offset of the first page.
        end: end of the last page.

    Returns:
        The bytes of all pages, and those of the largest dictionary page.

    Raises:
        ValueError: a header is damaged.

    The format: https://parquet.apache.org/docs/file-format/data-pages/
    """
    claimed = dictionary = 0
    while start < end:
        header, n_bytes = _header(source, start, end)
        unpacked, stored = header.get(_UNPACKED), header.get(_STORED)
        # In a damaged header, the field may have another type.
        if type(unpacked) is not int or type(stored) is not int or unpacked < 0 or stored < 0:
            raise ValueError(f"the page at byte {start} does not state its size")
        claimed += unpacked
        if header.get(_TYPE) == 2:  # a dictionary
            dictionary = max(dictionary, unpacked)
        start += n_bytes + stored
    return claimed, dictionary


def _header(source: Any, start: int, end: int) -> tuple[dict[int, Any], int]:
    size = _HEADER_BYTES
    while True:
        data: bytes = source.read_at(min(size, end - start), start)
        try:
            return read_struct(data, 0, 0)
        except IndexError:
            if len(data) < size or size >= _MAX_HEADER_BYTES:
                raise ValueError(f"the header of the page at byte {start} is truncated") from None
            size *= 16


_Integers = npt.NDArray[np.int64]
_CHUNK: Final = np.dtype(
    [(name, np.int64) for name in ("n_values", "n_nulls", "n_bytes", "start", "n_raw_bytes")]
)
_OPTIONAL, _REPEATED = 1, 2
#: From UNCOMPRESSED to LZ4_RAW.
_COMPRESSIONS: Final = range(8)
_BYTE_ARRAY, _FIXED_BYTES = 6, 7
_INT96: Final = 3
#: Bytes per value of each physical type; for FIXED_LEN_BYTE_ARRAY the schema states them.
_VALUE_BYTES: Final = {0: 1, 1: 4, 2: 8, _INT96: 12, 4: 4, 5: 8, _BYTE_ARRAY: 0}


@dataclass(frozen=True)
class FooterFacts:
    """Row groups and columns according to a footer.

    Attributes:
        columns: for each field the numbers of its Parquet columns: a struct has several.
        is_required: whether a column has a value in every row, shape ``(n_columns,)``.
        value_bytes: bytes per value; 0 where values differ in their size, shape ``(n_columns,)``.
        is_int96: whether a column has times of INT96, shape ``(n_columns,)``.
        n_rows: rows of each row group, shape ``(n_row_groups,)``.
        chunks: facts of the columns of each row group, shape ``(n_row_groups, n_columns)``: ``n_values`` including nulls, or
            elements of lists; ``n_nulls``, -1 where unknown; ``n_bytes`` stored; ``start``, the offset in the file; and
            ``n_raw_bytes``, the bytes before compression.
    """

    columns: dict[str, list[int]]
    is_required: npt.NDArray[np.bool_]
    value_bytes: _Integers
    is_int96: npt.NDArray[np.bool_]
    n_rows: _Integers
    chunks: npt.NDArray[np.void]

    def values_per_row(self) -> dict[str, int | None]:
        """Values per row of each field: -1 if rows differ or do not exist, None if a value may be null."""
        found: dict[str, int | None] = dict.fromkeys(self.columns, -1)
        groups = [group for group, n_rows in enumerate(self.n_rows.tolist()) if n_rows]
        n_rows, is_required = self.n_rows.tolist(), self.is_required.tolist()
        n_values, n_nulls = self.chunks["n_values"].tolist(), self.chunks["n_nulls"].tolist()
        for name, numbers in self.columns.items() if groups else ():
            if any(
                n_nulls[group][number]
                for number in numbers
                if not is_required[number]
                for group in groups
            ):  # -1: unknown
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
            [
                _check(column, chunk, n, file_bytes, number)
                for column, chunk in zip(columns, group[1], strict=True)
            ]
            for number, (group, n) in enumerate(zip(groups, rows, strict=True))
        ]
        n_rows = np.array(rows, np.int64)
        if n_rows.sum() != metadata[LONG | 3]:
            raise ValueError(
                f"it states {metadata[LONG | 3]} rows, its row groups have {n_rows.sum()}"
            )
    except (IndexError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"its footer lacks a required field ({error!s:.60})") from error
    facts = np.array(chunks, _CHUNK).reshape(len(groups), len(columns))
    by_field: dict[str, list[int]] = {}
    for number, column in enumerate(columns):
        by_field.setdefault(column.path[0], []).append(number)
    is_required = np.array([column.definition_level == 0 for column in columns], np.bool_)
    value_bytes = np.array([column.value_bytes for column in columns], np.int64)
    is_int96 = np.array([column.type == _INT96 for column in columns], np.bool_)
    return FooterFacts(by_field, is_required, value_bytes, is_int96, n_rows, facts)


def _columns(elements: Sequence[Struct]) -> list[_Column]:
    """The columns of a schema. It is a tree in depth-first order."""
    columns: list[_Column] = []
    rest = iter(elements[1:])

    def walk(n_children: int, path: tuple[str, ...], definition: int, repetition: int) -> None:
        if len(path) > 100:
            raise ValueError("its schema is nested too deeply")
        for element in itertools.islice(rest, n_children):
            kind, inner = element.get(3, 0), (*path, element[4].decode())
            levels = definition + (kind in (_OPTIONAL, _REPEATED)), repetition + (kind == _REPEATED)
            if element.get(5):
                walk(element[5], inner, *levels)
            elif 1 in element:
                value_bytes = (
                    element.get(2, 0) if element[1] == _FIXED_BYTES else _VALUE_BYTES[element[1]]
                )
                columns.append(_Column(inner, element[1], value_bytes, *levels))

    walk(elements[0].get(5, 0), (), 0, 0)
    if next(rest, None) is not None:
        raise ValueError("its schema is not a tree of columns")
    return columns


def _check(
    column: _Column, chunk: Struct, n_rows: int, file_bytes: int | None, group: int
) -> tuple[int, int, int, int, int]:
    """Check a column of a row group; return its values, nulls, stored bytes, offset and raw bytes."""
    if 8 in chunk or 9 in chunk:
        raise ValueError("it is encrypted; encrypted files are not supported")
    meta = chunk[3]
    n_values, n_raw_bytes, n_bytes, start = (
        meta[LONG | 5],
        meta[LONG | 6],
        meta[LONG | 7],
        meta[LONG | 9],
    )
    if 0 < meta.get(LONG | 11, 0) < start:
        start = meta[LONG | 11]
    statistics, sizes = meta.get(12, {}), meta.get(16, {})
    levels = column.repetition_level, column.definition_level
    fault = ""
    if meta[1] != column.type:
        fault = "another type than in the schema"
    elif meta[4] not in _COMPRESSIONS:
        fault = f"the unknown compression {meta[4]}"
    elif min(n_rows, n_values, n_raw_bytes, n_bytes, start) < 0 or (
        not column.repetition_level and n_values != n_rows
    ):
        fault = f"{n_values} values in {n_rows} rows, in {n_bytes} bytes at {start}"
    elif file_bytes is not None and start + n_bytes > file_bytes:
        fault = f"bytes {start} to {start + n_bytes}, but the file has {file_bytes}"
    elif any(0 < len(statistics.get(bound, b"")) < column.value_bytes for bound in (1, 2, 5, 6)):
        fault = "a truncated minimum or maximum"
    elif sizes and LONG | 1 in sizes and column.type != _BYTE_ARRAY:
        fault = "statistics of texts, but no texts"
    elif sizes and any(
        len(sizes.get(2 + number, ())) not in (0, level + 1) for number, level in enumerate(levels)
    ):
        fault = "a histogram with the wrong number of levels"
    if fault:
        raise ValueError(
            f"its footer is damaged: column {'.'.join(column.path)!r:.80} of row group {group} has {fault}"
        )
    n_nulls = statistics.get(LONG | 3, -1)
    return n_values, n_nulls if 0 <= n_nulls <= n_values else -1, n_bytes, start, n_raw_bytes
