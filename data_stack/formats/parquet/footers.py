"""Holds the footers of a dataset's files, each of which is read once."""

from __future__ import annotations

import dataclasses
import functools
import os
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from data_stack.exception import DatasetFileCorruptError, ResourceChangedError, StorageError
from data_stack.formats.parquet.arrow_errors import reading_parquet
from data_stack.formats.parquet.arrow_folder import ArrowFolder
from data_stack.formats.parquet.files import ParquetFiles
from data_stack.formats.parquet.footer import Footer, digest_of_tail, parse_footer, read_tail
from data_stack.formats.parquet.footer_facts import FooterFacts
from data_stack.formats.parquet.int96 import has_far_times, read_int96
from data_stack.formats.parquet.manifest import ParquetFileRecord, ParquetManifest
from data_stack.formats.parquet.metadata_files import MANIFEST_KEY, RECREATE, read_metadata
from data_stack.io.account import LeftOut
from data_stack.io.job_threads import JobThreads
from data_stack.io.resources import StreamedResource
from data_stack.io.versions import LocalVersion, is_same_version, local_version_of, version_of
from data_stack.util.executor import n_threads
from data_stack.util.forks import fork_lock

#: Threads that fetch footers from a remote store.
_MAX_THREADS: Final = 16
#: Key-value metadata that describe the file, and not the dataset.
_KEYS_OF_FILES: Final = (MANIFEST_KEY, b"ARROW:schema")
#: The rule that leaves out a column of some files.
LATER_COLUMN: Final = "a column that the first file, or the stored schema, lacks"
#: Time between two checks of a local file, in nanoseconds. Samples that are read one by one from
#: memory take 3.2 us without any check, 6.4 with one for each sample, and 5.6 with this interval. A
#: longer interval would be cheaper, but for longer after a file was replaced, its rows in memory
#: would be returned.
_CHECK_INTERVAL_NS: Final = 10_000
#: Held for the moment in which the version of a file is noted.
_NOTING_VERSION: Final = fork_lock()


@dataclasses.dataclass(slots=True)
class _FileState:
    """What is known of a file.

    Attributes:
        footer: None until it is read.
        digest: the digest of the footer, from the manifest or as it was first read; None until
            then.
        columns: values per row, from the manifest or the footer; None until then.
        version: the version of the file as it was first seen; None until then, and where the store
            has no versions.
        checked_ns: when :meth:`Footers.check_local` looked at it, by ``time.perf_counter_ns``,
            which may begin at 0; at first so long ago that the first check is made.
    """

    footer: Footer | None = None
    digest: bytes | None = None
    columns: Mapping[str, int | None] | None = None
    version: Any = None
    checked_ns: int = -_CHECK_INTERVAL_NS

    def for_another_process(self) -> _FileState:
        """Return a copy without the footer, which is read again, and without ``checked_ns``."""
        return _FileState(digest=self.digest, columns=self.columns, version=self.version)


@dataclasses.dataclass(frozen=True, slots=True)
class _Tail:
    """The end of a file as it was fetched, with the file's size and version."""

    data: bytes
    file_bytes: int
    version: Any


class Footers:
    """The footers of all files. Each footer is read once and kept. Threads may share the object.

    A file that changed is recognized by its version as it was first seen: size, times and inode of
    a local file; SHA-256, ETag or size and time of a file in a store. Where versions cannot be
    compared, it is recognized by the digest of its footer. The digest alone would not suffice:
    files with different rows may have the same footer.

    The pickle has the versions and the digests of the footers. After unpickling, a footer is read
    when it is needed. Reading raises if the footer has changed, or if the version has changed and
    the machine is the same.

    Args:
        files: the files of the dataset.
        lazily: read a footer on first use; row groups are known after :meth:`read_all`.
        verified: check footers against the digests in the dataset's manifest, except for files
            whose size has changed.

    Attributes:
        files: as given.
        file_of: the number of each row group's file, shape ``(n_row_groups,)``; row groups are in
            the order of the files.
        index_of: the number of each row group in its file, shape ``(n_row_groups,)``.
        n_rows: the number of rows of each row group, shape ``(n_row_groups,)``.

    Raises:
        DatasetFileCorruptError: a file is damaged, or not Parquet.
        StorageError: one cannot be read.
    """

    files: ParquetFiles
    file_of: npt.NDArray[np.int64]
    index_of: npt.NDArray[np.int64]
    n_rows: npt.NDArray[np.int64]

    #: Whether footers are compared with the manifest.
    _is_verified: bool

    #: What is known of each file.
    _states: list[_FileState]

    #: Number of row groups of each file; empty until :meth:`read_all`.
    _n_groups_of_files: Sequence[int]

    def __init__(self, files: ParquetFiles, *, lazily: bool = False, verified: bool = True) -> None:
        self.files = files
        self._is_verified = verified
        self._states = [_FileState() for _ in files.paths]
        self._set_row_groups([], np.empty(0, np.int64))
        if not lazily:
            self.read_all()

    def __len__(self) -> int:
        """Return the number of row groups."""
        return len(self.n_rows)

    def __getstate__(self) -> dict[str, Any]:
        return {
            "files": self.files,
            "is_verified": self._is_verified,
            "states": [state.for_another_process() for state in self._states],
            "n_groups_of_files": self._n_groups_of_files,
            "n_rows": self.n_rows,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.files = state["files"]
        self._is_verified = state["is_verified"]
        self._states = state["states"]
        self._set_row_groups(state["n_groups_of_files"], state["n_rows"])

    def _set_row_groups(
        self, n_groups_of_files: Sequence[int], n_rows: npt.NDArray[np.int64]
    ) -> None:
        """Set what is known of the row groups.

        Args:
            n_groups_of_files: number of row groups of each file.
            n_rows: number of rows of each row group.
        """
        self._n_groups_of_files = n_groups_of_files
        self.file_of = np.repeat(np.arange(len(n_groups_of_files)), n_groups_of_files)
        indexes = [np.empty(0, np.int64)]  # np.concatenate() needs one array
        for n_groups in n_groups_of_files:
            indexes.append(np.arange(n_groups))
        self.index_of = np.concatenate(indexes)
        self.n_rows = n_rows

    # ------------------------------------------------------------------ reading footers

    def read_all(self, *, trusting: bool = False) -> None:
        """Read all remaining footers; raises as :meth:`of`.

        Args:
            trusting: take the row groups of files from the manifest, if it lists them; such a
                footer is compared with the manifest when it is read.
        """
        files = range(self.files.n_files)
        trusted: dict[int, ParquetFileRecord] = {}
        if trusting:
            for file in files:
                record = self._note_record(file)
                if record is not None:
                    trusted[file] = record
        unread = [file for file in files if not self.is_read(file)]
        self._read_footers([file for file in unread if file not in trusted])

        n_groups_of_files: list[int] = []
        n_rows: list[int] = []
        for file in files:
            if file in trusted:
                n_rows_of_file = list(trusted[file].row_groups)
            else:
                n_rows_of_file = self.facts(file).n_rows.tolist()
            n_groups_of_files.append(len(n_rows_of_file))
            n_rows.extend(n_rows_of_file)
        self._set_row_groups(n_groups_of_files, np.array(n_rows, np.int64))

    def _note_record(self, file: int) -> ParquetFileRecord | None:
        """Note what the manifest says of a file: digest of the footer and columns.

        The version of a local file is noted, too, if none is known.

        Returns:
            The record; None if the manifest does not list the file, or if a local file has another
            size. Nothing is noted then.
        """
        record = self._record(file)
        if record is None:
            return None
        state = self._states[file]
        # Another tool may have replaced a local file. In a store, each check would be a request.
        if self._is_local:
            try:
                version = LocalVersion.of(os.stat(self.files.name(file)))
            except OSError:  # raised again when the file is read
                return None
            if version.size != record.size:
                return None
            if state.version is None:
                state.version = version
        state.digest = bytes.fromhex(record.footer_sha256)
        state.columns = record.columns
        return record

    def _read_footers(self, files: Sequence[int]) -> None:
        """Read the footers of some files.

        The ends of the files are fetched by several threads. One thread parses them, because
        parsing holds the GIL.
        """
        tails: dict[int, _Tail] = {}

        def fetch(file: int) -> None:
            tails[file] = self._fetch(file)

        if len(files) > 1:
            n_fetching = n_threads() if self._is_local else _MAX_THREADS
            JobThreads(files, fetch, n_fetching).run()
        for file in files:
            tail = tails.pop(file, None)  # its memory is released before the next one is parsed
            if tail is None:  # a single file, fetched without threads
                tail = self._fetch(file)
            self._parse_and_check(file, tail)

    @property
    def _is_local(self) -> bool:
        return self.files.is_local

    def _footer(self, file: int) -> Footer:
        """Return the checked footer of a file, which is read on first use."""
        footer = self._states[file].footer
        if footer is not None:
            return footer
        return self._parse_and_check(file, self._fetch(file))

    def _fetch(self, file: int) -> _Tail:
        """Read the end of a file, which has the footer."""
        name = self.files.name(file)
        with reading_parquet(name), self.files.open(file) as source:
            version = self.files.version(file, source)
            data = read_tail(source, name)
            return _Tail(data=data, file_bytes=source.size(), version=version)

    def _parse_and_check(self, file: int, tail: _Tail) -> Footer:
        """Parse a footer, and compare it with what is known of the file."""
        state = self._states[file]
        digest = digest_of_tail(tail.data)
        record = self._record(file)
        if record is not None:
            self._check_record(file, record, digest, tail.file_bytes)
        self._check_digest(file, digest)
        with reading_parquet(self.files.name(file)):
            footer = parse_footer(tail.data, tail.file_bytes)
            self._check_facts(file, footer.facts)
        is_certain = self._note_version(file, tail.version)
        if not is_certain:
            # Versions that cannot be compared, such as of two machines: the digests are the same.
            state.version = tail.version
        state.footer = footer
        state.digest = digest
        return footer

    def _record(self, file: int) -> ParquetFileRecord | None:
        """Return the manifest's record of a file; None if there is none to compare with."""
        if not self._is_verified or self.manifest is None:
            return None
        return self.manifest.by_name.get(self.files.paths[file])

    def _check_record(
        self, file: int, record: ParquetFileRecord, digest: bytes, file_bytes: int
    ) -> None:
        """Compare a footer with the manifest's record of its file.

        Raises:
            DatasetFileCorruptError: the footer is another one, in a file of the same size; or it
                is the same, in a file of another size.
        """
        name = self.files.name(file)
        known_digest = self._states[file].digest
        is_same = record.footer_sha256 == digest.hex()
        has_same_size = record.size == file_bytes
        if is_same and not has_same_size:
            # No tool changes the size and keeps the footer: the footer has the offsets of the rows.
            raise DatasetFileCorruptError(
                f"{name} is damaged: it has {file_bytes:,} bytes, not {record.size:,}"
            )
        if is_same or known_digest == digest:
            return
        # It is no error if another tool replaced the file after the manifest was written: then the
        # size differs, too, and no other footer is known.
        if known_digest is not None or has_same_size:
            raise DatasetFileCorruptError(
                f"the footer of {name} is damaged, or of another tool. {RECREATE}"
            )

    def _check_digest(self, file: int, digest: bytes) -> None:
        """Raise ResourceChangedError if a file had a footer with another digest."""
        known_digest = self._states[file].digest
        if known_digest is not None and known_digest != digest:
            raise ResourceChangedError(
                self.files.name(file),
                f"a footer {known_digest.hex()[:16]}…",
                f"{digest.hex()[:16]}…",
            )

    def _check_facts(self, file: int, facts: FooterFacts) -> None:
        """Compare a footer with the row groups and columns that the manifest stated.

        Raises:
            ValueError: they differ.
        """
        if self._n_groups_of_files:
            start, stop = self.file_of.searchsorted([file, file + 1])
            if self.n_rows[start:stop].tolist() != facts.n_rows.tolist():
                raise ValueError("its row groups differ from those in the manifest")
        columns = self._states[file].columns
        if columns is not None and columns != facts.values_per_row():
            raise ValueError("its columns differ from those in the manifest")

    # ------------------------------------------------------------------ one file

    def of(self, file: int) -> pq.FileMetaData:
        """Return the footer of a file.

        Raises:
            DatasetFileCorruptError: the file is damaged, or not Parquet.
            ResourceChangedError: the file changed after the dataset was opened.
            StorageError: it cannot be read.
        """
        return self._footer(file).metadata

    def facts(self, file: int) -> FooterFacts:
        """Return the checked footer of a file; raises as :meth:`of`."""
        return self._footer(file).facts

    def digest(self, file: int) -> str:
        """Return the SHA-256 of the end of a file (footer, its length, magic), as 64 hex digits.

        Raises as :meth:`of`.
        """
        return self._footer(file).digest.hex()

    def size(self, file: int) -> int:
        """Return the size of a file in bytes; raises as :meth:`of`."""
        return self._footer(file).file_bytes

    def is_read(self, file: int) -> bool:
        """Whether the footer of a file has been read."""
        return self._states[file].footer is not None

    def columns(self, file: int) -> Mapping[str, int | None]:
        """Return the columns of a file, with the values per row; raises as :meth:`of`.

        See :meth:`FooterFacts.values_per_row`. Consecutive files with the same columns share one
        object.
        """
        state = self._states[file]
        if state.columns is not None:
            return state.columns
        columns: Mapping[str, int | None] = self.facts(file).values_per_row()
        if file > 0:
            columns_of_previous = self._states[file - 1].columns
            if columns_of_previous is not None and columns == columns_of_previous:
                columns = columns_of_previous
        state.columns = columns
        return columns

    def columns_left_out(self, names: Collection[str]) -> list[LeftOut]:
        """Return the columns of files that a dataset does not have.

        Each is listed once, with the first file that has it.

        Args:
            names: the columns of the dataset.
        """
        left_out: dict[str, LeftOut] = {}
        columns_of_previous: Mapping[str, int | None] | None = None
        for file, path in enumerate(self.files.paths):
            columns = self.columns(file)
            if columns is columns_of_previous:  # as in most datasets
                continue
            columns_of_previous = columns
            unknown = [column for column in columns if column not in names]
            if unknown:
                # The columns may be the manifest's: this raises if those of the footer differ.
                self.of(file)
            for column in unknown:
                left_out.setdefault(column, LeftOut(f"{path}, column {column}", LATER_COLUMN))
        return list(left_out.values())

    def name_of(self, group: int) -> str:
        """Return the name of a row group in messages."""
        return f"row group {self.index_of[group]} of {self.files.name(int(self.file_of[group]))}"

    def names_of_far_times(self, file: int, names: Sequence[str]) -> list[str]:
        """Return which columns of INT96 have times outside of the range of int64 nanoseconds.

        Only the first row group that has rows is read.

        Args:
            file: number of the file.
            names: the names of columns of INT96.

        Raises:
            DatasetFileCorruptError, StorageError: the row group cannot be read.
        """
        facts = self.facts(file)
        groups_with_rows = np.flatnonzero(facts.n_rows)
        if not len(groups_with_rows):
            return []
        index = int(groups_with_rows[0])
        leaves: list[int] = []
        for name in names:
            leaves.extend(facts.columns[name])
        with reading_parquet(self.files.name(file)), self.files.open(file) as source:
            self.check_unchanged(file, source)
            nanoseconds = read_int96(source, self.of(file), index, leaves, "ns")
            seconds = read_int96(source, self.of(file), index, leaves, "s")
        return [
            name for name in names if has_far_times(nanoseconds.column(name), seconds.column(name))
        ]

    # ------------------------------------------------------------------ files that change

    def check_unchanged(self, file: int, source: Any) -> None:
        """Raise if an open file is not the one that was seen first.

        Otherwise, rows of two files would be mixed.

        Args:
            file: number of the file.
            source: the file, open for pyarrow.

        Raises:
            ResourceChangedError: it was replaced or changed.
        """
        name = self.files.name(file)
        file_bytes = self.size(file)
        if file_bytes != source.size():
            raise ResourceChangedError(name, f"{file_bytes} bytes", f"{source.size()} bytes")
        version = self.files.version(file, source)
        is_certain = self._note_version(file, version)
        if not is_certain:
            self._check_digest(file, digest_of_tail(read_tail(source, name)))
            self._states[file].version = version

    def check_local(self, file: int) -> None:
        """Raise if a local file is not the one that was seen first.

        It is called before cached rows are returned, takes about 3 microseconds, and does nothing
        for a file in a store. A file that was removed is no error: its cached rows are not mixed
        with others.

        Raises:
            ResourceChangedError: the file was replaced or changed.
            StorageError: the operating system cannot look at the file.
        """
        state = self._states[file]
        version = state.version
        if type(version) is not LocalVersion:  # faster than isinstance()
            return
        now_ns = time.perf_counter_ns()
        if now_ns - state.checked_ns < _CHECK_INTERVAL_NS:
            return
        state.checked_ns = now_ns
        path = self._names[file]
        try:
            status = os.stat(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StorageError(
                f"could not read {path!r}: {os.strerror(error.errno or 0)}", error.errno
            ) from error
        if version.is_of(status) or self._note_version(file, LocalVersion.of(status)):
            return
        with reading_parquet(path), self.files.open(file) as source:
            self.check_unchanged(file, source)

    @functools.cached_property
    def _names(self) -> list[str]:
        """The names of all files. Making a name takes longer than looking at the file."""
        return [self.files.name(file) for file in range(self.files.n_files)]

    def open_unchanged(self, file: int) -> StreamedResource:
        """Open a file as a resource, of which all bytes may be read. The caller closes it.

        Raises:
            ResourceChangedError: it is not the file that was seen first.
            ResourceNotFoundError, StorageError: it cannot be opened.
        """
        folder = self.files.folder
        resource = folder.open(self.files.paths[file])
        try:
            is_certain = False  # whether the resource is the file that was seen first
            if not isinstance(folder, ArrowFolder):
                is_certain = self._note_version(file, self._version_of_resource(resource))
            if not is_certain:
                with self.files.open(file) as source:
                    self.check_unchanged(file, source)
        except BaseException:
            resource.close()
            raise
        return resource

    def _version_of_resource(self, resource: StreamedResource) -> Any:
        """Return the version of a resource, as :meth:`ParquetFiles.version` of an open file."""
        if self._is_local:
            return local_version_of(resource)
        return version_of(resource)

    def _note_version(self, file: int, version: Any) -> bool:
        """Note the version of a file when it is first seen.

        Returns:
            Whether the file is certainly the one that was seen before. False if it was not seen
            before, or if the versions cannot be compared: compare the digests then.

        Raises:
            ResourceChangedError: it is another file.
        """
        state = self._states[file]
        # Of two threads that see two versions of one file, the second one must notice that.
        with _NOTING_VERSION:
            if state.version is None:
                state.version = version
                return False
        is_same = is_same_version(state.version, version)  # None: uncertain
        if is_same is False:
            raise ResourceChangedError(self.files.name(file), str(state.version), str(version))
        return is_same is True

    # ------------------------------------------------------------------ the whole dataset

    @functools.cached_property
    def beside(self) -> pa.Schema | None:
        """Schema and key-value metadata from the metadata files; None without such files.

        Raises:
            DatasetFileCorruptError: one is damaged.
        """
        return read_metadata(self.files.folder, self.files.beside)

    @functools.cached_property
    def manifest(self) -> ParquetManifest | None:
        """The manifest of the dataset; None without one.

        Raises:
            DatasetFileCorruptError: it is damaged, or of another version.
        """
        return ParquetManifest.in_metadata(self.beside, self.files.folder, self.files.beside)

    @property
    def metadata(self) -> dict[bytes, bytes]:
        """The key-value metadata of the dataset: of its metadata files, else of the first file."""
        stored: Mapping[bytes, bytes] | None = None
        if self.beside is not None:
            stored = self.beside.metadata
        elif self.files.paths:
            stored = self.of(0).metadata
        if stored is None:
            return {}
        return {key: value for key, value in stored.items() if key not in _KEYS_OF_FILES}

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns of the first file, those of INT96 in nanoseconds.

        A dataset without files has the columns of its metadata files.
        """
        if self.files.paths:
            with reading_parquet(self.files.name(0)):
                return self.of(0).schema.to_arrow_schema()
        if self.beside is not None:
            return self.beside
        return pa.schema([])

    @property
    def time_zones(self) -> dict[str, str]:
        """The time zones of the columns of instants, by name, from the first file."""
        zones = {}
        for field in self.arrow_schema:
            if pa.types.is_timestamp(field.type) and field.type.tz is not None:
                zones[field.name] = field.type.tz
        return zones
