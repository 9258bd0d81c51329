"""The format of Parquet files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from data_stack.dataset.iterator import ColumnKey, DatasetIteratorIF
from data_stack.formats.class_name_metadata import class_names_in_metadata
from data_stack.formats.column_source import ColumnSource
from data_stack.formats.column_types import media_columns
from data_stack.formats.format import (
    ALL_COLUMNS,
    Batch,
    ColumnChoice,
    FormatOptions,
    WritableFormat,
    WriteBatch,
)
from data_stack.formats.registry import register_format
from data_stack.formats.targets import with_target
from data_stack.io.account import PlaceAccount, is_document
from data_stack.io.folder import Folder
from data_stack.io.location import Location

if TYPE_CHECKING:
    from data_stack.formats.parquet.codecs.native import Nulls

#: The files beside Parquet files that list them. The package that defines these needs pyarrow.
_LISTING_FILES: Final = frozenset(
    {"_common_metadata", "_metadata", "_data_stack_manifest.parquet", "_data_stack_progress"}
)

#: How many folders in each folder are listed to find a Parquet file in partitions: each may take a
#: request to a store.
_MAX_FOLDERS_IN_ONE: Final = 4


@dataclass(frozen=True)
class ParquetOptions(FormatOptions):
    """The options of Parquet files.

    :class:`~data_stack.formats.parquet.ParquetDataset` documents them.
    """

    nulls: Nulls = "none"
    filters: Any = None


_DEFAULTS: Final = ParquetOptions()


@register_format
class ParquetFormat(WritableFormat):
    """A Parquet file, or a folder of Parquet files."""

    name = "parquet"
    suffixes = {
        ".parquet": "application/x-parquet",
        ".parq": "application/x-parquet",
        ".pq": "application/x-parquet",
    }
    listing_files = _LISTING_FILES
    is_loaded_by_name = True
    options_class = ParquetOptions
    has_shards = True
    holds_decimals = True
    keeps_class_names = True

    def recognize(self, folder: Folder, names: Sequence[str]) -> bool:
        if not self.listing_files.isdisjoint(names):
            return True
        if any(_has_suffix(name) for name in names):
            return True
        # Classes of pictures, shards and tables may have names like "year=2024", too.
        partitions = [name for name in names if "=" in name]
        return _has_parquet_in(folder, partitions)

    def open(
        self,
        location: Location,
        columns: ColumnChoice = ALL_COLUMNS,
        options: ParquetOptions | None = None,
    ) -> DatasetIteratorIF:
        from data_stack.formats.conversion.parquet_columns import open_parquet

        options = options or _DEFAULTS
        return open_parquet(location, nulls=options.nulls, filters=options.filters)

    def open_parts(
        self,
        parts: Sequence[Location],
        columns: ColumnChoice = ALL_COLUMNS,
        options: ParquetOptions | None = None,
    ) -> list[DatasetIteratorIF]:
        from data_stack.formats.conversion.parquet_columns import open_parquet

        are_files = all(part.is_file() for part in parts)
        if len(parts) > 1 and are_files:
            options = options or _DEFAULTS
            return [open_parquet(parts, nulls=options.nulls, filters=options.filters)]
        return super().open_parts(parts, columns, options)

    def list_columns(self, samples: Any) -> list[ColumnKey]:
        return list(samples.schema.fields)

    def account_of(self, folder: Folder) -> PlaceAccount | None:
        from data_stack.formats.parquet.files import find_files

        return find_files(folder).account

    def open_source(
        self,
        location: Location,
        columns: ColumnChoice = ALL_COLUMNS,
        options: ParquetOptions | None = None,
    ) -> ColumnSource:
        from data_stack.formats.conversion.parquet_columns import (
            columns_of_parquet,
            find_stored_schema,
            open_parquet,
        )

        options = options or _DEFAULTS
        rows = open_parquet(location, nulls=options.nulls, filters=options.filters)
        schema = columns_of_parquet(rows)
        stored = None
        if media_columns(schema):
            stored_schema = find_stored_schema(rows.schema, schema)
            stored = open_parquet(
                location, stored_schema, nulls=options.nulls, filters=options.filters
            )
        keys: dict[str, ColumnKey] = {name: name for name in rows.schema.fields}
        class_names = class_names_in_metadata(rows.metadata, location.full_name)
        return ColumnSource(location.full_name, rows, schema, keys, stored, class_names=class_names)

    def with_target(self, samples: Any, location: Location, target: str | None) -> Any:
        if target is None:
            return samples
        rows = _rows_below(samples)
        class_names = class_names_in_metadata(rows.metadata, location.full_name)
        return with_target(
            samples, location.name, self.list_columns(samples), target, class_names.get(target)
        )

    def check(self, source: ColumnSource, location: Location, shardlen: int | None) -> None:
        from data_stack.formats.conversion.parquet_columns import parquet_schema

        super().check(source, location, shardlen)
        parquet_schema(location.name, source)

    @contextlib.contextmanager
    def writer(
        self, location: Location, source: ColumnSource, *, name: str, shardlen: int | None
    ) -> Iterator[WriteBatch]:
        from data_stack.formats.conversion.parquet_columns import (
            labels_of_schema,
            parquet_schema,
        )
        from data_stack.formats.parquet import ParquetWriter

        schema = parquet_schema(name, source)
        labels = labels_of_schema(schema, source)
        with ParquetWriter(
            location.as_folder(), schema, rows_per_file=shardlen, class_names=labels
        ) as writer:

            def write_batch(batch: Batch) -> None:
                writer.append_columns(batch, encoded=source.stored_names)

            yield write_batch


def _has_suffix(name: str) -> bool:
    """Return whether the name of a file ends as those of Parquet do, in any case."""
    return name.lower().endswith(tuple(ParquetFormat.suffixes))


def _has_parquet_in(folder: Folder, names: Sequence[str]) -> bool:
    """Return whether some of the first names in a folder are Parquet files, or have one below them.

    Hive and Spark write files without a suffix.

    Args:
        folder: the folder.
        names: some of the names in it.
    """
    n_listed = 0
    for name in names:
        if name.startswith((".", "_")) or is_document(name):
            continue
        if _has_suffix(name):
            return True
        has_other_suffix = "." in name and "=" not in name
        if has_other_suffix or n_listed == _MAX_FOLDERS_IN_ONE:
            continue
        n_listed += 1
        subfolder = folder.subfolder(name)
        names_below = subfolder.list_names()
        is_file_without_suffix = not names_below and "." not in name
        if is_file_without_suffix or _has_parquet_in(subfolder, names_below):
            return True
    return False


def _rows_below(samples: Any) -> Any:
    """Return the rows of files that samples of :meth:`ParquetFormat.open` are read from."""
    while not hasattr(samples, "metadata"):
        samples = samples.underlying_iterators[0]
    return samples
