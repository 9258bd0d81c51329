"""Writes record datasets in shards."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from typing import Any

from data_stack.codecs import Codecs
from data_stack.codecs.codec import Column
from data_stack.dataset.positions import check_integer
from data_stack.exception import ConfigError
from data_stack.formats.records.layout import SPEC, check_columns, shard_name
from data_stack.formats.records.manifest import MANIFEST, UNFINISHED
from data_stack.formats.records.reader import RecordReader
from data_stack.formats.records.writer import RecordWriter, check_length
from data_stack.io.folder import Folder, folder_of


class ShardedRecordWriter:
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
        spec: Mapping[str, str | Column],
        *,
        prefix: str = "",
        shardlen: int | None = None,
        shardstart: int = 0,
        shardstep: int = 1,
        codecs: Codecs | None = None,
    ) -> None:
        self._shardlen = sys.maxsize if shardlen is None else check_integer("shardlen", shardlen, at_least=1)
        self._number = check_integer("shardstart", shardstart, at_least=0)
        self._step = check_integer("shardstep", shardstep, at_least=1)
        if shardlen is None and (self._number > 0 or self._step > 1):
            raise ConfigError("shardstart and shardstep need shardlen, the number of samples in a shard")
        self._folder = folder_of(target, prefix)
        self._columns, self._codecs = check_columns(spec), codecs
        self._n_before = self._n_bytes_before = self._n_shards_before = 0
        self._writer: RecordWriter | None = None
        self._is_closed = False
        self._resume()

    # ------------------------------------------------------------------ what there is

    def __len__(self) -> int:
        """Number of samples in the shards of this writer."""
        return self._n_before + (len(self._writer) if self._writer is not None else 0)

    @property
    def spec(self) -> dict[str, str]:
        """Type of each column, sorted by name."""
        return {name: column.type for name, column in self._columns.items()}

    @property
    def shards(self) -> int:
        """Number of shards of this writer that have samples."""
        return self._n_shards_before + (self._writer is not None)

    @property
    def size(self) -> int:
        """Size of the records and their index in bytes."""
        return self._n_bytes_before + (self._writer.size if self._writer is not None else 0)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._folder.name!r}: {len(self):,} samples in {self.shards} shards>"

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
            if not self.shards and (self._number, self._step) == (0, 1):
                self._writer = self._open()
            if self._writer is not None:
                self._complete(self._writer)
        self._is_closed = True

    def abandon(self) -> None:
        """As in :meth:`RecordWriter.abandon`, for the shard that is not complete yet."""
        self._is_closed = True
        if self._writer is not None:
            self._writer.abandon()

    def __enter__(self) -> ShardedRecordWriter:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        try:
            if exc_type is None:
                self.close()
        finally:
            with contextlib.suppress(Exception):  # the caller shall see the first error
                self.abandon()

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
            raise ConfigError(f"cannot append to the shards in {self._folder.name!r}: their writer is closed")

    def _complete_if_full(self) -> None:
        if self._writer is not None and len(self._writer) >= self._shardlen:
            self._complete(self._writer)

    def _complete(self, writer: RecordWriter) -> None:
        n_bytes = writer.size
        writer.close()
        self._writer = None
        self._count(len(writer), n_bytes)

    def _count(self, n_samples: int, n_bytes: int) -> None:
        self._n_before += n_samples
        self._n_bytes_before += n_bytes
        self._n_shards_before += 1
        self._number += self._step

    def _resume(self) -> None:
        """Count the shards that are there, completing any that was not, up to the last one that is not full."""
        grows = self._folder.path is not None and not any(column.is_sequence for column in self._columns.values())
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
                if reader.spec != self.spec:
                    raise ConfigError(f"{folder.name!r} is a shard with other columns: {reader.spec}, not {self.spec}")
                self._count(len(reader), reader.size)
