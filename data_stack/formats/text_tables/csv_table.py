"""Reads CSV files as Arrow tables, with types that are inferred from all rows."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.csv

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.text_tables.csv_blocks import (
    Block,
    CSVBlocks,
    delimiter_advice,
    other_delimiter,
)
from data_stack.formats.text_tables.csv_options import CSVOptions
from data_stack.formats.text_tables.csv_types import (
    MISFIT_ERRORS,
    columns_to_check,
    common_types,
    convert_texts,
    exact_column,
    reads_exactly,
)
from data_stack.formats.text_tables.text_file import TextFile

#: Rows are read in blocks of this size. pyarrow reads at most 2 GiB at once, and a chunk of a
#: column of text holds as much.
BLOCK_BYTES: Final = 1 << 28

#: The texts for true. A column of nothing but these and the texts for false is one of bool.
_TRUE: Final = ["true", "True", "TRUE"]

#: The texts for false.
_FALSE: Final = ["false", "False", "FALSE"]

#: The size of the text that is searched for another delimiter.
_HEAD_BYTES: Final = 1 << 16

#: What pyarrow says of a row with another number of columns.
_RAGGED: Final = re.compile(
    r".*?(?:Row #(?P<row>\d+): )?"
    r"(?P<problem>Expected \d+ columns, got \d+)(?P<text>.*)",
    re.DOTALL,
)


class CSVTable:
    """The rows of a CSV file.

    Each block of rows becomes a table by types of its own (:meth:`_infer`). Then a type is chosen
    for each column over all blocks (:meth:`_join_types`), and the tables are converted to these
    types (:meth:`_finish`).

    Args:
        text: the file.
        options: how it is written.
        types: types of some columns, instead of inferred ones.
        columns: the columns to read; None for all.

    Attributes:
        text: the file.
        name: the name of the file for messages.
    """

    #: How the file is written.
    _options: CSVOptions

    #: The given types of columns.
    _types: dict[str, pa.DataType]

    #: The rows in blocks, and the names of the columns.
    _blocks: CSVBlocks

    def __init__(
        self,
        text: TextFile,
        options: CSVOptions,
        types: Mapping[str, pa.DataType],
        columns: Collection[str] | None = None,
    ) -> None:
        self.text = text
        self.name = text.name
        self._options = options
        self._types = dict(types)
        wanted_columns = None if columns is None else set(columns)
        self._blocks = CSVBlocks(text, options, self._types, wanted_columns)

    @property
    def column_names(self) -> list[str]:
        """The names of the columns, after the first row was read."""
        return self._blocks.column_names

    def read(self) -> pa.Table:
        """Return all rows.

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
        blocks = list(self._blocks.iterate(BLOCK_BYTES))
        tables = [self._infer(block) for block in blocks]
        types = self._join_types([table.schema for table in tables], blocks)
        self._blocks.warn()
        if not tables:
            return _empty_table(types)
        finished = []
        for block, table in zip(blocks, tables, strict=True):
            finished.append(self._finish(block, table, types))
        return pa.concat_tables(finished)

    def stream(self, block_bytes: int) -> tuple[pa.Schema, Iterator[pa.Table]]:
        """Return the types of the columns, and an iterator over tables of their rows.

        The file is read once for the types, and again for the rows.

        Args:
            block_bytes: the size of the text of a table.

        Raises:
            DatasetFileCorruptError: as for :meth:`read`. The iterator raises it if the file has
                changed since its types were read.
            ConfigError: as for :meth:`read`.
        """
        schemas = [self._infer(block).schema for block in self._blocks.iterate(block_bytes)]
        types = self._join_types(schemas, self._blocks.iterate(block_bytes))
        self._blocks.warn()
        tables = self._iterate_tables(block_bytes, types, self.text.sha256)
        return _empty_table(types).schema, tables

    def _iterate_tables(
        self, block_bytes: int, types: Mapping[str, pa.DataType], sha256: str | None
    ) -> Iterator[pa.Table]:
        for block in self._blocks.iterate(block_bytes):
            yield self._finish(block, self._infer(block), types)
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
        texts = self._texts(block, names)
        columns = {name: table[name] for name in table.column_names}
        for name in names:
            columns[name] = exact_column(columns[name], texts[name])
        return pa.table(columns)

    def _join_types(
        self, schemas: Sequence[pa.Schema], blocks: Iterable[Block]
    ) -> dict[str, pa.DataType]:
        """Return the type of each column over all blocks.

        Args:
            schemas: the types of each block.
            blocks: the blocks, which are read again if some columns differ in type.
        """
        types_of_blocks: dict[str, set[pa.DataType]] = {
            name: set() for name in self._blocks.read_names
        }
        for schema in schemas:
            for field in schema:
                if not pa.types.is_null(field.type):
                    types_of_blocks[field.name].add(field.type)

        types: dict[str, pa.DataType] = {}
        candidates: dict[str, list[pa.DataType]] = {}
        for name, types_of_column in types_of_blocks.items():
            if name in self._types:
                types[name] = self._types[name]
            elif len(types_of_column) > 1:
                candidates[name] = common_types(types_of_column)
            else:
                types[name] = next(iter(types_of_column), pa.null())
        if candidates:
            types.update(self._choose_types(candidates, blocks))
        return {name: types[name] for name in self._blocks.read_names}

    def _choose_types(
        self, candidates: Mapping[str, list[pa.DataType]], blocks: Iterable[Block]
    ) -> dict[str, pa.DataType]:
        """Return the first candidate for each column that holds its values in all blocks.

        The last candidate is text, which holds any value.
        """
        remaining = dict(candidates)
        for block in blocks:
            texts = self._texts(block, list(remaining))
            for name, types in remaining.items():
                remaining[name] = [
                    type_ for type_ in types if convert_texts(texts[name], type_) is not None
                ]
        return {name: types[0] for name, types in remaining.items()}

    def _finish(self, block: Block, table: pa.Table, types: Mapping[str, pa.DataType]) -> pa.Table:
        """Return a block as a table, by the types of all blocks.

        Args:
            block: the block.
            table: the block by types of its own.
            types: the types of all blocks.
        """
        columns = {name: table[name] for name in table.column_names}
        names_to_convert = []
        for name, cells in columns.items():
            if cells.type == types[name]:
                continue
            if pa.types.is_null(cells.type):
                columns[name] = cells.cast(types[name])
            else:
                names_to_convert.append(name)
        if names_to_convert:
            texts = self._texts(block, names_to_convert)
            for name in names_to_convert:
                columns[name] = convert_texts(texts[name], types[name])
        return pa.table(columns)

    # ------------------------------------------------------------------ parsing

    def _texts(self, block: Block, names: list[str]) -> dict[str, pa.ChunkedArray]:
        """Return columns of a block as text, null where they are missing."""
        table = self._read_arrow(block, dict.fromkeys(names, pa.string()), names)
        return {name: table[name] for name in names}

    def _parse(self, block: Block) -> pa.Table:
        """Return a block as a table, by the given types and those that pyarrow infers.

        Raises:
            DatasetFileCorruptError: it has ragged rows, or texts that do not fit the given types.
        """
        read_by_arrow: dict[str, pa.DataType] = {}
        read_as_text: dict[str, pa.DataType] = {}
        for name in self._blocks.read_names:
            if name not in self._types:
                continue
            type_ = self._types[name]
            if reads_exactly(type_):
                read_by_arrow[name] = type_
            else:
                read_as_text[name] = type_
        types = {**read_by_arrow, **dict.fromkeys(read_as_text, pa.string())}
        try:
            table = self._read_arrow(block, types, self._blocks.read_names)
        except MemoryError:
            # MISFIT_ERRORS would catch it.
            raise
        except MISFIT_ERRORS as error:
            raise self._error_of_block(block, read_by_arrow, error) from error
        columns = {name: table[name] for name in table.column_names}
        for name, type_ in read_as_text.items():
            converted = convert_texts(columns[name], type_)
            if converted is None:
                raise self._error_of_misfit(block, name, type_)
            columns[name] = converted
        return pa.table(columns)

    def _read_arrow(
        self, block: Block, types: Mapping[str, pa.DataType], columns: list[str]
    ) -> pa.Table:
        """Return columns of a block as a table, as pyarrow reads them.

        Args:
            block: the block.
            types: types of some columns, instead of inferred ones.
            columns: the columns.
        """
        has_quotes = self._options.has_quotes
        return pyarrow.csv.read_csv(
            pa.BufferReader(block.data),
            pyarrow.csv.ReadOptions(
                # pyarrow infers types from its first block only, so that all rows are in one.
                block_size=len(block.data) + 1,
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
                include_columns=columns,
                true_values=_TRUE,
                false_values=_FALSE,
            ),
        )

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
        match = _RAGGED.match(str(error))
        if match is not None:
            return self._error_of_ragged_row(block, match)
        for name, type_ in types.items():
            try:
                self._read_arrow(block, {name: type_}, [name])
            except MISFIT_ERRORS:
                return self._error_of_misfit(block, name, type_)
        return DatasetFileCorruptError(f"{self.name!r} cannot be read as CSV: {error!s:.300}")

    def _error_of_ragged_row(self, block: Block, match: re.Match[str]) -> Exception:
        """Return the error for a row with another number of columns.

        Args:
            block: the block.
            match: what pyarrow says of the row, by the groups of :data:`_RAGGED`.
        """
        where = ""
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
            f"{self.name!r}{where}, cannot be read as CSV: "
            f"{match['problem']}{match['text'][:100]}{advice}"
        )

    def _error_of_misfit(self, block: Block, name: str, type_: pa.DataType) -> Exception:
        """Return the error for a column with a text that does not fit its given type."""
        try:
            texts = self._texts(block, [name])[name].combine_chunks()
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


def _empty_table(types: Mapping[str, pa.DataType]) -> pa.Table:
    return pa.table({name: pa.array([], type_) for name, type_ in types.items()})
