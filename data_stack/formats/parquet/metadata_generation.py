"""Makes the manifest of Parquet files that other tools wrote, or appended to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.parquet.files import find_files, partition_names
from data_stack.formats.parquet.footers import Footers
from data_stack.formats.parquet.indexes import read_indexes
from data_stack.formats.parquet.inference import read_schema
from data_stack.formats.parquet.metadata import INDEXES_KEY, ParquetFileRecord, ParquetManifest, write_metadata
from data_stack.formats.parquet.petastorm_metadata import PICKLED_INDEXES_KEY, ROW_GROUPS_KEY, UNISCHEMA_KEY, petastorm_metadata
from data_stack.formats.parquet.row_groups import RowGroups
from data_stack.formats.parquet.schema import SCHEMA_KEY, Schema
from data_stack.util.untrusted_text import parse_json


@dataclass(frozen=True)
class MetadataReport:
    """The metadata that was written.

    Attributes:
        manifest: the stored manifest of the dataset.
        schema_from: ``"data_stack"``, ``"petastorm"``, ``"given"``, or ``"inferred"`` from the columns.
        dropped_indexes: whether outdated row-group indexes were removed.
    """

    manifest: ParquetManifest
    schema_from: str
    dropped_indexes: bool


def generate_metadata(
    source: Any,
    *,
    prefix: str = "",
    schema: Schema | None = None,
    petastorm: bool = False,
) -> MetadataReport:
    """Write the manifest of a dataset from the footers of its files; no row is read.

    Use it for datasets that other tools wrote, appended to, or removed files from. It keeps Petastorm's ``_common_metadata`` and
    updates its row groups.

    Args:
        source: a folder, a storage connector or the URL of one.
        prefix: folder below it.
        schema: of the rows, partition columns included; None for the stored schema (ours, or Petastorm's), else an inferred one.
        petastorm: write the ``_common_metadata`` that Petastorm needs, too.

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
    metadata = dict(footers.metadata)
    written = "data_stack" if SCHEMA_KEY in metadata else "petastorm" if UNISCHEMA_KEY in metadata else "inferred"
    records = tuple(
        ParquetFileRecord.of(path, footers.size(number), footers.facts(number), footers.digest(number))
        for number, path in enumerate(files.paths)
    )
    had_indexes = INDEXES_KEY in metadata or PICKLED_INDEXES_KEY in metadata
    drops = had_indexes and not _are_indexes_current(footers)
    if drops:
        metadata.pop(INDEXES_KEY, None)
        metadata.pop(PICKLED_INDEXES_KEY, None)
    metadata |= found.metadata()
    if petastorm or UNISCHEMA_KEY in metadata:
        made = petastorm_metadata(found, records)
        if schema is None and UNISCHEMA_KEY in metadata:  # as Petastorm wrote it
            made = {ROW_GROUPS_KEY: made[ROW_GROUPS_KEY]}
        metadata |= made
    try:
        before = footers.manifest
    except DatasetFileCorruptError:  # damaged, or of an earlier version: it is replaced here
        before = None
    manifest = ParquetManifest(found, records, tuple(partition_names(files.partitions)), 0 if before is None else before.n_parts)
    write_metadata(files.folder, footers.arrow_schema.with_metadata(metadata), files.paths, manifest)
    return MetadataReport(manifest, written if schema is None else "given", drops)


def _are_indexes_current(footers: Footers) -> bool:
    try:
        read_indexes(footers)
        # Petastorm's indexes do not name their files, but its metadata lists the files of that time.
        counts = parse_json(footers.metadata.get(ROW_GROUPS_KEY, b"null"))
    except (ConfigError, DatasetFileCorruptError, ValueError):
        return False
    now = {path: footers.of(number).num_row_groups for number, path in enumerate(footers.files.paths)}
    return INDEXES_KEY in footers.metadata or counts in (None, now)
