"""The scanner of CSV finds the rows that Python's reader has, wherever the text is cut."""

from __future__ import annotations

import csv
import io
import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from data_stack.formats.text_tables.csv_scanner import CSVRowScanner


def rows_of_python(text: str, quoting: int) -> list[list[str]] | None:
    """The rows by Python's reader without empty lines; None where it refuses."""
    try:
        reader = csv.reader(io.StringIO(text, newline=""), strict=True, quoting=quoting)  # type: ignore[arg-type]  # a constant
        return [row for row in reader if row]
    except csv.Error:
        return None


def scan(text: str, cuts: list[int], *, has_quotes: bool = True) -> list[int]:
    """The offsets of the rows of a text that is given in pieces."""
    scanner = CSVRowScanner(",", has_quotes=has_quotes)
    bounds = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    offsets: list[int] = []
    for start, end in itertools.pairwise(bounds):
        offsets += scanner.feed(text[start:end].encode()).tolist()
    return offsets


@given(st.text('a",\n\r', max_size=24), st.lists(st.integers(0, 24), max_size=5), st.booleans())
def test_rows_are_those_of_the_strict_reader(text: str, cuts: list[int], has_quotes: bool) -> None:
    quoting = csv.QUOTE_MINIMAL if has_quotes else csv.QUOTE_NONE
    rows = rows_of_python(text, quoting)

    offsets = scan(text, cuts, has_quotes=has_quotes)

    if rows is not None:
        ends = [*offsets[1:], len(text)][: len(offsets)]
        parts = [text[start:end] for start, end in zip(offsets, ends, strict=True)]
        assert [rows_of_python(part, quoting) for part in parts] == [[row] for row in rows]


@given(st.text('a",\n\r', max_size=24), st.lists(st.integers(0, 24), max_size=5))
def test_cuts_do_not_change_the_rows(text: str, cuts: list[int]) -> None:
    assert scan(text, cuts) == scan(text, [])


_FIELDS = st.text('a",\n ', max_size=40)


@given(
    st.lists(st.lists(_FIELDS, min_size=2, max_size=4), max_size=12),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.lists(st.integers(0, 600), max_size=4),
)
def test_written_rows_begin_where_the_writer_began_them(
    rows: list[list[str]], quoting: int, cuts: list[int]
) -> None:
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator="\n", quoting=quoting)  # type: ignore[arg-type]  # a constant
    begins = []
    for row in rows:
        begins.append(file.tell())
        writer.writerow(row)

    assert scan(file.getvalue(), cuts) == begins


@given(st.lists(st.sampled_from(['a"b', '"x"', '"y""z"', "c", ",", "\n", '"\n"']), max_size=200))
def test_ordinary_quotes_do_not_change_where_rows_begin(parts: list[str]) -> None:
    text = "".join(parts)
    rows = rows_of_python(text, csv.QUOTE_MINIMAL)

    offsets = scan(text, [])

    if rows is not None:
        assert len(offsets) == len(rows)


def test_offsets_count_from_the_start_of_the_text() -> None:
    scanner = CSVRowScanner(";", has_quotes=True)

    first = scanner.feed(b'\r\na;b\n1;"x\n')
    second = scanner.feed(b'y"\n2;z')

    assert np.array_equal(first, [2, 6])
    assert np.array_equal(second, [14])
