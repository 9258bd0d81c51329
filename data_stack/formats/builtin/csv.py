"""The format of CSV files."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.exception import ArgumentError
from data_stack.formats.column_source import ColumnSource
from data_stack.formats.format import WriteBatch
from data_stack.formats.registry import register_format
from data_stack.formats.text_table_format import TextTableFormat
from data_stack.io.location import Location


@register_format
class CSVFormat(TextTableFormat):
    """Comma- or tab-separated values with a header.

    The options are those of :func:`data_stack.from_csv`.
    """

    name = "csv"
    suffixes = {".csv": "text/csv", ".tsv": "text/tab-separated-values"}
    options = frozenset(
        {"dtypes", "delimiter", "encoding", "missing", "header", "names", "quoting", "filters"}
    )
    has_untyped_values = True
    types = frozenset({"utf8", "i64", "u64", "int", "array", "npy", "json", "tree"})

    def options_of_name(self, file_name: str) -> dict[str, Any]:
        if ".tsv" in file_name.lower():
            return {"delimiter": "\t"}
        return {}

    def reader(self) -> Callable[..., DatasetIteratorIF]:
        from data_stack.formats.text_tables.reading import from_csv

        return from_csv

    def copier(self) -> Callable[..., None]:
        from data_stack.formats.conversion.text_sources import copy_csv

        return copy_csv

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

        delimiter = self.options_of_name(name).get("delimiter", ",")
        with location.folder.create(location.name) as file:
            yield CSVWriter(file, list(source.schema), delimiter).write
