"""Reads sharded record datasets."""

from __future__ import annotations

import bisect
import itertools
import re
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from data_stack.codecs.codec import Codecs, Column
from data_stack.dataset.iterator import Batch, ColumnKey, Sample, SampleAccess, access_to
from data_stack.dataset.iterator.access import DeclaredColumn
from data_stack.dataset.iterator.layers.combined import CombinedAccess
from data_stack.dataset.positions import IndexArrayOfInts, check_index, check_integer
from data_stack.exception import ConfigError, DatasetFileCorruptError, ResourceNotFoundError, UnsupportedStorageOperationError
from data_stack.formats.records.layout import SPEC, shard_name
from data_stack.formats.records.reader import RecordReader
from data_stack.formats.records.reader_base import Mask, RecordsIterator, check_options
from data_stack.io.folder import Folder, folder_of

if TYPE_CHECKING:
    pass

_SHARD = re.compile(r"[0-9]{6,}", re.ASCII)


class ShardedRecordReader(RecordsIterator):
    """The samples of all shards, or of some, one shard after the other; otherwise as :class:`RecordReader`.

    A shard is a folder ``000000``, ``000001`` … that holds a record dataset; other files are ignored. Files are opened on the
    first read; they take at most a third of the file descriptors of the process.

    Args:
        source, prefix, codecs, columns, mapped: as for RecordReader.
        shardstart, shardstep: read shard ``shardstart`` and every ``shardstep``-th shard after it.

    Raises:
        ResourceNotFoundError: there are no shards.
        DatasetFileCorruptError: a shard is missing, or damaged as far as that shows without reading records.
        ConfigError: a column or codec does not exist, or no shard is selected.
    """

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
        first, step = check_integer("shardstart", shardstart, at_least=0), check_integer("shardstep", shardstep, at_least=1)
        folder = folder_of(source, prefix)
        names = shard_names(folder)
        if not names:
            raise ResourceNotFoundError(f"no shards such as {shard_name(0)}/{SPEC} in {folder.name or 'the store'!r}")
        chosen = names[first::step]
        if not chosen:
            raise ConfigError(f"shardstart={first}, but {folder.name!r} has {len(names)} shards")
        options = check_options(codecs, columns, mapped)
        readers: list[RecordReader] = []
        for name in chosen:
            shard = folder.subfolder(name)
            try:
                readers.append(RecordReader(shard, **options))
            except ResourceNotFoundError as error:
                raise DatasetFileCorruptError(f"shard {shard.name} is missing or empty: {error}. Restore it") from error
            found, expected = readers[-1]._files.types, readers[0]._files.types
            if found != expected:
                raise DatasetFileCorruptError(f"shard {shard.name} has the columns {found}, but the first shard has {expected}")
        self._use(readers)

    def _use(self, readers: list[RecordReader]) -> None:
        self._readers, siblings = readers, weakref.WeakSet[RecordReader]()
        for reader in readers:
            reader.share_files(siblings)
        self._starts = list(itertools.accumulate(map(len, readers), initial=0))

    # ------------------------------------------------------------------ description

    def make_access(self) -> SampleAccess:
        return _ShardedAccess(self)

    def __len__(self) -> int:
        return self._starts[-1]

    @property
    def spec(self) -> dict[str, str]:
        """The types of the columns to read, by name."""
        return self._readers[0].spec

    @property
    def schema(self) -> dict[str, Column]:
        """Type, dtype and shape of each column in the first shard; undeclared dtypes and shapes may differ in others."""
        return self._readers[0].schema

    @property
    def shards(self) -> int:
        """Number of shards to read."""
        return len(self._readers)

    @property
    def size(self) -> int:
        """Size of all columns of these shards and their indexes in bytes."""
        return sum(reader.size for reader in self._readers)

    def available(self, index: int) -> dict[str, bool | range]:
        """As :meth:`RecordReader.available`."""
        reader, position = self._find(index)
        return reader.available(position)

    # ------------------------------------------------------------------ samples

    def read(self, index: int, columns: Iterable[str] | Mask | None = None) -> Sample:
        """Read part of a sample, as :meth:`RecordReader.read`."""
        reader, position = self._find(index)
        return reader.read(position, columns)

    def _find(self, index: int) -> tuple[RecordReader, int]:
        """The shard of a sample, and the position in it."""
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


class _ShardedAccess(CombinedAccess):
    """Access to records in shards: a batch is one request to each shard."""

    def __init__(self, source: ShardedRecordReader) -> None:
        super().__init__([access_to(reader) for reader in source._readers], list(map(len, source._readers)))
        self._keys, self._first = list(source.spec), access_to(source._readers[0])

    def columns(self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None) -> list[Any]:
        return super().columns(keys, positions) if self.n_samples else self._first.columns(keys, positions)

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        if not len(positions):
            return dict(zip(self._keys, self.columns(self._keys, positions), strict=True))
        return super().batch(positions)

    def declare_columns(self) -> Mapping[str, DeclaredColumn] | None:
        return self._first.declare_columns()

    def content_fingerprint(self) -> list[Any]:
        return [part.content_fingerprint() for part, _ in self.parts]


def shard_names(folder: Folder) -> list[str]:
    """The names of the shards in a folder, in order; other files are ignored.

    Raises:
        DatasetFileCorruptError: a shard is missing.
    """
    try:
        found = {name for name in folder.list_names() if _SHARD.fullmatch(name) and shard_name(int(name)) == name}
    except UnsupportedStorageOperationError:  # a store that cannot list still knows whether a resource exists
        found = set(itertools.takewhile(lambda name: folder.subfolder(name).has_file(SPEC), map(shard_name, itertools.count())))
    names = [shard_name(number) for number in range(len(found))]
    missing = sorted(set(names) - found)
    if missing:
        raise DatasetFileCorruptError(f"shard {missing[0]} of {folder.name!r} is missing, but there is {max(found)}; restore it")
    return names


def _reopen(reader_class: type[ShardedRecordReader], readers: list[RecordReader]) -> ShardedRecordReader:
    reader = reader_class.__new__(reader_class)
    reader._use(readers)
    return reader


def open(  # noqa: A001  # records.open("train")
    source: Any, *, prefix: str = "", codecs: Codecs | None = None, columns: Sequence[str] | None = None, mapped: bool = True
) -> RecordReader | ShardedRecordReader:
    """Open a record dataset, in one folder or in shards, of any version of Granular's files.

    ::

        with records.open("train") as reader: ...
        with records.open("mongodb://localhost/data", prefix="mnist/train") as reader: ...

    The arguments are those of :class:`RecordReader`.

    Raises:
        ResourceNotFoundError: there is no record dataset.
        DatasetFileCorruptError: the dataset is damaged or incomplete, as far as that shows without reading records.
        ConfigError: a column or codec does not exist.
    """
    folder = folder_of(source, prefix)
    is_sharded = not folder.has_file(SPEC) and shard_names(folder)
    reader_class = ShardedRecordReader if is_sharded else RecordReader
    return reader_class(folder, codecs=codecs, columns=columns, mapped=mapped)
