"""Finds the quoted fields of CSV text, refuses quotes that cannot be read exactly, and warns of rows that may be lost."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.exception import ConfigError, DatasetFileCorruptError

_QUOTE: Final = ord('"')
_LINE_ENDS: Final = (ord("\n"), ord("\r"))
#: Fields with line breaks that are looked at, one by one, for rows that a stray quote swallowed.
_MAX_LOOKED_AT: Final = 10_000

QUOTING_ADVICE: Final = (
    "correct the file, or, if quotes are ordinary characters in it, pass quoting=csv.QUOTE_NONE"
)
#: What users may pass as ``quoting``, by the names of the constants of Python's module ``csv``.
_QUOTING: Final = {
    "minimal": csv.QUOTE_MINIMAL,
    "all": csv.QUOTE_ALL,
    "none": csv.QUOTE_NONE,
}


def check_quoting(quoting: Any) -> int:
    """``csv.QUOTE_MINIMAL`` or ``csv.QUOTE_NONE`` for what a user passed as ``quoting``.

    Args:
        quoting: ``csv.QUOTE_MINIMAL`` or ``csv.QUOTE_ALL``, which are read alike: a quote at the start of a field opens a quoted
            field; ``csv.QUOTE_NONE``: quotes are ordinary characters. Or their names: ``"minimal"``, ``"all"``, ``"none"``.

    Raises:
        ConfigError: it is something else.
    """
    known = _QUOTING.get(quoting.lower()) if isinstance(quoting, str) else quoting
    if known in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL) and not isinstance(known, bool):
        return csv.QUOTE_MINIMAL
    if known == csv.QUOTE_NONE and not isinstance(known, bool):
        return csv.QUOTE_NONE
    raise ConfigError(
        f"quoting must be csv.QUOTE_MINIMAL, csv.QUOTE_ALL or csv.QUOTE_NONE, or 'minimal', 'all' or 'none', "
        f"got {quoting!r:.60}; dtypes={{'name': str}} keeps numbers as text"
    )


def check_delimiter(delimiter: Any) -> str:
    """The delimiter, one ASCII character.

    Raises:
        ConfigError: it is something else, or a quote or a line break.
    """
    is_one_character = isinstance(delimiter, str) and len(delimiter) == 1 and delimiter.isascii()
    if not is_one_character or delimiter in '"\r\n\0':
        raise ConfigError(
            f"delimiter must be one ASCII character, no quote and no line break, got {delimiter!r:.60}"
        )
    return str(delimiter)


class _QuoteError(Exception):
    """A quote at ``offset`` cannot be read exactly."""

    def __init__(self, offset: int, problem: str) -> None:
        super().__init__(problem)
        self.offset = offset


@dataclass(frozen=True)
class Rows:
    """The complete rows at the start of a block of CSV text.

    Attributes:
        end: where they end, in bytes; 0 without a complete row.
        bounds: positions of the quotes that open and close fields, in turn.
    """

    end: int
    bounds: npt.NDArray[np.int64]


def first_row_end(block: bytes, delimiter: str, *, has_quotes: bool) -> int:
    """Where the first row of a block ends, behind its line break; the length of the block if it has no line break."""
    bounds = _quoted_spans(block, delimiter, is_last=True) if has_quotes else _NO_SPANS
    position = 0
    while position < len(block):
        ends = [block.find(end, position) for end in (b"\n", b"\r")]
        positions = [end for end in ends if end >= 0]
        if not positions:
            return len(block)
        position = min(positions)
        number = int(np.searchsorted(bounds, position))
        if number % 2 == 0:
            is_pair = block[position : position + 2] == b"\r\n"
            return position + (2 if is_pair else 1)
        position = int(bounds[number]) + 1
    return len(block)


def find_rows(
    block: bytes,
    name: str,
    *,
    first_line: int,
    delimiter: str,
    has_quotes: bool,
    is_last: bool,
) -> Rows:
    """Find the complete rows at the start of a block, which begins with a row.

    Quotes are read as Python's ``csv.reader(strict=True)`` reads them: a quote at the start of a field opens a quoted field,
    which ends with a quote before a delimiter or the end of the line; two quotes within it are one. Elsewhere a quote is an
    ordinary character.

    Args:
        block: text in an encoding that contains ASCII, such as UTF-8.
        name: name of the file for messages.
        first_line: number of the block's first line in the file, from 1.
        delimiter: one ASCII character.
        has_quotes: whether quotes quote.
        is_last: whether the file ends with the block.

    Raises:
        DatasetFileCorruptError: a quoted field never ends, or something follows it before the delimiter.
    """
    try:
        bounds = _quoted_spans(block, delimiter, is_last) if has_quotes else _NO_SPANS
    except _QuoteError as error:
        line = first_line + block.count(b"\n", 0, error.offset)
        raise DatasetFileCorruptError(f"{name!r}, line {line}: {error}; {QUOTING_ADVICE}") from None
    end = len(block) if is_last else _last_row_end(block, bounds)
    return Rows(end, bounds)


_Bounds = npt.NDArray[np.int64]
_NO_SPANS: Final[_Bounds] = np.empty(0, np.int64)


def _last_row_end(block: bytes, bounds: _Bounds) -> int:
    """Where the last complete row ends: behind the last line break outside of quotes."""
    for line_end in (b"\n", b"\r"):
        # the last byte may be the first half of "\r\n"
        limit = len(block) if line_end == b"\n" else len(block) - 1
        while (position := block.rfind(line_end, 0, max(0, limit))) >= 0:
            number = int(np.searchsorted(bounds, position))
            if number % 2 == 0:
                return position + 1
            limit = int(bounds[number - 1])
    return 0


def _quoted_spans(block: bytes, delimiter: str, is_last: bool) -> _Bounds:
    """Positions of the quotes that open and close fields, in turn; the last field may lack its end unless ``is_last``.

    Between an even number of them and the next one, text is outside of quotes.
    """
    if b'"' not in block:
        return _NO_SPANS
    data = np.frombuffer(block, np.uint8)
    quotes = np.flatnonzero(data == _QUOTE)
    is_boundary = np.zeros(256, np.bool_)
    is_boundary[[ord(delimiter), *_LINE_ENDS]] = True
    # Mostly all quotes are those of quoted fields: then each second one stands before a boundary or a further quote.
    opening, closing = quotes[0::2], quotes[1::2]
    may_open = is_boundary.copy()
    may_open[_QUOTE] = True
    are_openings = may_open[data[opening - 1]] | (opening == 0)
    after = np.minimum(closing + 1, len(data) - 1)
    are_closings = may_open[data[after]] | (closing + 1 == len(data))
    if bool(are_openings.all()) and bool(are_closings.all()):
        if len(quotes) % 2 == 0:
            ends_open = not is_last and bool(quotes[-1] + 1 == len(data))
            # what follows the last quote may be another quote
            return quotes[:-1] if ends_open else quotes
        if not is_last:
            return quotes
    return _walk(block, quotes.tolist(), is_boundary, is_last)


def _walk(block: bytes, quotes: list[int], is_boundary: Any, is_last: bool) -> _Bounds:
    """As :func:`_quoted_spans`, quote by quote, where some are ordinary characters."""
    bounds: list[int] = []
    number = 0
    while number < len(quotes):
        start = quotes[number]
        number += 1
        if start > 0 and not is_boundary[block[start - 1]]:
            continue  # an ordinary character within a field that is not quoted
        bounds.append(start)
        end = None
        while number < len(quotes):
            position = quotes[number]
            number += 1
            if number < len(quotes) and quotes[number] == position + 1:
                number += 1  # two quotes within quotes are one
                continue
            end = position
            break
        if end is None or (end + 1 == len(block) and not is_last):
            if is_last:
                raise _QuoteError(start, f"the quote before {_shown(block, start)} is never closed")
            break
        if end + 1 < len(block) and not is_boundary[block[end + 1]]:
            problem = f"the quote before {_shown(block, start)} is closed before {_shown(block, end)}, not at the end of a field"
            raise _QuoteError(start, problem)
        bounds.append(end)
    return np.array(bounds, np.int64)


def _shown(block: bytes, quote: int) -> str:
    text = block[quote + 1 : quote + 41].decode("utf-8", "replace")
    return repr(text[:20])


def find_swallowed_line(
    block: bytes, bounds: npt.NDArray[np.int64], delimiter: str, n_columns: int
) -> int | None:
    r"""The line, from 0, of the first quoted field over several lines, each of which has all columns by itself; None without one.

    Such a field may have swallowed rows: ``1\t"a\t0`` and ``2\tb"\t1`` are two rows if quotes are ordinary characters.
    """
    n_pairs = len(bounds) // 2
    starts = bounds[0 : 2 * n_pairs : 2]
    ends = bounds[1 : 2 * n_pairs : 2]
    if not n_pairs or n_columns < 2:
        return None
    line_breaks = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
    has_breaks = np.searchsorted(line_breaks, starts) < np.searchsorted(line_breaks, ends)
    for number in np.flatnonzero(has_breaks)[:_MAX_LOOKED_AT].tolist():
        first = block.rfind(b"\n", 0, int(starts[number])) + 1
        last = block.find(b"\n", int(ends[number]))
        lines = block[first : len(block) if last < 0 else last].split(b"\n")
        if all_are_rows([line.decode("utf-8", "replace") for line in lines], delimiter, n_columns):
            return block.count(b"\n", 0, first)
    return None


def all_are_rows(lines: list[str], delimiter: str, n_columns: int) -> bool:
    """Whether each of several lines has all columns by itself."""
    return n_columns > 1 and all(line.count(delimiter) == n_columns - 1 for line in lines)


def swallowed_warning(name: str, line: int) -> str:
    """What to say of a quoted field that may have swallowed rows."""
    return (
        f"{name!r}, line {line}: a quoted field goes over several lines, each of which has all columns by itself; "
        f"if quotes are ordinary characters in this file, rows are lost: pass quoting=csv.QUOTE_NONE"
    )


def header_warning(name: str, value: str) -> str:
    """What to say of a header that holds a value."""
    return (
        f"{name!r} may have no header: its first row, which names the columns, holds {value!r:.40}; "
        f"pass header=False if that row is a sample, header=True if it is a header"
    )
