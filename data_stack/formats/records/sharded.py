"""Record datasets in shards, as one."""

from __future__ import annotations

import bisect
import itertools
import re
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import Codec, Column
from data_stack.codecs.registry import Codecs
from data_stack.dataset.iterator import (
    AccessedDatasetIterator,
    ColumnKey,
    IndexArray,
    Sample,
    SampleAccess,
    SourceAccess,
    access_to,
    sample_or_view,
)
from data_stack.dataset.iterator.access import DeclaredColumn
from data_stack.dataset.iterator.indices import checked_index, checked_integer
from data_stack.dataset.iterator.stacking import join_columns, stack_values
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import (
    ConfigError,
    DatasetFileCorruptError,
    ResourceChangedError,
    ResourceNotFoundError,
    StorageError,
    UnsupportedStorageOperationError,
)
from data_stack.formats.records.completeness import Incomplete, checked_incomplete
from data_stack.formats.records.layout import SPEC, shard_name
from data_stack.formats.records.reader import DEFAULTS, Mask, RecordReader, names_of, opened_with
from data_stack.io.folder import Folder, folder_of

if TYPE_CHECKING:
    from typing_extensions import Self

if sys.platform != "win32":
    import resource

__all__ = ["ShardedRecordReader", "shard_names"]

_SHARD = re.compile(r"[0-9]{6,}", re.ASCII)
_MOST_OPEN_FILES = 4096

_Integers = npt.NDArray[np.int64]


class ShardedRecordReader(AccessedDatasetIterator):
    """The samples of all shards, or of some, one shard after the other; otherwise as :class:`RecordReader`.

    A shard is a folder ``000000``, ``000001`` … that is a record dataset by itself; whatever else lies beside them is ignored.
    Shards are opened when they are first read, and no more than some hundred files are open at a time.

    Args:
        source, prefix, codecs, columns, cache_index, cache_columns, mapped, verified: as for RecordReader.
        incomplete: likewise, of each shard by itself.
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
        cache_index: bool = False,
        cache_columns: Iterable[str] = (),
        mapped: bool = True,
        verified: bool = True,
        incomplete: Incomplete = "raise",
        shardstart: int = 0,
        shardstep: int = 1,
    ) -> None:
        first, step = checked_integer("shardstart", shardstart, at_least=0), checked_integer("shardstep", shardstep, at_least=1)
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
        options: dict[str, Any] = {
            "codecs": codecs,
            "columns": None if columns is None else names_of("columns", columns),
            "cache_index": cache_index,
            "cache_columns": tuple(names_of("cache_columns", cache_columns)),
            "mapped": mapped,
            "verified": verified,
            "incomplete": checked_incomplete(incomplete),
        }
        self._begin(folder, options, chosen, {})
        self._count([len(self._shard(number)) for number in range(len(chosen))])

    def _begin(self, folder: Folder, options: dict[str, Any], names: list[str], provided: dict[str, Codec]) -> None:
        self._folder, self._options, self._names, self._provided = folder, options, names, provided
        self._readers: list[RecordReader | None] = [None] * len(names)
        #: Shards with open files, those that were opened first in front; and how many files these may be.
        self._with_files: deque[int] = deque()
        self._most_files = _most_open_files()
        self._closed = False

    def _count(self, lengths: list[int]) -> None:
        self._lengths = lengths
        self._stops = np.cumsum(lengths, dtype=np.int64)
        self._length = int(self._stops[-1])
        # A list is searched faster than an array for one position.
        self._stops_list = self._stops.tolist()
        self._starts_list = [0, *self._stops_list[:-1]]

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
        return self._shard(0).spec

    @property
    def schema(self) -> dict[str, Column]:
        """What each of these columns holds in the first shard; in others it may differ in what was not declared."""
        return self._shard(0).schema

    @property
    def shards(self) -> int:
        """Number of shards that are read."""
        return len(self._names)

    @property
    def n_bytes(self) -> int:
        """How much all columns of these shards take, their indexes included."""
        return sum(self._shard(number).n_bytes for number in range(len(self._names)))

    @property
    def size(self) -> int:
        """:attr:`n_bytes`, as Granular calls it."""
        return self.n_bytes

    def available(self, index: int) -> dict[str, bool | range]:
        """As :meth:`RecordReader.available`."""
        number, position = self._find(checked_index(index, self._length))
        return self._shard(number).available(position)

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
        if not hasattr(index, "__index__"):
            raise TypeError(
                f"columns are chosen of one sample, at an integer, not at {index!r:.80}; for more use select(*columns)"
            )
        number, position = self._find(checked_index(index, self._length))
        return self._shard(number).read(position, columns)

    def _by_shard(self, positions: IndexArrayOfInts) -> Iterator[tuple[int, _Integers | None, _Integers]]:
        """For each shard: its number, places among ``positions`` (None: all), and the positions in it, in their order."""
        if not len(positions):
            return
        wide = positions.astype(np.int64, copy=False)
        numbers = self._stops.searchsorted(wide, "right")
        first = int(numbers[0])
        if (numbers == first).all():
            yield first, None, wide - self._starts_list[first]
            return
        order = np.argsort(numbers, kind="stable")
        limits = [0, *(np.flatnonzero(np.diff(numbers[order])) + 1).tolist(), len(order)]
        for start, stop in itertools.pairwise(limits):
            places = order[start:stop]
            number = int(numbers[places[0]])
            yield number, places, wide[places] - self._starts_list[number]

    def _find(self, position: int) -> tuple[int, int]:
        """The shard that has a sample, and where in it."""
        number = bisect.bisect_right(self._stops_list, position)
        return number, position - self._starts_list[number]

    def _sample(self, index: int) -> Sample:
        number = bisect.bisect_right(self._stops_list, index)
        reader = self._readers[number]
        if reader is None or not reader.has_open_files:
            reader = self._shard(number)
        return reader[index - self._starts_list[number]]

    def _arguments(self) -> dict[str, Any]:
        return self._shard(0)._arguments()

    # ------------------------------------------------------------------ shards

    def _shard(self, number: int) -> RecordReader:
        """A shard that is about to be read; files of others are closed if there are too many.

        Two threads may open the same one: then it is open twice for a while.
        """
        reader = self._readers[number]
        if reader is None:
            if self._closed:
                raise StorageError(f"the record dataset {self._folder.name!r} was closed; open it again to read from it")
            reader = self._opened_shard(number)
        if not reader.has_open_files:
            self._make_room(2 * len(reader.spec) + 1)
            self._with_files.append(number)
        return reader

    def _opened_shard(self, number: int) -> RecordReader:
        folder = self._folder.subfolder(self._names[number])
        try:
            reader = opened_with(RecordReader, folder, self._options, self._provided)
            self._provided = reader.provided_codecs
        except ResourceNotFoundError as error:
            raise DatasetFileCorruptError(
                f"shard {folder.name} is missing or empty, of {len(self._names)}: {error}. Restore it from a copy"
            ) from error
        first = self._readers[0]
        if first is not None and reader.stored_types != first.stored_types:
            raise DatasetFileCorruptError(
                f"shard {folder.name} has the columns {reader.stored_types}, the first one has {first.stored_types}"
            )
        known = getattr(self, "_lengths", None)
        if known is not None and len(reader) < known[number]:
            raise ResourceChangedError(folder.full_name(SPEC), f"{known[number]} samples", f"{len(reader)}")
        self._readers[number] = reader
        return reader

    def _make_room(self, n_files: int) -> None:
        most = max(1, self._most_files // n_files)
        while len(self._with_files) >= most:
            try:
                reader = self._readers[self._with_files.popleft()]
            except IndexError:  # another thread took the last one
                return
            if reader is not None:
                reader.release()

    # ------------------------------------------------------------------ verification, end

    def verify(self) -> None:
        """As :meth:`RecordReader.verify`, for each of these shards.

        Raises:
            DatasetFileCorruptError: something is damaged; the first of it is named.
        """
        for number in range(len(self._names)):
            self._shard(number).verify()

    def close(self) -> None:
        """Let go of all files; nothing can be read afterwards."""
        self._closed = True
        readers, self._readers = self._readers, [None] * len(self._names)
        self._with_files.clear()
        for reader in readers:
            if reader is not None:
                reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        options = {name: value for name, value in self._options.items() if value != DEFAULTS[name]}
        # Shards of one length but for the last are the rule.
        runs = [(length, len(list(run))) for length, run in itertools.groupby(self._lengths)]
        numbers = [int(name) for name in self._names]
        chosen = range(numbers[0], numbers[-1] + 1, numbers[1] - numbers[0] if len(numbers) > 1 else 1)
        return _reopened, (type(self), self._folder, options, self._provided, chosen, runs)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return self.__reduce__()


class _ShardedAccess(SourceAccess):
    """Access to records in shards: a batch is one request to each."""

    source: ShardedRecordReader

    @property
    def n_samples(self) -> int:  # type: ignore[override]  # read-only here
        return self.source._length

    @property
    def releases_gil(self) -> bool:  # type: ignore[override]  # read-only here
        return access_to(self.source._shard(0)).releases_gil

    def sample(self, position: int) -> Sample:
        return self.source._sample(position)

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        found: list[Sample] = [None] * len(positions)
        for number, places, local in self.source._by_shard(positions):
            samples = access_to(self.source._shard(number)).samples(local)
            if places is None:
                return samples
            for place, sample in zip(places.tolist(), samples, strict=True):
                found[place] = sample
        return found

    def batch(self, positions: IndexArrayOfInts) -> dict[str, npt.NDArray[Any]]:
        keys = list(self.source.spec)
        return dict(zip(keys, self.columns(keys, positions), strict=True))

    def columns(self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None) -> list[npt.NDArray[Any]]:
        lengths = self.source._lengths
        parts: list[tuple[int, _Integers | None, _Integers | None]] = []
        if positions is None:
            parts = [(number, None, None) for number, length in enumerate(lengths) if length]
        else:
            parts += self.source._by_shard(positions)
        if not parts:
            filled = next((number for number, length in enumerate(lengths) if length), 0)
            return access_to(self.source._shard(filled)).columns(keys, np.empty(0, np.intp))
        pieces = [access_to(self.source._shard(number)).columns(keys, local) for number, _, local in parts]
        if len(pieces) == 1:
            return pieces[0]
        order = None if positions is None else np.concatenate([places for _, places, _ in parts if places is not None])
        return [_joined([piece[place] for piece in pieces], order) for place in range(len(keys))]

    def iterate(self, start: int, stop: int) -> Iterator[Sample]:
        first = 0
        for number, length in enumerate(self.source._lengths):
            if first < stop and first + length > start:
                yield from access_to(self.source._shard(number)).iterate(max(0, start - first), min(length, stop - first))
            first += length

    def locate(self, position: int) -> str | None:
        number, local = self.source._find(position)
        return access_to(self.source._shard(number)).locate(local)

    def declare_columns(self) -> Mapping[str, DeclaredColumn] | None:
        return access_to(self.source._shard(0)).declare_columns()

    def tell_content(self) -> list[Any]:
        source = self.source
        return [access_to(source._shard(number)).tell_content() for number in range(len(source._names))]


def shard_names(folder: Folder) -> list[str]:
    """The shards in a folder, in order; whatever else lies there is ignored.

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


def _reopened(
    reader_class: type[ShardedRecordReader],
    folder: Folder,
    options: dict[str, Any],
    provided: dict[str, Codec],
    chosen: range,
    runs: list[tuple[int, int]],
) -> ShardedRecordReader:
    reader = reader_class.__new__(reader_class)
    reader._begin(folder, {**DEFAULTS, **options}, [shard_name(number) for number in chosen], provided)
    reader._count([length for length, n_shards in runs for _ in range(n_shards)])
    return reader


def _joined(pieces: list[npt.NDArray[Any]], order: _Integers | None) -> npt.NDArray[Any]:
    """A column out of those of the shards, in the order that was asked for."""
    if len({(piece.dtype, piece.shape[1:]) for piece in pieces}) == 1:
        joined = join_columns(pieces)
        if order is None:
            return joined
        column = np.empty_like(joined)
        column[order] = joined
        return column
    # As if all values had been stacked together.
    values = [value for piece in pieces for value in (piece if piece.dtype.kind in "OmM" or piece.ndim > 1 else piece.tolist())]
    if order is not None:
        values = [values[place] for place in np.argsort(order, kind="stable").tolist()]
    return stack_values(values)


def _most_open_files() -> int:
    """How many files may be open at a time: each costs a descriptor, and a process has other uses for these."""
    if sys.platform == "win32":
        return _MOST_OPEN_FILES
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_OPEN_FILES if soft == resource.RLIM_INFINITY else max(8, min(_MOST_OPEN_FILES, soft // 3))
