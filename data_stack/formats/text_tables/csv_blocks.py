"""Cuts the text of a CSV file into blocks of whole rows."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.csv_dialect import QUOTING_ADVICE
from data_stack.formats.csv_quotes import find_rows, first_row_end
from data_stack.formats.csv_warnings import find_swallowed_line, header_warning, swallowed_warning
from data_stack.formats.text_tables.column_errors import check_columns, check_typed_columns
from data_stack.formats.text_tables.csv_options import CSVOptions
from data_stack.formats.text_tables.indexed_text import IndexedText
from data_stack.formats.text_tables.text_file import PIECE_BYTES, TextFile
from data_stack.values.text_numbers import is_number

#: The size of the largest row. A larger one is most likely a quote that is never closed; and the
#: memory that it takes must stay bounded. (pyarrow reads less than 2 GiB at once.)
MAX_ROW_BYTES: Final = 1 << 28

#: The number of quoted fields over several lines that are looked at in the first block, to find
#: one that has swallowed rows.
_FIELDS_TO_LOOK_AT: Final = 10_000

#: Their number in each of the later blocks, where looking at more would take most of the time.
_FIELDS_TO_LOOK_AT_LATER: Final = 1_000

#: A cell that begins with a date. In a header it is a sign of a row of values.
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}.*", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """Some rows of a file.

    Attributes:
        data: the text of the rows.
        line: the number of its first line in the file, from 1.
    """

    data: bytes
    line: int


class CSVBlocks:
    """The rows of a CSV file in blocks, without its header.

    Args:
        text: the file.
        options: how it is written.
        typed_columns: the columns with a given type.
        wanted_columns: the columns to read; None for all.
        max_row_bytes: the size of the largest row.

    Attributes:
        column_names: the names of the columns, after the first row was read.
        read_names: the names of those to read, in the order of the file, after that.
        warnings: what to warn of, once the file turned out to be readable.
    """

    column_names: list[str]
    read_names: list[str]
    warnings: list[str]

    #: The file.
    _text: TextFile | IndexedText

    #: How the file is written.
    _options: CSVOptions

    def __init__(
        self,
        text: TextFile | IndexedText,
        options: CSVOptions,
        typed_columns: Collection[str],
        wanted_columns: Collection[str] | None,
        *,
        max_row_bytes: int = MAX_ROW_BYTES,
    ) -> None:
        self.column_names: list[str] = []
        self.read_names: list[str] = []
        self._text = text
        self._options = options
        self._typed_columns = typed_columns
        self._wanted_columns = wanted_columns
        self._max_row_bytes = max_row_bytes
        self.warnings = []

    def iterate(self, block_bytes: int) -> Iterator[Block]:
        """Yield the rows from the start of the file, in blocks of about a size.

        Raises:
            DatasetFileCorruptError: quotes cannot be read exactly, a row is too large, or the text
                has another encoding.
            ConfigError: two columns have one name, ``names`` differ in number from the columns, or
                a column that was asked for does not exist.
        """
        pieces = self._text.pieces(min(block_bytes, PIECE_BYTES))
        # The start of a row whose end is in the next pieces.
        incomplete_row = b""
        # The number of the first line of the text.
        line = 1
        is_first = True
        is_last = False
        while not is_last:
            # A row may be longer than a block: then a larger block holds it.
            n_bytes = max(block_bytes, 2 * len(incomplete_row))
            text, is_last = _join_pieces(incomplete_row, pieces, n_bytes)

            # Empty lines before the first row are skipped.
            if is_first:
                n_empty_bytes = len(text) - len(text.lstrip(b"\r\n"))
                line += text.count(b"\n", 0, n_empty_bytes)
                text = text[n_empty_bytes:]

            # Cut the text behind its last complete row.
            rows = find_rows(
                text,
                self._text.name,
                first_line=line,
                delimiter=self._options.delimiter,
                has_quotes=self._options.has_quotes,
                is_last=is_last,
            )
            incomplete_row = text[rows.end :]
            if len(incomplete_row) > self._max_row_bytes:
                complete_text = text[: rows.end]
                raise self._error_of_large_row(incomplete_row, line + complete_text.count(b"\n"))
            text = text[: rows.end]
            if not text and not is_last:
                continue

            header_bytes = 0
            max_fields = _FIELDS_TO_LOOK_AT_LATER
            if is_first:
                header_bytes = self._read_first_row(text, line)
                max_fields = _FIELDS_TO_LOOK_AT
                is_first = False

            n_columns = len(self.column_names)
            swallowed_line = find_swallowed_line(
                text, rows.bounds, self._options.delimiter, n_columns, max_fields=max_fields
            )
            if swallowed_line is not None:
                self._note_warning(swallowed_warning(self._text.name, line + swallowed_line))
            if n_columns == 1:
                self._note_empty_lines(text, line)

            rows_of_block = text[header_bytes:]
            if rows_of_block.strip(b"\r\n"):
                yield Block(rows_of_block, line + text.count(b"\n", 0, header_bytes))
            line += text.count(b"\n")

    def _error_of_large_row(self, row: bytes, line: int) -> DatasetFileCorruptError:
        """Return the error for a row that is larger than the largest one.

        Args:
            row: the start of the row.
            line: the number of its first line.
        """
        advice = ""
        if self._options.has_quotes and b'"' in row:
            advice = f"; if a quote in it is never closed, {QUOTING_ADVICE}"
        return DatasetFileCorruptError(
            f"{self._text.name!r}, line {line}: a row of more than {self._max_row_bytes:,} "
            f"bytes{advice}"
        )

    def line_of_row(self, block: Block, row: int) -> int:
        """Return the number of the line on which a row of a block begins.

        Args:
            block: the block.
            row: the position of the row in it.
        """
        reader = csv.reader(
            io.StringIO(block.data.decode("utf-8", "replace"), newline=""),
            delimiter=self._options.delimiter,
            quoting=self._options.csv_quoting,
        )
        n_lines_before = 0
        n_rows_before = 0
        try:
            for cells in reader:
                # An empty line is not a row.
                if cells:
                    if n_rows_before == row:
                        break
                    n_rows_before += 1
                n_lines_before = reader.line_num
        except csv.Error:
            # A field may be too long for Python's reader; the line before it is near enough.
            pass
        return block.line + n_lines_before

    # ------------------------------------------------------------------ first row

    def _read_first_row(self, text: bytes, line: int) -> int:
        """Find the names of the columns.

        Args:
            text: the first rows; empty if the file has none.
            line: the number of the first line.

        Returns:
            The size of the header in bytes; 0 without a header.

        Raises:
            DatasetFileCorruptError: the file has neither a header nor rows, and no names were
                given; or the first row cannot be read.
            ConfigError: ``names`` differ in number from the columns, two columns have one name, or
                a column that was asked for does not exist.
        """
        options = self._options
        file = self._text.name
        if options.has_header:
            expected = "a header"
            needs_row = True
        else:
            expected = "a row, or names="
            needs_row = options.names is None
        if needs_row and not text:
            raise DatasetFileCorruptError(
                f"{file!r} cannot be read as CSV: Empty CSV file; expected {expected}"
            )
        end = first_row_end(text, options.delimiter, has_quotes=options.has_quotes)
        row = self._decode_row(text[:end], line)
        cells = self._cells_of(row, line)
        names = self._choose_names(cells)
        if text and len(names) != len(cells):
            raise ConfigError(
                f"names= has {len(names)} names, but {file!r} has {len(cells)} columns"
            )
        self._check_names(names)
        self.column_names = names
        self.read_names = list(names)
        if self._wanted_columns is not None:
            self.read_names = [name for name in names if name in self._wanted_columns]
        if not options.has_header:
            return 0
        self._note_doubts_about_header(row, cells)
        return end

    def _decode_row(self, row: bytes, line: int) -> str:
        try:
            return row.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DatasetFileCorruptError(
                f"{self._text.name!r}, line {line}, is not text in {self._text.encoding}: "
                f"{error!s:.200}; pass encoding="
            ) from error

    def _cells_of(self, row: str, line: int) -> list[str]:
        """Return the cells of the first row."""
        reader = csv.reader(
            io.StringIO(row, newline=""),
            delimiter=self._options.delimiter,
            quoting=self._options.csv_quoting,
            strict=True,
        )
        try:
            return next(reader, [])
        except csv.Error as error:
            raise DatasetFileCorruptError(f"{self._text.name!r}, line {line}: {error}") from error

    def _choose_names(self, cells: list[str]) -> list[str]:
        """Return the names of the columns.

        Args:
            cells: the cells of the first row.
        """
        if self._options.names is not None:
            return list(self._options.names)
        if self._options.has_header:
            return cells
        return [f"column_{number}" for number in range(len(cells))]

    def _check_names(self, names: Sequence[str]) -> None:
        """Check that names differ, and that the columns that were asked for exist."""
        file = self._text.name
        repeated = [name for name, count in Counter(names).items() if count > 1]
        if repeated:
            advice = "rename them, or pass names="
            if any(map(is_number, names)):
                advice += "; if the first row holds values, pass header=False"
            raise ConfigError(
                f"{file!r}: the columns of a table need different names of text, "
                f"got {repeated[0]!r:.80} twice; {advice}"
            )
        check_typed_columns(file, self._typed_columns, names)
        check_columns(file, self._wanted_columns, names)

    # ------------------------------------------------------------------ warnings

    def _note_doubts_about_header(self, row: str, cells: Sequence[str]) -> None:
        """Note a header with another delimiter, and one that may be a row of values.

        Args:
            row: the header.
            cells: its cells.
        """
        file = self._text.name
        other = other_delimiter(row, self._options.delimiter)
        if other is not None:
            self._note_warning(
                f"{file!r} has one column, {cells[0]!r:.80}; {delimiter_advice(other)}"
            )
        values = [cell for cell in cells if is_number(cell) or _DATE.fullmatch(cell)]
        if self._options.is_header_assumed and values:
            self._note_warning(header_warning(file, values[0]))

    def _note_empty_lines(self, text: bytes, line: int) -> None:
        """Note that empty lines are left out, in a table of one column.

        Args:
            text: some rows.
            line: the number of their first line.
        """
        lines = text.rstrip(b"\r\n")
        empty_line = re.search(rb"\n(?=\r?\n)", lines)
        # Within quotes, an empty line is part of a value.
        if empty_line is None or b'"' in lines:
            return
        number = line + lines.count(b"\n", 0, empty_line.start()) + 1
        self._note_warning(
            f"{self._text.name!r}, line {number}: empty lines are no rows, and are left out; "
            f'write an empty value as ""'
        )

    def _note_warning(self, message: str) -> None:
        if message not in self.warnings:
            self.warnings.append(message)


def _join_pieces(start: bytes, pieces: Iterator[bytes], n_bytes: int) -> tuple[bytes, bool]:
    """Join pieces to a text of at least a size.

    Args:
        start: the start of the text.
        pieces: the pieces that follow.
        n_bytes: the size in bytes.

    Returns:
        The text, which may be shorter at the end of the pieces; and whether they have ended.
    """
    parts = [start]
    n_joined = len(start)
    while n_joined < n_bytes:
        piece = next(pieces, None)
        if piece is None:
            return b"".join(parts), True
        parts.append(piece)
        n_joined += len(piece)
    return b"".join(parts), False


def other_delimiter(header: str, delimiter: str) -> str | None:
    """Return the delimiter that a header contains instead of ``delimiter``; None without one."""
    if delimiter in header:
        return None
    for other in ",;\t|":
        if other in header:
            return other
    return None


def delimiter_advice(other: str) -> str:
    """Return what to do about a header with another delimiter."""
    return f"if {other!r} separates its values, pass delimiter={other!r}"
