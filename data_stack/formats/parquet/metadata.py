"""Writes the metadata files of a Parquet dataset."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

# Plugins import the names "as" themselves from here.
from data_stack.formats.parquet.arrow_errors import reading_parquet as reading_parquet
from data_stack.formats.parquet.foreign_metadata import has_foreign, without_foreign
from data_stack.formats.parquet.manifest import ParquetManifest
from data_stack.formats.parquet.metadata_files import (
    COMMON_METADATA,
    MANIFEST_KEY,
    find_metadata,
)
from data_stack.formats.parquet.metadata_files import INDEXES_KEY as INDEXES_KEY
from data_stack.formats.parquet.metadata_files import PARQUET_MANIFEST as PARQUET_MANIFEST
from data_stack.formats.parquet.metadata_files import PROGRESS_FOLDER as PROGRESS_FOLDER
from data_stack.io.folder import Folder


def write_metadata(
    folder: Folder, schema: pa.Schema, files: Sequence[str], manifest: ParquetManifest | None
) -> None:
    """Write the metadata files, and replace old ones.

    First ``_common_metadata``, if the schema has metadata for other tools such as Petastorm; then
    the manifest, which completes the dataset.

    Args:
        folder: the folder of the dataset.
        schema: the schema of the files, with the key-value metadata of the dataset.
        files: the paths of the files of rows.
        manifest: the manifest; None to write the metadata alone, without a list of files.

    Raises:
        StorageError: a file could not be written; an older manifest is unchanged.
    """
    metadata: dict[bytes, bytes] = schema.metadata or {}
    if has_foreign(metadata):
        for_other_tools = {
            key: value for key, value in metadata.items() if not key.startswith(b"data_stack.")
        }
        _write_footer(folder, COMMON_METADATA, schema.with_metadata(for_other_tools))
    metadata_of_manifest = without_foreign(metadata)
    if manifest is not None:
        metadata_of_manifest[MANIFEST_KEY] = manifest.to_json()
    path = _path_of_manifest(folder, files)
    _write_footer(folder, path, schema.with_metadata(metadata_of_manifest))
    if "/" in path and folder.can_delete:
        # Delete the manifest that was written before the dataset had partitions.
        folder.delete(PARQUET_MANIFEST)


def _path_of_manifest(folder: Folder, files: Sequence[str]) -> str:
    """Return the path of the manifest to write.

    A manifest in a folder of a partition is replaced. Otherwise the manifest is written into the
    folder of the first file, by path, or without files into the folder of the dataset.
    """
    for path in find_metadata(folder):
        if "/" in path:
            return path
    first_file = min(files, default="")
    folder_of_first_file, slash, _ = first_file.rpartition("/")
    return f"{folder_of_first_file}{slash}{PARQUET_MANIFEST}"


def _write_footer(folder: Folder, path: str, schema: pa.Schema) -> None:
    """Write a Parquet file without rows, with the metadata of the schema.

    The writer gets the schema without metadata: it would store the metadata a second time, in the
    serialized Arrow schema.
    """
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema.remove_metadata()) as writer:
        writer.add_key_value_metadata(schema.metadata)
    with folder.create(path) as file:
        file.write(sink.getvalue().to_pybytes())
