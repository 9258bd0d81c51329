"""Finds where the rows of a CSV file begin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from data_stack.formats.text_tables.bit_masks import (
    find_set,
    move_to_next,
    pack_mask,
    parity_so_far,
)

_Codes = npt.NDArray[np.uint8]
_Mask = npt.NDArray[np.bool_]
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
    are_line_breaks = codes == _LINE_FEED
    if b"\r" in piece:
        are_line_breaks |= codes == _CARRIAGE_RETURN

    # Find the line breaks outside of quoted text.
    is_quoted = False
    ends_with_toggle = False
    if state.is_quoted or (has_quotes and b'"' in piece):
        quoting = _follow_regular_quotes(codes, are_line_breaks, state, delimiter)
        if quoting is None:
            quoting = _follow_any_quotes(codes, are_line_breaks, state, delimiter)
        line_breaks = quoting.line_breaks
        is_quoted = quoting.ends_quoted
        ends_with_toggle = quoting.ends_with_toggle
    else:
        line_breaks = np.flatnonzero(are_line_breaks)

    # A row begins behind a line break, unless another line break follows.
    starts = line_breaks + 1
    if state.begins_row:
        starts = np.concatenate((np.zeros(1, np.int64), starts))
    ends_with_line_break = bool(len(starts)) and int(starts[-1]) == len(piece)
    starts = starts[: len(starts) - int(ends_with_line_break)]
    is_row = ~are_line_breaks[starts]

    state_behind = ScanState(
        begins_row=ends_with_line_break,
        begins_field=not is_quoted and _ends_field(piece[-1], delimiter),
        is_quoted=is_quoted,
        follows_closing=ends_with_toggle and not is_quoted,
    )
    return starts[is_row], state_behind


@dataclass(frozen=True)
class _Quoting:
    """What the quotes of a piece say.

    A quote *toggles* if it begins or ends quoted text: it opens or closes a field, or is one of a
    pair within a field. Other quotes are ordinary characters.

    Attributes:
        line_breaks: the positions of the line breaks outside of quoted text.
        ends_quoted: whether the piece ends within quoted text.
        ends_with_toggle: whether the last byte is a quote that toggles.
    """

    line_breaks: _Positions
    ends_quoted: bool
    ends_with_toggle: bool


def _follow_regular_quotes(
    codes: _Codes, are_line_breaks: _Mask, state: ScanState, delimiter: str
) -> _Quoting | None:
    """Find quoted text in a piece in which each quote toggles, as in most files.

    Args:
        codes: the piece.
        are_line_breaks: which of its bytes are line breaks.
        state: the state before the piece.
        delimiter: one ASCII character.

    Returns:
        None if some quote is an ordinary character.
    """
    quotes = pack_mask(codes == _QUOTE)
    line_breaks = pack_mask(are_line_breaks)
    # Behind an odd number of quotes, the text is quoted.
    quoted = parity_so_far(quotes, is_odd=state.is_quoted)

    # A quote that begins quoted text begins a field, or directly follows the quote before it.
    openings = quotes & quoted
    may_be_before = quotes | line_breaks | pack_mask(codes == ord(delimiter))
    may_open = move_to_next(may_be_before, first=state.begins_field or state.follows_closing)
    if (openings & ~may_open).any():
        return None
    return _Quoting(
        line_breaks=find_set(line_breaks & ~quoted),
        ends_quoted=bool(quoted[-1] >> np.uint64(63)),
        ends_with_toggle=int(codes[-1]) == _QUOTE,
    )


def _follow_any_quotes(
    codes: _Codes, are_line_breaks: _Mask, state: ScanState, delimiter: str
) -> _Quoting:
    """Find quoted text in a piece in which quotes may be ordinary characters: look at each quote.

    Args:
        codes: the piece, which has a quote.
        are_line_breaks: which of its bytes are line breaks.
        state: the state before the piece.
        delimiter: one ASCII character.
    """
    quotes = np.flatnonzero(codes == _QUOTE)
    codes_before = codes[quotes - 1]
    begin_field = are_line_breaks[quotes - 1] | (codes_before == ord(delimiter))
    if quotes[0] == 0:
        # The byte before it is in the piece before.
        begin_field[0] = state.begins_field

    toggles: list[int] = []
    is_quoted = state.is_quoted
    last_closing = -1 if state.follows_closing else None
    for quote, begins_field in zip(quotes.tolist(), begin_field.tolist(), strict=True):
        if is_quoted:
            is_quoted = False
            last_closing = quote
        elif begins_field or last_closing == quote - 1:
            is_quoted = True
        else:
            continue
        toggles.append(quote)

    line_breaks = np.flatnonzero(are_line_breaks)
    n_toggles_before = np.array(toggles, np.int64).searchsorted(line_breaks)
    are_quoted = (n_toggles_before + int(state.is_quoted)) % 2 == 1
    return _Quoting(
        line_breaks=line_breaks[~are_quoted],
        ends_quoted=is_quoted,
        ends_with_toggle=bool(toggles) and toggles[-1] == len(codes) - 1,
    )


def _ends_field(code: int, delimiter: str) -> bool:
    """Return whether a byte outside of quotes ends a field."""
    return code in (ord(delimiter), _LINE_FEED, _CARRIAGE_RETURN)
