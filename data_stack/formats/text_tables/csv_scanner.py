"""Finds where the rows of a CSV file begin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

_Positions = npt.NDArray[np.int64]

_QUOTE: Final = ord('"')
_LINE_FEED: Final = ord("\n")
_CARRIAGE_RETURN: Final = ord("\r")


@dataclass(frozen=True)
class ScanState:
    """What the text before a piece says of the piece.

    Attributes:
        begins_row: whether a row begins with the next byte that is not a line break.
        begins_field: whether a field begins with the next byte.
        is_quoted: whether the next byte is within a quoted field.
        follows_closing: whether the last byte is a quote that closed a field, or the first of a
            pair of quotes.
    """

    begins_row: bool = True
    begins_field: bool = True
    is_quoted: bool = False
    follows_closing: bool = False


class CSVRowScanner:
    """Finds the rows of a CSV file, the header included; lines without any character are no rows.

    Quotes count as :mod:`~data_stack.formats.csv_quotes` says. A quote that cannot be read exactly
    is not an error here: the reader of the rows refuses it.

    Args:
        delimiter: one ASCII character.
        has_quotes: whether quotes quote.

    Attributes:
        kind: names both arguments.
    """

    kind: str

    #: The character between two fields.
    _delimiter: str

    #: Whether quotes quote.
    _has_quotes: bool

    #: The size of the text so far.
    _n_bytes: int

    #: What the text so far says of the next piece.
    _state: ScanState

    def __init__(self, delimiter: str, *, has_quotes: bool) -> None:
        self.kind = f"csv, delimiter {delimiter!r}, quotes {has_quotes}"
        self._delimiter = delimiter
        self._has_quotes = has_quotes
        self._n_bytes = 0
        self._state = ScanState()

    def feed(self, piece: bytes) -> _Positions:
        """Return the offsets in the text of the rows that begin in the next piece.

        Args:
            piece: the next piece of the text, which may begin and end anywhere.
        """
        starts, self._state = find_row_starts(
            piece, self._state, delimiter=self._delimiter, has_quotes=self._has_quotes
        )
        offsets = starts + self._n_bytes
        self._n_bytes += len(piece)
        return offsets


def find_row_starts(
    piece: bytes, state: ScanState, *, delimiter: str, has_quotes: bool
) -> tuple[_Positions, ScanState]:
    """Return where rows begin in a piece of a CSV file, and the state behind it.

    Args:
        piece: text in an encoding that contains ASCII, such as UTF-8.
        state: the state before the piece.
        delimiter: one ASCII character.
        has_quotes: whether quotes quote.
    """
    if not piece:
        return np.empty(0, np.int64), state
    codes = np.frombuffer(piece, np.uint8)
    line_breaks = _find_line_breaks(piece, codes)

    # Quotes that open or close a field, or are one of a pair: each begins or ends quoted text.
    toggles = np.empty(0, np.int64)
    if has_quotes and b'"' in piece:
        quotes = np.flatnonzero(codes == _QUOTE)
        toggles = _find_toggles(codes, quotes, state, delimiter)
    if state.is_quoted or len(toggles):
        n_toggles_before = toggles.searchsorted(line_breaks) + int(state.is_quoted)
        line_breaks = line_breaks[n_toggles_before % 2 == 0]

    # A row begins behind a line break, unless another line break follows.
    starts = line_breaks + 1
    if state.begins_row:
        starts = np.concatenate((np.zeros(1, np.int64), starts))
    ends_with_line_break = bool(len(starts)) and int(starts[-1]) == len(piece)
    starts = starts[: len(starts) - int(ends_with_line_break)]
    codes_at_starts = codes[starts]
    is_row = (codes_at_starts != _LINE_FEED) & (codes_at_starts != _CARRIAGE_RETURN)

    is_quoted = (len(toggles) + int(state.is_quoted)) % 2 == 1
    ends_with_toggle = bool(len(toggles)) and int(toggles[-1]) == len(piece) - 1
    state_behind = ScanState(
        begins_row=ends_with_line_break,
        begins_field=not is_quoted and _ends_field(piece[-1], delimiter),
        is_quoted=is_quoted,
        follows_closing=ends_with_toggle and not is_quoted,
    )
    return starts[is_row], state_behind


def _find_line_breaks(piece: bytes, codes: npt.NDArray[np.uint8]) -> _Positions:
    are_line_breaks = codes == _LINE_FEED
    if b"\r" in piece:
        are_line_breaks |= codes == _CARRIAGE_RETURN
    return np.flatnonzero(are_line_breaks)


def _find_toggles(
    codes: npt.NDArray[np.uint8], quotes: _Positions, state: ScanState, delimiter: str
) -> _Positions:
    """Return those quotes that begin or end quoted text.

    Args:
        codes: the piece.
        quotes: the positions of all quotes in it.
        state: the state before the piece.
        delimiter: one ASCII character.
    """
    may_open = _may_open(codes, quotes, state, delimiter)

    # In most files each quote opens or closes a field, or is one of a pair within a field. Then
    # every second quote begins a field, or directly follows the quote before it.
    first_opening = 1 if state.is_quoted else 0
    follows_quote = np.zeros(len(quotes), np.bool_)
    follows_quote[1:] = quotes[1:] == quotes[:-1] + 1
    follows_quote[0] = state.follows_closing and quotes[0] == 0
    are_openings = may_open[first_opening::2] | follows_quote[first_opening::2]
    if are_openings.all():
        return quotes

    # Some quotes are ordinary characters of fields that are not quoted: look at each one.
    toggles: list[int] = []
    is_quoted = state.is_quoted
    last_closing = -1 if state.follows_closing else None
    for quote, begins_field in zip(quotes.tolist(), may_open.tolist(), strict=True):
        if is_quoted:
            is_quoted = False
            last_closing = quote
        elif begins_field or last_closing == quote - 1:
            is_quoted = True
        else:
            continue
        toggles.append(quote)
    return np.array(toggles, np.int64)


def _may_open(
    codes: npt.NDArray[np.uint8], quotes: _Positions, state: ScanState, delimiter: str
) -> npt.NDArray[np.bool_]:
    """Return, for each quote, whether a delimiter or a line break is before it."""
    # The first byte of the piece has none before it: quotes - 1 is then the last byte, whose value
    # is replaced.
    codes_before = codes[quotes - 1]
    may_open: npt.NDArray[np.bool_] = codes_before == ord(delimiter)
    may_open |= codes_before == _LINE_FEED
    may_open |= codes_before == _CARRIAGE_RETURN
    if quotes[0] == 0:
        may_open[0] = state.begins_field
    return may_open


def _ends_field(code: int, delimiter: str) -> bool:
    """Return whether a byte outside of quotes ends a field."""
    return code in (ord(delimiter), _LINE_FEED, _CARRIAGE_RETURN)
