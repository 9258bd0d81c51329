"""A dataset in shards: the folders ``000000``, ``000001`` …, each with a dataset of its own."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from data_stack.exception import ConfigError
from data_stack.formats import records
from data_stack.formats.records.layout import SPEC, shard_name
from data_stack_granular.arguments import local_path
from data_stack_granular.closing import Closing
from data_stack_granular.dataset import (
    DatasetReader,
    DatasetWriter,
    Decoders,
    Encoders,
    codecs_of_decoders,
    folder_of_dataset,
)


class ShardedDatasetWriter(Closing):
    """Appends datapoints to shards, beginning with the first of its shards that is not full.

    Args:
        directory: path of the folder with the shards.
        spec: the type of each column.
        encoders: functions from a value to bytes, by type; None: values are bytes.
        shardlen: number of datapoints of a shard; None: a single shard.
        shardstart, shardstep: write shard ``shardstart`` and each ``shardstep``-th after it.

    Attributes:
        directory: path of the folder with the shards.
        spec: the type of each column.
        encoders: functions from a value to bytes, by type; None: values are bytes.
        shardlength: number of datapoints of a full shard; None: shards are never full.
        shardnum: the number of the current shard.
        shardstep: the distance between the numbers of its shards.
        writers: the writers of its shards; only the last one may be open.

    Raises:
        ConfigError: several writers require ``shardlen``; or as for :class:`DatasetWriter`.
    """

    directory: Path
    spec: dict[str, str]
    encoders: Encoders | None
    shardlength: int | None
    shardnum: int
    shardstep: int
    writers: list[DatasetWriter]

    def __init__(
        self,
        directory: Any,
        spec: Mapping[str, str],
        encoders: Encoders | None,
        shardlen: int | None = None,
        shardstart: int = 0,
        shardstep: int = 1,
    ) -> None:
        is_in_range = shardstart >= 0 and shardstep >= 1
        is_one_of_several = shardstart > 0 or shardstep > 1
        if not is_in_range or (is_one_of_several and not shardlen):
            raise ConfigError(
                f"shards {shardstart}, {shardstart} + {shardstep} … require shardlen, "
                f"got {shardlen}"
            )
        self.directory = local_path(directory)
        self.spec = dict(spec)
        self.encoders = encoders
        self.shardlength = shardlen
        self.shardnum = shardstart
        self.shardstep = shardstep
        self.writers = []
        self.directory.mkdir(exist_ok=True, parents=True)

        # The existing shards are opened, until one of them is not full.
        while not self._has_open_shard() and self._has_shard(self.shardnum):
            self._open_shard()

    @property
    def shards(self) -> int:
        """Number of shards that this writer has written to."""
        return len(self.writers)

    @property
    def size(self) -> int:
        """Bytes of the shards of this writer."""
        return sum(writer.size for writer in self.writers)

    def __len__(self) -> int:
        return sum(len(writer) for writer in self.writers)

    def append(self, datapoint: Any, flush: bool = True) -> int:
        """Append a datapoint, as :meth:`DatasetWriter.append` does.

        Returns:
            The position of the datapoint within the shards of this writer.
        """
        # A shard that another writer filled meanwhile is closed when it is opened.
        while not self._has_open_shard():
            self._open_shard()
        self.writers[-1].append(datapoint, flush)
        self._close_full_shard()
        return len(self) - 1

    def flush(self) -> None:
        """Write the appended datapoints, so that readers see them."""
        if self.writers:
            self.writers[-1].flush()

    def close(self) -> None:
        if self.writers:
            self.writers[-1].close()
        self.closed = True

    def _has_shard(self, number: int) -> bool:
        """Return whether the folder has a shard of that number."""
        return (self.directory / shard_name(number) / SPEC).exists()

    def _has_open_shard(self) -> bool:
        """Return whether the current shard is open, so that it takes datapoints."""
        return bool(self.writers) and not self.writers[-1].closed

    def _open_shard(self) -> None:
        """Open shard :attr:`shardnum`, and close it at once if it is full.

        Raises:
            ConfigError: this writer is closed.
        """
        if self.closed:
            raise ConfigError(f"the writer of {self.directory} is closed")
        folder = self.directory / shard_name(self.shardnum)
        self.writers.append(DatasetWriter(folder, self.spec, self.encoders))
        self._close_full_shard()

    def _close_full_shard(self) -> None:
        """Close the current shard if it is full, and go on to the next number."""
        if self.shardlength and len(self.writers[-1]) >= self.shardlength:
            self.writers[-1].close()
            self.shardnum += self.shardstep


class ShardedDatasetReader(DatasetReader):
    """The datapoints of all or some shards, one shard after the other.

    It is otherwise as :class:`DatasetReader`.

    Args:
        directory: the folder with the shards: a path, a URL, or another source of
            :class:`data_stack.formats.records.ShardedRecordReader`.
        decoders: functions from bytes to a value, by type; None: values are bytes.
        cache_index: ignored, as by :class:`DatasetReader`.
        cache_keys: names of columns, which must exist. Nothing else depends on them.
        parallel: ignored, as by :class:`DatasetReader`.
        shardstart: number of the first shard to read.
        shardstep: after the first shard, each ``shardstep``-th one is read.
    """

    def __init__(
        self,
        directory: Any,
        decoders: Decoders | None,
        cache_index: bool = True,
        cache_keys: Collection[str] = (),
        parallel: bool = False,
        *,
        shardstart: int = 0,
        shardstep: int = 1,
    ) -> None:
        folder = folder_of_dataset(directory)
        # All shards have the types of the first one.
        codecs = codecs_of_decoders(decoders, folder.subfolder(shard_name(0)))
        open_records = functools.partial(
            records.ShardedRecordReader,
            folder,
            codecs=codecs,
            shardstart=shardstart,
            shardstep=shardstep,
        )
        self._open(open_records, cache_keys)
        self.shards = self._records.shards
