"""Record datasets in shards: folders ``000000``, ``000001`` … that each hold a record dataset."""

from __future__ import annotations

import bisect
import itertools
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from data_stack.codecs.codec import Codecs, ColumnType
from data_stack.dataset.iterator import Batch, ColumnKey, Sample, SampleAccess, access_to
from data_stack.dataset.iterator.access import DeclaredColumn
from data_stack.dataset.iterator.blocks import MAX_KEPT_REMOTE_BYTES
from data_stack.dataset.iterator.layers.combined import CombinedAccess
from data_stack.dataset.positions import IndexArrayOfInts, check_index, check_integer
from data_stack.exception import ConfigError, DatasetFileCorruptError, ResourceNotFoundError
from data_stack.formats.dataset_writer import DatasetWriter
from data_stack.formats.records.layout import (
    SPEC,
    check_columns,
    list_column_names,
    shard_name,
    shard_names,
)
from data_stack.formats.records.manifest import MANIFEST, UNFINISHED
from data_stack.formats.records.open_columns import OpenColumns
from data_stack.formats.records.partial_reads import Mask, RecordsIterator
from data_stack.formats.records.reader import RecordReader
from data_stack.formats.records.record_access import RecordAccess
from data_stack.formats.records.record_offsets import as_record_numbers
from data_stack.formats.records.writer import RecordWriter, check_length
from data_stack.io.folder import Folder, folder_of
from data_stack.util.executor import waiting


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
        first, step = (
            check_integer("shardstart", shardstart, at_least=0),
            check_integer("shardstep", shardstep, at_least=1),
        )
        folder = folder_of(source, prefix)
        names = shard_names(folder)
        if not names:
            raise ResourceNotFoundError(
                f"no shards such as {shard_name(0)}/{SPEC} in {folder.name or 'the store'!r}"
            )
        chosen = names[first::step]
        if not chosen:
            raise ConfigError(f"shardstart={first}, but {folder.name!r} has {len(names)} shards")
        keys = None if columns is None else list_column_names(columns)

        def open_shard(name: str) -> RecordReader:
            shard = folder.subfolder(name)
            try:
                return RecordReader(shard, codecs=codecs, columns=keys, mapped=mapped)
            except ResourceNotFoundError as error:
                raise DatasetFileCorruptError(
                    f"shard {shard.name} is missing or empty: {error}. Restore it"
                ) from error

        readers: list[RecordReader] = []
        # Of a store, each takes a request or two.
        for reader in (
            map(open_shard, chosen)
            if folder.path is not None
            else waiting.map(open_shard, chosen, at_once=32)
        ):
            readers.append(reader)
            found, expected = reader._files.types, readers[0]._files.types
            if found != expected:
                where = reader._folder.name
                raise DatasetFileCorruptError(
                    f"shard {where} has the columns {found}, but the first shard has {expected}"
                )
        self._use(readers)

    def _use(self, readers: list[RecordReader]) -> None:
        self._readers = readers
        sharers = weakref.WeakSet[OpenColumns]()
        for reader in readers:
            reader._columns.open_columns.share_limit(sharers)
        for reader in readers[1:]:
            reader._files.first = readers[0]._files
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
    def schema(self) -> dict[str, ColumnType]:
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
        super().__init__(
            [access_to(reader) for reader in source._readers], list(map(len, source._readers))
        )
        self._keys, self._first = list(source.spec), access_to(source._readers[0])
        n_bytes = sum(
            part.remote_bytes() * part.n_samples
            for part, _ in self.parts
            if isinstance(part, RecordAccess)
        )
        self.prefers_blocks, self._is_remote = n_bytes > MAX_KEPT_REMOTE_BYTES, n_bytes > 0

    def _fetch(self, positions: IndexArrayOfInts, keys: Sequence[ColumnKey]) -> None:
        """Fetch at once what several shards of a remote store have of samples."""
        requests = self._requests(positions) if self._is_remote else []
        if len(requests) > 1:
            fetches: list[Callable[[], object]] = []
            for part, positions_in_part, _ in requests:
                if isinstance(part, RecordAccess) and not part.await_prefetched(positions_in_part):
                    fetches += part.fetches(as_record_numbers(positions_in_part), keys)
            for _ in waiting.map(lambda fetch: fetch(), fetches, at_once=32):
                pass

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        self._fetch(positions, self._keys)
        return super().samples(positions)

    def columns(
        self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None
    ) -> list[Any]:
        if positions is not None:
            self._fetch(positions, keys)
        return (
            super().columns(keys, positions)
            if self.n_samples
            else self._first.columns(keys, positions)
        )

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        if not len(positions):
            return dict(zip(self._keys, self.columns(self._keys, positions), strict=True))
        self._fetch(positions, self._keys)
        return super().batch(positions)

    def declare_columns(self) -> Mapping[str, DeclaredColumn] | None:
        return self._first.declare_columns()

    def content_fingerprint(self) -> list[Any]:
        return [part.content_fingerprint() for part, _ in self.parts]


def _reopen(
    reader_class: type[ShardedRecordReader], readers: list[RecordReader]
) -> ShardedRecordReader:
    reader = reader_class.__new__(reader_class)
    reader._use(readers)
    return reader


def open(  # noqa: A001  # records.open("train")
    source: Any,
    *,
    prefix: str = "",
    codecs: Codecs | None = None,
    columns: Sequence[str] | None = None,
    mapped: bool = True,
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


# ---------------------------------------------------------------------- writing


class ShardedRecordWriter(DatasetWriter):
    """Writes samples into the shards ``000000``, ``000001``, …, each a record dataset that is completed when it is full.

    Processes write shards of one dataset side by side, each of them its own::

        with ShardedRecordWriter("train", spec, shardlen=10_000, shardstart=rank, shardstep=world) as writer: ...

    A new writer resumes in the last shard if it is not full; ``len(writer)`` counts the samples of its own shards. In a store,
    and with sequences, only finished shards stay; if the last one was closed before it was full, the writer starts the next one.

    Args:
        target, spec, prefix, codecs: as for :class:`RecordWriter`. Nothing but the shards may lie there.
        shardlen: samples of a shard; None to write one shard.
        shardstart: number of the first shard to write.
        shardstep: how far it is to the next.

    Raises:
        ConfigError, StorageConflictError, DatasetFileCorruptError, StorageError: as for :class:`RecordWriter`.
    """

    def __init__(
        self,
        target: Any,
        spec: Mapping[str, str | ColumnType],
        *,
        prefix: str = "",
        shardlen: int | None = None,
        shardstart: int = 0,
        shardstep: int = 1,
        codecs: Codecs | None = None,
    ) -> None:
        self._shardlen = (
            sys.maxsize if shardlen is None else check_integer("shardlen", shardlen, at_least=1)
        )
        self._number = check_integer("shardstart", shardstart, at_least=0)
        self._step = check_integer("shardstep", shardstep, at_least=1)
        if shardlen is None and (self._number > 0 or self._step > 1):
            raise ConfigError(
                "shardstart and shardstep need shardlen, the number of samples in a shard"
            )
        self._folder = folder_of(target, prefix)
        self._columns, self._codecs = check_columns(spec), codecs
        self._n_before = 0
        self._writer: RecordWriter | None = None
        self._is_closed = False
        self._resume()

    # ------------------------------------------------------------------ what there is

    def __len__(self) -> int:
        """Number of samples in the shards of this writer."""
        return self._n_before + (len(self._writer) if self._writer is not None else 0)

    # ------------------------------------------------------------------ writing

    def append(self, sample: Mapping[str, Any], flush: bool = False) -> int:
        """Append a sample, as in :meth:`RecordWriter.append`; a shard that is full by it is completed.

        Returns:
            Its position among the samples of this writer.
        """
        self._current().append(sample, flush)
        position = len(self) - 1
        self._complete_if_full()
        return position

    def extend(self, columns: Mapping[str, Any]) -> None:
        """Append many samples, as in :meth:`RecordWriter.extend`."""
        self._check_open()
        n_samples, start = check_length(columns, self._columns, self._folder.name), 0
        while start < n_samples:
            writer = self._current()
            stop = min(n_samples, start + self._shardlen - len(writer))
            writer.extend({name: columns[name][start:stop] for name in self._columns})
            start = stop
            self._complete_if_full()

    def flush(self) -> None:
        """As in :meth:`RecordWriter.flush`, for the shard that is not complete yet."""
        self._check_open()
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """Complete the last shard; of a dataset without samples, the only one. Closing again does nothing."""
        if not self._is_closed:
            if self._writer is None and (self._number, self._step) == (0, 1):
                self._writer = self._open()
            if self._writer is not None:
                self._complete(self._writer)
        self._is_closed = True

    def abandon(self) -> None:
        """As in :meth:`RecordWriter.abandon`, for the shard that is not complete yet."""
        self._is_closed = True
        if self._writer is not None:
            self._writer.abandon()

    # ------------------------------------------------------------------ inside

    def _current(self) -> RecordWriter:
        self._check_open()
        self._complete_if_full()  # if that failed when it became full
        if self._writer is None:
            self._writer = self._open()
        return self._writer

    def _shard(self, number: int) -> Folder:
        return self._folder.subfolder(shard_name(number))

    def _open(self) -> RecordWriter:
        return RecordWriter(self._shard(self._number), self._columns, codecs=self._codecs)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ConfigError(
                f"cannot append to the shards in {self._folder.name!r}: their writer is closed"
            )

    def _complete_if_full(self) -> None:
        if self._writer is not None and len(self._writer) >= self._shardlen:
            self._complete(self._writer)

    def _complete(self, writer: RecordWriter) -> None:
        writer.close()
        self._writer = None
        self._n_before += len(writer)
        self._number += self._step

    def _resume(self) -> None:
        """Count the shards that are there, completing any that was not, up to the last one that is not full."""
        grows = self._folder.path is not None and not any(
            column.is_sequence for column in self._columns.values()
        )
        while (folder := self._shard(self._number)).has_file(SPEC):
            is_last = not self._shard(self._number + self._step).has_file(SPEC)
            if grows and (is_last or not folder.has_file(MANIFEST) or folder.has_file(UNFINISHED)):
                writer = self._open()
                if is_last and len(writer) < self._shardlen:
                    self._writer = writer
                    return
                self._complete(writer)
                continue
            with RecordReader(folder, codecs=self._codecs) as reader:
                if reader.spec != (
                    spec := {name: column.type for name, column in self._columns.items()}
                ):
                    raise ConfigError(
                        f"{folder.name!r} is a shard with other columns: {reader.spec}, not {spec}"
                    )
                self._n_before += len(reader)
            self._number += self._step
