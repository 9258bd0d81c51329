"""Reads the samples of record datasets in shards."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from data_stack.codecs.codec import Codecs, ColumnType
from data_stack.dataset.iterator import Sample, SampleAccess
from data_stack.dataset.positions import check_index, check_integer
from data_stack.exception import ConfigError, DatasetFileCorruptError, ResourceNotFoundError
from data_stack.formats.records.layout import SPEC, list_column_names, shard_name, shard_names
from data_stack.formats.records.open_columns import OpenFilesLimit
from data_stack.formats.records.reader import RecordReader
from data_stack.formats.records.records_iterator import Mask, RecordsIterator
from data_stack.formats.records.sharded_access import ShardedAccess
from data_stack.io.folder import Folder, folder_of
from data_stack.util.executor import waiting

#: Of a store, this many shards are opened at once, as each of them takes a request or two.
_SHARDS_AT_ONCE = 32


class ShardedRecordReader(RecordsIterator):
    """The samples of all shards, or of some, one shard after the other.

    Otherwise it reads as :class:`RecordReader` does. A shard is a folder ``000000``, ``000001`` …
    that holds a record dataset; other files are ignored. Files are opened on the first read; they
    take at most a third of the file descriptors of the process.

    Args:
        source, prefix, codecs, columns, mapped: as for RecordReader.
        shardstart, shardstep: read shard ``shardstart`` and every ``shardstep``-th shard after it.

    Raises:
        ResourceNotFoundError: there are no shards.
        DatasetFileCorruptError: a shard is missing, or damaged as far as that shows without reading
            records.
        ConfigError: a column or codec does not exist, or no shard is selected.
    """

    #: The readers of the shards, in order.
    _readers: list[RecordReader]

    #: The position of the first sample of each shard, and after them the number of all samples.
    _starts: list[int]

    def __init__(
        self,
        source: Any,
        *,
        prefix: str = "",
        codecs: Codecs | None = None,
        columns: Sequence[str] | None = None,
        mapped: bool = True,
        shardstart: int = 0,
        shardstep: int = 1,
    ) -> None:
        first = check_integer("shardstart", shardstart, at_least=0)
        step = check_integer("shardstep", shardstep, at_least=1)
        folder = folder_of(source, prefix)
        chosen_names = _choose_shards(folder, first, step)
        keys = None if columns is None else list_column_names(columns)

        def open_shard(name: str) -> RecordReader:
            shard = folder.subfolder(name)
            try:
                return RecordReader(shard, codecs=codecs, columns=keys, mapped=mapped)
            except ResourceNotFoundError as error:
                raise DatasetFileCorruptError(
                    f"shard {shard.name} is missing or empty: {error}. Restore it"
                ) from error

        opened: Iterator[RecordReader]
        if folder.path is not None:
            opened = map(open_shard, chosen_names)
        else:
            opened = waiting.map(open_shard, chosen_names, at_once=_SHARDS_AT_ONCE)
        readers: list[RecordReader] = []
        for reader in opened:
            readers.append(reader)
            _check_same_types(reader, readers[0])
        self._use(readers)

    def _use(self, readers: list[RecordReader]) -> None:
        """Read from these shards."""
        self._readers = readers
        limit = OpenFilesLimit()
        for reader in readers:
            reader._columns.open_columns.share_limit(limit)
        for reader in readers[1:]:
            reader._files.first = readers[0]._files
        self._starts = list(itertools.accumulate(map(len, readers), initial=0))

    # ------------------------------------------------------------------ description

    def make_access(self) -> SampleAccess:
        return ShardedAccess(self._readers)

    def __len__(self) -> int:
        return self._starts[-1]

    @property
    def spec(self) -> dict[str, str]:
        """The types of the columns to read, by name."""
        return self._readers[0].spec

    @property
    def schema(self) -> dict[str, ColumnType]:
        """Type, dtype and shape of each column in the first shard.

        Dtypes and shapes that are not declared may differ in other shards.
        """
        return self._readers[0].schema

    @property
    def shards(self) -> int:
        """The number of shards to read."""
        return len(self._readers)

    @property
    def size(self) -> int:
        """The size of all columns of these shards and their indexes in bytes."""
        return sum(reader.size for reader in self._readers)

    def available(self, index: int) -> dict[str, bool | range]:
        """Return what a sample has, as :meth:`RecordReader.available`."""
        reader, position = self._find(index)
        return reader.available(position)

    # ------------------------------------------------------------------ samples

    def read(self, index: int, columns: Iterable[str] | Mask | None = None) -> Sample:
        """Read part of a sample, as :meth:`RecordReader.read`."""
        reader, position = self._find(index)
        return reader.read(position, columns)

    def _find(self, index: int) -> tuple[RecordReader, int]:
        """Return the shard of a sample, and the position in it."""
        position = check_index(index, len(self))
        number = bisect.bisect_right(self._starts, position) - 1
        return self._readers[number], position - self._starts[number]

    def _arguments(self) -> dict[str, Any]:
        return self._readers[0]._arguments()

    # ------------------------------------------------------------------ verification, end

    def verify(self) -> None:
        """Verify each of these shards, as :meth:`RecordReader.verify`.

        Raises:
            DatasetFileCorruptError: a file is damaged; the error names the first damage.
        """
        for reader in self._readers:
            reader.verify()

    def close(self) -> None:
        """Close all files; reads fail afterwards."""
        for reader in self._readers:
            reader.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (type(self), self._readers)


def _choose_shards(folder: Folder, first: int, step: int) -> list[str]:
    """Return the names of the shards to read: ``first``, and every ``step``-th after it.

    Raises:
        ResourceNotFoundError: there are no shards.
        DatasetFileCorruptError: a shard is missing.
        ConfigError: there is no shard ``first``.
    """
    names = shard_names(folder)
    if not names:
        raise ResourceNotFoundError(
            f"no shards such as {shard_name(0)}/{SPEC} in {folder.name or 'the store'!r}"
        )
    chosen_names = names[first::step]
    if not chosen_names:
        raise ConfigError(f"shardstart={first}, but {folder.name!r} has {len(names)} shards")
    return chosen_names


def _check_same_types(reader: RecordReader, first_reader: RecordReader) -> None:
    """Check that a shard has the columns of the first one.

    Raises:
        DatasetFileCorruptError: it has others.
    """
    types = reader._files.description.types
    types_of_first = first_reader._files.description.types
    if types != types_of_first:
        raise DatasetFileCorruptError(
            f"shard {reader._folder.name} has the columns {types}, "
            f"but the first shard has {types_of_first}"
        )


def _reopen(
    reader_class: type[ShardedRecordReader], readers: list[RecordReader]
) -> ShardedRecordReader:
    """Make a pickled reader of its pickled shards, without reading their folder again."""
    reader = reader_class.__new__(reader_class)
    reader._use(readers)
    return reader
