"""Reads JSON lines as Arrow tables, with types that are inferred from all lines."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.codecs.plain_data import shorten
from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.text_tables.byte_counts import count_characters
from data_stack.formats.text_tables.column_errors import check_columns, check_typed_columns
from data_stack.formats.text_tables.json_cells import (
    MISFIT_ERRORS,
    NumberWithText,
    convert_values,
    infer_cells,
    kind_of,
)
from data_stack.formats.text_tables.json_fitting import count_present
from data_stack.formats.text_tables.json_shapes import join_shapes, shape_of
from data_stack.formats.text_tables.json_types import (
    JSON,
    CellType,
    JsonType,
    is_nested,
    is_null,
    join_types,
    stored_type,
)
from data_stack.formats.text_tables.text_file import PIECE_BYTES
from data_stack.util.request_limit import check_request
from data_stack.util.untrusted_text import distinct_fields, json_parser, place_in_line
from data_stack.values.text_numbers import parse_exact_float

#: Lines are parsed in blocks of this size; their Python objects may take 30 times as much memory.
BLOCK_BYTES: Final = 4 << 20

#: The maximum of what the Python object of a JSON value takes, apart from the characters of text:
#: that of an empty dict in a list.
_VALUE_BYTES: Final = 100

#: What a cell of a column takes.
_CELL_BYTES: Final = 8

#: Replaces the digits 1 to 9 by 0, - by +, and E by e, so that few searches find all numbers of
#: one pattern.
_TO_PATTERN: Final = bytes.maketrans(b"123456789-E", b"000000000+e")

#: A number without one of these patterns is rounded neither to infinity nor to 0.
_PATTERNS_OF_EXTREMES: Final = (b"e000", b"e+000", b"0" * 100)

_MIN_INT64: Final = -(1 << 63)
_MAX_INT64: Final = (1 << 63) - 1
_MAX_UINT64: Final = (1 << 64) - 1


@dataclass(frozen=True)
class JsonColumns:
    """The columns of a file of JSON lines.

    Attributes:
        types: the type of each column; a column for each key.
        nullable: the columns whose key is null, or missing, in some line.
        n_rows: the number of lines that are not empty.
    """

    types: dict[str, CellType]
    nullable: frozenset[str]
    n_rows: int


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


# ---------------------------------------------------------------------- blocks of lines
#
# Lines are parsed in blocks: a block of objects (_Block) is turned into the values of each key
# (_KeyValues), and these into cells of Arrow (_Cells), by types of their own. When the types of all
# blocks are known, the cells of each block (_BlockOfColumns) become a table by those types.


@dataclass(frozen=True)
class _Text:
    """The text of some lines.

    Attributes:
        data: the lines.
        first_line: the number of the first one, from 1.
    """

    data: bytes
    first_line: int


@dataclass(frozen=True)
class _Block:
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
class _KeyValues:
    """The values of a key in a block.

    Attributes:
        positions: the positions of the rows that have the key; None if all rows have it.
        values: the value of each of those rows.
    """

    positions: list[int] | None
    values: list[Any]

    def lines(self, block: _Block) -> list[int]:
        """Return the number of the line of each value."""
        if self.positions is None:
            return block.lines
        return [block.lines[position] for position in self.positions]


@dataclass(frozen=True)
class _Cells:
    """The values of a key in a block, as cells of Arrow.

    Attributes:
        cells: the values of the rows that have the key.
        type: the type of the values.
        positions: the positions of those rows; None if all rows have the key.
        line: the number of the line of the first value that is not null; of the first value if all
            are null.
        example: the value on that line, shortened for messages.
    """

    cells: pa.Array
    type: CellType
    positions: npt.NDArray[np.int64] | None
    line: int
    example: str


@dataclass(frozen=True)
class _BlockOfColumns:
    """A block, as cells of Arrow.

    Attributes:
        n_rows: the number of rows.
        columns: the cells of each key that occurs.
    """

    n_rows: int
    columns: dict[str, _Cells]


class _Counts:
    """Counts rows, and the values of each key that are not null.

    Attributes:
        n_rows: the number of rows so far.
        n_present: the number of values of each key.
    """

    n_rows: int
    n_present: Counter[str]

    def __init__(self) -> None:
        self.n_rows = 0
        self.n_present = Counter()

    def watch(self, blocks: Iterable[_BlockOfColumns]) -> Iterator[_BlockOfColumns]:
        """Yield blocks as they are, and count them."""
        for block in blocks:
            n_present = {}
            for key, cells in block.columns.items():
                n_present[key] = len(cells.cells) - cells.cells.null_count
            self.add(block.n_rows, n_present)
            yield block

    def add(self, n_rows: int, n_present: Mapping[str, int]) -> None:
        """Count some rows, and the values of each key in them."""
        self.n_rows += n_rows
        self.n_present.update(n_present)


class JsonLinesTable:
    """The lines of a file of JSON objects.

    A column has the type of all of its values: integers, floats, truth values, text, or lists and
    objects of such that have the same types and keys everywhere. Other lists and objects become
    JSON text, so that no key is added and no value changes.

    Args:
        text: the file.
        types: types of some keys, instead of inferred ones.
        columns: the keys to read; None for all.
        block_bytes: the size of the text that is parsed at once.
        uses_arrow: whether pyarrow checks blocks of known types, which takes a seventh of the time.

    Attributes:
        text: the file.
        name: the name of the file for messages.
    """

    #: The keys to read; None for all.
    _wanted_keys: set[str] | None

    #: The keys that occurred, in their order, also those that are not read.
    _known_keys: dict[str, None]

    #: The given types of keys.
    _types: dict[str, CellType]

    #: The size of the text that is parsed at once.
    _block_bytes: int

    #: Whether pyarrow may check blocks. Given types, and keys that are not read, are left to the
    #: exact parser.
    _uses_arrow: bool

    #: Whether floats must keep their text.
    _needs_texts_of_numbers: bool

    #: The type of Arrow that the lists and objects of a key had so far, see :func:`shape_of`; None
    #: if there is none.
    _shapes: dict[str, pa.DataType | None]

    def __init__(
        self,
        text: WholeText,
        types: Mapping[str, CellType],
        columns: Collection[str] | None = None,
        *,
        block_bytes: int = BLOCK_BYTES,
        uses_arrow: bool = True,
    ) -> None:
        self.text = text
        self.name = text.name
        self._wanted_keys = None if columns is None else set(columns)
        self._known_keys = {}
        self._types = dict(types)
        self._block_bytes = block_bytes
        self._uses_arrow = uses_arrow and not types and columns is None
        self._needs_texts_of_numbers = any(map(has_digits_of_file, types.values()))
        self._shapes = {}

    def infer(self) -> JsonColumns:
        """Read all lines, and return the columns that they have.

        Raises:
            DatasetFileCorruptError: a line is not a JSON object, or has a key twice; or the values
                of a key are of several types, or do not fit the declared one.
            ConfigError: a declared key does not exist.
            RequestLimitError: a line, or a table of so many different keys, would take more memory
                than a request may.
        """
        counts = _Counts()
        types: dict[str, CellType] = {}
        texts = self._texts_of_other_types(types, counts)
        blocks = counts.watch(self._blocks_of_columns(texts))
        self._join_types(types, blocks)
        for key in types:
            if _has_half_character(key):
                raise DatasetFileCorruptError(
                    f"{self.name!r}: the key {key!r:.80} has half of a character (a surrogate "
                    "without the other one), which text lacks; correct the file"
                )
        nullable = frozenset(key for key in types if counts.n_present[key] < counts.n_rows)
        return JsonColumns(types, nullable, counts.n_rows)

    def stream(self) -> tuple[dict[str, CellType], Iterator[pa.Table]]:
        """Return the types of the columns, and an iterator over tables of their rows.

        The file is read once for the types, and again for the rows.

        Raises:
            DatasetFileCorruptError: as for :meth:`infer`. The iterator raises it if the file has
                changed since its types were read.
            ConfigError, RequestLimitError: as for :meth:`infer`.
        """
        types = self.infer().types
        return types, self._iterate_tables(types, self.text.sha256)

    def _iterate_tables(
        self, types: Mapping[str, CellType], sha256: str | None
    ) -> Iterator[pa.Table]:
        for block in self._blocks_of_columns():
            yield _table_of(block, types)
        self.text.check_unchanged(sha256)

    # ------------------------------------------------------------------ lines

    def _texts(self) -> Iterator[_Text]:
        """Read the lines in blocks."""
        n_lines = 0
        pieces = self.text.pieces(min(self._block_bytes, PIECE_BYTES))
        for text in _whole_lines(pieces, self._block_bytes, self.name):
            # There are at most as many values as commas and opening brackets.
            n_values = count_characters(text, b",[{")
            what = f"the lines from {n_lines + 1} on of {self.name!r}"
            check_request(len(text) + _VALUE_BYTES * n_values, what)
            yield _Text(text, n_lines + 1)
            # All blocks but the last one end with a line break.
            n_lines += text.count(b"\n")

    def _parse_block(self, text: _Text) -> _Block:
        """Parse the lines of a block."""
        parse = json_parser(
            object_pairs_hook=distinct_fields,
            parse_float=self._choose_parser_of_floats(text.data),
        )
        rows = []
        numbers = []
        for number, line in enumerate(text.data.split(b"\n"), start=text.first_line):
            if line.strip():
                rows.append(self._parse_line(line, number, parse))
                numbers.append(number)
        has_truth = b"true" in text.data or b"false" in text.data
        return _Block(rows, numbers, has_truth)

    def _choose_parser_of_floats(self, text: bytes) -> Callable[[str], float] | None:
        """Return what parses the floats of a block; None for Python's parser, the fastest."""
        if self._needs_texts_of_numbers:
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
            place, reason = "", str(error)
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

    def _blocks_of_columns(self, texts: Iterable[_Text] | None = None) -> Iterator[_BlockOfColumns]:
        """Parse the lines in blocks, as cells of the keys to read.

        Args:
            texts: the blocks to parse; None for those of the whole file.
        """
        keys: set[str] = set()
        for text in self._texts() if texts is None else texts:
            block = self._parse_block(text)
            if not block.rows:
                continue
            values_by_key = _values_by_key(block.rows)
            self._known_keys.update(dict.fromkeys(values_by_key))
            if self._wanted_keys is not None:
                values_by_key = {
                    key: values for key, values in values_by_key.items() if key in self._wanted_keys
                }
            # Each line has a cell for each key of all lines; a block is in memory at a time.
            keys.update(values_by_key)
            n_rows = len(block.rows)
            what = f"{n_rows:,} lines of {self.name!r} as a table of {len(keys):,} different keys"
            check_request(n_rows * len(keys) * _CELL_BYTES, what)
            columns = {
                key: self._cells_of(block, key, values) for key, values in values_by_key.items()
            }
            yield _BlockOfColumns(n_rows, columns)

    def _texts_of_other_types(
        self, types: Mapping[str, CellType], counts: _Counts
    ) -> Iterator[_Text]:
        """Yield the blocks whose values may not be of the types of those before, and count others.

        Args:
            types: the types of all keys so far, to which the caller adds those of each block.
            counts: counts the rows of the blocks that are not yielded.
        """
        for text in self._texts():
            n_present = None
            if self._uses_arrow and types:
                n_present = count_present(text.data, types, self._shapes)
            if n_present is None:
                yield text
            else:
                n_lines = text.data.count(b"\n") + int(not text.data.endswith(b"\n"))
                counts.add(n_lines, n_present)

    # ------------------------------------------------------------------ types

    def _cells_of(self, block: _Block, key: str, key_values: _KeyValues) -> _Cells:
        """Return the values of a key as cells of their type.

        Raises:
            DatasetFileCorruptError: they have no common type, or do not fit the given one.
        """
        values = key_values.values
        given_type = self._types.get(key)
        type_: CellType
        try:
            if given_type is None:
                cells, type_ = infer_cells(values, has_truth=block.has_truth)
            else:
                cells = convert_values(values, given_type)
                type_ = given_type
        except MemoryError:
            raise
        except MISFIT_ERRORS as error:
            lines = key_values.lines(block)
            if isinstance(error, UnicodeEncodeError):
                raise self._error_of_half_character(key, values, lines) from error
            if given_type is None:
                raise self._error_of_several_types(key, values, lines, error) from error
            raise self._error_of_misfit(key, values, lines, given_type) from error
        if is_null(type_) or is_nested(type_):
            shape = shape_of(values) if isinstance(type_, JsonType) else type_
            self._shapes[key] = join_shapes(self._shapes.get(key, pa.null()), shape)
        first = _first_present(values)
        positions = None
        row_of_first = first
        if key_values.positions is not None:
            positions = np.array(key_values.positions, np.int64)
            row_of_first = key_values.positions[first]
        return _Cells(cells, type_, positions, block.lines[row_of_first], _shown(values[first]))

    def _join_types(self, types: dict[str, CellType], blocks: Iterable[_BlockOfColumns]) -> None:
        """Find the type of each column over all blocks. The file is read again if some differ.

        Args:
            types: the types of the columns, to which those of each block are added.
            blocks: the blocks whose types may not be those of the blocks before.
        """
        examples: dict[str, _Cells] = {}
        doubtful_keys: set[str] = set()
        for block in blocks:
            for key, cells in block.columns.items():
                if key not in types:
                    types[key] = cells.type
                    examples[key] = cells
                    continue
                if types[key] == cells.type:
                    continue
                joined_type = join_types(types[key], cells.type)
                if joined_type is None:
                    raise self._error_of_two_types(key, examples[key], cells)
                if is_null(types[key]):
                    # The blocks before have no value that could be an example of the type.
                    examples[key] = cells
                elif not is_null(cells.type):
                    # The joined type may lack a value: float64 does not hold every integer.
                    doubtful_keys.add(key)
                types[key] = joined_type
        check_columns(self.name, self._wanted_keys, list(self._known_keys))
        check_typed_columns(self.name, self._types, list(self._known_keys))
        if doubtful_keys:
            self._check_joined_types(types, examples, doubtful_keys)

    def _check_joined_types(
        self,
        types: dict[str, CellType],
        examples: Mapping[str, _Cells],
        keys: set[str],
    ) -> None:
        """Check that the joined types of some keys hold all values.

        A type of lists or objects that does not hold all values is replaced by JSON, which does.

        Args:
            types: the joined types of all keys, which are changed.
            examples: cells of each key that have its first type.
            keys: the keys to check.

        Raises:
            DatasetFileCorruptError: the type of other values does not hold all of them.
        """
        # A block that pyarrow reads by the joined types needs no other check.
        texts = self._texts_of_other_types(types, _Counts())
        for block in self._blocks_of_columns(texts):
            for key in keys.intersection(block.columns):
                cells = block.columns[key]
                try:
                    _cast(cells, types[key])
                except MISFIT_ERRORS:
                    if not is_nested(types[key]):
                        raise self._error_of_two_types(key, examples[key], cells) from None
                    types[key] = JSON

    # ------------------------------------------------------------------ errors

    def _error_of_several_types(
        self, key: str, values: Sequence[Any], lines: Sequence[int], error: Exception
    ) -> Exception:
        """Return the error for values in one block that have no common type.

        Args:
            key: the key of the values.
            values: the values; None for null.
            lines: the number of the line of each value.
            error: the error of pyarrow, for a reason that is not found here.
        """
        present = []
        for value, line in zip(values, lines, strict=True):
            if value is not None:
                present.append((value, line))

        # A value of another kind than the first one, such as a text after a number.
        first, first_line = present[0]
        for value, line in present:
            if kind_of(value) != kind_of(first):
                return self._error_of_types(
                    key, f"line {first_line} has {_shown(first)}, line {line} {_shown(value)}"
                )

        # An integer that float64 lacks, beside a float.
        integers = [(value, line) for value, line in present if isinstance(value, int)]
        floats = [(value, line) for value, line in present if isinstance(value, float)]
        for value, line in integers:
            if floats and not _is_float(value):
                number, line_of_number = floats[0]
                return self._error_of_types(
                    key,
                    f"line {line} has {_shown(value)}, which float64 lacks, line {line_of_number} "
                    f"has {_shown(number)}",
                )

        # An integer that int64 lacks: uint64 may hold it.
        fit_uint64 = all(0 <= integer <= _MAX_UINT64 for integer, _ in integers)
        for value, line in integers:
            if _MIN_INT64 <= value <= _MAX_INT64:
                continue
            if fit_uint64:
                return DatasetFileCorruptError(
                    f"{self.name!r}, line {line}, key {key!r:.80}: int64 has no number "
                    f"{_shown(value)}; pass dtypes={{{key!r:.80}: 'uint64'}}"
                )
            return self._error_of_types(
                key, f"line {line} has a number that int64 and float64 lack"
            )
        return self._error_of_types(key, str(error))

    def _error_of_two_types(self, key: str, first: _Cells, second: _Cells) -> Exception:
        """Return the error for two blocks whose values have no common type."""
        return self._error_of_types(
            key, f"line {first.line} has {first.example}, line {second.line} {second.example}"
        )

    def _error_of_types(self, key: str, reason: str) -> Exception:
        return DatasetFileCorruptError(
            f"{self.name!r}, key {key!r:.80}: its values are not of one type: {reason:.300}; "
            f"pass dtypes={{{key!r:.80}: str}} to read them as text, "
            f"or dtypes={{{key!r:.80}: 'json'}} to keep them as they are"
        )

    def _error_of_half_character(
        self, key: str, values: Sequence[Any], lines: Sequence[int]
    ) -> Exception:
        """Return the error for text that is no Unicode; it names the first line."""
        for value, line in zip(values, lines, strict=True):
            if _has_half_character(value):
                return DatasetFileCorruptError(
                    f"{self.name!r}, line {line}, key {key!r:.80}: {_shown(value)} has half of a "
                    "character (a surrogate without the other one), which text lacks; correct the "
                    "file, or leave out the key by columns="
                )
        return DatasetFileCorruptError(f"{self.name!r}, key {key!r:.80}: a text is no Unicode")

    def _error_of_misfit(
        self, key: str, values: Sequence[Any], lines: Sequence[int], type_: CellType
    ) -> Exception:
        """Return the error for values that do not fit a given type; it names the first line."""
        for value, line in zip(values, lines, strict=True):
            try:
                convert_values([value], type_)
            except MISFIT_ERRORS as error:
                return DatasetFileCorruptError(
                    f"{self.name!r}, line {line}, key {key!r:.80}: {_shown(value)} does not fit "
                    f"{type_}: {error!s:.200}; pass another dtype, "
                    f"or dtypes={{{key!r:.80}: 'json'}} to keep the values as they are"
                )
        return DatasetFileCorruptError(
            f"{self.name!r}, key {key!r:.80}: its values do not fit {type_}; pass another dtype"
        )


def _has_half_character(value: Any) -> bool:
    """Return whether a text in a value of JSON has a surrogate without the other one.

    JSON can write half of a character as an escape. Text in UTF-8 cannot hold it.
    """
    try:
        json.dumps(value, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        return True
    return False


def _is_float(integer: int) -> bool:
    """Return whether float64 holds an integer exactly."""
    try:
        return int(float(integer)) == integer
    except OverflowError:
        return False


# ---------------------------------------------------------------------- lines


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


def has_digits_of_file(type_: CellType) -> bool:
    """Return whether numbers of a column have the digits of the file, as text and decimals do."""
    if isinstance(type_, JsonType):
        return False
    return bool(pa.types.is_string(type_) or pa.types.is_decimal(type_))


def _values_by_key(rows: Sequence[dict[str, Any]]) -> dict[str, _KeyValues]:
    """Return the values of each key in the rows of a block, of which there is at least one."""
    # Mostly, all rows have the same keys.
    keys = rows[0].keys()
    if all(row.keys() == keys for row in rows):
        return {key: _KeyValues(None, [row[key] for row in rows]) for key in keys}
    positions: dict[str, list[int]] = {}
    values: dict[str, list[Any]] = {}
    for position, row in enumerate(rows):
        for key, value in row.items():
            if key not in values:
                positions[key] = []
                values[key] = []
            positions[key].append(position)
            values[key].append(value)
    values_by_key = {}
    for key in values:
        if len(values[key]) == len(rows):
            values_by_key[key] = _KeyValues(None, values[key])
        else:
            values_by_key[key] = _KeyValues(positions[key], values[key])
    return values_by_key


def _first_present(values: Sequence[Any]) -> int:
    """Return the index of the first value that is not None; 0 if all are None."""
    for index, value in enumerate(values):
        if value is not None:
            return index
    return 0


def _shown(value: Any) -> str:
    """Return a value as a message shows it."""
    return f"{shorten(value):.60}"


# ---------------------------------------------------------------------- columns


def _table_of(block: _BlockOfColumns, types: Mapping[str, CellType]) -> pa.Table:
    """Return a block as a table with all columns."""
    columns = {}
    for key, type_ in types.items():
        cells = block.columns.get(key)
        if cells is None:
            columns[key] = pa.nulls(block.n_rows, stored_type(type_))
        else:
            columns[key] = spread_cells(_cast(cells, type_), cells.positions, block.n_rows)
    return pa.table(columns)


def _cast(cells: _Cells, type_: CellType) -> pa.Array:
    """Return cells of a block by the type of all blocks.

    Raises:
        pyarrow.ArrowException: float64 lacks an integer.
    """
    if cells.type == type_:
        return cells.cells
    if is_null(cells.type):
        return pa.nulls(len(cells.cells), stored_type(type_))
    values = cells.cells.to_pylist()
    if isinstance(type_, JsonType):
        return convert_values(values, JSON)
    return pa.array(values, type_)


def spread_cells(cells: pa.Array, positions: npt.NDArray[np.int64] | None, n_rows: int) -> pa.Array:
    """Return a cell for each row, null where the row has none.

    Args:
        cells: the cells of some rows.
        positions: the position of the row of each cell; None if each row has one.
        n_rows: the number of all rows.
    """
    if positions is None:
        return cells
    cell_of_row = np.full(n_rows, -1, np.int64)
    cell_of_row[positions] = np.arange(len(positions))
    return cells.take(pa.array(cell_of_row, mask=cell_of_row < 0))
