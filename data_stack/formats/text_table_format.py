"""Formats of tables in text, whose types are inferred from the values."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.exception import ArgumentError, ConfigError
from data_stack.formats.column_source import ColumnSource
from data_stack.formats.column_types import plain_type
from data_stack.formats.dataset_files import DatasetFiles
from data_stack.formats.format import ALL_COLUMNS, ColumnChoice, WritableFormat
from data_stack.formats.registry import without_compression
from data_stack.formats.targets import with_target
from data_stack.io.location import Location


class TextTableFormat(WritableFormat):
    """A table in text, whose types are inferred from the values.

    :func:`data_stack.load` parses rows when they are read. A conversion copies the table first, in
    bounded memory, into a temporary file.
    """

    is_streamed = True
    keeps_files = False
    infers_types = True

    #: Whether all values are written as text, so that any column can be read as text.
    has_untyped_values: ClassVar[bool]

    #: The types of columns that the format holds.
    types: ClassVar[frozenset[str]]

    # ------------------------------------------------------------------ opening

    @abstractmethod
    def read(
        self, location: Location, columns: Sequence[str] | None, options: Any
    ) -> DatasetIteratorIF:
        """Open a file, as :func:`data_stack.from_csv` and its like do.

        Args:
            location: the file.
            columns: the columns to read; None for all.
            options: as for :meth:`open`; never None.
        """

    @abstractmethod
    def copy(
        self, location: Location, columns: Sequence[str] | None, options: Any, target: str
    ) -> None:
        """Copy a file into Parquet files, in bounded memory.

        Args:
            location: the file.
            columns: the columns to copy; None for all.
            options: as for :meth:`open`; never None.
            target: the path of the folder of the Parquet files.
        """

    def open(
        self, location: Location, columns: ColumnChoice = ALL_COLUMNS, options: Any = None
    ) -> DatasetIteratorIF:
        from data_stack.formats.text_tables.column_errors import UnknownColumnError

        options = options or self.options_class()
        if columns.required is None:
            return self.read(location, None, options)
        try:
            all_columns = columns.required + columns.optional
            return self.read(location, all_columns, options)
        except UnknownColumnError as error:
            if error.column not in columns.optional:
                raise
        # Only the header tells whether the optional column, the target, exists.
        return self.read(location, columns.required, options)

    def open_splits(
        self,
        datasets: Mapping[str, DatasetFiles],
        chosen: Sequence[str],
        columns: ColumnChoice = ALL_COLUMNS,
        options: Any = None,
    ) -> dict[str, list[DatasetIteratorIF]]:
        """Open the tables of all splits, whose columns have the same types.

        A table that is not named as a split has its own types.
        """
        from data_stack.formats.text_tables.agreement import read_alike

        options = options or self.options_class()
        parts_of_splits: list[tuple[str, Location]] = []
        for name, files in datasets.items():
            if files.is_split:
                parts_of_splits.extend((name, part) for part in files.parts)

        def read_part(number: int, dtypes: Mapping[str, Any]) -> DatasetIteratorIF:
            _, part = parts_of_splits[number]
            return self.open(part, columns, dataclasses.replace(options, dtypes=dtypes))

        tables = read_alike(
            read_part,
            [part.full_name for _, part in parts_of_splits],
            options.dtypes,
            of_text=self.has_untyped_values,
        )
        opened: dict[str, list[DatasetIteratorIF]] = {}
        for (name, _), table in zip(parts_of_splits, tables, strict=True):
            opened.setdefault(name, []).append(table)
        for name in chosen:
            if name not in opened:
                opened[name] = self.open_parts(datasets[name].parts, columns, options)
        return opened

    def with_target(self, samples: Any, location: Location, target: str | None) -> Any:
        if target is None:
            return samples
        source_name = str(location.path or location.full_name)
        return with_target(samples, source_name, self.list_columns(samples), target)

    def open_source(
        self, location: Location, columns: ColumnChoice = ALL_COLUMNS, options: Any = None
    ) -> ColumnSource:
        from data_stack.formats.conversion.text_sources import open_text_table

        return open_text_table(location, self.copy, columns, options or self.options_class())

    # ------------------------------------------------------------------ writing

    def writes_folder(self, location: Location) -> bool:
        return False

    def check(self, source: ColumnSource, location: Location, shardlen: int | None) -> None:
        super().check(source, location, shardlen)
        plain_name = without_compression(location.name)
        if plain_name != location.name:
            raise ConfigError(
                f"{location.name!r} is the name of a compressed file, which a conversion does "
                f"not write; choose {plain_name!r}"
            )
        for name, column in source.schema.items():
            if plain_type(column.type) not in self.types:
                raise ArgumentError(
                    f"column {name!r} is of type {column.type!r}, which {self.name} cannot hold; "
                    "leave it out of",
                    "columns",
                )


def file_at(location: Location) -> Any:
    """Return the path of a local file, or the opened resource of a store."""
    return location.local_file() or location.open()
