"""The work of ``data-stack parquet info`` and ``throughput``."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Sequence
from typing import Any

from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.parquet.dataset import ParquetDataset
from data_stack.formats.parquet.files import find_files, partition_names
from data_stack.formats.parquet.footers import Footers
from data_stack.formats.parquet.indexes import read_indexes
from data_stack.formats.parquet.inference import read_schema
from data_stack.formats.parquet.petastorm_metadata import UNISCHEMA_KEY
from data_stack.formats.parquet.schema import SCHEMA_KEY
from data_stack.formats.parquet.types import dtype_name
from data_stack.loader.loader import Loader
from data_stack.loader.orders import BlockShuffled


def facts_of(source: Any, *, with_values: bool = False) -> dict[str, Any]:
    """Collect the facts in the footers of a dataset, as plain JSON data.

    Args:
        source: as for ``ParquetDataset``.
        with_values: whether to list the values in the indexes, each with its row groups.

    Raises:
        ResourceNotFoundError: ``source`` has no Parquet files.
        DatasetFileCorruptError: a footer, or a metadata file, is damaged.
    """
    footers = Footers(find_files(source))
    schema = read_schema(footers)
    metadata = footers.metadata
    in_folders = partition_names(footers.files.partitions)
    stored = {field.name: 0 for field in schema if field.name not in in_folders}
    compressions: dict[str, set[str]] = {name: set() for name in stored}
    created_by, raw = set(), 0
    for file in range(len(footers.files.paths)):
        footer = footers.of(file)
        created_by.add(footer.created_by or "?")
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            for column in map(group.column, range(group.num_columns)):
                name = column.path_in_schema.partition(".")[0]
                raw += column.total_uncompressed_size
                stored[name] = stored.get(name, 0) + column.total_compressed_size
                compressions.setdefault(name, set()).add(column.compression)
    return {
        "name": footers.files.folder.name,
        "n_rows": int(footers.n_rows.sum()),
        "n_files": len(footers.files.paths),
        "stored_bytes": sum(stored.values()),
        "raw_bytes": raw,
        "n_row_groups": len(footers),
        "row_group_rows": [min(footers.n_rows.tolist(), default=0), max(footers.n_rows.tolist(), default=0)],
        "partition_by": in_folders,
        "created_by": sorted(created_by),
        "manifest": _state_of_manifest(footers),
        "metadata": [key.decode("utf-8", "backslashreplace")[:80] for key in sorted(metadata)],
        "schema_from": "data_stack" if SCHEMA_KEY in metadata else "Petastorm" if UNISCHEMA_KEY in metadata else "the columns",
        "schema": schema.to_json(),
        "fields": [
            {
                "name": field.name,
                "dtype": dtype_name(field.dtype),
                "shape": str(field.shape),
                "codec": repr(field.codec),
                "nullable": field.nullable,
                "compression": sorted(compressions.get(field.name, ())),
                "stored_bytes": stored.get(field.name),
            }
            for field in schema
        ],
        "indexes": _indexes(footers, with_values),
    }


def _state_of_manifest(footers: Footers) -> str:
    manifest = None if footers.files.given else footers.manifest
    if manifest is None:
        return "none"
    listed = {file.name: file.row_groups for file in manifest.files}
    there = {path: tuple(footers.n_rows[footers.file_of == number].tolist()) for number, path in enumerate(footers.files.paths)}
    return "up to date" if listed == there else "outdated; run `data-stack parquet generate-metadata`"


def _indexes(footers: Footers, with_values: bool) -> list[dict[str, Any]] | str:
    try:
        facts = [index.to_json() for index in read_indexes(footers).values()]
    except (ConfigError, DatasetFileCorruptError) as error:
        return str(error)
    for fact in facts:
        fact["n_values"] = len(fact["values"])
        if not with_values:
            del fact["values"]
    return facts


def measure(
    source: Any, fields: Sequence[str] | None, *, shuffle: bool, window: int, warmup: int, epochs: int, **loading: Any
) -> dict[str, Any]:
    """Measure the throughput of reading whole epochs of a dataset from its files.

    Args:
        source: as for :class:`~data_stack.formats.parquet.ParquetDataset`.
        fields: names or regular expressions; None for all.
        shuffle: whether to shuffle row groups, and the rows of ``window`` of them.
        window: number of row groups to shuffle together.
        warmup: number of epochs before measuring.
        epochs: number of epochs to measure.
        loading: batch size and workers, as for :class:`~data_stack.loader.loader.Loader`.

    Returns:
        Plain data: figures of the measured epochs; ``first_batch_seconds`` is that of the very first epoch.

    Raises:
        ConfigError, ResourceNotFoundError, DatasetFileCorruptError: as ``ParquetDataset``, or the dataset has no rows.
    """
    facts = facts_of(source)
    if not facts["n_rows"]:
        raise ConfigError(f"dataset {facts['name']!r} has no rows")
    order = BlockShuffled(window=window) if shuffle else False
    first_batch, n_rows, seconds = 0.0, 0, 0.0
    for epoch in range(warmup + epochs):
        start = time.perf_counter()
        dataset = ParquetDataset(source, fields)  # a new one for each epoch, without row groups in memory
        with Loader(dataset, shuffle=order, seed=epoch, **loading) as loader:
            for batch in loader:
                first_batch = first_batch or time.perf_counter() - start
                n_rows += len(next(iter(batch.values()))) if epoch >= warmup else 0
            seconds += time.perf_counter() - start if epoch >= warmup else 0.0
            statistics = loader.stats()
    names = list(dataset.schema.fields)
    stored = sum(field["stored_bytes"] or 0 for field in facts["fields"] if field["name"] in names) / facts["n_rows"]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "fields": names,
        "worker_kind": statistics.worker_kind,
        "n_workers": statistics.n_workers,
        "n_epochs": epochs,
        "n_rows": n_rows,
        "seconds": seconds,
        "rows_per_second": n_rows / seconds,
        "stored_mb_per_second": stored * n_rows / seconds / 1e6,
        "first_batch_seconds": first_batch,
        "peak_memory_mb": peak / 1e6 if sys.platform == "darwin" else peak / 1e3,  # macOS counts bytes, Linux KiB
    }
