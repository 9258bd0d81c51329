"""Quoted fields that may have swallowed rows are found in every part of a block."""

from __future__ import annotations

import numpy as np
import pytest

from data_stack.formats.csv_quotes import find_rows
from data_stack.formats.csv_warnings import find_swallowed_line

_MIB = 1 << 20
_SWALLOWED = b'1,"a\n2,b"\n'


def find(block: bytes, max_fields: int = 1000) -> int | None:
    rows = find_rows(block, "x", first_line=1, delimiter=",", has_quotes=True, is_last=True)
    return find_swallowed_line(block, rows.bounds, ",", 2, max_fields=max_fields)


def rows_of_size(n_bytes: int) -> bytes:
    """Rows of four bytes without line breaks within fields."""
    return b"1,2\n" * (n_bytes // 4)


# The second and third sizes let the line break of the field be the last and the first of a part.
@pytest.mark.parametrize("n_bytes", [0, _MIB - 4, _MIB - 8, _MIB, 2 * _MIB + 400])
def test_a_field_is_found_wherever_it_lies(n_bytes: int) -> None:
    block = rows_of_size(n_bytes) + _SWALLOWED

    assert find(block) == n_bytes // 4
    assert find(block + rows_of_size(_MIB)) == n_bytes // 4


def test_a_field_over_two_parts_is_looked_at_once() -> None:
    long_field = b'1,"' + b"\n".join([b"x" * 1000] * 1500) + b'"\n'

    assert find(long_field + _SWALLOWED, max_fields=2) == 1500
    assert find(long_field + _SWALLOWED, max_fields=1) is None


def test_lines_of_other_lengths_are_no_rows() -> None:
    assert find(b'1,"a\nb"\n') is None
    assert find(b'1,"a\n,,b"\n') is None
    # As many delimiters as two rows have, but not one in each line.
    assert find(b'1,"a,\nb"\n') is None


def test_without_quotes_nothing_is_found() -> None:
    assert find(rows_of_size(2 * _MIB)) is None
    assert find_swallowed_line(b"1,2\n", np.empty(0, np.int64), ",", 2, max_fields=5) is None
