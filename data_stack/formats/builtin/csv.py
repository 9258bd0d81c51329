"""The format of CSV files."""

from __future__ import annotations

import contextlib
import csv
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.exception import ArgumentError
from data_stack.formats.column_source import ColumnSource
from data_stack.formats.format import FormatOptions, WriteBatch
from data_stack.formats.registry import register_format
from data_stack.formats.text_table_format import TextTableFormat, file_at
from data_stack.io.location import Location


@dataclass(frozen=True)
class CSVFormatOptions(FormatOptions):
    """The options of CSV files, which :func:`data_stack.from_csv` documents.

    Without a ``delimiter``, it is a tab in files whose names contain ``.tsv``, and a comma in
    others.
    """

    dtypes: Mapping[str, Any] | None = None
    delimiter: str | None = None
    encoding: str = "utf-8"
    missing: Collection[str] = ("",)
    header: bool | None = None
    names: Sequence[str] | None = None
    quoting: Any = csv.QUOTE_MINIMAL
    filters: Any = None


@register_format
class CSVFormat(TextTableFormat):
    """Comma- or tab-separated values with a header."""

    name = "csv"
    suffixes = {".csv": "text/csv", ".tsv": "text/tab-separated-values"}
    options_class = CSVFormatOptions
    has_untyped_values = True
    types = frozenset({"utf8", "i64", "u64", "int", "array", "npy", "json", "tree"})

    def read(
        self, location: Location, columns: Sequence[str] | None, options: CSVFormatOptions
    ) -> DatasetIteratorIF:
        from data_stack.formats.text_tables.reading import from_csv

        return from_csv(
            file_at(location),
            dtypes=options.dtypes,
            delimiter=_choose_delimiter(options, location.name),
            encoding=options.encoding,
            missing=options.missing,
            header=options.header,
            names=options.names,
            quoting=options.quoting,
            filters=options.filters,
            columns=columns,
        )

    def copy(
        self,
        location: Location,
        columns: Sequence[str] | None,
        options: CSVFormatOptions,
        target: str,
    ) -> None:
        from data_stack.formats.conversion.text_sources import copy_csv
        from data_stack.formats.text_tables.csv_options import CSVOptions

        csv_options = CSVOptions(
            delimiter=_choose_delimiter(options, location.name),
            missing=options.missing,
            header=options.header,
            names=options.names,
            quoting=options.quoting,
        )
        copy_csv(
            file_at(location),
            columns,
            target,
            options=csv_options,
            dtypes=options.dtypes,
            encoding=options.encoding,
        )

    def check(self, source: ColumnSource, location: Location, shardlen: int | None) -> None:
        super().check(source, location, shardlen)
        for name, column in source.schema.items():
            if column.shape:
                raise ArgumentError(
                    f"column {name!r} holds arrays of shape {column.shape}, which CSV cannot hold; "
                    "leave it out of",
                    "columns",
                )

    @contextlib.contextmanager
    def writer(
        self, location: Location, source: ColumnSource, *, name: str, shardlen: int | None
    ) -> Iterator[WriteBatch]:
        from data_stack.formats.text_tables.csv_writer import CSVWriter

        with location.folder.create(location.name) as file:
            yield CSVWriter(file, list(source.schema), _delimiter_of(name)).write


def _choose_delimiter(options: CSVFormatOptions, file_name: str) -> str:
    """Return the delimiter that a user gave; without one, that of :func:`_delimiter_of`."""
    if options.delimiter is not None:
        return options.delimiter
    return _delimiter_of(file_name)


def _delimiter_of(file_name: str) -> str:
    """Return the delimiter that the name of a file tells, such as ``a.tsv.gz``."""
    if ".tsv" in file_name.lower():
        return "\t"
    return ","
