"""Reads the rows of a CSV file; every error names the line."""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.codecs.plain_data import shorten
from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.csv_dialect import QUOTING_ADVICE, check_delimiter, check_quoting
from data_stack.formats.csv_numbers import number_of
from data_stack.formats.csv_warnings import all_are_rows, header_warning, swallowed_warning
from data_stack.io.parsing import reading
from data_stack.io.stand_ins import check_no_stand_in
from data_stack.io.wide_text import check_not_utf16
from data_stack.util.program_lines import warn_program
from data_stack.values.text_numbers import is_number

#: Rows that are converted at once.
_BLOCK_ROWS = 4096

#: A longer line is damaged, or made to exhaust memory. (A field has csv.field_size_limit(),
#: 131,072 characters.)
_MAX_LINE_CHARACTERS = 1 << 24

#: The size of a file of which only the start was read, for :func:`check_no_stand_in`.
_UNKNOWN_SIZE = -1


class CSVFile:
    """The rows of a CSV file, as Python's module ``csv`` splits them into cells.

    Args:
        file: an open binary or text stream, which stays open.
        name: the name of the file for messages.
        header: whether the first line contains names; None: it does, with a warning if it holds a
            number.
        skip_lines: the number of lines to skip before the header.
        delimiter: one character.
        encoding: the encoding of a binary stream.
        missing: the texts that mean nan in columns of floats.
        quoting: ``csv.QUOTE_NONE`` if quotes are ordinary characters.

    Attributes:
        name: the name of the file for messages.
        names: names of the columns, or the values of the first row without a header; empty without
            rows.

    Raises:
        DatasetFileCorruptError: the file lacks the header, has another encoding, or is a page or a
            pointer of Git LFS instead of the data.
        ConfigError: ``delimiter`` or ``quoting`` is invalid.
    """

    #: Whether the first row holds names.
    _has_header: bool

    #: Texts that mean nan.
    _missing: Collection[str]

    #: The character between two fields.
    _delimiter: str

    #: Whether quotes quote, as Python's module ``csv`` takes it.
    _quoting: Any

    #: The number of the line that was read last.
    _line: int

    #: The lines of the row that is being read: several, if a quoted field has line breaks.
    _row_lines: list[str]

    #: Whether a warning of swallowed rows was given.
    _has_warned: bool

    #: Line number and cells of each row that was not converted yet.
    _rows: Iterator[tuple[int, list[str]]]

    def __init__(
        self,
        file: Any,
        name: str,
        *,
        header: bool | None = None,
        skip_lines: int = 0,
        delimiter: str = ",",
        encoding: str = "utf-8",
        missing: Collection[str] = (),
        quoting: Any = csv.QUOTE_MINIMAL,
    ) -> None:
        self.name = name
        self.names: list[str] = []
        self._has_header = header is not False
        self._missing = missing
        self._delimiter = check_delimiter(delimiter)
        self._quoting = check_quoting(quoting)
        self._line = 0
        self._row_lines = []
        self._has_warned = False
        self._rows = self._read_rows(file, skip_lines, encoding)

        first_row = next(self._rows, None)
        if first_row is None:
            if self._has_header:
                raise DatasetFileCorruptError(
                    f"{name!r} is empty; expected a header in line {skip_lines + 1}"
                )
            return
        _, self.names = first_row
        # A page of a server instead of the file. A quoted cell may hold a page, too; but then the
        # row, unlike the page, does not begin with a tag.
        first_line = self._delimiter.join(self.names).encode() + b"\n"
        check_no_stand_in(first_line, repr(name), _UNKNOWN_SIZE)
        check_not_utf16(first_line, name)
        if not self._has_header:
            # The first row holds values, which are converted with those of the other rows.
            self._rows = itertools.chain([first_row], self._rows)
            return
        numbers = [cell for cell in self.names if is_number(cell)]
        if header is None and numbers:
            warn_program(header_warning(name, numbers[0]))

    def position_of(self, column: str | int) -> int:
        """Return the position of a column.

        Raises:
            ConfigError: the position is out of range, or the file has no header.
            DatasetFileCorruptError: no column, or several, have that name.
        """
        names = self.names
        if isinstance(column, int):
            if -len(names) <= column < len(names):
                return column % len(names)
            raise ConfigError(
                f"{self.name!r} has {len(names)} columns; column {column} is out of range"
            )
        if not self._has_header:
            raise ConfigError(
                f"column {column!r} of {self.name!r} is a name, but the file has no header"
            )
        if self._counts[column] != 1:
            raise DatasetFileCorruptError(
                f"{self.name!r} has {self._counts[column]} columns named {column!r} in {names[:20]}"
            )
        return self._positions[column]

    @functools.cached_property
    def _counts(self) -> Counter[str]:
        return Counter(self.names)

    @functools.cached_property
    def _positions(self) -> dict[str, int]:
        return {name: position for position, name in enumerate(self.names)}

    # ------------------------------------------------------------------ rows

    def _read_rows(
        self, file: Any, skip_lines: int, encoding: str
    ) -> Iterator[tuple[int, list[str]]]:
        """Yield line number and cells of each row that is not empty."""
        text = file
        if not isinstance(file, io.TextIOBase):
            text = io.TextIOWrapper(file, encoding, newline="")
        try:
            with reading(self.name, f"CSV file in {encoding}"):
                lines = itertools.islice(self._read_lines(text), skip_lines, None)
                reader = csv.reader(
                    lines, delimiter=self._delimiter, quoting=self._quoting, strict=True
                )
                try:
                    for row in reader:
                        if row:
                            self._check_swallowed()
                            yield self._line, row
                        self._row_lines.clear()
                except csv.Error as error:
                    raise self._error_of_row(error) from error
        finally:
            if text is not file:
                # Otherwise the wrapper would close the caller's stream, which may be closed
                # already after an error.
                with contextlib.suppress(ValueError):
                    text.detach()

    def _read_lines(self, text: Any) -> Iterator[str]:
        """Yield lines, and note them as those of the row that is being read."""
        while line := text.readline(_MAX_LINE_CHARACTERS):
            self._line += 1
            if len(line) == _MAX_LINE_CHARACTERS:
                raise DatasetFileCorruptError(
                    f"{self.name!r}, line {self._line}: "
                    f"longer than {_MAX_LINE_CHARACTERS} characters"
                )
            if self._line == 1:
                # Spreadsheets write a byte order mark.
                line = line.removeprefix("\ufeff")
            self._row_lines.append(line)
            yield line

    def _check_swallowed(self) -> None:
        """Warn, once, of a row over several lines that are rows by themselves."""
        if self._has_warned or len(self._row_lines) < 2 or not self.names:
            return
        if all_are_rows(self._row_lines, self._delimiter, len(self.names)):
            self._has_warned = True
            warn_program(swallowed_warning(self.name, self._first_line_of_row()))

    def _error_of_row(self, error: csv.Error) -> Exception:
        """Return the error for a row that Python's reader refuses."""
        advice = ""
        if self._row_lines and '"' in self._row_lines[0]:
            advice = f"; {QUOTING_ADVICE}"
        return DatasetFileCorruptError(
            f"{self.name!r}, line {self._first_line_of_row()}: {error}{advice}"
        )

    def _first_line_of_row(self) -> int:
        """Return the number of the first line of the row that is being read."""
        return self._line - len(self._row_lines) + 1

    # ------------------------------------------------------------------ values

    def columns(self, dtypes: Mapping[int, np.dtype[Any]]) -> dict[int, npt.NDArray[Any]]:
        """Return the columns at some positions.

        Args:
            dtypes: the dtype of each column by its position.

        Raises:
            DatasetFileCorruptError: ragged rows, or text that is not a number of its dtype.
        """
        parts: dict[int, list[npt.NDArray[Any]]] = {position: [] for position in dtypes}
        is_last = False
        while not is_last:
            # The last block is empty, so that a column without rows has its dtype, too.
            block = list(itertools.islice(self._rows, _BLOCK_ROWS))
            is_last = not block
            for line, row in block:
                if len(row) != len(self.names):
                    raise DatasetFileCorruptError(
                        f"{self.name!r}, line {line}: "
                        f"{len(row)} columns, expected {len(self.names)}"
                    )
            for position, dtype in dtypes.items():
                cells = [(line, row[position]) for line, row in block]
                parts[position].append(self._convert(cells, dtype, position))
        return {position: np.concatenate(arrays) for position, arrays in parts.items()}

    def _convert(
        self, cells: list[tuple[int, str]], dtype: np.dtype[Any], column: int
    ) -> npt.NDArray[Any]:
        """Return the values of cells.

        Args:
            cells: pairs of line number and text.
            dtype: the dtype of the values.
            column: the position of the column, for messages.

        Raises:
            ConfigError: CSV has no values of the dtype.
            DatasetFileCorruptError: a text is not a value of the dtype.
        """
        if dtype.kind == "U":
            # An array of objects, as numpy's strings would lose trailing NULs.
            strings = np.empty(len(cells), object)
            strings[:] = [text for _, text in cells]
            return strings
        if dtype.kind not in "fiub":
            raise ConfigError(f"a CSV column must be numbers, bools or str, got {dtype}")
        missing = self._missing if dtype.kind == "f" else ()
        values = []
        for line, text in cells:
            if text in missing:
                values.append(np.nan)
                continue
            try:
                values.append(number_of(text, dtype))
            except (ValueError, KeyError, OverflowError) as error:
                raise DatasetFileCorruptError(
                    f"{self.name!r}, line {line}, column {column + 1}: "
                    f"invalid {dtype}: {shorten(text)}"
                ) from error
        return np.array(values, dtype)
