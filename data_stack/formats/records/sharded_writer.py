"""Writes record datasets in shards."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from data_stack.codecs.codec import Codecs, ColumnType
from data_stack.dataset.positions import check_integer
from data_stack.exception import ConfigError
from data_stack.formats.dataset_writer import DatasetWriter
from data_stack.formats.records.layout import SPEC, check_columns, shard_name
from data_stack.formats.records.manifest import MANIFEST, UNFINISHED
from data_stack.formats.records.reader import RecordReader
from data_stack.formats.records.writer import RecordWriter, check_length
from data_stack.io.folder import Folder, folder_of


class ShardedRecordWriter(DatasetWriter):
    """Writes samples into the shards ``000000``, ``000001``, …

    Each shard is a record dataset, which is completed when it is full. Processes write shards of
    one dataset side by side, each of them its own::

        with ShardedRecordWriter(
            "train", spec, shardlen=10_000, shardstart=rank, shardstep=n_processes
        ) as writer: ...

    A new writer resumes in the last shard if it is not full; ``len(writer)`` counts the samples of
    its own shards. In a store, and with sequences, only finished shards stay; if the last one was
    closed before it was full, the writer starts the next one.

    Args:
        target, spec, prefix, codecs: as for :class:`RecordWriter`. Nothing but the shards may lie
            there.
        shardlen: the number of samples of a shard; None to write one shard.
        shardstart: the number of the first shard to write.
        shardstep: the difference between the numbers of a shard and the next one to write.

    Raises:
        ConfigError, StorageConflictError, DatasetFileCorruptError, StorageError: as for
            :class:`RecordWriter`.
    """

    #: The number of samples of a full shard.
    _shardlen: int

    #: The number of the shard to write.
    _number: int

    #: The difference between the numbers of a shard and the next one to write.
    _step: int

    #: The number of samples in the complete shards of this writer.
    _n_before: int

    #: The writer of a shard that is not complete; None between two shards.
    _writer: RecordWriter | None

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
        if shardlen is None:
            self._shardlen = sys.maxsize
        else:
            self._shardlen = check_integer("shardlen", shardlen, at_least=1)
        self._number = check_integer("shardstart", shardstart, at_least=0)
        self._step = check_integer("shardstep", shardstep, at_least=1)
        if shardlen is None and (self._number > 0 or self._step > 1):
            raise ConfigError(
                "shardstart and shardstep need shardlen, the number of samples in a shard"
            )
        self._folder = folder_of(target, prefix)
        self._columns = check_columns(spec)
        self._codecs = codecs
        self._n_before = 0
        self._writer = None
        self._is_closed = False
        self._resume()

    def __len__(self) -> int:
        """Return the number of samples in the shards of this writer."""
        if self._writer is None:
            return self._n_before
        return self._n_before + len(self._writer)

    # ------------------------------------------------------------------ writing

    def append(self, sample: Mapping[str, Any], flush: bool = False) -> int:
        """Append a sample, as in :meth:`RecordWriter.append`; a shard that is full is completed.

        Returns:
            Its position among the samples of this writer.
        """
        self._open_shard().append(sample, flush)
        position = len(self) - 1
        self._complete_if_full()
        return position

    def extend(self, columns: Mapping[str, Any]) -> None:
        """Append many samples, as in :meth:`RecordWriter.extend`."""
        self._check_open()
        n_samples = check_length(columns, self._columns, self._folder.name)
        start = 0
        while start < n_samples:
            writer = self._open_shard()
            n_missing = self._shardlen - len(writer)
            stop = min(n_samples, start + n_missing)
            writer.extend({name: columns[name][start:stop] for name in self._columns})
            start = stop
            self._complete_if_full()

    def flush(self) -> None:
        """Flush the shard that is not complete yet, as in :meth:`RecordWriter.flush`."""
        self._check_open()
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """Complete the last shard. Closing again does nothing.

        A dataset without samples gets one shard without samples, from the writer of all shards.
        """
        if not self._is_closed:
            writes_all_shards = self._step == 1
            if self._writer is None and self._number == 0 and writes_all_shards:
                self._writer = self._make_writer()
            if self._writer is not None:
                self._complete(self._writer)
        self._is_closed = True

    def abandon(self) -> None:
        """Abandon the shard that is not complete yet, as in :meth:`RecordWriter.abandon`."""
        self._is_closed = True
        if self._writer is not None:
            self._writer.abandon()

    # ------------------------------------------------------------------ shards

    def _open_shard(self) -> RecordWriter:
        """Return the writer of a shard that is not full."""
        self._check_open()
        # Completing the shard when it became full may have failed.
        self._complete_if_full()
        if self._writer is None:
            self._writer = self._make_writer()
        return self._writer

    def _check_open(self) -> None:
        if self._is_closed:
            raise ConfigError(
                f"cannot append to the shards in {self._folder.name!r}: their writer is closed"
            )

    def _shard(self, number: int) -> Folder:
        return self._folder.subfolder(shard_name(number))

    def _make_writer(self) -> RecordWriter:
        return RecordWriter(self._shard(self._number), self._columns, codecs=self._codecs)

    def _complete_if_full(self) -> None:
        if self._writer is not None and len(self._writer) >= self._shardlen:
            self._complete(self._writer)

    def _complete(self, writer: RecordWriter) -> None:
        """Complete the shard of a writer, and go on to the next."""
        writer.close()
        self._writer = None
        self._n_before += len(writer)
        self._number += self._step

    # ------------------------------------------------------------------ resuming

    def _resume(self) -> None:
        """Go on after the shards that are there, or in the last one if it is not full.

        Shards that an interrupted writer left are completed.
        """
        while self._shard(self._number).has_file(SPEC):
            is_last = not self._shard(self._number + self._step).has_file(SPEC)
            if not self._may_grow(self._shard(self._number), is_last=is_last):
                self._count_finished_shard()
                continue
            writer = self._make_writer()
            if is_last and len(writer) < self._shardlen:
                self._writer = writer
                return
            self._complete(writer)

    def _may_grow(self, shard: Folder, *, is_last: bool) -> bool:
        """Return whether a shard can be appended to, and may have to be."""
        has_sequences = any(column.is_sequence for column in self._columns.values())
        if self._folder.path is None or has_sequences:
            return False
        return is_last or not shard.has_file(MANIFEST) or shard.has_file(UNFINISHED)

    def _count_finished_shard(self) -> None:
        """Count the samples of a finished shard, and go on to the next.

        Raises:
            ConfigError: the shard has other columns.
        """
        shard = self._shard(self._number)
        types = {name: column.type for name, column in self._columns.items()}
        with RecordReader(shard, codecs=self._codecs) as reader:
            if reader.spec != types:
                raise ConfigError(
                    f"{shard.name!r} is a shard with other columns: {reader.spec}, not {types}"
                )
            self._n_before += len(reader)
        self._number += self._step
