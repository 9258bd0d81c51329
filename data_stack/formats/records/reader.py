"""A record dataset as samples."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import Codec, Column
from data_stack.codecs.provided import find_provided_codecs
from data_stack.codecs.registry import Codecs, codec_of, registered_types
from data_stack.dataset.iterator import (
    AccessedDatasetIterator,
    ColumnKey,
    IndexArray,
    Sample,
    SampleAccess,
    SourceAccess,
    sample_or_view,
)
from data_stack.dataset.iterator.blocks import MAX_KEPT_REMOTE_BYTES, blocks_of_rows
from data_stack.dataset.iterator.declared_column import DeclaredColumn
from data_stack.dataset.iterator.indices import check_index
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import ConfigError, DatasetFileCorruptError, RequestLimitError, ResourceChangedError, StorageError
from data_stack.formats.records.columns import Places, ValueColumn, as_places, samples_of, sequences_of
from data_stack.formats.records.layout import MAX_RECORDS, REFS
from data_stack.formats.records.manifest import MANIFEST, RecordsManifest
from data_stack.formats.records.record_files import RecordFiles
from data_stack.formats.records.sample_references import SampleReferences
from data_stack.formats.records.stored_file import most_open_files
from data_stack.formats.records.verification import say_uncovered, verify_files, warn_once
from data_stack.io.folder import Folder, folder_of
from data_stack.util.request_limit import current_request, decoding_for
from data_stack.util.suggestions import did_you_mean
from data_stack.values.stacking import stack_values

if TYPE_CHECKING:
    from typing_extensions import Self

#: An iteration reads blocks of about this size, and of at most so many samples.
_BLOCK_BYTES = 1 << 20
_MOST_IN_BLOCK = 1024
#: More where records are decoded in threads.
_DECODED_BYTES = 4 << 20

_Integers = npt.NDArray[np.int64]

Mask = Mapping[str, Any]
"""What to read of a sample: by column True, False, or a range or slice of a sequence."""


class RecordReader(AccessedDatasetIterator):
    """The samples of a record dataset: dicts with a value for each column.

    ::

        with RecordReader("train") as reader:
            reader[17]["image"]                          # one sample
            reader.read_batch([3, 1, 4])["image"]        # columns, stacked; one request
            reader[17, ["label"]]                        # only these columns
            reader[17, {"frames": range(32, 42)}]        # a part of a sequence; one request
            reader.split({"train": 0.8, "val": 0.2})     # as any iterator

    It reads datasets of :class:`RecordWriter` and of Granular 0.8 to 0.24. Values are copies; arrays of one request or iteration
    may share one piece of memory.

    With a manifest each block of 64 KiB is compared with its checksum when it is first read, in each process. Without one
    (Granular writes none) all columns must hold the same samples, and sizes, offsets and headers are checked on what is read.
    Where Granular appended to a finished dataset, the blocks that the manifest covers are compared, the samples behind are read
    like those without manifest, and the log says so once; :func:`~data_stack.formats.records.seal` renews the manifest.
    The length is that of the time of opening, also while a writer appends.

    Where a codec releases the GIL, requests for several samples are decoded in as many threads as there are processors; in one
    in a worker process of multiprocessing. Local files are mapped into memory; set ``mapped=False`` for files that another
    program may truncate, or that lie on an unreliable network file system.

    Threads may share a reader, a forked child may go on using it, and it pickles as its folder and options.

    Args:
        source: folder, storage connector, URL, or resources of a dataset; see :func:`~data_stack.io.folder.folder_of`.
        prefix: folder below ``source``.
        codecs: by type, codecs of one's own, which go before those that are built in; None as a codec gives bytes as they are.
        columns: those that are wanted, in this order; None for all, in the order of their names. Others are never touched.
        mapped: map files into memory.

    Raises:
        ResourceNotFoundError: there is no record dataset.
        DatasetFileCorruptError: it is damaged or incomplete, as far as can be told without reading its records.
        ConfigError: there is no such column or codec.
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
    ) -> None:
        self._folder = folder_of(source, prefix)
        self._options = options = check_options(codecs, columns, mapped)
        self._files = RecordFiles(self._folder, mapped=mapped)
        types = self._files.types
        self._keys = list(types) if columns is None else options["columns"]
        for name in self._keys:
            _check_column(name, types)
        self._codecs: dict[str, Codec] = {name: self._codec(name, options["codecs"]) for name in self._keys}
        #: Whether values count for the limit of a request.
        self._counts = any(codec.is_compressed for codec in self._codecs.values())
        self._decodes_in_threads = any(codec.releases_gil for codec in self._codecs.values())
        self._closed = False
        self._siblings: weakref.WeakSet[RecordReader] | None = None
        self._opened: dict[str, ValueColumn] = {}
        self._references: SampleReferences | None = None
        self._sequences = frozenset(name for name, kind in types.items() if kind.endswith("[]"))
        # A pickled reader keeps its length if samples were appended since.
        self._n_stored = self._length = self._count_samples()

    def _codec(self, name: str, codecs: Codecs | None) -> Codec:
        try:
            return codec_of(self._files.types[name], codecs)
        except ConfigError as error:
            raise ConfigError(f"column {name!r} of {self._folder.name}: {error}") from error

    def share_files(self, siblings: weakref.WeakSet[RecordReader], length: int | None) -> None:
        """Limit the open files of several readers together.

        Args:
            siblings: those of the readers that have open files.
            length: how many samples there are to be; None for as many as there are.

        Raises:
            ResourceChangedError: there are fewer.
        """
        if length is not None and len(self) < length:
            raise ResourceChangedError(self._folder.full_name(MANIFEST), f"{length} samples", f"{len(self)}")
        self._siblings, self._length = siblings, self._length if length is None else length

    # ------------------------------------------------------------------ what it is

    if TYPE_CHECKING:  # samples are dicts

        def read_batch(self, indices: IndexArray) -> dict[str, npt.NDArray[Any]]: ...

    def make_access(self) -> SampleAccess:
        return _RecordAccess(self)

    def __len__(self) -> int:
        return self._length

    @property
    def spec(self) -> dict[str, str]:
        """The types of the columns that are read, by name, as Granular has them."""
        return {name: self._files.types[name] for name in self._keys}

    @property
    def stored_types(self) -> dict[str, str]:
        """Those of all columns, whether they are read or not."""
        return self._files.types

    @property
    def schema(self) -> dict[str, Column]:
        """What each of these columns holds; dtype and shape only where a manifest tells."""
        return {name: self._files.schema[name] for name in self._keys}

    @property
    def manifest(self) -> RecordsManifest | None:
        """What the dataset says of itself; None where it was not written by us, or is not finished."""
        return self._files.manifest

    @property
    def size(self) -> int:
        """How many bytes all columns take, their indexes included."""
        manifest = self._files.manifest
        if manifest is not None:
            return sum(record.size for file, record in manifest.files.items() if file.endswith((".bag", ".idx")))
        bags = [self._files.bag(name) for name in ([REFS] if self._files.has_references else []) + list(self._files.types)]
        try:
            return sum(bag.n_bytes + 8 * len(bag) for bag in bags)
        finally:
            for bag in bags:
                bag.close()

    def available(self, index: int) -> dict[str, bool | range]:
        """What there is of a sample: True for a value, for a sequence the range of its positions. No value is read.

        Raises:
            DatasetOutOfBoundsError: there is no such sample.
        """
        entries = self._entries(np.array([check_index(index, self._length)]), self._keys)
        return {name: range(int(entries[name][1][0])) if name in self._sequences else True for name in self._keys}

    # ------------------------------------------------------------------ one sample

    def __getitem__(self, index: Any) -> Any:
        """A sample for an integer; a view for a slice, list or mask; a part of a sample for ``index, columns_or_mask``."""
        if type(index) is int and 0 <= index < self._length:
            return self._sample(index)
        if type(index) is tuple and len(index) == 2:
            return self.read(*index)
        return sample_or_view(self, index)

    def read(self, index: int, columns: Iterable[str] | Mask | None = None) -> Sample:
        """A part of a sample.

        Args:
            index: its position.
            columns: names of columns; or for each True, False (as if it were not named), or for one of sequences a range or
                slice, which is cut off at the end of the sequence. None for all.

        Raises:
            DatasetOutOfBoundsError: there is no such sample.
            ConfigError: there is no such column, or no such part of it.
        """
        position = check_index(index, self._length)
        if columns is None:
            return self[position]
        if not isinstance(columns, Mapping):
            columns = dict.fromkeys(_names_of(columns), True)
        for name, part in columns.items():
            _check_column(name, self._codecs)
            if not isinstance(part, (bool, np.bool_, range, slice)) or (name not in self._sequences and hasattr(part, "start")):
                raise ConfigError(f"a part of column {name!r} is True, False, or a range of its sequence, not {part!r:.80}")
        wanted = {name: part for name, part in columns.items() if hasattr(part, "start") or part}
        entries, sample = self._entries(np.array([position]), list(wanted)), {}
        for name, part in wanted.items():
            column, first, count = self._column(name), position, 1
            if name in entries:
                first, count = (int(each[0]) for each in entries[name])
            if name not in self._sequences:
                sample[name] = column.value(first)
                continue
            places = np.arange(first, first + count)
            if isinstance(part, (range, slice)):
                places = places[part.start : part.stop : part.step]
            sample[name] = column.values(places) if len(places) else []
        return sample

    def _sample(self, position: int) -> Sample:
        if self._references is not None:
            return next(samples_of(self._keys, self._read(self._keys, range(position, position + 1), stacked=False)))
        opened = self._opened
        return {name: (opened[name] if name in opened else self._column(name)).value(position) for name in self._keys}

    # ------------------------------------------------------------------ many samples

    def _iterate(self, start: int, end: int) -> Iterator[Sample]:
        keys = self._keys
        while start < end:
            stop = min(start + self._samples_at_once(), end)
            try:
                columns = self._read(keys, range(start, stop), stacked=False)
            except (DatasetFileCorruptError, RequestLimitError):  # those before the damage are whole; each may fit by itself
                for position in range(start, stop):
                    yield self[position]
            else:
                yield from samples_of(keys, columns)
            start = stop

    def _read(self, names: Sequence[str], positions: range | IndexArrayOfInts, *, stacked: bool) -> list[Any]:
        """Columns of some samples: stacked, or lists of the values by themselves."""
        places = as_places(positions)
        if not self._counts:
            return self._read_places(names, places, stacked)
        with decoding_for(current_request()):
            return self._read_places(names, places, stacked)

    def _read_places(self, names: Sequence[str], places: Places, stacked: bool) -> list[Any]:
        if self._references is None:
            columns = [self._column(name) for name in names]
            return [column.read(places) if stacked else column.values(places) for column in columns]
        found: list[Any] = []
        for name, (firsts, counts) in self._entries(np.asarray(places, np.int64), names).items():
            column = self._column(name)
            if name in self._sequences:
                sequences = sequences_of(column, firsts, counts)
                found.append(stack_values(sequences) if stacked else sequences)
            else:
                found.append(column.read(firsts) if stacked else column.values(firsts))
        return found

    def _entries(self, positions: _Integers, names: Sequence[str]) -> dict[str, tuple[_Integers, _Integers]]:
        """Of columns the first record and the count, for each sample; nothing where record i is sample i's."""
        if self._references is None:
            return {}
        self._check_open()
        entries = self._references.many(positions)
        for name in names:
            self._references.check(name, len(self._column(name)), positions, *entries[name])
        return {name: entries[name] for name in names}

    def _arguments(self) -> dict[str, Any]:
        return {"columns": self._keys, "codecs": self._options["codecs"]}

    # ------------------------------------------------------------------ verification, end

    def verify(self) -> None:
        """Compare all files, also of columns that are not read, with the manifest; without one, decode every record.

        Both, and a warning in the log, where the manifest covers the first samples alone.

        Raises:
            DatasetFileCorruptError: something is damaged; the first of it is named.
        """
        verify_files(self._folder)
        if self._files.manifest is None:
            with type(self)(self._folder, **{**self._options, "columns": None}) as whole:
                for _ in whole:
                    pass

    def release(self) -> None:
        """Close all files until they are needed again; other threads finish what they read."""
        self._opened = {}
        if self._siblings is not None:
            self._siblings.discard(self)
        if self._references is not None:
            self._references.release()

    def close(self) -> None:
        """Close all files; nothing can be read afterwards."""
        self._closed = True
        opened = list(self._opened.values())
        self.release()
        for column in opened:
            column.bag.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (type(self), self._folder, self._options, self._length, self._files.manifest_sha256)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return self.__reduce__()

    # ------------------------------------------------------------------ inside

    def _count_samples(self) -> int:
        """Number of samples."""
        manifest, files = self._files.manifest, self._files
        if manifest is not None and manifest.count > MAX_RECORDS:
            raise DatasetFileCorruptError(f"{self._folder.full_name(MANIFEST)} claims {manifest.count:,} samples")
        if files.has_references:
            self._references = SampleReferences(lambda: files.bag(REFS), files.types)
            if manifest is not None and len(self._references) < manifest.count:
                raise DatasetFileCorruptError(
                    f"{self._folder.full_name(MANIFEST)} promises {manifest.count:,} samples, but {REFS}.bag has "
                    f"{len(self._references):,}"
                )
        elif self._sequences:
            raise DatasetFileCorruptError(
                f"{self._folder.name} has columns of sequences, but no {REFS}.bag, which tells what they are; restore it "
                f"from a copy"
            )
        if manifest is not None:
            return manifest.count
        n_samples = files.count_samples(self._references)
        if files.covered is not None:
            warn_once(say_uncovered(self._folder, files.covered, n_samples))
        return n_samples

    def _column(self, name: str) -> ValueColumn:
        column = self._opened.get(name)
        if column is None:
            self._check_open()
            siblings = self._siblings
            if siblings is not None and self not in siblings:
                if len(siblings) >= max(1, most_open_files() // (2 * len(self._keys) + 1)):
                    for each in list(siblings):
                        each.release()
                siblings.add(self)
            # Two threads may both open it; the file of the slower one is closed with its last reference.
            n_records = None if self._files.has_references else self._n_stored
            column = self._opened[name] = self._files.column(name, self._codecs[name], n_records)
        return column

    def _check_open(self) -> None:
        if self._closed:
            raise StorageError(f"the record dataset {self._folder.name!r} was closed; open it again to read from it")

    def _remote_bytes(self) -> int:
        """Bytes of records in a store where each read may be a request."""
        bags = [self._column(name).bag for name in self._keys]
        return sum(bag.n_bytes for bag in bags if bag.file.ranges is not None)

    def _samples_at_once(self) -> int:
        """How many samples an iteration reads together."""
        columns = [self._column(name) for name in self._keys]
        n_bytes = sum(column.row_bytes * -(-len(column) // self._length) for column in columns)
        at_once = (_DECODED_BYTES if self._decodes_in_threads else _BLOCK_BYTES) // max(1, n_bytes)
        return min(max(1, at_once), _MOST_IN_BLOCK)


class _RecordAccess(SourceAccess):
    """Access to records."""

    source: RecordReader

    @property
    def n_samples(self) -> int:  # type: ignore[override]  # read-only here
        return self.source._length

    @property
    def fixed_columns(self) -> bool:  # type: ignore[override]  # read-only here
        reader = self.source
        return reader._sequences.isdisjoint(reader._keys) and all(reader._column(name).is_fixed for name in reader._keys)

    @property
    def releases_gil(self) -> bool:  # type: ignore[override]  # read-only here
        return self.source._decodes_in_threads or self.source._remote_bytes() > 0

    @property
    def prefers_blocks(self) -> bool:  # type: ignore[override]  # read-only here
        return self.source._remote_bytes() > MAX_KEPT_REMOTE_BYTES

    def blocks(self) -> npt.NDArray[np.int64] | None:
        n_samples, n_bytes = self.n_samples, self.source._remote_bytes()
        return blocks_of_rows(n_samples, n_bytes / n_samples) if n_bytes and n_samples else None

    def sample(self, position: int) -> Sample:
        return self.source._sample(position)

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        return list(samples_of(self.source._keys, self.source._read(self.source._keys, positions, stacked=False)))

    def batch(self, positions: IndexArrayOfInts) -> dict[str, npt.NDArray[Any]]:
        keys = self.source._keys
        return dict(zip(keys, self.source._read(keys, positions, stacked=True), strict=True))

    def columns(self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None) -> list[npt.NDArray[Any]]:
        reader = self.source
        for key in keys:
            if key not in reader._codecs:
                known = ", ".join(map(repr, reader._keys))
                raise ConfigError(f"a sample has no column {key!r:.80}{did_you_mean(key, reader._keys)}; it has {known}")
        names, places = [str(key) for key in keys], range(reader._length) if positions is None else positions
        return reader._read(names, places, stacked=True)

    def iterate(self, start: int, stop: int) -> Iterator[Sample]:
        return self.source._iterate(start, stop)

    def locate(self, position: int) -> str:
        return f"record {position} of {self.source._folder.name}"

    def declare_columns(self) -> dict[str, DeclaredColumn]:
        # Of others the first value tells more, such as the dtype of an array.
        return {name: DeclaredColumn(kind if kind.endswith("[]") else None) for name, kind in self.source.spec.items()}

    def content_fingerprint(self) -> dict[str, Any]:
        return self.source._files.content(self.source._keys)


def _reopen(
    reader_class: type[RecordReader], folder: Folder, options: dict[str, Any], length: int, manifest_sha256: str | None
) -> RecordReader:
    reader = reader_class(folder, **options)
    if reader._files.manifest_sha256 != manifest_sha256 or len(reader) < length:
        raise ResourceChangedError(
            folder.full_name(MANIFEST),
            f"{length} samples, sha256 {manifest_sha256}",
            f"{len(reader)} samples, sha256 {reader._files.manifest_sha256}",
        )
    reader._length = length
    return reader


def check_options(codecs: Codecs | None, columns: Any, mapped: bool) -> dict[str, Any]:
    """The options of a reader as they are kept, with the codecs of plugins, which a spawned process may not know.

    Raises:
        ConfigError: one is invalid.
    """
    provided = {kind: codec for kind, codec in find_provided_codecs().items() if kind not in registered_types()}
    return {
        "codecs": {**provided, **(codecs or {})} if provided else codecs,
        "columns": None if columns is None else _names_of(columns),
        "mapped": mapped,
    }


def _names_of(names: Any) -> list[str]:
    """Names of columns as a list; each is there once."""
    listed = None if isinstance(names, (str, bytes)) or not hasattr(names, "__iter__") else list(names)
    if listed is None or not all(isinstance(name, str) for name in listed) or len(set(listed)) != len(listed):
        raise ConfigError(f"columns are named by a list of strings, each once, not by {names!r:.80}")
    if not listed:
        raise ConfigError("at least one column is to be read")
    return listed


def _check_column(name: object, known: Collection[str]) -> None:
    """Refuse a column that is not there."""
    if name not in known:
        raise ConfigError(f"there is no column {name!r:.80}{did_you_mean(name, known)}; there are: {', '.join(known)}")
