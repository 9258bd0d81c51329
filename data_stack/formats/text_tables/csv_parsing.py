"""Parses rows of CSV text into cells of known types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.csv

from data_stack.formats.text_tables.csv_options import CSVOptions
from data_stack.formats.text_tables.csv_types import convert_texts, reads_exactly

#: The texts for true. A column of nothing but these and the texts for false is one of bool.
_TRUE: Final = ["true", "True", "TRUE"]

#: The texts for false.
_FALSE: Final = ["false", "False", "FALSE"]

#: Fewer bytes are parsed faster by one thread: a row takes half of the time.
_BYTES_FOR_THREADS: Final = 1 << 18


class MisfitError(Exception):
    """A column has a text that does not fit the type of the column.

    Args:
        name: the name of the column.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


@dataclass(frozen=True)
class ColumnTypes:
    """The types of the columns of a CSV file.

    Attributes:
        schema: the columns to read.
        converted: those that pyarrow must read as text, which is then converted to their type.
        nullable: those with a missing value in some row.
    """

    schema: pa.Schema
    converted: frozenset[str]
    nullable: frozenset[str]


class CSVParser:
    """Parses rows of CSV text.

    Args:
        options: how the text is written.
        column_names: the names of all columns, in their order.
    """

    #: How the text is written.
    _options: CSVOptions

    #: The names of all columns.
    _column_names: list[str]

    def __init__(self, options: CSVOptions, column_names: Sequence[str]) -> None:
        self._options = options
        self._column_names = list(column_names)

    def parse(
        self,
        data: bytes,
        types: Mapping[str, pa.DataType],
        names: Sequence[str],
        *,
        may_use_threads: bool = True,
    ) -> pa.Table:
        """Return columns of some rows as a table, as pyarrow reads them.

        Args:
            data: the text of the rows.
            types: types of some columns, instead of those that pyarrow infers.
            names: the columns.
            may_use_threads: whether the text may be parsed by several threads. Then the error for a
                row with another number of columns lacks the position of the row.

        Raises:
            One of ``MISFIT_ERRORS``: a row has another number of columns, or a text does not fit
                its type.
        """
        has_quotes = self._options.has_quotes
        return pyarrow.csv.read_csv(
            pa.BufferReader(data),
            pyarrow.csv.ReadOptions(
                # pyarrow infers types from its first block only, so that all rows are in one.
                block_size=len(data) + 1,
                column_names=self._column_names,
                use_threads=may_use_threads and len(data) > _BYTES_FOR_THREADS,
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
                include_columns=list(names),
                true_values=_TRUE,
                false_values=_FALSE,
            ),
        )

    def texts(self, data: bytes, names: Sequence[str]) -> dict[str, pa.ChunkedArray]:
        """Return columns of some rows as text, null where they are missing."""
        table = self.parse(data, dict.fromkeys(names, pa.string()), names)
        return {name: table[name] for name in names}

    def cells(
        self, data: bytes, types: ColumnTypes, names: Sequence[str]
    ) -> dict[str, pa.ChunkedArray]:
        """Return columns of some rows by the types that all rows of the file have.

        Raises:
            MisfitError: a text does not fit its type.
            One of ``MISFIT_ERRORS``: as for :meth:`parse`.
        """
        types_of_arrow = {}
        for name in names:
            is_converted = name in types.converted
            types_of_arrow[name] = pa.string() if is_converted else types.schema.field(name).type
        table = self.parse(data, types_of_arrow, names)
        columns = {}
        for name in names:
            columns[name] = table[name]
            if name in types.converted:
                columns[name] = convert_texts(table[name], types.schema.field(name).type)
            if columns[name] is None:
                raise MisfitError(name)
        return columns


def must_convert(types: Mapping[str, pa.DataType]) -> frozenset[str]:
    """Return the columns whose given types pyarrow does not read exactly."""
    return frozenset(name for name, type_ in types.items() if not reads_exactly(type_))
