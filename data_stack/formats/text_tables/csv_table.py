"""Infers the types of the columns of CSV files from all rows."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

import pyarrow as pa

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.text_tables.csv_blocks import (
    Block,
    CSVBlocks,
    delimiter_advice,
    other_delimiter,
)
from data_stack.formats.text_tables.csv_options import CSVOptions
from data_stack.formats.text_tables.csv_parsing import (
    ColumnTypes,
    CSVParser,
    MisfitError,
    must_convert,
)
from data_stack.formats.text_tables.csv_types import (
    MISFIT_ERRORS,
    columns_to_check,
    common_types,
    convert_texts,
    exact_column,
    has_hexadecimal_numbers,
)
from data_stack.formats.text_tables.indexed_rows import error_of_change
from data_stack.formats.text_tables.indexed_text import IndexedText
from data_stack.formats.text_tables.text_file import TextFile
from data_stack.util.program_lines import warn_program

#: Rows are parsed in blocks of this size, whose tables take a few times as much memory.
BLOCK_BYTES: Final = 16 << 20

#: The size of the text that is searched for another delimiter.
_HEAD_BYTES: Final = 1 << 16

#: What pyarrow says of a row with another number of columns.
_RAGGED: Final = re.compile(
    r".*?(?:Row #(?P<row>\d+): )?"
    r"(?P<problem>Expected \d+ columns, got \d+)(?P<text>.*)",
    re.DOTALL,
)


class CSVTable:
    """The rows of a CSV file, and the types of its columns.

    Each block of rows becomes a table by types of its own (:meth:`_infer`). Then a type is chosen
    for each column over all blocks (:meth:`_join_types`), and rows are parsed by these types.

    Args:
        text: the file.
        options: how it is written.
        types: types of some columns, instead of inferred ones.
        columns: the columns to read; None for all.
        block_bytes: the size of the text that is parsed at once.

    Attributes:
        text: the file.
        name: the name of the file for messages.
        n_rows: the number of rows without the header, after :meth:`infer`.
    """

    text: TextFile | IndexedText
    name: str
    n_rows: int

    #: How the file is written.
    _options: CSVOptions

    #: The given types of columns.
    _types: dict[str, pa.DataType]

    #: The rows in blocks, and the names of the columns.
    _blocks: CSVBlocks

    #: The size of a block.
    _block_bytes: int

    def __init__(
        self,
        text: TextFile | IndexedText,
        options: CSVOptions,
        types: Mapping[str, pa.DataType],
        columns: Collection[str] | None = None,
        *,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        self.text = text
        self.name = text.name
        self.n_rows = 0
        self._options = options
        self._types = dict(types)
        self._block_bytes = block_bytes
        wanted_columns = None if columns is None else set(columns)
        self._blocks = CSVBlocks(text, options, self._types, wanted_columns)

    @property
    def column_names(self) -> list[str]:
        """The names of the columns, after the first row was read."""
        return self._blocks.column_names

    @property
    def warnings(self) -> list[str]:
        """The warnings that :meth:`infer` gave."""
        return self._blocks.warnings

    @property
    def parser(self) -> CSVParser:
        """What parses rows of the file, after the first row was read."""
        return CSVParser(self._options, self.column_names)

    def infer(self) -> ColumnTypes:
        """Read all rows, and return the types of the columns.

        Memory is bounded: the rows are not kept.

        Raises:
            DatasetFileCorruptError: rows differ in their number of columns, quotes cannot be read
                exactly, a text does not fit its given type, or the text has another encoding.
            ConfigError: two columns have one name, ``names`` differ in number from the columns, or
                a column that was asked for does not exist.

        Warns:
            UserWarning: the first row looks like values; the file has one column, whose name
                contains another delimiter; a quoted field looks as if it had swallowed rows; empty
                lines of a table of one column were left out.
        """
        self.n_rows = 0
        types_of_blocks: dict[str, set[pa.DataType]] = {}
        nullable: set[str] = set()
        for block in self._blocks.iterate(self._block_bytes):
            table = self._infer(block)
            self.n_rows += table.num_rows
            for name, cells in zip(table.column_names, table.columns, strict=True):
                if cells.null_count:
                    nullable.add(name)
                if not pa.types.is_null(cells.type):
                    types_of_blocks.setdefault(name, set()).add(cells.type)
        types = self._join_types(types_of_blocks, nullable)
        # The allocator of pyarrow would keep what the tables of the blocks took.
        pa.default_memory_pool().release_unused()
        for message in self.warnings:
            warn_program(message)
        return types

    def stream(self) -> tuple[pa.Schema, Iterator[pa.Table]]:
        """Return the types of the columns, and an iterator over tables of their rows.

        The file is read once for the types, and again for the rows.

        Raises:
            DatasetFileCorruptError: as for :meth:`infer`. The iterator raises it if the file has
                changed since its types were read.
            ConfigError: as for :meth:`infer`.
        """
        types = self.infer()
        return types.schema, self._iterate_tables(types, self.text.sha256)

    def _iterate_tables(self, types: ColumnTypes, sha256: str | None) -> Iterator[pa.Table]:
        for block in self._blocks.iterate(self._block_bytes):
            try:
                columns = self.parser.cells(block.data, types, types.schema.names)
            except MemoryError:
                # MISFIT_ERRORS would catch it.
                raise
            except (*MISFIT_ERRORS, MisfitError) as error:
                raise error_of_change(self.name) from error
            yield pa.table(columns)
        self.text.check_unchanged(sha256)

    # ------------------------------------------------------------------ types

    def _infer(self, block: Block) -> pa.Table:
        """Return a block as a table, by the types that fit its own rows.

        Raises:
            DatasetFileCorruptError: it has ragged rows, texts that do not fit the given types, or
                bytes that are not UTF-8.
        """
        table = self._parse(block)
        inferred_names = [name for name in table.column_names if name not in self._types]
        inferred = table.select(inferred_names)
        for field in inferred.schema:
            # pyarrow reads what is not UTF-8 as bytes.
            if pa.types.is_binary(field.type):
                raise self._error_of_encoding(block, field.name)
        names = columns_to_check(block.data, inferred)
        if not names:
            return table
        texts = self.parser.texts(block.data, names)
        columns = {name: table[name] for name in table.column_names}
        for name in names:
            columns[name] = exact_column(columns[name], texts[name])
        return pa.table(columns)

    def _join_types(
        self, types_of_blocks: Mapping[str, set[pa.DataType]], nullable: Collection[str]
    ) -> ColumnTypes:
        """Return the type of each column over all blocks.

        Args:
            types_of_blocks: the types that a column has in its blocks, apart from those in which
                all values are missing.
            nullable: the columns with a missing value in some block.
        """
        types: dict[str, pa.DataType] = {}
        candidates: dict[str, list[pa.DataType]] = {}
        for name in self._blocks.read_names:
            types_of_column = types_of_blocks.get(name, set())
            if name in self._types:
                types[name] = self._types[name]
            elif len(types_of_column) > 1:
                candidates[name] = common_types(types_of_column)
            else:
                types[name] = next(iter(types_of_column), pa.null())
        if candidates:
            types.update(self._choose_types(candidates))
        schema = pa.schema([(name, types[name]) for name in self._blocks.read_names])
        converted = must_convert(self._types).union(candidates)
        return ColumnTypes(schema, converted, frozenset(nullable))

    def _choose_types(self, candidates: Mapping[str, list[pa.DataType]]) -> dict[str, pa.DataType]:
        """Return the first candidate for each column that holds its values in all blocks.

        The last candidate is text, which holds any value. The file is read again.
        """
        remaining = dict(candidates)
        for block in self._blocks.iterate(self._block_bytes):
            texts = self.parser.texts(block.data, list(remaining))
            for name, types in remaining.items():
                remaining[name] = [
                    type_ for type_ in types if convert_texts(texts[name], type_) is not None
                ]
        return {name: types[0] for name, types in remaining.items()}

    # ------------------------------------------------------------------ parsing

    def _parse(self, block: Block) -> pa.Table:
        """Return a block as a table, by the given types and those that pyarrow infers.

        Raises:
            DatasetFileCorruptError: it has ragged rows, or texts that do not fit the given types.
        """
        converted = must_convert(self._types)
        read_by_arrow: dict[str, pa.DataType] = {}
        read_as_text: dict[str, pa.DataType] = {}
        for name in self._blocks.read_names:
            if name in converted:
                read_as_text[name] = self._types[name]
            elif name in self._types:
                read_by_arrow[name] = self._types[name]
        types = {**read_by_arrow, **dict.fromkeys(read_as_text, pa.string())}
        try:
            table = self.parser.parse(block.data, types, self._blocks.read_names)
        except MemoryError:
            # MISFIT_ERRORS would catch it.
            raise
        except MISFIT_ERRORS as error:
            raise self._error_of_block(block, read_by_arrow, error) from error
        self._check_integers(block, read_by_arrow)
        columns = {name: table[name] for name in table.column_names}
        for name, type_ in read_as_text.items():
            values = convert_texts(columns[name], type_)
            if values is None:
                raise self._error_of_misfit(block, name, type_)
            columns[name] = values
        return pa.table(columns)

    def _check_integers(self, block: Block, types: Mapping[str, pa.DataType]) -> None:
        """Check that columns of integers have no texts such as ``0x10``, which pyarrow would read.

        Args:
            block: the block.
            types: the given types by which pyarrow read it.

        Raises:
            DatasetFileCorruptError: there is such a text.
        """
        names = [name for name, type_ in types.items() if pa.types.is_integer(type_)]
        if not names or not has_hexadecimal_numbers(block.data):
            return
        texts = self.parser.texts(block.data, names)
        for name in names:
            if convert_texts(texts[name], types[name]) is None:
                raise self._error_of_misfit(block, name, types[name])

    # ------------------------------------------------------------------ errors

    def _error_of_block(
        self, block: Block, types: Mapping[str, pa.DataType], error: Exception
    ) -> Exception:
        """Return the error for a block that pyarrow refuses.

        Args:
            block: the block.
            types: the given types by which pyarrow read it.
            error: the error of pyarrow.
        """
        if _RAGGED.match(str(error)) is not None:
            return self._error_of_ragged_row(block)
        for name, type_ in types.items():
            try:
                self.parser.parse(block.data, {name: type_}, [name])
            except MISFIT_ERRORS:
                return self._error_of_misfit(block, name, type_)
        return DatasetFileCorruptError(f"{self.name!r} cannot be read as CSV: {error!s:.300}")

    def _error_of_ragged_row(self, block: Block) -> Exception:
        """Return the error for a block that has a row with another number of columns."""
        problem = "rows differ in their number of columns"
        where = ""
        try:
            # Again, in one thread, for the position of the row.
            self.parser.parse(block.data, {}, self.column_names[:1], may_use_threads=False)
        except MISFIT_ERRORS as error:
            match = _RAGGED.match(str(error))
            if match is not None:
                problem = f"{match['problem']}{match['text'][:100]}"
                if match["row"] is not None:
                    line = self._blocks.line_of_row(block, int(match["row"]) - 1)
                    where = f", line {line}"
        advice = ""
        if len(self.column_names) == 1:
            first_line, _, _ = block.data[:_HEAD_BYTES].decode("utf-8", "replace").partition("\n")
            for text in (self.column_names[0], first_line):
                other = other_delimiter(text, self._options.delimiter)
                if other is not None:
                    advice = f"; {delimiter_advice(other)}"
                    break
        return DatasetFileCorruptError(
            f"{self.name!r}{where}, cannot be read as CSV: {problem}{advice}"
        )

    def _error_of_misfit(self, block: Block, name: str, type_: pa.DataType) -> Exception:
        """Return the error for a column with a text that does not fit its given type."""
        try:
            texts = self.parser.texts(block.data, [name])[name].combine_chunks()
        except MISFIT_ERRORS:
            return self._error_of_encoding(block, name)
        first = _first_misfit(texts, type_)
        line = self._blocks.line_of_row(block, first)
        return DatasetFileCorruptError(
            f"{self.name!r}, line {line}, column {name!r:.80}: "
            f"{texts[first].as_py()!r:.80} does not fit {type_}; "
            f"pass another dtype: dtypes={{{name!r:.80}: 'str'}}"
        )

    def _error_of_encoding(self, block: Block, name: str) -> Exception:
        """Return the error for a column with bytes that are not UTF-8."""
        line = block.line
        try:
            block.data.decode("utf-8")
        except UnicodeDecodeError as error:
            line += block.data.count(b"\n", 0, error.start)
        return DatasetFileCorruptError(
            f"{self.name!r}, line {line}, column {name!r:.80} is not text in "
            f"{self.text.encoding}; pass encoding="
        )


def _first_misfit(texts: pa.Array, type_: pa.DataType) -> int:
    """Return the position of the first text that does not fit a type, by bisection.

    Args:
        texts: texts, one of which does not fit.
        type_: the type.
    """
    # The first misfit lies in [first, stop).
    first = 0
    stop = len(texts)
    while stop - first > 1:
        middle = (first + stop) // 2
        if convert_texts(texts.slice(first, middle - first), type_) is None:
            stop = middle
        else:
            first = middle
    return first
