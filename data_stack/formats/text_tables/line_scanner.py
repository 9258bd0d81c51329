"""Finds the lines of a text that are not empty."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

_LINE_BREAK: Final = 0x0A

#: The largest of the bytes that are white space, which ``bytes.strip()`` removes.
_SPACE: Final = 0x20


class LineScanner:
    """Finds the lines that are rows: those that hold more than white space.

    It reads more than 1 GB/s, unless many lines begin with a space.
    """

    kind: str = "lines"

    #: The size of the text so far.
    _n_bytes: int

    #: The offset of the line that goes on with the next piece; None if it is a row already.
    _open_line: int | None

    def __init__(self) -> None:
        self._n_bytes = 0
        self._open_line = 0

    def feed(self, piece: bytes) -> npt.NDArray[np.int64]:
        """Return the offsets in the text of those rows that were found with this piece.

        Args:
            piece: the next piece of the text, which may begin and end within a line.
        """
        codes = np.frombuffer(piece, np.uint8)
        line_breaks = np.flatnonzero(codes == _LINE_BREAK)
        piece_start = self._n_bytes
        self._n_bytes += len(piece)

        rows_of_open_line = []
        end_of_open_line = len(piece)
        if len(line_breaks):
            end_of_open_line = int(line_breaks[0])
        if self._open_line is not None and piece[:end_of_open_line].strip():
            rows_of_open_line.append(self._open_line)
            self._open_line = None
        if not len(line_breaks):
            return np.array(rows_of_open_line, np.int64)

        # All lines that begin in this piece. The last one goes on with the next piece.
        starts = line_breaks + 1
        ends = np.append(line_breaks[1:], len(piece))
        is_row = np.zeros(len(starts), np.bool_)
        is_within_piece = starts < len(piece)
        is_row[is_within_piece] = codes[starts[is_within_piece]] > _SPACE
        for line in np.flatnonzero(~is_row).tolist():
            is_row[line] = bool(piece[starts[line] : ends[line]].strip())
        self._open_line = None
        if not is_row[-1]:
            self._open_line = piece_start + int(starts[-1])
        return np.append(np.array(rows_of_open_line, np.int64), starts[is_row] + piece_start)
