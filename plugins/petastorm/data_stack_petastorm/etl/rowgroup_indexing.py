"""Row-group indexes of a dataset: built and stored, and read."""

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
    """Build indexes of a dataset, and store them beside it: for us, and for Petastorm where it can read the dataset.

    Indexes of other names stay. Only the columns that are indexed are read, by this process.

    Args:
        dataset_url: of the dataset, or its path.
        spark_context: not needed; None will do.
        indexers: what to index.
        hdfs_driver: has no effect.

    Raises:
        ConfigError: there is no such field, its values cannot be looked up, or an indexer is of a class of your own.
        ResourceNotFoundError: there is no dataset.
    """
    indexes = []
    for indexer in indexers:
        if not isinstance(indexer, (SingleFieldIndexer, FieldNotNullIndexer)):
            raise ConfigError(f"indexers are SingleFieldIndexer and FieldNotNullIndexer, not {indexer!r:.80}; use a predicate")
        indexes.append(type(indexer.index)(indexer.index_name, indexer.column_names[0]))
    build_indexes(readable_source(dataset_url), indexes)


def get_row_group_indexes(dataset: Any) -> dict[str, Any]:
    """The indexes of a dataset by name, as indexers.

    Args:
        dataset: its URL or path, or a ``ParquetDataset`` of pyarrow.

    Raises:
        ConfigError: it has none, or they are of other row groups than it has now.
        ResourceNotFoundError: there is no dataset.
    """
    footers = footers_of(dataset)
    footers.read_all()
    indexes = read_indexes(footers)
    if not indexes:
        raise ConfigError("the dataset has no row-group indexes: build them with build_rowgroup_index(url, None, indexers)")
    return {name: as_indexer(index) for name, index in indexes.items()}
