"""Reads the samples of a record dataset."""

from __future__ import annotations

import contextlib
import functools
import sys
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import Codec, Codecs, Column
from data_stack.codecs.registry import codec_of, with_provided_codecs
from data_stack.dataset.iterator import Batch, ColumnKey, Sample, SampleAccess
from data_stack.dataset.iterator.access import DeclaredColumn
from data_stack.dataset.positions import IndexArrayOfInts, check_index
from data_stack.exception import (
    ConfigError,
    DatasetFileCorruptError,
    RequestLimitError,
    ResourceChangedError,
    StorageError,
)
from data_stack.formats.records.bag import Places, SampleReferences, as_places
from data_stack.formats.records.columns import (
    RaggedColumn,
    ValueColumn,
    samples_of,
    sequences_of,
    stack_sequences,
)
from data_stack.formats.records.layout import MAX_RECORDS, REFS, names_of
from data_stack.formats.records.manifest import MANIFEST, RecordsManifest
from data_stack.formats.records.partial_reads import Mask, RecordsIterator
from data_stack.formats.records.record_files import RecordFiles
from data_stack.formats.remote import RemoteAccess
from data_stack.io.folder import Folder, folder_of
from data_stack.io.local_files import most_open_files
from data_stack.util.executor import n_threads_here
from data_stack.util.forks import fork_lock
from data_stack.util.request_limit import current_request, decoding_for
from data_stack.util.suggestions import did_you_mean
from data_stack.values.stacking import all_columns

#: Size of the blocks that an iteration reads: in bytes, in bytes if threads decode the records, and in samples.
_BLOCK_BYTES = 1 << 20
_DECODED_BYTES = 4 << 20
_MAX_IN_BLOCK = 1024

_Integers = npt.NDArray[np.int64]


class RecordReader(RecordsIterator):
    """The samples of a record dataset: dicts with a value per column.

    ::

        with RecordReader("train") as reader:
            reader[17]["image"]                          # one sample
            reader.read_batch([3, 1, 4])["image"]        # columns, stacked; one request
            reader[17, ["label"]]                        # only these columns
            reader[17, {"frames": range(32, 42)}]        # part of a sequence; one request
            reader.split({"train": 0.8, "val": 0.2})     # as any iterator

    The reader reads datasets of :class:`RecordWriter` and of Granular 0.8 to 0.24. Values are copies; arrays of one request or
    iteration may share memory.

    If there is a manifest, each process compares each block of 64 KiB with its checksum on the first read. Without a manifest
    (Granular writes none), all columns must have the same number of samples, and the reader checks sizes, offsets and headers.
    If Granular appended to a finished dataset, its own samples are read as without a manifest, and the log says so once;
    :func:`~data_stack.formats.records.seal` renews the manifest. The length stays what it was on opening, also while a writer
    appends.

    If a codec releases the GIL, requests for several samples are decoded in one thread per processor; worker processes use one
    thread. Local files are memory-mapped; pass ``mapped=False`` for files that another program may truncate, or on an unreliable
    network file system.

    Threads may share a reader, forked children may use it, and it pickles as its folder and options.

    Args:
        source: folder, storage connector, URL, or resources of a dataset; see :func:`~data_stack.io.folder.folder_of`.
        prefix: folder below ``source``.
        codecs: custom codecs by type, which take precedence over built-in ones; None as a codec returns the raw bytes.
        columns: names of the columns to read, in this order; None for all, sorted by name. Other columns are not opened.
        mapped: map files into memory.

    Raises:
        ResourceNotFoundError: there is no record dataset.
        DatasetFileCorruptError: the dataset is damaged or incomplete, as far as that shows without reading records.
        ConfigError: a column or codec does not exist.
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
        options: dict[str, Any] = {"codecs": codecs, "mapped": mapped}
        options["columns"] = None if columns is None else names_of(columns)
        self._options, self._files = options, RecordFiles(self._folder, mapped=mapped)
        types = self._files.types
        self._keys = list(types) if columns is None else options["columns"]
        # Its pickle keeps the codecs of plugins, which a spawned process may not know.
        options["codecs"] = with_provided_codecs(
            (types[name] for name in self._keys if name in types), codecs
        )
        self._codecs: dict[str, Codec] = {}
        for name in self._keys:
            _check_column(name, types)
            try:
                self._codecs[name] = codec_of(types[name], options["codecs"])
            except ConfigError as error:
                raise ConfigError(f"column {name!r} of {self._folder.name}: {error}") from error
        #: How many columns count towards the limit of a request.
        self._n_counted = sum(codec.is_compressed for codec in self._codecs.values())
        self._decodes_in_threads = any(codec.releases_gil for codec in self._codecs.values())
        self._closed = False
        #: The readers that have open files, of those that share a limit.
        self._siblings = weakref.WeakSet[RecordReader]()
        self._opened: dict[str, ValueColumn] = {}
        self._opening: dict[str, Any] = {}  # locks
        self._sequences = frozenset(name for name, kind in types.items() if kind.endswith("[]"))
        manifest, references = self._files.manifest, self._files.references()
        if manifest is not None and manifest.count > MAX_RECORDS:
            raise DatasetFileCorruptError(
                f"{self._folder.full_name(MANIFEST)} claims {manifest.count:,} samples"
            )
        if manifest is not None and references is not None and len(references) < manifest.count:
            raise DatasetFileCorruptError(
                f"{self._folder.name}: {REFS}.bag misses samples of {MANIFEST}: {manifest.count:,}"
            )
        self._references: SampleReferences | None = references
        self._length = self._files.count_samples(references) if manifest is None else manifest.count
        if references is not None and not references.is_remote:
            references.release()  # of hundreds of shards, only those that are read have files open
        self._n_stored = (
            self._length
        )  # a pickled reader keeps its length if samples are appended later

    # ------------------------------------------------------------------ description

    def make_access(self) -> SampleAccess:
        return RecordAccess(self)

    def __len__(self) -> int:
        return self._length

    @property
    def spec(self) -> dict[str, str]:
        """The types of the columns to read, by name, as in Granular's ``spec.json``."""
        return {name: self._files.types[name] for name in self._keys}

    @property
    def schema(self) -> dict[str, Column]:
        """Type, dtype and shape of each column to read; dtype and shape are None without a manifest."""
        return {name: self._files.schema[name] for name in self._keys}

    @property
    def manifest(self) -> RecordsManifest | None:
        """The manifest of the dataset; None if it has none, or does not cover all samples."""
        return self._files.manifest

    @property
    def size(self) -> int:
        """Size of all columns and their indexes in bytes."""
        return self._files.n_bytes

    def available(self, index: int) -> dict[str, bool | range]:
        """What a sample has: True for a value, the range of positions for a sequence. No value is read.

        Raises:
            DatasetOutOfBoundsError: ``index`` is out of bounds.
        """
        entries = self._entries(np.array([check_index(index, self._length)]), self._keys)
        return {
            name: range(entries[name][1].item()) if name in self._sequences else True
            for name in self._keys
        }

    # ------------------------------------------------------------------ one sample

    def __getitem__(self, index: Any) -> Any:
        """A sample for an integer; a view for a slice, list or mask; part of a sample for ``index, columns_or_mask``."""
        if type(index) is int and 0 <= index < self._length:
            return self._sample(index)
        return super().__getitem__(index)

    def read(self, index: int, columns: Iterable[str] | Mask | None = None) -> Sample:
        """Read part of a sample.

        Args:
            index: position of the sample.
            columns: names of columns; or a mapping from names to True, False (leave it out), or, for a column of sequences, a
                range or slice, which may extend beyond the sequence. None for all.

        Raises:
            DatasetOutOfBoundsError: ``index`` is out of bounds.
            ConfigError: a column does not exist, or has no such part.
        """
        position = check_index(index, self._length)
        if not isinstance(columns, Mapping):
            columns = dict.fromkeys(self._keys if columns is None else names_of(columns), True)
        for name, part in columns.items():
            _check_column(name, self._codecs)
            if not isinstance(part, (bool, np.bool_, range, slice)) or (
                name not in self._sequences and hasattr(part, "start")
            ):
                raise ConfigError(
                    f"column {name!r} takes True, False, or a range if it holds sequences, got {part!r:.80}"
                )
        wanted = {name: part for name, part in columns.items() if hasattr(part, "start") or part}
        entries, sample = self._entries(np.array([position]), list(wanted)), {}
        with decoding_for(current_request()):
            for name, part in wanted.items():
                if name in self._sequences:
                    (first,), (count,) = entries[name]
                    some = (
                        slice(part.start, part.stop, part.step)
                        if isinstance(part, (range, slice))
                        else slice(None)
                    )
                    places = np.arange(first, first + count)[some]
                    sample[name] = self._column(name).values(places) if len(places) else []
                else:
                    sample[name] = self._column(name).value(
                        entries[name][0].item() if entries else position
                    )
        return sample

    def _sample(self, position: int) -> Sample:
        if self._references is not None or self._n_counted > 1:
            return next(
                samples_of(
                    self._keys, self._read(self._keys, range(position, position + 1), stacked=False)
                )
            )
        opened = self._opened
        return {
            name: (opened[name] if name in opened else self._column(name)).value(position)
            for name in self._keys
        }

    # ------------------------------------------------------------------ many samples

    def _read(
        self, names: Sequence[str], positions: range | IndexArrayOfInts, *, stacked: bool
    ) -> list[Any]:
        """Columns of some samples: stacked, or as lists of values."""
        with decoding_for(current_request()) if self._n_counted else contextlib.nullcontext():
            return self._read_places(names, as_places(positions), stacked)

    def _read_places(self, names: Sequence[str], places: Places, stacked: bool) -> list[Any]:
        if self._references is None:
            columns = [self._column(name) for name in names]
            return [column.read(places) if stacked else column.values(places) for column in columns]
        found: list[Any] = []
        for name, (firsts, counts) in self._entries(np.asarray(places, np.int64), names).items():
            column = self._column(name)
            if name in self._sequences:
                read = stack_sequences if stacked else sequences_of
                found.append(read(column, firsts, counts))
            else:
                found.append(column.read(firsts) if stacked else column.values(firsts))
        return found

    def _entries(
        self, positions: _Integers, names: Sequence[str]
    ) -> dict[str, tuple[_Integers, _Integers]]:
        """By column, first record and number of records of each sample; empty without columns, or if sample i has record i."""
        if self._references is None or not names:
            return {}
        entries = self._references.many(positions)
        for name in names:
            self._references.check(name, len(self._column(name)), positions, *entries[name])
        return {name: entries[name] for name in names}

    def _arguments(self) -> dict[str, Any]:
        return {"columns": self._keys, "codecs": self._options["codecs"]}

    # ------------------------------------------------------------------ verification, end

    def verify(self) -> None:
        """Compare all files with the manifest, also of columns that are not read; if it does not cover all, decode each record.

        Raises:
            DatasetFileCorruptError: a file is damaged; the error names the first damage.
        """
        self._files.verify()
        if self._files.manifest is None:
            with type(self)(self._folder, **{**self._options, "columns": None}) as whole:
                for _ in whole:
                    pass

    def release(self) -> None:
        """Close all files until they are needed again; reads of other threads finish first."""
        self._opened = {}
        self._siblings.discard(self)
        if self._references is not None:
            self._references.release()

    def close(self) -> None:
        """Close all files; reads fail afterwards."""
        self._closed = True
        opened = list(self._opened.values())
        self.release()
        for column in opened:
            column.bag.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (
            type(self),
            self._folder,
            self._options,
            self._length,
            self._files.manifest_sha256,
        )

    # ------------------------------------------------------------------ inside

    def _column(self, name: str) -> ValueColumn:
        column = self._opened.get(name)
        if column is None:
            if self._closed:
                raise StorageError(
                    f"the reader of {self._folder.name!r} is closed; open the dataset again"
                )
            if self not in self._siblings:
                if len(self._siblings) >= most_open_files() // (2 * len(self._keys) + 1):
                    for each in list(self._siblings):
                        each.release()
                self._siblings.add(self)
            with self._opening.setdefault(
                name, fork_lock()
            ):  # of two threads, one fetches the index
                opened = self._opened
                if (column := opened.get(name)) is None:
                    n_records = None if self._files.has_references else self._n_stored
                    column = opened[name] = self._files.column(name, self._codecs[name], n_records)
        return column


class RecordAccess(RemoteAccess):
    """Access to records."""

    source: RecordReader

    n_samples = property(attrgetter("source._length"))

    @property
    def fixed_columns(self) -> bool:  # type: ignore[override]  # read-only here
        reader = self.source
        return reader._sequences.isdisjoint(reader._keys) and all(
            reader._column(name).is_fixed for name in reader._keys
        )

    @property
    def releases_gil(self) -> bool:  # type: ignore[override]  # read-only here
        return self.source._decodes_in_threads or super().releases_gil

    @property
    def n_at_once(self) -> int:  # type: ignore[override]  # read-only here
        reader = self.source
        if not reader._decodes_in_threads or self.remote_bytes():
            return sys.maxsize
        return max(1, _DECODED_BYTES * n_threads_here() // self._sample_bytes())

    def _sample_bytes(self) -> int:
        """About how much a decoded sample takes; at least 1."""
        columns, n_samples = (
            map(self.source._column, self.source._keys),
            max(1, self.source._length),
        )
        return max(1, sum(column.row_bytes * -(-len(column) // n_samples) for column in columns))

    def remote_bytes(self) -> float:
        files, keys = self.source._files, self.source._keys
        return (
            sum(map(files.n_bytes_of, keys)) / max(1, self.n_samples)
            if files.is_remote(keys)
            else 0
        )

    def fetches(
        self, places: Places, keys: Sequence[ColumnKey] | None = None
    ) -> list[Callable[[], object]]:
        reader = self.source
        names = [
            str(key)
            for key in keys or reader._keys
            if key in reader._codecs and reader._references is None
        ]
        return [
            functools.partial(lambda name: reader._column(name).bag.fetch(places), name)
            for name in names
        ]

    def sample(self, position: int) -> Sample:
        return self.source._sample(position)

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        self.await_prefetched(positions)
        return list(
            samples_of(
                self.source._keys, self.source._read(self.source._keys, positions, stacked=False)
            )
        )

    def batch(self, positions: IndexArrayOfInts) -> dict[str, npt.NDArray[Any]]:
        self.await_prefetched(positions)
        return dict(
            zip(
                self.source._keys,
                self.source._read(self.source._keys, positions, stacked=True),
                strict=True,
            )
        )

    def columns(
        self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None
    ) -> list[npt.NDArray[Any]]:
        reader = self.source
        for key in keys:
            _check_column(key, reader._codecs)
        return reader._read(
            [str(key) for key in keys],
            range(reader._length) if positions is None else positions,
            stacked=True,
        )

    def iterate_column(self, key: ColumnKey, positions: IndexArrayOfInts) -> Iterator[Any] | None:
        reader = self.source
        is_alone = key in reader._keys and reader._references is None and n_threads_here() == 1
        column = (
            reader._column(str(key)) if is_alone and reader._codecs[str(key)].releases_gil else None
        )
        return (
            column.each(np.asarray(positions, np.int64))
            if isinstance(column, RaggedColumn)
            else None
        )

    def runs(
        self, starts: IndexArrayOfInts, length: int, keys: Sequence[ColumnKey] | None = None
    ) -> Batch | None:
        reader = self.source
        for key in keys or ():
            _check_column(key, reader._codecs)
        if reader._references is not None:
            return None
        names = reader._keys if keys is None else [str(key) for key in keys]
        columns, first = [reader._column(name) for name in names], np.asarray(starts, np.int64)
        found = all_columns(column.runs(first, length) for column in columns)
        return found if found is None or keys is not None else dict(zip(names, found, strict=True))

    def iterate(self, start: int, stop: int) -> Iterator[Sample]:
        reader, keys = self.source, self.source._keys
        limit = _DECODED_BYTES if reader._decodes_in_threads else _BLOCK_BYTES
        at_once = min(max(1, limit // self._sample_bytes()), _MAX_IN_BLOCK)
        for first in range(start, stop, at_once):
            places = range(first, min(first + at_once, stop))
            try:
                values = reader._read(keys, places, stacked=False)
            except (
                DatasetFileCorruptError,
                RequestLimitError,
            ):  # samples before the damage are intact; each may fit alone
                for position in places:
                    yield reader[position]
            else:
                yield from samples_of(keys, values)

    def locate(self, position: int) -> str:
        return f"record {position} of {self.source._folder.name}"

    def declare_columns(self) -> dict[str, DeclaredColumn]:
        # For other columns the first value says more, such as the dtype of an array.
        return {
            name: DeclaredColumn(kind if kind.endswith("[]") else None)
            for name, kind in self.source.spec.items()
        }

    def content_fingerprint(self) -> dict[str, Any]:
        return self.source._files.content(self.source._keys)


def _reopen(
    reader_class: type[RecordReader],
    folder: Folder,
    options: dict[str, Any],
    length: int,
    manifest_sha256: str | None,
) -> RecordReader:
    reader = reader_class(folder, **options)
    if reader._files.manifest_sha256 != manifest_sha256 or len(reader) < length:
        before, now = (
            f"{length} samples, sha256 {manifest_sha256}",
            f"{len(reader)}, sha256 {reader._files.manifest_sha256}",
        )
        raise ResourceChangedError(folder.full_name(MANIFEST), before, now)
    reader._length = length
    return reader


def _check_column(name: object, known: Collection[str]) -> None:
    """Check that a column exists.

    Raises:
        ConfigError: it does not.
    """
    if name not in known:
        raise ConfigError(
            f"unknown column {name!r:.80}{did_you_mean(name, known)}; the columns are {', '.join(known)}"
        )
