"""Granular's datasets, in one folder or in shards."""

from __future__ import annotations

import copy
import functools
import operator
from collections.abc import Iterator, Mapping
from typing import Any

from data_stack.exception import ConfigError, MissingFileError, ResourceNotFoundError
from data_stack.formats import records
from data_stack.formats.records.layout import (
    SPEC,
    bag_name,
    check_columns,
    parse_spec,
    shard_name,
    spec_json,
)
from data_stack.formats.records.manifest import MANIFEST, UNFINISHED
from data_stack.io.folder import Folder, folder_of
from data_stack_granular import formats
from data_stack_granular.bag import BagReader, BagWriter, Closing, local_path, places

_Functions = Mapping[str, Any]


class DatasetWriter(Closing):
    """Appends datapoints, dicts with a value for each column, to a dataset in Granular's files in a local folder.

    Existing datapoints stay. If an interrupted writer left a column longer than the others, the next values must equal those in
    that column. If data_stack wrote the dataset, :meth:`close` updates its manifest.

    Args:
        directory: path of the folder.
        spec: the type of each column.
        encoders: functions from a value to bytes, by type; None: values are bytes.

    Raises:
        ConfigError: the folder has a dataset with other columns, or one that data_stack did not finish.
        KeyError: a type has no encoder.
    """

    def __init__(
        self, directory: Any, spec: Mapping[str, str], encoders: _Functions | None
    ) -> None:
        self.directory, columns = local_path(directory), check_columns(spec)
        self.spec = {name: column.type for name, column in columns.items()}
        self.encoders = {
            name: None if encoders is None else encoders[kind] for name, kind in self.spec.items()
        }
        path = self.directory / SPEC
        if not path.exists():
            self.directory.mkdir(exist_ok=True, parents=True)
            path.write_bytes(spec_json(columns))
        found = parse_spec(path.read_bytes(), str(path))
        if found != self.spec:
            raise ConfigError(
                f"{self.directory} holds a dataset with other columns: {found}, expected {self.spec}"
            )
        if (self.directory / UNFINISHED).exists():
            raise ConfigError(
                f"data_stack did not finish {self.directory}: open it with its RecordWriter, and close it"
            )
        self.writers = {name: BagWriter(self.directory / bag_name(name)) for name in self.spec}
        self.length = min(map(len, self.writers.values()))
        self._ahead = {
            name: BagReader(each.bag_path)
            for name, each in self.writers.items()
            if len(each) > self.length
        }

    @property
    def size(self) -> int:
        """Bytes of all columns and their indexes."""
        return sum(writer.size for writer in self.writers.values())

    def __len__(self) -> int:
        return self.length

    def append(self, datapoint: Any, flush: bool = True) -> int:
        """Append a datapoint. ``flush`` makes it visible to readers that are opened afterwards.

        Returns:
            Its position.

        Raises:
            ConfigError: the keys are not the columns, an encoder did not return bytes, or a longer column has another value.
            Exception: an encoder raised it. After an error, nothing of the datapoint is appended.
        """
        if (
            self.closed
            or not isinstance(datapoint, Mapping)
            or datapoint.keys() != self.spec.keys()
        ):
            state = (
                "is closed"
                if self.closed
                else f"takes dicts with the keys {', '.join(self.spec)}, got {datapoint!r:.99}"
            )
            raise ConfigError(f"{self.directory} {state}")
        encoded = {
            name: encode(datapoint[name]) if encode else datapoint[name]
            for name, encode in self.encoders.items()
        }
        for name, record in encoded.items():
            if not isinstance(record, bytes):
                raise ConfigError(
                    f"column {name!r} of type {self.spec[name]!r} takes bytes, got {record!r:.60}"
                )
            if (
                self.length < len(self._ahead.get(name, ()))
                and self._ahead[name][self.length] != record
            ):
                raise ConfigError(
                    f"Record mismatch: column {name!r} of {self.directory} already has another value {self.length}"
                )
        for name, writer in self.writers.items():
            if len(writer) <= self.length:
                writer.append(encoded[name], flush=False)
        self.length += 1
        if flush:
            self.flush()
        return self.length - 1

    def flush(self) -> None:
        """Write the appended datapoints, so that readers see them."""
        for writer in self.writers.values():
            writer.flush()

    def close(self) -> None:
        if not self.closed:
            for each in (*self.writers.values(), *self._ahead.values()):
                each.close()
            if (self.directory / MANIFEST).exists():
                records.write_manifest(self.directory)
        super().close()


class ShardedDatasetWriter(Closing):
    """Appends datapoints to shards, folders ``000000``, ``000001`` …, beginning with the first of its shards that is not full.

    Args:
        directory, spec, encoders: as for :class:`DatasetWriter`.
        shardlen: number of datapoints of a shard; None: a single shard.
        shardstart, shardstep: write shard ``shardstart`` and each ``shardstep``-th after it.

    Attributes:
        writers: the writers of its shards; only the last one may be open.
        shardnum: the number of the current shard.

    Raises:
        ConfigError: several writers require ``shardlen``; or as for DatasetWriter.
    """

    def __init__(
        self,
        directory: Any,
        spec: Any,
        encoders: Any,
        shardlen: int | None = None,
        shardstart: int = 0,
        shardstep: int = 1,
    ) -> None:
        if shardstart < 0 or shardstep < 1 or ((shardstart or shardstep > 1) and not shardlen):
            raise ConfigError(
                f"shards {shardstart}, {shardstart} + {shardstep} … require shardlen, got {shardlen}"
            )
        self.directory, self.spec, self.encoders = local_path(directory), dict(spec), encoders
        self.shardlength, self.shardnum, self.shardstep = shardlen, shardstart, shardstep
        self.writers: list[DatasetWriter] = []
        self.directory.mkdir(exist_ok=True, parents=True)
        while (self.directory / shard_name(self.shardnum) / SPEC).exists() and (
            not self.writers or self.writers[-1].closed
        ):
            self._open()

    @property
    def shards(self) -> int:
        """Number of shards that this writer has written to."""
        return len(self.writers)

    @property
    def size(self) -> int:
        """Bytes of the shards of this writer."""
        return sum(writer.size for writer in self.writers)

    def __len__(self) -> int:
        return sum(map(len, self.writers))

    def append(self, datapoint: Any, flush: bool = True) -> int:
        """Append a datapoint, as :meth:`DatasetWriter.append`; positions count within the shards of this writer."""
        while not self.writers or self.writers[-1].closed:
            self._open()
        self.writers[-1].append(datapoint, flush)
        self._close_if_full()
        return len(self) - 1

    def flush(self) -> None:
        """Write the appended datapoints, so that readers see them."""
        for writer in self.writers[-1:]:
            writer.flush()

    def close(self) -> None:
        for writer in self.writers[-1:]:
            writer.close()
        self.closed = True

    def _open(self) -> None:
        if self.closed:
            raise ConfigError(f"the writer of {self.directory} is closed")
        self.writers.append(
            DatasetWriter(self.directory / shard_name(self.shardnum), self.spec, self.encoders)
        )
        self._close_if_full()

    def _close_if_full(self) -> None:
        if self.shardlength and len(self.writers[-1]) >= self.shardlength:
            self.writers[-1].close()
            self.shardnum += self.shardstep


class DatasetReader(Closing):
    """The datapoints of a dataset of Granular or data_stack.

    ``reader[i]`` is a dict, ``reader[2:5]`` a dict of lists; ``reader[i, keys]`` and ``reader[2:5, keys]`` only read these
    columns. A reader pickles, and keeps its length.

    Args:
        directory: a path, a URL, or another source of :class:`data_stack.formats.records.RecordReader`.
        decoders: functions from bytes to a value, by type; None: values are bytes.
        cache_index, cache_keys, parallel: ignored; files are mapped, and records are decoded in threads if that is faster. Keys
            that do not exist are refused.

    Attributes:
        spec: the type of each column, sorted by name.
        size: bytes of all columns and their indexes.
        shards: number of shards.

    Raises:
        FileNotFoundError: the dataset does not exist.
        DatasetFileCorruptError: the dataset is damaged.
        KeyError: a type has no decoder.
    """

    reader_class: Any = records.RecordReader
    first_folder = ""

    def __init__(
        self,
        directory: Any,
        decoders: Any,
        cache_index: bool = True,
        cache_keys: Any = (),
        parallel: bool = False,
        **shards: int,
    ) -> None:
        # Paths of other libraries, such as elements.Path, are used by their name.
        is_foreign = hasattr(directory, "with_suffix") and not hasattr(directory, "__fspath__")
        folder = folder_of(str(directory) if is_foreign else directory)
        codecs = _codecs_of(
            folder.subfolder(self.first_folder) if self.first_folder else folder, decoders
        )
        self._make = functools.partial(self.reader_class, folder, codecs=codecs, **shards)
        self._records = self._make()
        self._parts: dict[tuple[str, ...], Any] = {}
        self.spec: dict[str, str] = self._records.spec
        self.size: int = self._records.size
        self.shards: int = getattr(self._records, "shards", 1)
        if not set(cache_keys) <= self.spec.keys():
            raise ConfigError(
                f"unknown columns in cache_keys={cache_keys!r:.200}; the dataset has {', '.join(self.spec)}"
            )

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: Any) -> dict[str, Any]:
        index, keys = (
            (index[0], tuple(index[1])) if isinstance(index, tuple) else (index, tuple(self.spec))
        )
        if keys not in self._parts:
            is_whole = not keys or set(keys) == self.spec.keys()
            self._parts[keys] = self._records if is_whole else self._make(columns=list(keys))
        if isinstance(index, (slice, range)):
            found = places(index, len(self))
            samples = list(self._parts[keys][found.start : found.stop]) if keys and found else []
            return {key: [sample[key] for sample in samples] for key in keys}
        sample = self._parts[keys][operator.index(index)] if keys else {}
        return {key: sample[key] for key in keys}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        # Without it, a loop would take an IndexError of a decoder for the end of the datapoints.
        for index in range(len(self)):
            yield self[index]

    def __reversed__(self) -> Iterator[dict[str, Any]]:
        for index in range(len(self) - 1, -1, -1):
            yield self[index]

    def copy(self) -> DatasetReader:
        """Return another reader of the same dataset."""
        return copy.deepcopy(self)

    def close(self) -> None:
        for each in (self._records, *self._parts.values()):
            each.close()
        self.closed = True


class ShardedDatasetReader(DatasetReader):
    """The datapoints of all or some shards, one shard after the other; otherwise as :class:`DatasetReader`.

    Args:
        directory, decoders, cache_index, cache_keys, parallel: as for :class:`DatasetReader`.
        shardstart, shardstep: read shard ``shardstart`` and each ``shardstep``-th after it.
    """

    reader_class, first_folder = records.ShardedRecordReader, shard_name(0)


def _codecs_of(folder: Folder, decoders: _Functions | None) -> dict[str, Any]:
    """Return, by type, the decoders that differ from those of data_stack."""
    try:
        types = parse_spec(folder.read(SPEC), folder.full_name(SPEC)).values()
    except ResourceNotFoundError as error:
        raise MissingFileError(folder.full_name(SPEC)) from error
    chosen = {kind: None if decoders is None else decoders[kind] for kind in types}
    return {
        kind: each and (None, each)
        for kind, each in chosen.items()
        if not each or each is not formats.decoders.get(kind)
    }
