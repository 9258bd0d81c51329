"""Describes a Parquet dataset by the facts in the footers of its files."""

from __future__ import annotations

from typing import Any

from data_stack.formats.parquet.files import find_files, partition_names
from data_stack.formats.parquet.footers import Footers
from data_stack.formats.parquet.foreign_metadata import has_foreign
from data_stack.formats.parquet.inference import read_schema
from data_stack.formats.parquet.schema import SCHEMA_KEY, Field
from data_stack.formats.parquet.types import dtype_name


def describe_dataset(source: Any) -> dict[str, Any]:
    """Describe a dataset by the footers and metadata files alone; no rows are read.

    Args:
        source: the dataset, as for :class:`~data_stack.formats.parquet.ParquetDataset`.

    Returns:
        Plain JSON data:

        - ``name``: the name of the folder.
        - ``n_rows``, ``n_files``, ``n_row_groups``: numbers of these.
        - ``row_group_rows``: the smallest and the largest number of rows of a row group.
        - ``stored_bytes``: bytes of all columns as they are stored, so compressed.
        - ``partition_by``: names of the partition columns.
        - ``manifest``: "none", "up to date", or "outdated" with what to do.
        - ``schema_from``: who wrote the schema: "data_stack", "Petastorm", or "the columns".
        - ``schema``: the schema, for ``Schema.from_json``.
        - ``fields``: for each field ``name``, ``dtype``, ``shape`` and ``codec`` as texts,
          ``nullable``, and ``stored_bytes``, which a partition column lacks (None).

    Raises:
        ResourceNotFoundError: ``source`` has no Parquet files.
        DatasetFileCorruptError: a footer, or a metadata file, is damaged.
        ConfigError: the schema has a codec that is unknown, or whose plugin is not installed.
        StorageError: a file cannot be read.
    """
    footers = Footers(find_files(source))
    schema = read_schema(footers)
    stored_bytes = _stored_bytes_of_columns(footers)
    rows_of_groups = footers.n_rows.tolist()
    return {
        "name": footers.files.folder.name,
        "n_rows": sum(rows_of_groups),
        "n_files": footers.files.n_files,
        "stored_bytes": sum(stored_bytes.values()),
        "n_row_groups": len(footers),
        "row_group_rows": [min(rows_of_groups, default=0), max(rows_of_groups, default=0)],
        "partition_by": partition_names(footers.files.partitions),
        "manifest": _state_of_manifest(footers),
        "schema_from": _origin_of_schema(footers),
        "schema": schema.to_json(),
        "fields": [_describe_field(field, stored_bytes) for field in schema],
    }


def _stored_bytes_of_columns(footers: Footers) -> dict[str, int]:
    """Return the stored bytes of each field in all files, by its name."""
    stored_bytes: dict[str, int] = {}
    for file in range(footers.files.n_files):
        facts = footers.facts(file)
        stored_bytes_of_chunks = facts.chunks["n_bytes"]  # shape (n_row_groups, n_columns)
        for name, leaves in facts.columns.items():
            n_bytes = int(stored_bytes_of_chunks[:, leaves].sum())
            stored_bytes[name] = stored_bytes.get(name, 0) + n_bytes
    return stored_bytes


def _state_of_manifest(footers: Footers) -> str:
    """Compare the manifest with the files that are there, and return the result as text."""
    if footers.files.given:
        return "none"  # The caller named the files. The manifest of their folder may list others.
    manifest = footers.manifest
    if manifest is None:
        return "none"
    listed_groups = {file.name: file.row_groups for file in manifest.files}
    actual_groups = {}
    for file, path in enumerate(footers.files.paths):
        is_of_file = footers.file_of == file
        actual_groups[path] = tuple(footers.n_rows[is_of_file].tolist())
    if listed_groups == actual_groups:
        return "up to date"
    return "outdated; run `data-stack parquet generate-metadata`"


def _origin_of_schema(footers: Footers) -> str:
    """Return who wrote the schema: "data_stack", "Petastorm", or nobody: "the columns"."""
    metadata = footers.metadata
    if SCHEMA_KEY in metadata:
        return "data_stack"
    if has_foreign(metadata):
        return "Petastorm"
    return "the columns"


def _describe_field(field: Field, stored_bytes: dict[str, int]) -> dict[str, Any]:
    """Describe a field; :func:`describe_dataset` documents the result."""
    return {
        "name": field.name,
        "dtype": dtype_name(field.dtype),
        "shape": str(field.shape),
        "codec": repr(field.codec),
        "nullable": field.nullable,
        "stored_bytes": stored_bytes.get(field.name),
    }
