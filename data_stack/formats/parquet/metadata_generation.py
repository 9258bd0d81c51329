"""Writes the metadata files of a Parquet dataset whose files exist, from other tools as well."""

from __future__ import annotations

from typing import Any

from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.parquet.files import find_files, partition_names
from data_stack.formats.parquet.footers import Footers
from data_stack.formats.parquet.foreign_metadata import add_foreign_metadata
from data_stack.formats.parquet.inference import read_schema
from data_stack.formats.parquet.manifest import ParquetFileRecord, ParquetManifest
from data_stack.formats.parquet.metadata import write_metadata
from data_stack.formats.parquet.row_groups import RowGroups
from data_stack.formats.parquet.schema import Schema


def generate_metadata(
    source: Any, *, prefix: str = "", schema: Schema | None = None, petastorm: bool = False
) -> ParquetManifest:
    """Write the manifest of a dataset from the footers of its files. No row is read.

    Use it for datasets that other tools wrote, appended to, or removed files from. If the dataset
    has Petastorm's metadata in ``_common_metadata``, they are updated.

    Args:
        source: a folder, a storage connector or the URL of one.
        prefix: the folder of the dataset in ``source``.
        schema: the schema of the rows, partition columns included. None for the stored schema of
            data_stack or Petastorm; without a stored one, it is inferred from the files.
        petastorm: whether to write the metadata that Petastorm needs if the dataset has none.

    Returns:
        The manifest.

    Raises:
        ResourceNotFoundError: ``source`` has no Parquet files.
        ConfigError: ``source`` is a file; or files do not fit the schema; or Petastorm does not
            support a field, or its plugin is not installed.
        DatasetFileCorruptError: a file is damaged, or its writer has not finished.
        StorageError: the dataset cannot be read, or the manifest not written.
    """
    files = find_files(source, prefix)
    if files.given:  # source names files
        raise ConfigError("metadata belong to a whole dataset: pass its folder, not a file")
    files.account.warn()  # of files that were left out
    # The footers count, not what an earlier manifest says of them.
    footers = Footers(files, verified=False)
    if schema is None:
        schema = read_schema(footers)
    # The constructor raises if a file lacks a field, or if the name of a folder is not a value of
    # its column.
    RowGroups(footers, schema)

    records = []
    for number, path in enumerate(files.paths):
        size = footers.size(number)
        facts = footers.facts(number)
        records.append(ParquetFileRecord.of(path, size, facts, footers.digest(number)))

    own_metadata = {**footers.metadata, **schema.metadata()}
    metadata = add_foreign_metadata(own_metadata, schema, records, always=petastorm)
    partition_by = tuple(partition_names(files.partitions))
    manifest = ParquetManifest(schema, tuple(records), partition_by, _n_parts_before(footers))
    arrow_schema = footers.arrow_schema.with_metadata(metadata)
    write_metadata(files.folder, arrow_schema, files.paths, manifest)
    return manifest


def _n_parts_before(footers: Footers) -> int:
    """Return the number of parts in the manifest that is replaced; 0 without a readable one.

    A writer that appends names its files after the number of the next part. So the number must not
    fall while the files stay.
    """
    try:
        manifest = footers.manifest
    except DatasetFileCorruptError:
        # It is damaged, or of an earlier version.
        return 0
    if manifest is None:
        return 0
    return manifest.n_parts
