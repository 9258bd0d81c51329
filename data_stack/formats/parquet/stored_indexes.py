"""Row-group indexes beside a dataset: built from its columns, stored in ``_common_metadata``, and known to be out of date."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.parquet.files import find_files
from data_stack.formats.parquet.footers import Footers
from data_stack.formats.parquet.indexes import RowGroupIndex, index_of_json, index_of_pickled
from data_stack.formats.parquet.metadata import INDEXES_KEY, read_common_metadata, write_common_metadata
from data_stack.formats.parquet.petastorm_metadata import PICKLED_INDEXES_KEY
from data_stack.formats.parquet.pickled import read_pickled_indexes
from data_stack.formats.parquet.row_groups import RowGroups
from data_stack.formats.parquet.schema import Schema
from data_stack.formats.parquet.stored_schema import read_schema

__all__ = ["build_indexes", "indexes_json", "make_indexes", "read_indexes"]


def build_indexes(
    source: Any, indexes: Iterable[RowGroupIndex], *, prefix: str = "", filesystem: Any = None
) -> dict[str, RowGroupIndex]:
    """Build row-group indexes of a dataset, and store them beside it, where selectors find them.

    ::

        build_indexes("frames", [SingleFieldIndex("vehicle", "vehicle"), NotNullIndex("with_events", "events")])
        ParquetDataset("frames", row_groups=SingleIndexSelector("vehicle", ["car 7"]))

    Only the columns that are indexed are read. Indexes of other names that are there and up to date are kept.

    Args:
        source: as for :class:`ParquetDataset`.
        indexes: names and fields.
        prefix: folder below ``source``.
        filesystem: of pyarrow or fsspec, in which ``source`` is a path.

    Returns:
        All indexes of the dataset, by name.

    Raises:
        ConfigError: the dataset has no such field, or one whose values cannot be looked up.
        DatasetFileCorruptError, StorageError: it cannot be read, or what lies beside it cannot be written.
    """
    indexes = list(indexes)
    footers = Footers(find_files(source, prefix, filesystem=filesystem))
    if footers.files.given:
        raise ConfigError("indexes lie beside the files of a dataset: give its folder, not one file or a list of them")
    schema = read_schema(footers)
    built = make_indexes(footers, schema, indexes)
    folder = footers.files.folder
    common = read_common_metadata(folder)
    arrow_schema, metadata = (footers.arrow_schema, dict(footers.metadata)) if common is None else common
    kept: dict[str, RowGroupIndex] = {}
    if INDEXES_KEY in metadata:
        with contextlib.suppress(ConfigError, DatasetFileCorruptError):  # of other row groups, or damaged
            kept = _parse(metadata[INDEXES_KEY], footers)
    kept.update(built)
    metadata.pop(b"ARROW:schema", None)
    write_common_metadata(folder, arrow_schema, {**metadata, INDEXES_KEY: indexes_json(kept, footers)})
    return kept


def make_indexes(footers: Footers, schema: Schema, indexes: Sequence[RowGroupIndex]) -> dict[str, RowGroupIndex]:
    """Indexes of a dataset, by name.

    Raises:
        ConfigError: the dataset has no such field, or two indexes have one name.
    """
    names = [index.name for index in indexes]
    if len(set(names)) != len(names):
        raise ConfigError(f"two indexes have one name: {', '.join(map(repr, names))}")
    for index in indexes:
        schema[index.field]
    row_groups = RowGroups(footers, schema)
    return {index.name: index.build(_columns(row_groups, index.field)) for index in indexes}


def _columns(row_groups: RowGroups, name: str) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    for group in range(len(row_groups)):
        column = row_groups.read(group, [name])[name]
        yield group, column.take(np.arange(len(column), dtype=np.int64))


def read_indexes(footers: Footers) -> dict[str, RowGroupIndex]:
    """The indexes beside a dataset, by name: ours, or else Petastorm's.

    Raises:
        ConfigError: they are of other row groups than the dataset has now.
        DatasetFileCorruptError: they are damaged, or hostile.
    """
    common = footers.common
    metadata: Mapping[bytes, bytes] = (common.metadata if common is not None else None) or {}
    if INDEXES_KEY in metadata:
        return _parse(metadata[INDEXES_KEY], footers)
    if PICKLED_INDEXES_KEY not in metadata:
        return {}
    pickled = read_pickled_indexes(metadata[PICKLED_INDEXES_KEY])
    found: dict[str, RowGroupIndex] = {name: index_of_pickled(index) for name, index in pickled.items()}
    # Petastorm's do not say what they were built of; a row group that there is none of tells.
    last = max((max(groups, default=-1) for index in found.values() for groups in index.row_groups.values()), default=-1)
    if last >= len(footers):
        raise ConfigError(
            f"Petastorm's row-group indexes of {footers.files.folder.name} name row group {last}, and there are {len(footers)}: "
            f"{_ADVICE}"
        )
    return found


def indexes_json(indexes: Mapping[str, RowGroupIndex], footers: Footers) -> bytes:
    """Indexes as they are stored, with what they were built of.

    ``{"version": 3, "layout": …, "indexes": [{"kind": …, "name": …, "field": …, "values": [["car_1", [0, 3]], …]}]}``.
    """
    stored = [index.to_json() for index in indexes.values()]
    return json.dumps({"version": _VERSION, "layout": _layout(footers), "indexes": stored}).encode()


_VERSION: Final = 3
_ADVICE: Final = "the dataset was changed since. Build them again: build_indexes(source, indexes)"


def _parse(data: bytes, footers: Footers) -> dict[str, RowGroupIndex]:
    try:
        content = json.loads(data)
        if content.get("version") != _VERSION:
            raise ValueError(f"of version {content.get('version')!r:.20}, not {_VERSION}")
        layout, indexes = content["layout"], [index_of_json(each) for each in content["indexes"]]
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError, ArithmeticError) as error:
        raise DatasetFileCorruptError(
            f"the row-group indexes of {footers.files.folder.name} are damaged, or of another version of data_stack: "
            f"{error!s:.200}. Build them again: build_indexes(source, indexes)"
        ) from error
    if layout != _layout(footers):
        raise ConfigError(
            f"the row-group indexes of {footers.files.folder.name} are of other row groups, files, sizes or values than it has "
            f"now: {_ADVICE}"
        )
    return {index.name: index for index in indexes}


def _layout(footers: Footers) -> str:
    """Names which rows lie in which row group of which file, as far as footers tell: their statistics and offsets, too."""
    digest = hashlib.sha256()
    for number, path in enumerate(footers.files.paths):
        rows = footers.n_rows[footers.file_of == number].tolist()
        digest.update(json.dumps([path, rows, footers.digest(number)]).encode())
    return digest.hexdigest()
