"""Makes the manifest of Parquet files that other tools wrote, or appended to."""

from __future__ import annotations

from typing import Any

from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.parquet.files import find_files, partition_names
from data_stack.formats.parquet.footers import Footers
from data_stack.formats.parquet.inference import read_schema
from data_stack.formats.parquet.metadata import (
    ParquetFileRecord,
    ParquetManifest,
    is_foreign,
    make_foreign_metadata,
    write_metadata,
)
from data_stack.formats.parquet.row_groups import RowGroups
from data_stack.formats.parquet.schema import Schema


def generate_metadata(source: Any, *, prefix: str = "", schema: Schema | None = None, petastorm: bool = False) -> ParquetManifest:
    """Write the manifest of a dataset from the footers of its files; no row is read.

    Use it for datasets that other tools wrote, appended to, or removed files from. It updates Petastorm's ``_common_metadata``.

    Args:
        source: a folder, a storage connector or the URL of one.
        prefix: folder below it.
        schema: of the rows, partition columns included; None for the stored schema (ours, or Petastorm's), else an inferred one.
        petastorm: write the ``_common_metadata`` that Petastorm needs, too.

    Returns:
        The manifest.

    Raises:
        ResourceNotFoundError: ``source`` has no Parquet files.
        ConfigError: files do not fit the schema; or Petastorm does not know a field.
        DatasetFileCorruptError: a file is damaged, or its writer has not finished.
        StorageError: it cannot be read or written.
    """
    files = find_files(source, prefix)
    if files.given:
        raise ConfigError("metadata belong to a whole dataset: pass its folder, not a file")
    footers = Footers(files, verified=False)
    found = read_schema(footers) if schema is None else schema
    RowGroups(footers, found)  # raises where a file lacks a field, or a folder's name is not a value
    records = tuple(
        ParquetFileRecord.of(path, footers.size(number), footers.facts(number), footers.digest(number))
        for number, path in enumerate(files.paths)
    )
    metadata = {**footers.metadata, **found.metadata()}
    if petastorm or any(map(is_foreign, metadata)):
        metadata = make_foreign_metadata(found, records, metadata)
    try:
        before = footers.manifest
    except DatasetFileCorruptError:  # damaged, or of an earlier version: it is replaced here
        before = None
    manifest = ParquetManifest(found, records, tuple(partition_names(files.partitions)), 0 if before is None else before.n_parts)
    write_metadata(files.folder, footers.arrow_schema.with_metadata(metadata), files.paths, manifest)
    return manifest
