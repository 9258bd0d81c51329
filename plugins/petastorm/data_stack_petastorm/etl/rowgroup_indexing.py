"""Keeps row-group indexes in the metadata of datasets, as JSON and as Petastorm's pickles."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.parquet.files import find_files
from data_stack.formats.parquet.footers import Footers
from data_stack.formats.parquet.inference import read_schema
from data_stack.formats.parquet.metadata import INDEXES_KEY, write_metadata
from data_stack.formats.parquet.row_groups import RowGroups
from data_stack_petastorm.etl import RowGroupIndexerBase
from data_stack_petastorm.etl.dataset_metadata import footers_of
from data_stack_petastorm.etl.rowgroup_indexers import Indexer, indexer_of_json
from data_stack_petastorm.parquet_metadata import PICKLED_INDEXES_KEY, UNISCHEMA_KEY
from data_stack_petastorm.pickles.index_reader import read_pickled_indexes
from data_stack_petastorm.pickles.index_writer import write_pickled_indexes

#: The version of indexes as JSON. Indexes of another version are damaged for us.
_VERSION: Final = 3

#: The end of the messages about indexes that cannot be used.
_ADVICE: Final = "Rebuild them: build_rowgroup_index(url, None, indexers)"


def build_rowgroup_index(
    dataset_url: Any,
    spark_context: Any,
    indexers: Iterable[RowGroupIndexerBase],
    hdfs_driver: str = "libhdfs3",
) -> None:
    """Build indexes of a dataset and store them in its folder.

    Indexes of the dataset that have other names stay, if they are up to date. This process reads
    only the indexed columns. If Petastorm can read the dataset, it also finds the indexes, except
    those of times, which it does not unpickle.

    Args:
        dataset_url: URL or path of the dataset.
        spark_context: ignored; may be None.
        indexers: the indexes to build.
        hdfs_driver: ignored.

    Raises:
        ConfigError: a field does not exist, its values cannot be indexed, or an indexer has a class
            of your own.
        ResourceNotFoundError: the dataset does not exist.
        DatasetFileCorruptError, StorageError: the dataset cannot be read, or its metadata cannot be
            written.
    """
    footers = Footers(find_files(dataset_url))
    if footers.files.given:
        raise ConfigError(
            "indexes belong to a whole dataset: pass its folder, not a file or a list of files"
        )
    built = _build_indexes(footers, indexers)
    indexes: dict[str, Indexer] = {}
    # Stored indexes that are out of date or damaged are dropped.
    with contextlib.suppress(ConfigError, DatasetFileCorruptError):
        indexes = read_indexes(footers)
    indexes.update(built)
    _store_indexes(footers, indexes)


def _build_indexes(footers: Footers, indexers: Iterable[RowGroupIndexerBase]) -> dict[str, Indexer]:
    """Read the indexed columns, and return the indexes by name.

    Raises:
        ConfigError: an indexer has a class of a user, two indexers have the same name, or a field
            does not exist or cannot be indexed.
    """
    row_groups = RowGroups(footers, read_schema(footers))
    built: dict[str, Indexer] = {}
    for indexer in indexers:
        if not isinstance(indexer, Indexer):
            raise ConfigError(
                f"indexers must be SingleFieldIndexer or FieldNotNullIndexer, got {indexer!r:.80}; "
                "use a predicate"
            )
        if indexer.index_name in built:
            raise ConfigError(f"two indexes have the same name {indexer.index_name!r}")
        row_groups.schema[indexer.field]  # raises if the field does not exist
        built[indexer.index_name] = indexer.build(_iterate_column(row_groups, indexer.field))
    return built


def _iterate_column(row_groups: RowGroups, name: str) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """Iterate over the row groups: the number of each, and its values of a column."""
    for row_group in range(len(row_groups.footers)):
        columns = row_groups.read(row_group, [name])
        positions = np.arange(row_groups.footers.n_rows[row_group], dtype=np.int64)
        yield row_group, columns[name].take(positions)


def _store_indexes(footers: Footers, indexes: Mapping[str, Indexer]) -> None:
    """Store all indexes of a dataset in its metadata."""
    content = {
        "version": _VERSION,
        "layout": _layout(footers),
        "indexes": [index.to_json() for index in indexes.values()],
    }
    metadata = {**footers.metadata, INDEXES_KEY: json.dumps(content).encode()}
    if UNISCHEMA_KEY in metadata:  # Petastorm can read the dataset
        metadata[PICKLED_INDEXES_KEY] = write_pickled_indexes(indexes)
    write_metadata(
        footers.files.folder,
        footers.arrow_schema.with_metadata(metadata),
        footers.files.paths,
        footers.manifest,
    )


def get_row_group_indexes(dataset: Any) -> dict[str, Indexer]:
    """Return the indexes of a dataset by name.

    Args:
        dataset: URL or path of the dataset, or a ``ParquetDataset`` of pyarrow.

    Raises:
        ConfigError: the dataset has no indexes, or its row groups have changed since.
        DatasetFileCorruptError: the indexes are damaged, or hostile.
        ResourceNotFoundError: the dataset does not exist.
    """
    footers = footers_of(dataset)
    footers.read_all()
    indexes = read_indexes(footers)
    if not indexes:
        raise ConfigError(
            "the dataset has no row-group indexes; build them with build_rowgroup_index(url, None, "
            "indexers)"
        )
    return indexes


def read_indexes(footers: Footers) -> dict[str, Indexer]:
    """Return the indexes of a dataset by name: those stored as JSON, or else Petastorm's.

    The result is empty if the dataset has no indexes.

    Raises:
        ConfigError: the indexes are out of date: the row groups have changed.
        DatasetFileCorruptError: the indexes are damaged, or hostile.
    """
    if footers.beside is None:
        return {}
    metadata: Mapping[bytes, bytes] = footers.beside.metadata
    if INDEXES_KEY in metadata:
        return _read_json_indexes(metadata[INDEXES_KEY], footers)
    if PICKLED_INDEXES_KEY in metadata:
        return _read_indexes_of_petastorm(metadata[PICKLED_INDEXES_KEY], footers)
    return {}


def _read_json_indexes(stored: bytes, footers: Footers) -> dict[str, Indexer]:
    """Return the indexes that were stored as JSON, by name.

    Raises:
        ConfigError, DatasetFileCorruptError: as for :func:`read_indexes`.
    """
    try:
        content = json.loads(stored)
        version = content.get("version")
        if version != _VERSION:
            raise ValueError(f"of version {version!r:.20}, not {_VERSION}")
        layout = content["layout"]
        indexes = [indexer_of_json(index) for index in content["indexes"]]
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        raise DatasetFileCorruptError(
            f"the row-group indexes of {footers.files.folder.name} are damaged: {error!s:.200}. "
            f"{_ADVICE}"
        ) from error
    if layout != _layout(footers):
        raise _outdated(footers)
    return {index.index_name: index for index in indexes}


def _read_indexes_of_petastorm(stored: bytes, footers: Footers) -> dict[str, Indexer]:
    """Return the indexes in a pickle of Petastorm, by name.

    Raises:
        ConfigError, DatasetFileCorruptError: as for :func:`read_indexes`.
    """
    indexes = read_pickled_indexes(stored)
    # Petastorm does not store which files it indexed. Only a row group that does not exist shows
    # that its indexes are out of date.
    for index in indexes.values():
        for row_groups in index.row_groups.values():
            if max(row_groups, default=-1) >= len(footers):
                raise _outdated(footers)
    return indexes


def _outdated(footers: Footers) -> ConfigError:
    """Return the error for indexes that are out of date."""
    return ConfigError(
        f"the row-group indexes of {footers.files.folder.name} do not match its files and row "
        f"groups. {_ADVICE}"
    )


def _layout(footers: Footers) -> str:
    """Return a digest of the paths, row groups and footers of all files.

    It is stored with the indexes, and differs from the stored one when they are out of date.
    """
    digest = hashlib.sha256()
    for number, path in enumerate(footers.files.paths):
        n_rows = footers.n_rows[footers.file_of == number].tolist()
        digest.update(json.dumps([path, n_rows, footers.digest(number)]).encode())
    return digest.hexdigest()
