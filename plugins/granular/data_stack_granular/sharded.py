"""Granular's datasets in shards: folders ``000000``, ``000001`` … that are datasets by themselves."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from data_stack.exception import ConfigError
from data_stack.formats import records
from data_stack.formats.records.layout import SPEC
from data_stack_granular.bag import local_path
from data_stack_granular.dataset import DatasetWriter, Decoders, Encoders, Reader, codecs_of, source_folder
from data_stack_granular.utils import Closing

__all__ = ["ShardedDatasetReader", "ShardedDatasetWriter"]


class ShardedDatasetWriter(Closing):
    """Appends datapoints to shards; it goes on in the last of its own that is not full.

    Args:
        directory, spec, encoders: as for :class:`DatasetWriter`.
        shardlen: datapoints of a shard; None for one shard.
        shardstart, shardstep: write shard ``shardstart`` and each ``shardstep``-th after it.

    Attributes:
        shardnum: the shard that is written.

    Raises:
        ConfigError: several writers need a ``shardlen``; or as for DatasetWriter.
    """

    def __init__(
        self,
        directory: Any,
        spec: Mapping[str, str],
        encoders: Encoders | None,
        shardlen: int | None = None,
        shardstart: int = 0,
        shardstep: int = 1,
    ) -> None:
        if shardstart < 0 or shardstep < 1 or ((shardstart or shardstep > 1) and not shardlen):
            raise ConfigError(f"shards {shardstart}, {shardstart} + {shardstep} … need shardlen, got {shardlen}")
        self.directory, self.encoders, self.shardlength = local_path(directory), encoders, shardlen
        self._spec = dict(spec)
        self.shardnum, self.shardstep = shardstart, shardstep
        self.writer: DatasetWriter | None = None
        self._full = self._size = self._length = 0
        self.directory.mkdir(exist_ok=True, parents=True)
        while (self._folder / SPEC).exists() and self._open() is None:
            continue  # it is full, and counted

    @property
    def spec(self) -> dict[str, str]:
        """The type of each column."""
        return self._spec

    @property
    def shards(self) -> int:
        """How many of its shards there are."""
        return self._full + (self.writer is not None)

    @property
    def size(self) -> int:
        """Bytes of all its shards."""
        return self._size + (0 if self.writer is None else self.writer.size)

    def __len__(self) -> int:
        return self._length + (0 if self.writer is None else len(self.writer))

    def append(self, datapoint: Any, flush: bool = True) -> int:
        """Append a datapoint, as :meth:`DatasetWriter.append`; its position counts in the shards of this writer."""
        if self.closed:
            raise ConfigError(f"the writer of {self.directory} is closed")
        writer = self.writer
        while writer is None:
            writer = self._open()
        writer.append(datapoint, flush)
        self._leave_if_full()
        return len(self) - 1

    def flush(self) -> None:
        """Write what was appended, so that readers see it."""
        if self.writer is not None:
            self.writer.flush()

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
        super().close()

    @property
    def _folder(self) -> Any:
        return self.directory / f"{self.shardnum:06}"

    def _open(self) -> DatasetWriter | None:
        """Open a shard; None if it is full."""
        self.writer = DatasetWriter(self._folder, self._spec, self.encoders)
        self._leave_if_full()
        return self.writer

    def _leave_if_full(self) -> None:
        writer = self.writer
        if writer is not None and self.shardlength and len(writer) >= self.shardlength:
            writer.close()
            self._full, self._size, self._length = self._full + 1, self._size + writer.size, self._length + len(writer)
            self.writer = None
            self.shardnum += self.shardstep


class ShardedDatasetReader(Reader):
    """The datapoints of all shards, or of some, one shard after the other; see :class:`Reader`.

    Args:
        directory, decoders, cache_index, cache_keys, parallel: as for :class:`DatasetReader`.
        shardstart, shardstep: read shard ``shardstart`` and each ``shardstep``-th after it.

    Raises:
        FileNotFoundError: there are no shards.
        DatasetFileCorruptError: one is missing in between, or damaged.
    """

    def __init__(
        self,
        directory: Any,
        decoders: Decoders | None,
        cache_index: bool = True,
        cache_keys: Any = (),
        parallel: bool = False,
        shardstart: int = 0,
        shardstep: int = 1,
    ) -> None:
        folder = source_folder(directory)
        codecs = codecs_of(folder.subfolder(f"{0:06}"), decoders)
        make = functools.partial(records.ShardedRecordReader, folder, codecs=codecs, shardstart=shardstart, shardstep=shardstep)
        super().__init__(make, cache_keys)

    @property
    def shards(self) -> int:
        """Number of shards that are read."""
        return int(self._records.shards)
