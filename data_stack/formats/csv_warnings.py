"""The warnings of CSV files that were probably written in another way than they are read."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

#: The size of a part that is searched for line breaks.
_PART_BYTES: Final = 1 << 20


def find_swallowed_line(
    block: bytes, bounds: npt.NDArray[np.int64], delimiter: str, n_columns: int, *, max_fields: int
) -> int | None:
    r"""Find the first quoted field that may have swallowed rows.

    It goes over several lines, each of which has all columns by itself: ``1\t"a\t0`` and
    ``2\tb"\t1`` are two rows if quotes are ordinary characters.

    Args:
        block: rows of CSV text.
        bounds: the positions of the quotes that open and close fields, in turn.
        delimiter: one ASCII character.
        n_columns: the number of columns.
        max_fields: the maximum number of fields with line breaks that are looked at, one by one.

    Returns:
        The number of the field's first line in the block, from 0; None without such a field.
    """
    if n_columns < 2:
        return None
    for field in itertools.islice(_fields_over_lines(block, bounds), max_fields):
        start_of_lines = block.rfind(b"\n", 0, int(bounds[2 * field])) + 1
        end_of_lines = block.find(b"\n", int(bounds[2 * field + 1]))
        if end_of_lines == -1:
            end_of_lines = len(block)
        text = block[start_of_lines:end_of_lines]
        # Most texts have another number of delimiters, which is counted faster for all lines.
        n_lines = text.count(b"\n") + 1
        if text.count(delimiter.encode()) != n_lines * (n_columns - 1):
            continue
        lines = text.decode("utf-8", "replace").split("\n")
        if all_are_rows(lines, delimiter, n_columns):
            return block.count(b"\n", 0, start_of_lines)
    return None


def _fields_over_lines(block: bytes, bounds: npt.NDArray[np.int64]) -> Iterator[int]:
    """Yield the numbers of the quoted fields that have a line break, ascending.

    Line breaks are searched part by part, as the caller looks at the first fields only.

    Args:
        block: rows of CSV text.
        bounds: the positions of the quotes that open and close fields, in turn.
    """
    codes = np.frombuffer(block, np.uint8)
    n_fields = len(bounds) // 2
    bounds = bounds[: 2 * n_fields]
    last_field = -1
    for start in range(0, len(block), _PART_BYTES):
        if not n_fields or bounds[-1] < start:
            return
        line_breaks = np.flatnonzero(codes[start : start + _PART_BYTES] == ord("\n")) + start
        n_bounds_before = bounds.searchsorted(line_breaks)
        fields = n_bounds_before[n_bounds_before % 2 == 1] // 2
        is_first_break = np.diff(fields, prepend=last_field) > 0
        for field in fields[is_first_break].tolist():
            last_field = field
            yield field


def all_are_rows(lines: Sequence[str], delimiter: str, n_columns: int) -> bool:
    """Return whether each of several lines has all columns by itself."""
    return n_columns > 1 and all(line.count(delimiter) == n_columns - 1 for line in lines)


def swallowed_warning(name: str, line: int) -> str:
    """Return the warning of a quoted field that may have swallowed rows.

    Args:
        name: the name of the file.
        line: the number of the field's first line, from 1.
    """
    return (
        f"{name!r}, line {line}: a quoted field goes over several lines, "
        "each of which has all columns by itself; "
        "if quotes are ordinary characters in this file, rows are lost: "
        "pass quoting=csv.QUOTE_NONE"
    )


def header_warning(name: str, value: str) -> str:
    """Return the warning of a header that holds a value.

    Args:
        name: the name of the file.
        value: the text in the header.
    """
    return (
        f"{name!r} may have no header: its first row, which names the columns, "
        f"holds {value!r:.40}; "
        "pass header=False if that row is a sample, header=True if it is a header"
    )
