"""Reads CSV files as Arrow tables, with types that are inferred from all rows."""

from __future__ import annotations

import contextlib
import csv
import io
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.csv_quotes import (
    check_delimiter,
    check_quoting,
    find_rows,
    find_swallowed_line,
    first_row_end,
    header_warning,
    swallowed_warning,
)
from data_stack.formats.text_tables.column_errors import check_columns, check_typed_columns
from data_stack.formats.text_tables.exact_numbers import (
    FIRST_INEXACT,
    floats_are_exact,
    narrow_floats,
)
from data_stack.formats.text_tables.text_file import PIECE_BYTES, TextFile
from data_stack.util.program_lines import warn_program
from data_stack.values.text_numbers import is_number

#: Rows are read in blocks of this size. pyarrow reads at most 2 GiB at once, and its text columns hold as much in a chunk.
BLOCK_BYTES: Final = 1 << 28

_TRUE: Final = ["true", "True", "TRUE"]
_FALSE: Final = ["false", "False", "FALSE"]
_HEXADECIMAL: Final = (b"0x", b"0X")
#: Without one of these, no text of at most 100 digits is so small that float64 rounds it to 0.
#: Patterns that begin with given letters are searched ten times as fast as alternatives.
_TINY: Final = (re.compile(rb"e-[0-9]{3}"), re.compile(rb"E-[0-9]{3}"))
_ZEROS: Final = b"0" * 100
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}.*", re.DOTALL)
_RAGGED: Final = re.compile(
    r".*?(?:Row #(?P<row>\d+): )?(?P<problem>Expected \d+ columns, got \d+)(?P<text>.*)", re.DOTALL
)
_UNREADABLE: Final = (pa.ArrowException, TypeError, ValueError, LookupError, OverflowError)


@dataclass(frozen=True)
class CSVOptions:
    """How a CSV file is written; :func:`data_stack.from_csv` documents each.

    Raises:
        ConfigError: an option is of another type.
    """

    delimiter: str = ","
    missing: Collection[str] = ("",)
    header: bool | None = None
    names: Sequence[str] | None = None
    quoting: Any = csv.QUOTE_MINIMAL

    def __post_init__(self) -> None:
        check_delimiter(self.delimiter)
        check_quoting(self.quoting)
        if self.header not in (None, True, False):
            raise ConfigError(f"header must be True, False or None, got {self.header!r:.60}")
        if self.names is not None:
            is_text = not isinstance(self.names, str) and all(
                isinstance(name, str) for name in self.names
            )
            if not is_text:
                raise ConfigError(
                    f"names must be a list of names, one for each column, got {self.names!r:.80}"
                )

    @property
    def has_quotes(self) -> bool:
        """Whether quotes quote."""
        return check_quoting(self.quoting) != csv.QUOTE_NONE

    @property
    def has_header(self) -> bool:
        """Whether the first row holds names."""
        return self.header is not False


@dataclass(frozen=True)
class _Block:
    """Some rows of a file.

    Attributes:
        data: their text.
        line: number of its first line in the file, from 1.
    """

    data: bytes
    line: int


class CSVTable:
    """The rows of a CSV file.

    Args:
        text: the file.
        options: how it is written.
        types: types of some columns, instead of inferred ones.
        columns: the columns to read; None for all.

    Attributes:
        name: name of the file for messages.
        column_names: the names of its columns, after its first row was read.
    """

    def __init__(
        self,
        text: TextFile,
        options: CSVOptions,
        types: Mapping[str, pa.DataType],
        columns: Collection[str] | None = None,
    ) -> None:
        self.text = text
        self.name = text.name
        self.column_names: list[str] = []
        self._options = options
        self._types = dict(types)
        self._wanted = None if columns is None else set(columns)
        #: The columns that are read, in the order of the file.
        self._read_names: list[str] = []
        self._warnings: list[str] = []

    def read(self) -> pa.Table:
        """All rows.

        Raises:
            DatasetFileCorruptError: rows differ in their number of columns, quotes cannot be read exactly, a text does not fit
                its declared type, or the text has another encoding.
            ConfigError: two columns have one name, ``names`` differ in number from the columns, or a declared column does
                not exist.

        Warns:
            UserWarning: the first row looks like values; the file has one column, whose name contains another delimiter; a quoted
                field looks as if it had swallowed rows; empty lines of a table of one column were left out.
        """
        blocks = list(self._blocks(BLOCK_BYTES))
        tables = [self._infer(block) for block in blocks]
        types = self._join_types([table.schema for table in tables], blocks)
        self._warn()
        if not tables:
            return self._empty(types)
        finished = [
            self._finish(block, table, types) for block, table in zip(blocks, tables, strict=True)
        ]
        return pa.concat_tables(finished)

    def stream(self, block_bytes: int) -> tuple[pa.Schema, Iterator[pa.Table]]:
        """The types of the columns, for which the file is read first, and its rows in tables, for which it is read again.

        Raises:
            As :meth:`read`; the iterator also DatasetFileCorruptError if the file has changed meanwhile.
        """
        schemas = [self._infer(block).schema for block in self._blocks(block_bytes)]
        types = self._join_types(schemas, self._blocks(block_bytes))
        self._warn()
        sha256 = self.text.sha256

        def tables() -> Iterator[pa.Table]:
            for block in self._blocks(block_bytes):
                yield self._finish(block, self._infer(block), types)
            if self.text.sha256 != sha256:
                raise DatasetFileCorruptError(
                    f"{self.name!r} has changed while it was read; read it again"
                )

        return self._empty(types).schema, tables()

    # ------------------------------------------------------------------ rows

    def _blocks(self, block_bytes: int) -> Iterator[_Block]:
        """The rows in blocks of about a size, without the header."""
        delimiter = self._options.delimiter
        pieces = self.text.pieces(min(block_bytes, PIECE_BYTES))
        held = b""
        line = 1
        is_first = True
        is_last = False
        while not is_last:
            parts = [held]
            n_bytes = len(held)
            # a row may be longer than a block
            n_wanted = max(block_bytes, 2 * n_bytes)
            while n_bytes < n_wanted:
                piece = next(pieces, None)
                if piece is None:
                    is_last = True
                    break
                parts.append(piece)
                n_bytes += len(piece)
            block = b"".join(parts)
            if is_first:
                n_empty = len(block) - len(block.lstrip(b"\r\n"))
                line += block.count(b"\n", 0, n_empty)
                block = block[n_empty:]
            rows = find_rows(
                block,
                self.name,
                first_line=line,
                delimiter=delimiter,
                has_quotes=self._options.has_quotes,
                is_last=is_last,
            )
            held = block[rows.end :]
            block = block[: rows.end]
            if not block and not is_last:
                continue
            header_bytes = self._read_first_row(block, line) if is_first else 0
            is_first = False
            n_columns = len(self.column_names)
            swallowed = find_swallowed_line(block, rows.bounds, delimiter, n_columns)
            if swallowed is not None:
                self._note(swallowed_warning(self.name, line + swallowed))
            if n_columns == 1:
                self._warn_of_empty_lines(block, line)
            data = block[header_bytes:]
            if data.strip(b"\r\n"):
                yield _Block(data, line + block.count(b"\n", 0, header_bytes))
            line += block.count(b"\n")

    def _read_first_row(self, block: bytes, line: int) -> int:
        """Find the names of the columns; return the size of the header in bytes, 0 without one."""
        options = self._options
        if not block and (options.has_header or options.names is None):
            what = "a header" if options.has_header else "a row, or names="
            raise DatasetFileCorruptError(
                f"{self.name!r} cannot be read as CSV: Empty CSV file; expected {what}"
            )
        end = first_row_end(block, options.delimiter, has_quotes=options.has_quotes)
        cells, text = self._cells_of(block[:end], line)
        if options.names is not None:
            names = list(options.names)
        elif options.has_header:
            names = cells
        else:
            names = [f"column_{number}" for number in range(len(cells))]
        if block and len(names) != len(cells):
            raise ConfigError(
                f"names= has {len(names)} names, but {self.name!r} has {len(cells)} columns"
            )
        self._check_names(names)
        self.column_names = names
        check_columns(self.name, self._wanted, names)
        self._read_names = [name for name in names if self._wanted is None or name in self._wanted]
        if not options.has_header:
            return 0
        other = other_delimiter(text, options.delimiter)
        if other is not None:
            self._note(f"{self.name!r} has one column, {cells[0]!r:.80}; {delimiter_advice(other)}")
        is_assumed = options.header is None and options.names is None
        values = [cell for cell in cells if is_number(cell) or _DATE.fullmatch(cell)]
        if is_assumed and values:
            self._note(header_warning(self.name, values[0]))
        return end

    def _cells_of(self, row: bytes, line: int) -> tuple[list[str], str]:
        """The cells of the first row, and its text."""
        try:
            text = row.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DatasetFileCorruptError(
                f"{self.name!r}, line {line}, is not text in {self.text.encoding}: {error!s:.200}; pass encoding="
            ) from error
        quoting: Any = check_quoting(self._options.quoting)
        reader = csv.reader(
            io.StringIO(text, newline=""),
            delimiter=self._options.delimiter,
            quoting=quoting,
            strict=True,
        )
        try:
            return next(reader, []), text
        except csv.Error as error:
            raise DatasetFileCorruptError(f"{self.name!r}, line {line}: {error}") from error

    def _check_names(self, names: Sequence[str]) -> None:
        repeated = [name for name, count in Counter(names).items() if count > 1]
        if repeated:
            advice = "rename them, or pass names="
            if any(map(is_number, names)):
                advice += "; if the first row holds values, pass header=False"
            raise ConfigError(
                f"{self.name!r}: the columns of a table need different names of text, got {repeated[0]!r:.80} twice; {advice}"
            )
        check_typed_columns(self.name, self._types, names)

    def _warn_of_empty_lines(self, block: bytes, line: int) -> None:
        lines = block.rstrip(b"\r\n")
        empty = re.search(rb"\n(?=\r?\n)", lines)
        if empty is not None and b'"' not in lines:
            number = line + lines.count(b"\n", 0, empty.start()) + 1
            self._note(
                f'{self.name!r}, line {number}: empty lines are no rows, and are left out; write an empty value as ""'
            )

    def _note(self, message: str) -> None:
        if message not in self._warnings:
            self._warnings.append(message)

    def _warn(self) -> None:
        """Warn of what was seen, once the file turned out to be readable."""
        for message in self._warnings:
            warn_program(message)

    # ------------------------------------------------------------------ values

    def _infer(self, block: _Block) -> pa.Table:
        """A block by the types that fit its rows."""
        table = self._parse(block, self._types)
        for field in table.schema:
            if pa.types.is_binary(field.type) and field.name not in self._types:
                raise self._not_text(block, field.name)
        has_tiny = _ZEROS in block.data or any(
            pattern.search(block.data) is not None for pattern in _TINY
        )
        # a letter is found faster than a prefix that begins with a frequent digit
        has_hexadecimal = any(
            prefix[1:] in block.data and prefix in block.data for prefix in _HEXADECIMAL
        )
        inexact = [
            name
            for name in table.column_names
            if name not in self._types
            and _may_be_inexact(table[name], has_tiny=has_tiny, has_hexadecimal=has_hexadecimal)
        ]
        if not inexact:
            return table
        texts = self._texts(block, inexact)
        columns = {name: table[name] for name in table.column_names}
        for name in inexact:
            columns[name] = _exact(columns[name], texts[name])
        return pa.table(columns)

    def _join_types(
        self, schemas: Sequence[pa.Schema], blocks: Iterable[_Block]
    ) -> dict[str, pa.DataType]:
        """The type of each column over all blocks; the blocks are read again where theirs differ."""
        seen: dict[str, set[pa.DataType]] = {name: set() for name in self._read_names}
        for schema in schemas:
            for field in schema:
                if not pa.types.is_null(field.type):
                    seen[field.name].add(field.type)
        types: dict[str, pa.DataType] = {}
        candidates: dict[str, list[pa.DataType]] = {}
        for name, kinds in seen.items():
            if name in self._types:
                types[name] = self._types[name]
            elif len(kinds) > 1:
                candidates[name] = _common_types(kinds)
            else:
                types[name] = next(iter(kinds), pa.null())
        for block in blocks if candidates else ():
            texts = self._texts(block, list(candidates))
            for name, remaining in candidates.items():
                candidates[name] = [
                    type_ for type_ in remaining if _from_texts(texts[name], type_) is not None
                ]
        types.update((name, remaining[0]) for name, remaining in candidates.items())
        return {name: types[name] for name in self._read_names}

    def _finish(self, block: _Block, table: pa.Table, types: Mapping[str, pa.DataType]) -> pa.Table:
        """A block by the types of all blocks."""
        columns = {name: table[name] for name in table.column_names}
        differing = [name for name in columns if columns[name].type != types[name]]
        with_values = []
        for name in differing:
            if pa.types.is_null(columns[name].type):
                columns[name] = columns[name].cast(types[name])
            else:
                with_values.append(name)
        texts = self._texts(block, with_values) if with_values else {}
        for name in with_values:
            columns[name] = _from_texts(texts[name], types[name])
        return pa.table(columns)

    def _empty(self, types: Mapping[str, pa.DataType]) -> pa.Table:
        return pa.table({name: pa.array([], type_) for name, type_ in types.items()})

    def _texts(self, block: _Block, names: list[str]) -> dict[str, pa.ChunkedArray]:
        """Columns of a block as text, null where they are missing."""
        table = self._read_arrow(block, dict.fromkeys(names, pa.string()), names)
        return {name: table[name] for name in names}

    def _parse(self, block: _Block, types: Mapping[str, pa.DataType]) -> pa.Table:
        """A block by declared types; other columns by the types that pyarrow infers.

        Raises:
            DatasetFileCorruptError: it has ragged rows, or texts that do not fit the declared types.
        """
        # types that pyarrow does not read from text, or not strictly
        read = {name: types[name] for name in self._read_names if name in types}
        declared = {name: type_ for name, type_ in read.items() if not _reads_exactly(type_)}
        direct = {name: type_ for name, type_ in read.items() if name not in declared}
        try:
            table = self._read_arrow(block, {**direct, **dict.fromkeys(declared, pa.string())})
        except MemoryError:  # Arrow's, which is an ArrowException too
            raise
        except _UNREADABLE as error:
            raise self._unreadable(block, direct, error) from error
        columns = {name: table[name] for name in table.column_names}
        for name, type_ in declared.items():
            converted = _from_texts(columns[name], type_)
            if converted is None:
                raise self._misfit(block, name, type_)
            columns[name] = converted
        return pa.table(columns)

    def _read_arrow(
        self, block: _Block, types: Mapping[str, pa.DataType], columns: list[str] | None = None
    ) -> pa.Table:
        has_quotes = self._options.has_quotes
        return pyarrow.csv.read_csv(
            pa.BufferReader(block.data),
            pyarrow.csv.ReadOptions(
                block_size=len(block.data) + 1,  # pyarrow infers types from its first block
                column_names=self.column_names,
            ),
            pyarrow.csv.ParseOptions(
                delimiter=self._options.delimiter,
                quote_char='"' if has_quotes else False,
                newlines_in_values=has_quotes,
            ),
            pyarrow.csv.ConvertOptions(
                column_types=types,
                null_values=list(self._options.missing),
                strings_can_be_null=True,
                include_columns=self._read_names if columns is None else columns,
                true_values=_TRUE,
                false_values=_FALSE,
            ),
        )

    # ------------------------------------------------------------------ errors

    def _unreadable(
        self, block: _Block, types: Mapping[str, pa.DataType], error: Exception
    ) -> Exception:
        """The error for a block that pyarrow refuses."""
        ragged = _RAGGED.match(str(error))
        if ragged is None:
            for name, type_ in types.items():
                with contextlib.suppress(*_UNREADABLE):
                    self._read_arrow(block, {name: type_}, [name])
                    continue
                return self._misfit(block, name, type_)
            return DatasetFileCorruptError(f"{self.name!r} cannot be read as CSV: {error!s:.300}")
        where = ""
        if ragged["row"] is not None:
            where = f", line {self._line_of_row(block, int(ragged['row']) - 1)}"
        text, _, _ = block.data[: 1 << 16].decode("utf-8", "replace").partition("\n")
        other = other_delimiter(self.column_names[0], self._options.delimiter)
        other = other or other_delimiter(text, self._options.delimiter)
        advice = f"; {delimiter_advice(other)}" if len(self.column_names) == 1 and other else ""
        shown = ragged["text"][:100]
        return DatasetFileCorruptError(
            f"{self.name!r}{where}, cannot be read as CSV: {ragged['problem']}{shown}{advice}"
        )

    def _misfit(self, block: _Block, name: str, type_: pa.DataType) -> Exception:
        """The error for a column with a text that does not fit its declared type."""
        try:
            texts = self._texts(block, [name])[name].combine_chunks()
        except _UNREADABLE:
            return self._not_text(block, name)
        first = 0
        last = len(texts)
        while last - first > 1:
            middle = (first + last) // 2
            if _from_texts(texts.slice(first, middle - first), type_) is None:
                last = middle
            else:
                first = middle
        line = self._line_of_row(block, first)
        return DatasetFileCorruptError(
            f"{self.name!r}, line {line}, column {name!r:.80}: {texts[first].as_py()!r:.80} does not fit {type_}; "
            f"pass another dtype: dtypes={{{name!r:.80}: 'str'}}"
        )

    def _not_text(self, block: _Block, name: str) -> Exception:
        line = block.line
        try:
            block.data.decode("utf-8")
        except UnicodeDecodeError as error:
            line += block.data.count(b"\n", 0, error.start)
        return DatasetFileCorruptError(
            f"{self.name!r}, line {line}, column {name!r:.80} is not text in {self.text.encoding}; pass encoding="
        )

    def _line_of_row(self, block: _Block, row: int) -> int:
        """The line on which a row of a block begins."""
        quoting: Any = check_quoting(self._options.quoting)
        reader = csv.reader(
            io.StringIO(block.data.decode("utf-8", "replace"), newline=""),
            delimiter=self._options.delimiter,
            quoting=quoting,
        )
        line = 0
        with contextlib.suppress(csv.Error):  # a field may be too long for Python's reader
            for cells in reader:
                if cells and row == 0:
                    break
                row -= bool(cells)
                line = reader.line_num
        return block.line + line


def other_delimiter(header: str, delimiter: str) -> str | None:
    """Another delimiter that a header contains instead of ``delimiter``; None without one."""
    if delimiter in header:
        return None
    return next((other for other in ",;\t|" if other in header), None)


def delimiter_advice(other: str) -> str:
    """What to do about a header with another delimiter."""
    return f"if {other!r} separates its values, pass delimiter={other!r}"


def _may_be_inexact(numbers: pa.ChunkedArray, *, has_tiny: bool, has_hexadecimal: bool) -> bool:
    """Whether pyarrow may have changed numbers of a column."""
    if pa.types.is_integer(numbers.type):
        return has_hexadecimal
    if not pa.types.is_floating(numbers.type):
        return False
    if pc.any(pc.greater_equal(pc.abs(numbers), FIRST_INEXACT)).as_py():
        return True
    return has_tiny and bool(pc.any(pc.equal(numbers, 0.0)).as_py())


def _exact(numbers: pa.ChunkedArray, texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """``numbers`` if they equal the texts, otherwise the texts as uint64 if possible, otherwise the texts."""
    trimmed = pc.utf8_trim(texts, " \t")
    if pa.types.is_integer(numbers.type):
        is_hexadecimal = pc.match_substring_regex(trimmed, "^[+-]?0[xX]")
        return texts if pc.any(is_hexadecimal).as_py() else numbers
    are_integers = pc.match_substring_regex(trimmed, "^[+-]?[0-9]+$")
    if pc.all(are_integers).as_py():  # apart from nulls
        with contextlib.suppress(pa.ArrowInvalid):
            return trimmed.cast(pa.uint64())
    return numbers if floats_are_exact(numbers, trimmed) else texts


_NUMBERS: Final = {pa.int64(), pa.uint64(), pa.float64()}
_TIMES: Final = {pa.date32(), pa.timestamp("s"), pa.timestamp("ns")}


def _common_types(kinds: set[pa.DataType]) -> list[pa.DataType]:
    """Types that may hold a column whose blocks are of several types, the best one first."""
    if kinds <= _NUMBERS:
        integers = [] if pa.float64() in kinds else [pa.uint64()]
        return [*integers, pa.float64(), pa.string()]
    if kinds <= _TIMES:
        seconds = [] if pa.timestamp("ns") in kinds else [pa.timestamp("s")]
        return [*seconds, pa.timestamp("ns"), pa.string()]
    return [pa.string()]


def _reads_exactly(type_: pa.DataType) -> bool:
    """Whether pyarrow reads a declared type from text without changing a value."""
    is_converted = (
        pa.types.is_boolean(type_) or pa.types.is_floating(type_) or pa.types.is_decimal256(type_)
    )
    return not is_converted


def _from_texts(texts: Any, type_: pa.DataType) -> Any:
    """Texts as values of a type; None if a text does not fit."""
    if pa.types.is_string(type_):
        return texts
    trimmed = pc.utf8_trim(texts, " \t")
    try:
        if pa.types.is_boolean(type_):
            return _truths(trimmed)
        if not pa.types.is_floating(type_):
            return trimmed.cast(type_)
        doubles = trimmed.cast(pa.float64())
        if not floats_are_exact(doubles, trimmed):
            return None
        return doubles if type_ == pa.float64() else narrow_floats(doubles, type_)
    except MemoryError:
        raise
    except _UNREADABLE:
        return None


def _truths(texts: Any) -> Any:
    """``true``, ``false``, ``1`` and ``0`` as booleans.

    Raises:
        ArrowInvalid: there are other texts.
    """
    lower = pc.utf8_lower(texts)
    are_true = pc.is_in(lower, pa.array(["true", "1"]))
    are_known = pc.or_(are_true, pc.is_in(lower, pa.array(["false", "0"])))
    if not pc.all(pc.or_(are_known, pc.is_null(texts))).as_py():
        raise pa.ArrowInvalid("a text is no truth value")
    return pc.if_else(pc.is_valid(texts), are_true, None)
