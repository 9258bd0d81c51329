"""Reads a file of JSON lines in blocks of parsed objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.text_tables.byte_counts import count_characters
from data_stack.formats.text_tables.json_cells import NumberWithText
from data_stack.formats.text_tables.text_file import PIECE_BYTES
from data_stack.util.request_limit import check_request
from data_stack.util.untrusted_text import distinct_fields, json_parser, place_in_line
from data_stack.values.text_numbers import parse_exact_float

#: Lines are parsed in blocks of this size; their Python objects may take 30 times as much memory.
BLOCK_BYTES: Final = 4 << 20

#: The maximum of what the Python object of a JSON value takes, apart from the characters of text:
#: that of an empty dict in a list.
_VALUE_BYTES: Final = 100

#: Replaces the digits 1 to 9 by 0, - by +, and E by e, so that few searches find all numbers of
#: one pattern.
_TO_PATTERN: Final = bytes.maketrans(b"123456789-E", b"000000000+e")

#: A number without one of these patterns is rounded neither to infinity nor to 0.
_PATTERNS_OF_EXTREMES: Final = (b"e000", b"e+000", b"0" * 100)


class WholeText(Protocol):
    """A text that is read from its start to its end, several times.

    Attributes:
        name: the name of the text for messages.
        sha256: the digest of the file's bytes after they were read to the end; None before.
    """

    name: str
    sha256: str | None

    def pieces(self, n_bytes: int) -> Iterator[bytes]:
        """Yield the text in UTF-8, without a byte order mark, in pieces of about ``n_bytes``."""

    def check_unchanged(self, sha256: str | None) -> None:
        """Check that the text still had a digest when it was read again."""


@dataclass(frozen=True)
class TextBlock:
    """The text of some lines.

    Attributes:
        data: the lines.
        first_line: the number of the first one, from 1.
    """

    data: bytes
    first_line: int


@dataclass(frozen=True)
class ObjectBlock:
    """The objects of some lines.

    Attributes:
        rows: the objects.
        lines: the number of the line of each object, from 1.
        has_truth: whether ``true`` or ``false`` occurs.
    """

    rows: list[dict[str, Any]]
    lines: list[int]
    has_truth: bool


@dataclass(frozen=True)
class KeyValues:
    """The values of a key in a block.

    Attributes:
        positions: the positions of the rows that have the key; None if all rows have it.
        values: the value of each of those rows.
    """

    positions: list[int] | None
    values: list[Any]

    def lines(self, block: ObjectBlock) -> list[int]:
        """Return the number of the line of each value."""
        if self.positions is None:
            return block.lines
        return [block.lines[position] for position in self.positions]


class JsonLines:
    """The lines of a file of JSON objects, in blocks.

    Args:
        text: the file.
        block_bytes: the size of the text that is parsed at once.
        keeps_texts_of_floats: whether floats are parsed as a :class:`NumberWithText`.

    Attributes:
        text: the file.
        name: the name of the file for messages.
    """

    #: The size of the text that is parsed at once.
    _block_bytes: int

    #: Whether floats are parsed as a NumberWithText.
    _keeps_texts_of_floats: bool

    def __init__(self, text: WholeText, *, block_bytes: int, keeps_texts_of_floats: bool) -> None:
        self.text = text
        self.name = text.name
        self._block_bytes = block_bytes
        self._keeps_texts_of_floats = keeps_texts_of_floats

    def read_blocks(self) -> Iterator[TextBlock]:
        """Read the lines in blocks.

        Raises:
            RequestLimitError: a line would take more memory than a request may.
        """
        n_lines = 0
        pieces = self.text.pieces(min(self._block_bytes, PIECE_BYTES))
        for text in _whole_lines(pieces, self._block_bytes, self.name):
            # There are at most as many values as commas and opening brackets.
            n_values = count_characters(text, b",[{")
            place = f"the lines from {n_lines + 1} on of {self.name!r}"
            check_request(len(text) + _VALUE_BYTES * n_values, place)
            yield TextBlock(text, n_lines + 1)
            # All blocks but the last one end with a line break.
            n_lines += text.count(b"\n")

    def parse(self, block: TextBlock) -> ObjectBlock:
        """Parse the lines of a block.

        Raises:
            DatasetFileCorruptError: a line is not a JSON object, or has a key twice.
        """
        parse = json_parser(
            object_pairs_hook=distinct_fields,
            parse_float=self._choose_parser_of_floats(block.data),
        )
        rows = []
        line_numbers = []
        for number, line in enumerate(block.data.split(b"\n"), start=block.first_line):
            if line.strip():
                rows.append(self._parse_line(line, number, parse))
                line_numbers.append(number)
        has_truth = b"true" in block.data or b"false" in block.data
        return ObjectBlock(rows, line_numbers, has_truth)

    def _choose_parser_of_floats(self, text: bytes) -> Callable[[str], float] | None:
        """Return what parses the floats of a block; None for Python's parser, the fastest."""
        if self._keeps_texts_of_floats:
            return NumberWithText.parse
        if _may_have_extremes(text):
            return parse_exact_float
        return None

    def _parse_line(self, line: bytes, number: int, parse: Callable[[str], Any]) -> dict[str, Any]:
        """Parse a line.

        Args:
            line: the line.
            number: the number of the line, for messages.
            parse: the parser of JSON.

        Raises:
            DatasetFileCorruptError: the line is not a JSON object.
        """
        try:
            row = parse(str(line, "utf-8"))
        except UnicodeDecodeError as error:
            raise DatasetFileCorruptError(
                f"{self.name!r}, line {number}, is not text in utf-8: {error!s:.200}; convert the "
                "file to utf-8"
            ) from error
        except (ValueError, RecursionError) as error:
            place = ""
            reason = str(error)
            if isinstance(error, ValueError):
                place, reason = place_in_line(error)
            if "digits" in reason:
                # Python's own message advises a change of the limit that protects the program.
                reason = "a number has thousands of digits"
            raise DatasetFileCorruptError(
                f"{self.name!r}, line {number}{place}: invalid JSON: {reason:.200}"
            ) from error
        if not isinstance(row, dict):
            raise DatasetFileCorruptError(
                f"{self.name!r}, line {number}: expected an object {{…}}, got {line[:80]!r}"
            )
        return row


def _whole_lines(pieces: Iterator[bytes], block_bytes: int, name: str) -> Iterator[bytes]:
    """Yield text in blocks of at least a size, which end with a line.

    Args:
        pieces: the text in pieces.
        block_bytes: the size of a block.
        name: the name of the file, for messages.

    Raises:
        RequestLimitError: a line would take more memory than a request may.
    """
    # The text that was not yielded yet.
    pieces_of_block: list[bytes] = []
    n_bytes = 0
    for piece in pieces:
        end = piece.rfind(b"\n") + 1
        if end and n_bytes + end >= block_bytes:
            pieces_of_block.append(piece[:end])
            yield b"".join(pieces_of_block)
            pieces_of_block = []
            n_bytes = 0
            piece = piece[end:]
        pieces_of_block.append(piece)
        n_bytes += len(piece)
        # Each byte of a line takes at least one of memory.
        check_request(n_bytes, f"a line of {name!r}")
    if n_bytes:
        yield b"".join(pieces_of_block)


def _may_have_extremes(text: bytes) -> bool:
    """Return whether numbers of a text may be rounded to infinity or 0.

    A regular expression would take a third of the time of reading.
    """
    pattern = text.translate(_TO_PATTERN)
    return any(extreme in pattern for extreme in _PATTERNS_OF_EXTREMES)


def values_by_key(rows: Sequence[dict[str, Any]]) -> dict[str, KeyValues]:
    """Return the values of each key in the rows of a block, of which there is at least one."""
    # Mostly, all rows have the same keys.
    keys = rows[0].keys()
    if all(row.keys() == keys for row in rows):
        key_values = {}
        for key in keys:
            key_values[key] = KeyValues(None, [row[key] for row in rows])
        return key_values

    positions: dict[str, list[int]] = {}
    values: dict[str, list[Any]] = {}
    for position, row in enumerate(rows):
        for key, value in row.items():
            if key not in values:
                positions[key] = []
                values[key] = []
            positions[key].append(position)
            values[key].append(value)

    key_values = {}
    for key in values:
        if len(values[key]) == len(rows):
            key_values[key] = KeyValues(None, values[key])
        else:
            key_values[key] = KeyValues(positions[key], values[key])
    return key_values
