"""Parquet datasets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from data_stack.codecs.codec import media_types
from data_stack.formats.conversion.format import Batches, ConvertibleFormat, Destination, register_format
from data_stack.formats.conversion.source import Source
from data_stack.io.folder import Folder
from data_stack.io.location import Location

#: Names beside Parquet files; the package that defines them needs pyarrow.
_PARQUET_NAMES = frozenset({"_common_metadata", "_metadata", "_data_stack_manifest.parquet", "_data_stack_progress"})


def open_parquet(location: Location, schema: Any = None) -> Any:
    """The rows of a file or folder, with lists of text or bytes as Python lists unless a schema says otherwise."""
    from data_stack.formats.conversion.parquet_columns import with_plain_lists
    from data_stack.formats.parquet import ParquetDataset

    folder, prefix = (location.folder, location.name) if location.is_file() else (location.as_folder(), "")
    rows = ParquetDataset(folder, prefix=prefix, schema=schema)
    if schema is None and (plain := with_plain_lists(rows.schema)) != rows.schema:
        return ParquetDataset(folder, prefix=prefix, schema=plain)
    return rows


@register_format
class ParquetFormat(ConvertibleFormat):
    """A Parquet file, or a folder of Parquet files."""

    name = "parquet"
    suffixes = dict.fromkeys((".parquet", ".parq", ".pq"), "application/x-parquet")
    has_shards = True

    def recognizes(self, folder: Folder, names: Sequence[str]) -> bool:
        endings = tuple(self.suffixes)
        return not _PARQUET_NAMES.isdisjoint(names) or any(name.endswith(endings) or "=" in name for name in names)

    def open(self, location: Location) -> Source:
        from data_stack.formats.conversion.parquet_columns import columns_of_parquet, find_stored_schema

        values = open_parquet(location)
        schema, stored = columns_of_parquet(values), None
        if any(column.codec_type in media_types() for column in schema.values()):
            stored = open_parquet(location, find_stored_schema(values.schema, schema))
        return Source(location.full_name, values, schema, {name: name for name in values.schema.fields}, stored)

    def check(self, source: Source, destination: Destination) -> None:
        super().check(source, destination)
        self._schema(source, destination)

    def write(self, source: Source, destination: Destination, batches: Batches) -> None:
        from data_stack.formats.parquet import ParquetWriter

        folder, schema = destination.place.as_folder(), self._schema(source, destination)
        with ParquetWriter(folder, schema, rows_per_file=destination.shardlen) as writer:
            for columns in batches:
                writer.append_columns(columns, encoded=source.stored_names)

    def _schema(self, source: Source, destination: Destination) -> Any:
        from data_stack.formats.conversion.parquet_columns import parquet_schema

        return parquet_schema(destination.location.name, source.schema, lambda name: source.read(source.some(), [name])[name])
