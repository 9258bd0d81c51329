"""What ``data-stack parquet info`` tells, apart from printing."""

from __future__ import annotations

from typing import Any

from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.parquet.files import find_files, partition_names
from data_stack.formats.parquet.footers import Footers
from data_stack.formats.parquet.indexes import NotNullIndex, SingleFieldIndex
from data_stack.formats.parquet.metadata import INDEXES_KEY, ParquetManifest
from data_stack.formats.parquet.petastorm_metadata import PICKLED_INDEXES_KEY, ROW_GROUPS_KEY, UNISCHEMA_KEY
from data_stack.formats.parquet.schema import SCHEMA_KEY
from data_stack.formats.parquet.stored_indexes import stored_indexes
from data_stack.formats.parquet.stored_schema import stored_schema
from data_stack.formats.parquet.types import dtype_name

__all__ = ["facts_of"]

_KEYS = {
    SCHEMA_KEY: "schema of data_stack",
    INDEXES_KEY: "row-group indexes of data_stack",
    UNISCHEMA_KEY: "schema of Petastorm",
    ROW_GROUPS_KEY: "row-group counts of Petastorm",
    PICKLED_INDEXES_KEY: "row-group indexes of Petastorm",
    b"org.apache.spark.sql.parquet.row.metadata": "schema of Spark",
    b"pandas": "schema of pandas",
}


def facts_of(source: Any, *, with_values: bool = False) -> dict[str, Any]:
    """What the footers of a dataset tell, as plain JSON data.

    Args:
        source: as for ``ParquetDataset``.
        with_values: whether to list the values in the indexes, each with the numbers of its row groups.

    Raises:
        ResourceNotFoundError: there are no Parquet files.
        DatasetFileCorruptError: a footer, or what lies beside the files, is damaged.
    """
    footers = Footers(find_files(source))
    schema = stored_schema(footers)
    metadata = footers.metadata
    origin = "data_stack" if SCHEMA_KEY in metadata else "Petastorm" if UNISCHEMA_KEY in metadata else "told by the columns"
    by_field: dict[str, dict[str, Any]] = {}
    created_by, stored, raw = set(), [], 0
    for file in range(len(footers.files.paths)):
        footer = footers.of(file)
        created_by.add(footer.created_by)
        for number in range(footer.num_row_groups):
            group, n_bytes = footer.row_group(number), 0
            for leaf in range(group.num_columns):
                column = group.column(leaf)
                entry = by_field.setdefault(column.path_in_schema.partition(".")[0], {"stored": 0, "compression": set()})
                entry["stored"] += column.total_compressed_size
                entry["compression"].add(column.compression)
                n_bytes += column.total_compressed_size
                raw += column.total_uncompressed_size
            stored.append(n_bytes)
    in_folders = partition_names(footers.files.partitions)
    return {
        "name": footers.files.folder.name,
        "n_rows": int(footers.n_rows.sum()),
        "n_files": len(footers.files.paths),
        "stored_bytes": sum(stored),
        "raw_bytes": raw,
        "row_groups": {"n": len(footers), "rows": _spread(footers.n_rows.tolist()), "stored_bytes": _spread(stored)},
        "partition_by": in_folders,
        "created_by": sorted(name for name in created_by if name),
        "manifest": _state_of_manifest(footers),
        "metadata": [
            _KEYS.get(key, key.decode("utf-8", "backslashreplace")[:80]) for key in sorted(metadata) if key != b"ARROW:schema"
        ],
        "schema_from": origin,
        "schema": schema.to_json(),
        "fields": [
            {
                "name": field.name,
                "dtype": dtype_name(field.dtype),
                "shape": str(field.shape),
                "codec": repr(field.codec),
                "nullable": field.nullable,
                "compression": sorted(by_field.get(field.name, {}).get("compression", ())),
                "stored_bytes": None if field.name in in_folders else by_field.get(field.name, {}).get("stored", 0),
            }
            for field in schema
        ],
        "indexes": _indexes(footers, with_values),
    }


def _spread(values: list[int]) -> dict[str, int | None]:
    return {"min": min(values, default=None), "max": max(values, default=None)}


def _state_of_manifest(footers: Footers) -> str:
    if footers.files.given:
        return "not looked at: files were named one by one"
    manifest = ParquetManifest.read(footers.files.folder)
    if manifest is None:
        return "none"
    listed = {file.name: file.row_groups for file in manifest.files}
    there = {path: tuple(footers.n_rows[footers.file_of == number].tolist()) for number, path in enumerate(footers.files.paths)}
    if listed == there:
        return "up to date"
    return "out of date: `data-stack parquet generate-metadata` makes it anew"


def _indexes(footers: Footers, with_values: bool) -> list[dict[str, Any]] | str:
    try:
        indexes = stored_indexes(footers)
    except (ConfigError, DatasetFileCorruptError) as error:
        return str(error)
    facts = []
    for index in indexes.values():
        fact: dict[str, Any] = {"name": index.name, "field": index.field}
        if isinstance(index, NotNullIndex):
            fact |= {"kind": "not_null", "n_row_groups": len(index.row_groups)}
            if with_values:
                fact["values"] = [["not null", sorted(index.row_groups)]]
        elif isinstance(index, SingleFieldIndex):
            fact |= {"kind": "single_field", "n_values": len(index.row_groups)}
            if with_values:
                pairs = index.row_groups.items()
                fact["values"] = [[value if isinstance(value, (int, float)) else str(value), sorted(its)] for value, its in pairs]
        facts.append(fact)
    return facts
