"""The facts in the footers of a Parquet dataset, for ``data-stack parquet info``."""

from __future__ import annotations

from typing import Any

from data_stack.formats.parquet.files import find_files, partition_names
from data_stack.formats.parquet.footers import Footers
from data_stack.formats.parquet.inference import read_schema
from data_stack.formats.parquet.metadata import is_foreign
from data_stack.formats.parquet.schema import SCHEMA_KEY
from data_stack.formats.parquet.types import dtype_name


def facts_of(source: Any) -> dict[str, Any]:
    """Collect the facts in the footers of a dataset, as plain JSON data.

    Args:
        source: as for ``ParquetDataset``.

    Raises:
        ResourceNotFoundError: ``source`` has no Parquet files.
        DatasetFileCorruptError: a footer, or a metadata file, is damaged.
    """
    footers = Footers(find_files(source))
    schema, metadata = read_schema(footers), footers.metadata
    stored: dict[str, int] = {}
    for facts in map(footers.facts, range(len(footers.files.paths))):
        for name, numbers in facts.columns.items():
            stored[name] = stored.get(name, 0) + int(facts.chunks["n_bytes"][:, numbers].sum())
    writer = "data_stack" if SCHEMA_KEY in metadata else "Petastorm" if any(map(is_foreign, metadata)) else "the columns"
    return {
        "name": footers.files.folder.name,
        "n_rows": int(footers.n_rows.sum()),
        "n_files": len(footers.files.paths),
        "stored_bytes": sum(stored.values()),
        "n_row_groups": len(footers),
        "row_group_rows": [min(footers.n_rows.tolist(), default=0), max(footers.n_rows.tolist(), default=0)],
        "partition_by": partition_names(footers.files.partitions),
        "manifest": _state_of_manifest(footers),
        "schema_from": writer,
        "schema": schema.to_json(),
        "fields": [
            {
                "name": field.name,
                "dtype": dtype_name(field.dtype),
                "shape": str(field.shape),
                "codec": repr(field.codec),
                "nullable": field.nullable,
                "stored_bytes": stored.get(field.name),
            }
            for field in schema
        ],
    }


def _state_of_manifest(footers: Footers) -> str:
    manifest = None if footers.files.given else footers.manifest
    if manifest is None:
        return "none"
    listed = {file.name: file.row_groups for file in manifest.files}
    there = {path: tuple(footers.n_rows[footers.file_of == number].tolist()) for number, path in enumerate(footers.files.paths)}
    return "up to date" if listed == there else "outdated; run `data-stack parquet generate-metadata`"
