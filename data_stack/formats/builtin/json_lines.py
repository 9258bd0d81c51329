"""The format of JSON lines files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
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
class JsonLinesOptions(FormatOptions):
    """The options of JSON lines, which :func:`data_stack.from_jsonl` documents."""

    dtypes: Mapping[str, Any] | None = None
    filters: Any = None


@register_format
class JsonLinesFormat(TextTableFormat):
    """A JSON object per line."""

    name = "jsonl"
    suffixes = {".jsonl": "application/jsonlines", ".ndjson": "application/x-ndjson"}
    options_class = JsonLinesOptions
    has_untyped_values = False
    types = frozenset({"utf8", "i64", "u64", "int", "array", "json", "tree"})

    def read(
        self, location: Location, columns: Sequence[str] | None, options: JsonLinesOptions
    ) -> DatasetIteratorIF:
        from data_stack.formats.text_tables.reading import from_jsonl

        return from_jsonl(
            file_at(location), dtypes=options.dtypes, filters=options.filters, columns=columns
        )

    def copy(
        self,
        location: Location,
        columns: Sequence[str] | None,
        options: JsonLinesOptions,
        target: str,
    ) -> None:
        from data_stack.formats.conversion.text_sources import copy_json_lines

        copy_json_lines(file_at(location), columns, target, dtypes=options.dtypes)

    def check(self, source: ColumnSource, location: Location, shardlen: int | None) -> None:
        super().check(source, location, shardlen)
        for name, column in source.schema.items():
            if column.shape is not None and len(column.shape) > 1:
                raise ArgumentError(
                    f"column {name!r} holds arrays of shape {column.shape}, which readers of JSON "
                    "take for lists; leave it out of",
                    "columns",
                )

    @contextlib.contextmanager
    def writer(
        self, location: Location, source: ColumnSource, *, name: str, shardlen: int | None
    ) -> Iterator[WriteBatch]:
        from data_stack.formats.text_tables.json_lines_writer import JsonLinesWriter

        with location.folder.create(location.name) as file:
            yield JsonLinesWriter(file).write
