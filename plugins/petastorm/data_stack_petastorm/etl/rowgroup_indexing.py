"""Builds and reads the row-group indexes of datasets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from data_stack.exception import ConfigError
from data_stack.formats.parquet import build_indexes
from data_stack.formats.parquet.indexes import read_indexes
from data_stack_petastorm.etl import RowGroupIndexerBase
from data_stack_petastorm.etl.dataset_metadata import footers_of
from data_stack_petastorm.etl.rowgroup_indexers import FieldNotNullIndexer, SingleFieldIndexer, as_indexer
from data_stack_petastorm.fs_utils import readable_source


def build_rowgroup_index(
    dataset_url: str, spark_context: Any, indexers: Iterable[RowGroupIndexerBase], hdfs_driver: str = "libhdfs3"
) -> None:
    """Build indexes of a dataset and store them in its folder; Petastorm also finds them if it can read the dataset.

    Other indexes stay. This process reads only the indexed columns.

    Args:
        dataset_url: URL or path of the dataset.
        spark_context: ignored; may be None.
        indexers: the indexes to build.
        hdfs_driver: ignored.

    Raises:
        ConfigError: a field does not exist, its values cannot be indexed, or an indexer has a class of your own.
        ResourceNotFoundError: the dataset does not exist.
    """
    indexes = []
    for indexer in indexers:
        if not isinstance(indexer, (SingleFieldIndexer, FieldNotNullIndexer)):
            raise ConfigError(f"indexers must be SingleFieldIndexer or FieldNotNullIndexer, got {indexer!r:.80}; use a predicate")
        indexes.append(type(indexer.index)(indexer.index_name, indexer.column_names[0]))
    build_indexes(readable_source(dataset_url), indexes)


def get_row_group_indexes(dataset: Any) -> dict[str, Any]:
    """Return the indexes of a dataset by name, as indexers.

    Args:
        dataset: URL or path of the dataset, or a ``ParquetDataset`` of pyarrow.

    Raises:
        ConfigError: the dataset has no indexes, or its row groups have changed since.
        ResourceNotFoundError: the dataset does not exist.
    """
    footers = footers_of(dataset)
    footers.read_all()
    indexes = read_indexes(footers)
    if not indexes:
        raise ConfigError("the dataset has no row-group indexes; build them with build_rowgroup_index(url, None, indexers)")
    return {name: as_indexer(index) for name, index in indexes.items()}
