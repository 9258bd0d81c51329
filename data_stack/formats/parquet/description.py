"""Describes a Parquet dataset by the facts in the footers of its files."""

from __future__ import annotations

from typing import Any

from data_stack.formats.parquet.files import find_files, partition_names
from data_stack.formats.parquet.footers import Footers
from data_stack.formats.parquet.foreign_metadata import is_foreign
from data_stack.formats.parquet.inference import read_schema
from data_stack.formats.parquet.schema import SCHEMA_KEY, Field
from data_stack.formats.parquet.types import dtype_name


def describe_dataset(source: Any) -> dict[str, Any]:
    """Return the facts in the footers of a dataset, as plain JSON data.

    Args:
        source: as for ``ParquetDataset``.

    Raises:
        ResourceNotFoundError: ``source`` has no Parquet files.
        DatasetFileCorruptError: a footer, or a metadata file, is damaged.
    """
    footers = Footers(find_files(source))
    schema = read_schema(footers)
    stored_bytes = _stored_bytes_of_columns(footers)
    rows_of_groups = footers.n_rows.tolist()
    return {
        "name": footers.files.folder.name,
        "n_rows": sum(rows_of_groups),
        "n_files": len(footers.files.paths),
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
    """Return how many compressed bytes the chunks of each column have, over all files."""
    stored_bytes: dict[str, int] = {}
    for file_number in range(len(footers.files.paths)):
        facts = footers.facts(file_number)
        for name, leaves in facts.columns.items():
            n_bytes = int(facts.chunks["n_bytes"][:, leaves].sum())
            stored_bytes[name] = stored_bytes.get(name, 0) + n_bytes
    return stored_bytes


def _state_of_manifest(footers: Footers) -> str:
    """Return whether the manifest lists the files and row groups that are there."""
    # Files that a program names one by one have no manifest of their own.
    manifest = None if footers.files.given else footers.manifest
    if manifest is None:
        return "none"
    listed_groups = {file.name: file.row_groups for file in manifest.files}
    actual_groups = {}
    for file_number, path in enumerate(footers.files.paths):
        is_of_file = footers.file_of == file_number
        actual_groups[path] = tuple(footers.n_rows[is_of_file].tolist())
    if listed_groups == actual_groups:
        return "up to date"
    return "outdated; run `data-stack parquet generate-metadata`"


def _origin_of_schema(footers: Footers) -> str:
    """Return who wrote the schema: data_stack, Petastorm, or nobody, so the columns say it."""
    metadata = footers.metadata
    if SCHEMA_KEY in metadata:
        return "data_stack"
    if any(is_foreign(key) for key in metadata):
        return "Petastorm"
    return "the columns"


def _describe_field(field: Field, stored_bytes: dict[str, int]) -> dict[str, Any]:
    return {
        "name": field.name,
        "dtype": dtype_name(field.dtype),
        "shape": str(field.shape),
        "codec": repr(field.codec),
        "nullable": field.nullable,
        "stored_bytes": stored_bytes.get(field.name),
    }
