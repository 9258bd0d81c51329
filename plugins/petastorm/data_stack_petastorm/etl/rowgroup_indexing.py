"""Builds and reads the row-group indexes of datasets, which are stored as JSON, and as Petastorm's pickles."""

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
from data_stack_petastorm.pickled_indexes import read_pickled_indexes, write_pickled_indexes

_VERSION: Final = 3
_ADVICE: Final = "Rebuild them: build_rowgroup_index(url, None, indexers)"


def build_rowgroup_index(
    dataset_url: Any,
    spark_context: Any,
    indexers: Iterable[RowGroupIndexerBase],
    hdfs_driver: str = "libhdfs3",
) -> None:
    """Build indexes of a dataset and store them in its folder; Petastorm also finds them if it can read the dataset.

    Other indexes stay if they are up to date. This process reads only the indexed columns. Petastorm does not find indexes of
    times, which it does not unpickle.

    Args:
        dataset_url: URL or path of the dataset.
        spark_context: ignored; may be None.
        indexers: the indexes to build.
        hdfs_driver: ignored.

    Raises:
        ConfigError: a field does not exist, its values cannot be indexed, or an indexer has a class of your own.
        ResourceNotFoundError: the dataset does not exist.
        DatasetFileCorruptError, StorageError: the dataset cannot be read, or its metadata cannot be written.
    """
    footers = Footers(find_files(dataset_url))
    if footers.files.given:
        raise ConfigError(
            "indexes belong to a whole dataset: pass its folder, not a file or a list of files"
        )
    row_groups = RowGroups(footers, read_schema(footers))
    built: dict[str, Indexer] = {}
    for indexer in indexers:
        if not isinstance(indexer, Indexer):
            raise ConfigError(
                f"indexers must be SingleFieldIndexer or FieldNotNullIndexer, got {indexer!r:.80}; use a predicate"
            )
        if indexer.index_name in built:
            raise ConfigError(f"two indexes have the same name {indexer.index_name!r}")
        row_groups.schema[indexer.field]  # raises if the field does not exist
        built[indexer.index_name] = indexer.build(_columns(row_groups, indexer.field))
    kept: dict[str, Indexer] = {}
    with contextlib.suppress(
        ConfigError, DatasetFileCorruptError
    ):  # of other row groups, or damaged
        kept = read_indexes(footers)
    kept.update(built)
    stored = {
        "version": _VERSION,
        "layout": _layout(footers),
        "indexes": [index.to_json() for index in kept.values()],
    }
    metadata = {**footers.metadata, INDEXES_KEY: json.dumps(stored).encode()}
    if UNISCHEMA_KEY in metadata:
        metadata[PICKLED_INDEXES_KEY] = write_pickled_indexes(kept)
    write_metadata(
        footers.files.folder,
        footers.arrow_schema.with_metadata(metadata),
        footers.files.paths,
        footers.manifest,
    )


def _columns(row_groups: RowGroups, name: str) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    for group in range(len(row_groups.footers)):
        column = row_groups.read(group, [name])[name]
        yield group, column.take(np.arange(row_groups.footers.n_rows[group], dtype=np.int64))


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
            "the dataset has no row-group indexes; build them with build_rowgroup_index(url, None, indexers)"
        )
    return indexes


def read_indexes(footers: Footers) -> dict[str, Indexer]:
    """The indexes of a dataset, by name: those stored as JSON, or else Petastorm's.

    Raises:
        ConfigError: the indexes are out of date: the row groups have changed.
        DatasetFileCorruptError: the indexes are damaged, or hostile.
    """
    metadata: Mapping[bytes, bytes] = footers.beside.metadata if footers.beside is not None else {}
    name = footers.files.folder.name
    outdated = ConfigError(
        f"the row-group indexes of {name} do not match its files and row groups. {_ADVICE}"
    )
    if INDEXES_KEY not in metadata:
        found = (
            read_pickled_indexes(metadata[PICKLED_INDEXES_KEY])
            if PICKLED_INDEXES_KEY in metadata
            else {}
        )
        # Petastorm's do not record their row groups; a number out of range shows that they are out of date.
        numbers = (
            number
            for index in found.values()
            for groups in index.row_groups.values()
            for number in groups
        )
        if max(numbers, default=-1) >= len(footers):
            raise outdated
        return found
    try:
        content = json.loads(metadata[INDEXES_KEY])
        if content.get("version") != _VERSION:
            raise ValueError(f"of version {content.get('version')!r:.20}, not {_VERSION}")
        layout, indexes = content["layout"], [indexer_of_json(each) for each in content["indexes"]]
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        raise DatasetFileCorruptError(
            f"the row-group indexes of {name} are damaged: {error!s:.200}. {_ADVICE}"
        ) from error
    if layout != _layout(footers):
        raise outdated
    return {index.index_name: index for index in indexes}


def _layout(footers: Footers) -> str:
    """A digest of the row groups of all files, with the statistics and offsets in their footers."""
    digest = hashlib.sha256()
    for number, path in enumerate(footers.files.paths):
        rows = footers.n_rows[footers.file_of == number].tolist()
        digest.update(json.dumps([path, rows, footers.digest(number)]).encode())
    return digest.hexdigest()
