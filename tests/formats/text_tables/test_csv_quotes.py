"""Quotes of CSV text are read as Python's strict reader reads them, and refused where they cannot
be.
"""

from __future__ import annotations

import csv
import io
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import data_stack
from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.csv import CSVDatasetIterator, read_csv
from data_stack.formats.csv_quotes import find_rows

_TSV = 'id\ttext\tlabel\n1\t"Hello there\t0\n2\tfine\t1\n3\tok" he said\t0\n'


def strict_rows(text: str, **options: Any) -> list[list[str]] | None:
    """The rows by Python's reader; None where it refuses."""
    try:
        return [
            row for row in csv.reader(io.StringIO(text, newline=""), strict=True, **options) if row
        ]
    except csv.Error:
        return None


def ours(text: str) -> bytes | None:
    """The complete rows that we find; None where we refuse."""
    block = text.encode()
    try:
        rows = find_rows(block, "x", first_line=1, delimiter=",", has_quotes=True, is_last=True)
    except DatasetFileCorruptError:
        return None
    return block[: rows.end]


@given(st.text('ab",\n', max_size=14))
def test_quotes_are_refused_where_python_refuses_them(text: str) -> None:
    assert (ours(text) is None) == (strict_rows(text) is None)


@given(st.lists(st.lists(st.text('a",\n\r', max_size=5), min_size=2, max_size=2), min_size=1))
def test_a_block_is_cut_behind_a_row(rows: list[list[str]]) -> None:
    written = io.StringIO(newline="")
    csv.writer(written, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    whole = written.getvalue().encode()
    block = whole[: random.Random(len(whole)).randrange(len(whole) + 1)]

    found = find_rows(block, "x", first_line=1, delimiter=",", has_quotes=True, is_last=False)

    before = whole[: found.end].decode()
    assert (strict_rows(before) or []) == rows[: len(strict_rows(before) or [])]
    assert strict_rows(whole[found.end :].decode()) == rows[len(strict_rows(before) or []) :]


@pytest.mark.parametrize(
    ("data", "line"),
    [
        ('id,text\n1,"open\n2,b\n3,c\n', 2),
        ('id,text\n1,a\n2,"b"c\n', 3),
        ('id,text\n1,"a\nb"\n2,"c" \n', 4),
        ('"id,text\n1,a\n', 1),
    ],
)
def test_an_error_names_the_line_of_a_quote(data: str, line: int) -> None:
    with pytest.raises(DatasetFileCorruptError, match=rf"line {line}.*quoting=csv.QUOTE_NONE"):
        data_stack.from_csv(io.BytesIO(data.encode()))
    with pytest.raises(DatasetFileCorruptError, match=rf"line {line}.*quoting=csv.QUOTE_NONE"):
        read_csv(io.BytesIO(data.encode()), {"id": str, "text": str})


def test_an_unclosed_quote_loses_no_rows() -> None:
    with pytest.raises(DatasetFileCorruptError, match="line 2: the quote before 'Hello there"):
        data_stack.from_csv(io.BytesIO(_TSV.encode()), delimiter="\t")

    rows = data_stack.from_csv(io.BytesIO(_TSV.encode()), delimiter="\t", quoting=csv.QUOTE_NONE)
    arrays = read_csv(
        io.BytesIO(_TSV.encode()),
        {"id": int, "text": str},
        delimiter="\t",
        quoting=csv.QUOTE_NONE,
    )
    iterator = CSVDatasetIterator(
        io.BytesIO(b'1,"2\n'), header=False, target=1, target_dtype=str, quoting="none"
    )

    assert rows.read_column("text").tolist() == ['"Hello there', "fine", 'ok" he said']
    assert arrays["text"].tolist() == rows.read_column("text").tolist()
    assert iterator[0][1] == '"2'


def test_rows_within_a_quoted_field_are_warned_of() -> None:
    data = b'id\ttext\n1\t"Hello\n2\tbye"\n'

    with pytest.warns(UserWarning, match="line 2: a quoted field goes over several lines"):
        rows = data_stack.from_csv(io.BytesIO(data), delimiter="\t")
    with pytest.warns(UserWarning, match="line 2: a quoted field goes over several lines"):
        read_csv(io.BytesIO(data), {"id": int, "text": str}, delimiter="\t")

    assert len(rows) == 1
    assert len(data_stack.from_csv(io.BytesIO(data), delimiter="\t", quoting="none")) == 2
    assert len(data_stack.from_csv(io.BytesIO(b'a,b\n1,"2\n3"\n'))) == 1


@pytest.mark.filterwarnings("error")
def test_a_warning_that_is_an_error_is_no_damage() -> None:
    data = b'id\ttext\n1\t"Hello\n2\tbye"\n'

    with pytest.raises(UserWarning, match="line 2: a quoted field goes over several lines"):
        data_stack.from_csv(io.BytesIO(data), delimiter="\t")
    with pytest.raises(UserWarning, match="line 2: a quoted field goes over several lines"):
        read_csv(io.BytesIO(data), {"id": int, "text": str}, delimiter="\t")


@pytest.mark.parametrize("quoting", [csv.QUOTE_NONNUMERIC, 7, "some", None, True])
def test_quoting_that_no_reader_has_is_refused(quoting: Any) -> None:
    with pytest.raises(ConfigError, match=r"quoting must be csv\.QUOTE_MINIMAL"):
        data_stack.from_csv(io.BytesIO(b"a\n1\n"), quoting=quoting)
    with pytest.raises(ConfigError, match=r"quoting must be csv\.QUOTE_MINIMAL"):
        read_csv(io.BytesIO(b"a\n1\n"), {"a": int}, quoting=quoting)


@pytest.mark.parametrize("delimiter", ["", ",,", "§", '"', "\n"])
def test_a_delimiter_is_one_ascii_character(delimiter: str) -> None:
    with pytest.raises(ConfigError, match="one ASCII character"):
        data_stack.from_csv(io.BytesIO(b"a\n1\n"), delimiter=delimiter)
