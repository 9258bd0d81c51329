"""Record datasets in shards, as one."""

from __future__ import annotations

import bisect
import itertools
import re
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import Column
from data_stack.codecs.registry import Codecs
from data_stack.dataset.iterator import (
    AccessedDatasetIterator,
    Batch,
    ColumnKey,
    IndexArray,
    Sample,
    SampleAccess,
    access_to,
    sample_or_view,
)
from data_stack.dataset.iterator.declared_column import DeclaredColumn
from data_stack.dataset.iterator.indices import check_index, check_integer
from data_stack.dataset.iterator.layers.combined import CombinedAccess
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import (
    ConfigError,
    DatasetFileCorruptError,
    ResourceNotFoundError,
    UnsupportedStorageOperationError,
)
from data_stack.formats.records.layout import SPEC, shard_name
from data_stack.formats.records.reader import Mask, RecordReader, check_options
from data_stack.io.folder import Folder, folder_of

if TYPE_CHECKING:
    from typing_extensions import Self

_SHARD = re.compile(r"[0-9]{6,}", re.ASCII)


class ShardedRecordReader(AccessedDatasetIterator):
    """The samples of all shards, or of some, one shard after the other; otherwise as :class:`RecordReader`.

    A shard is a folder ``000000``, ``000001`` … that is a record dataset by itself; other files are ignored.
    Files are opened when they are first read, and a third of the descriptors of the process at most.

    Args:
        source, prefix, codecs, columns, mapped: as for RecordReader.
        shardstart, shardstep: read shard ``shardstart`` and each ``shardstep``-th after it.

    Raises:
        ResourceNotFoundError: there is no shard.
        DatasetFileCorruptError: one is missing in between, or damaged as far as can be told without reading its records.
        ConfigError: there is no such column or codec, or no shard is chosen.
    """

    _keeps_access = False

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
            raise ResourceNotFoundError(
                f"there are no shards in {folder.name or 'the store'!r}: a shard is a folder such as {shard_name(0)} "
                f"with a {SPEC}"
            )
        chosen = names[first::step]
        if not chosen:
            raise ConfigError(f"there is no shard {first} in {folder.name!r}, which has {len(names)}")
        self._open_shards(folder, check_options(codecs, columns, mapped), chosen)

    def _open_shards(
        self, folder: Folder, options: dict[str, Any], names: list[str], lengths: Sequence[int] | None = None
    ) -> None:
        """Open the shards, as long as they were when ``lengths`` were taken."""
        self._folder, self._options, self._names = folder, options, names
        self._readers: list[RecordReader] = []
        siblings = weakref.WeakSet[RecordReader]()
        for number, name in enumerate(names):
            shard = folder.subfolder(name)
            try:
                reader = RecordReader(shard, **options)
            except ResourceNotFoundError as error:
                raise DatasetFileCorruptError(
                    f"shard {shard.name} is missing or empty, of {len(names)}: {error}. Restore it from a copy"
                ) from error
            first = self._readers[0] if self._readers else reader
            if reader.stored_types != first.stored_types:
                raise DatasetFileCorruptError(
                    f"shard {shard.name} has the columns {reader.stored_types}, the first one has {first.stored_types}"
                )
            reader.share_files(siblings, None if lengths is None else lengths[number])
            self._readers.append(reader)
        self._lengths = [len(reader) for reader in self._readers]
        self._length, self._stops = sum(self._lengths), list(itertools.accumulate(self._lengths))

    # ------------------------------------------------------------------ what it is

    if TYPE_CHECKING:  # samples are dicts

        def read_batch(self, indices: IndexArray) -> dict[str, npt.NDArray[Any]]: ...

    def make_access(self) -> SampleAccess:
        return _ShardedAccess(self)

    def __len__(self) -> int:
        return self._length

    @property
    def spec(self) -> dict[str, str]:
        """The types of the columns that are read, by name."""
        return self._readers[0].spec

    @property
    def schema(self) -> dict[str, Column]:
        """What each of these columns holds in the first shard; in others it may differ in what was not declared."""
        return self._readers[0].schema

    @property
    def shards(self) -> int:
        """Number of shards that are read."""
        return len(self._names)

    @property
    def size(self) -> int:
        """How much all columns of these shards take, their indexes included."""
        return sum(reader.size for reader in self._readers)

    def available(self, index: int) -> dict[str, bool | range]:
        """As :meth:`RecordReader.available`."""
        number, position = self._find(check_index(index, self._length))
        return self._readers[number].available(position)

    # ------------------------------------------------------------------ samples

    def __getitem__(self, index: Any) -> Any:
        """As of a :class:`RecordReader`."""
        if type(index) is int and 0 <= index < self._length:
            return self._sample(index)
        if type(index) is tuple and len(index) == 2:
            return self.read(*index)
        return sample_or_view(self, index)

    def read(self, index: int, columns: Iterable[str] | Mask | None = None) -> Sample:
        """A part of a sample, as of a :meth:`RecordReader.read`."""
        number, position = self._find(check_index(index, self._length))
        return self._readers[number].read(position, columns)

    def _find(self, position: int) -> tuple[int, int]:
        """The shard that has a sample, and where in it."""
        number = bisect.bisect_right(self._stops, position)
        return number, position - self._stops[number] + self._lengths[number]

    def _sample(self, index: int) -> Sample:
        number, position = self._find(index)
        return self._readers[number][position]

    def _arguments(self) -> dict[str, Any]:
        return self._readers[0]._arguments()

    # ------------------------------------------------------------------ verification, end

    def verify(self) -> None:
        """As :meth:`RecordReader.verify`, for each of these shards.

        Raises:
            DatasetFileCorruptError: something is damaged; the first of it is named.
        """
        for reader in self._readers:
            reader.verify()

    def close(self) -> None:
        """Close all files; nothing can be read afterwards."""
        for reader in self._readers:
            reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (type(self), self._folder, self._options, self._names, self._lengths)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return self.__reduce__()


class _ShardedAccess(CombinedAccess):
    """Access to records in shards: a batch is one request to each."""

    def __init__(self, source: ShardedRecordReader) -> None:
        super().__init__([access_to(reader) for reader in source._readers], source._lengths)
        self.source = source

    def columns(self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None) -> list[Any]:
        if not self.n_samples:
            return access_to(self.source._readers[0]).columns(keys, np.empty(0, np.intp))
        return super().columns(keys, positions)

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        if not len(positions):
            keys = list(self.source.spec)
            return dict(zip(keys, self.columns(keys, positions), strict=True))
        return super().batch(positions)

    def declare_columns(self) -> Mapping[str, DeclaredColumn] | None:
        return access_to(self.source._readers[0]).declare_columns()

    def content_fingerprint(self) -> list[Any]:
        return [access_to(reader).content_fingerprint() for reader in self.source._readers]


def shard_names(folder: Folder) -> list[str]:
    """The shards in a folder, in order; other files are ignored.

    Raises:
        DatasetFileCorruptError: one is missing in between.
    """
    try:
        found = {name for name in folder.list_names() if _SHARD.fullmatch(name) and shard_name(int(name)) == name}
    except UnsupportedStorageOperationError:  # a store that cannot list can say of each whether it is there
        found = set(itertools.takewhile(lambda name: folder.subfolder(name).has_file(SPEC), map(shard_name, itertools.count())))
    names = [shard_name(number) for number in range(len(found))]
    missing = sorted(set(names) - found)
    if missing:
        raise DatasetFileCorruptError(
            f"shard {missing[0]} of {folder.name!r} is missing: there are shards up to {max(found)}. Restore it from a copy"
        )
    return names


def _reopen(
    reader_class: type[ShardedRecordReader], folder: Folder, options: dict[str, Any], names: list[str], lengths: list[int]
) -> ShardedRecordReader:
    reader = reader_class.__new__(reader_class)
    reader._open_shards(folder, options, names, lengths)
    return reader


def open(  # noqa: A001  # records.open("train")
    source: Any,
    *,
    prefix: str = "",
    codecs: Codecs | None = None,
    columns: Sequence[str] | None = None,
    mapped: bool = True,
) -> RecordReader | ShardedRecordReader:
    """The samples of a record dataset: of one folder, or of shards; of any version of Granular's files.

    ::

        with records.open("train") as reader: ...
        with records.open("mongodb://localhost/data", prefix="mnist/train") as reader: ...

    The arguments are those of :class:`RecordReader`.

    Raises:
        ResourceNotFoundError: there is no record dataset.
        DatasetFileCorruptError: it is damaged or incomplete, as far as can be told without reading its records.
        ConfigError: there is no such column or codec.
    """
    folder = folder_of(source, prefix)
    options: dict[str, Any] = {"codecs": codecs, "columns": columns, "mapped": mapped}
    if not folder.has_file(SPEC) and shard_names(folder):
        return ShardedRecordReader(folder, **options)
    try:
        return RecordReader(folder, **options)
    except ResourceNotFoundError as error:
        raise ResourceNotFoundError(
            f"there is no record dataset in {folder.name or 'the store'!r}: neither a {SPEC} nor a shard such as 000000/{SPEC}"
        ) from error
