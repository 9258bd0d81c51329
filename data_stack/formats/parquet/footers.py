"""Reads the footers of a dataset's files: row groups, statistics, metadata."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import json
import os
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from data_stack.exception import DatasetFileCorruptError, ResourceChangedError, StorageError
from data_stack.formats.parquet.files import ArrowFolder, ParquetFiles
from data_stack.formats.parquet.footer_facts import FooterFacts, footer_facts
from data_stack.formats.parquet.int96 import has_far_times, read_int96
from data_stack.formats.parquet.metadata import (
    MANIFEST_KEY,
    RECREATE,
    ParquetFileRecord,
    ParquetManifest,
    read_metadata,
    reading_parquet,
)
from data_stack.io.account import LeftOut
from data_stack.io.content import contents_of_resources
from data_stack.io.job_threads import JobThreads
from data_stack.io.resources import StreamedResource
from data_stack.io.stand_ins import HEAD_BYTES, check_no_stand_in
from data_stack.io.versions import LocalVersion, is_same_version, local_version_of, version_of
from data_stack.util.executor import n_threads

#: Threads that fetch footers from a remote store.
_MAX_THREADS = 16
#: Bytes read from the end of a file; most footers are shorter.
_TAIL_BYTES = 1 << 16
_MAGIC = b"PAR1"
#: The rule that leaves out a column of some files.
LATER_COLUMN = "a column that the first file, or the stored schema, lacks"
#: A local file that was checked so recently, in nanoseconds, is not checked again. Samples that are read one by one from memory
#: take 3.2 us without any check, 6.4 with one for each sample, and 5.6 with this limit. A longer one would be cheaper, and
#: would hand out rows in memory for longer after their file was replaced.
_FRESH_NS = 10_000


class _Footer(NamedTuple):
    """The footer of a file.

    Attributes:
        metadata: the footer, parsed by pyarrow.
        facts: the same, checked.
        digest: SHA-256 of the end of the file.
        file_bytes: size of the file.
    """

    metadata: pq.FileMetaData
    facts: FooterFacts
    digest: bytes
    file_bytes: int


class Footers:
    """The footers of all files. Each is read once and kept. Threads may share it.

    Each file is known by its version as it was first seen (size, times and inode of a local file; SHA-256, ETag or size and time
    of one in a store), and by its footer, which is the same in some files with other rows.

    It pickles with the versions and the digests of the footers. After unpickling, it reads a footer when it is needed, and raises
    if the footer has changed, or on the same machine the version.

    Args:
        files: of the dataset.
        lazily: read a footer on first use; row groups are known after :meth:`read_all`.
        verified: check footers against the digests in the dataset's manifest, except for files whose size has changed.

    Attributes:
        file_of: the file of each row group, shape ``(n_row_groups,)``; row groups are in the order of the files.
        index_of: the number of each row group in its file.
        n_rows: the rows of each row group.

    Raises:
        DatasetFileCorruptError: a file is damaged, or not Parquet.
        StorageError: one cannot be read.
    """

    def __init__(self, files: ParquetFiles, *, lazily: bool = False, verified: bool = True) -> None:
        self.files, self._is_verified = files, verified
        self._footers: list[_Footer | None] = [None] * len(files.paths)
        self._digests: list[bytes | None] = [None] * len(files.paths)
        self._columns: list[Mapping[str, int | None] | None] = [None] * len(files.paths)
        #: The version of each file as it was first seen; None until then, and where the store has no versions.
        self._versions: list[Any] = [None] * len(files.paths)
        self._set_row_groups([], np.empty(0, np.int64))
        if not lazily:
            self.read_all()

    def read_all(self, *, trusting: bool = False) -> None:
        """Read all remaining footers; raises as :meth:`of`.

        Args:
            trusting: take the row groups of files from the manifest, if it lists them; such a footer is compared with the
                manifest when it is read.
        """
        files, is_local = range(len(self.files.paths)), self.files.folder.path is not None
        known: dict[int, ParquetFileRecord] = {}
        for file in files if trusting else ():
            record = self._record(file)
            with contextlib.suppress(OSError):  # raised again when the file is read
                if record is None:
                    continue
                # another tool may have replaced it; in a store, each check would be a request
                if is_local:
                    version = LocalVersion.of(os.stat(self.files.name(file)))
                    if version.size != record.size:
                        continue
                    self._versions[file] = self._versions[file] or version
                known[file] = record
                self._digests[file] = bytes.fromhex(record.footer_sha256)
                self._columns[file] = record.columns
        missing = [file for file in files if not self.is_read(file) and file not in known]
        fetched: dict[int, tuple[bytes, int, Any]] = {}

        def fetch(file: int) -> None:
            fetched[file] = self._fetch(file)

        if len(missing) > 1:
            JobThreads(missing, fetch, n_threads() if is_local else _MAX_THREADS).run()
        for file in missing:  # in one thread: parsing holds the GIL
            self._parse_and_check(file, *(fetched.pop(file, None) or self._fetch(file)))
        n_rows = [
            known[file].row_groups if file in known else self.facts(file).n_rows for file in files
        ]
        self._set_row_groups(
            [len(each) for each in n_rows], np.fromiter(itertools.chain(*n_rows), np.int64)
        )

    def _set_row_groups(self, counts: Sequence[int], n_rows: npt.NDArray[np.int64]) -> None:
        self._counts = counts
        self.file_of: npt.NDArray[np.int64] = np.repeat(np.arange(len(counts)), counts)
        self.index_of: npt.NDArray[np.int64] = np.concatenate(
            [np.empty(0, np.int64), *map(np.arange, counts)]
        )
        self.n_rows: npt.NDArray[np.int64] = n_rows

    def __len__(self) -> int:
        """Number of row groups."""
        return len(self.n_rows)

    def of(self, file: int) -> pq.FileMetaData:
        """The footer of a file.

        Raises:
            DatasetFileCorruptError: the file is damaged, or not Parquet.
            ResourceChangedError: the file changed after the dataset was opened.
            StorageError: it cannot be read.
        """
        return self._of(file).metadata

    def facts(self, file: int) -> FooterFacts:
        """The checked footer of a file; raises as :meth:`of`."""
        return self._of(file).facts

    def columns(self, file: int) -> Mapping[str, int | None]:
        """The columns of a file, with the values per row (see :meth:`FooterFacts.values_per_row`); raises as :meth:`of`.

        Consecutive files with the same columns share one object.
        """
        columns = self._columns[file]
        if columns is None:
            columns, before = self.facts(file).values_per_row(), self._columns[file - 1]
            columns = self._columns[file] = before if columns == before else columns
        return columns

    def columns_left_out(self, names: Collection[str]) -> list[LeftOut]:
        """The columns of files that a dataset does not have, each once, with the first file that has it.

        Args:
            names: the columns of the dataset.
        """
        left_out: dict[str, LeftOut] = {}
        before: Mapping[str, int | None] | None = None
        for file, path in enumerate(self.files.paths):
            columns = self.columns(file)
            if columns is before:  # as in most datasets
                continue
            before = columns
            unknown = [column for column in columns if column not in names]
            if unknown:
                self.of(file)  # raises if the manifest, which may have told the columns, lies
            for column in unknown:
                left_out.setdefault(column, LeftOut(f"{path}, column {column}", LATER_COLUMN))
        return list(left_out.values())

    def is_read(self, file: int) -> bool:
        """Whether the footer of a file has been read."""
        return self._footers[file] is not None

    def digest(self, file: int) -> str:
        """SHA-256 of the end of a file (footer, its length, magic), as 64 hex digits; raises as :meth:`of`."""
        return self._of(file).digest.hex()

    def size(self, file: int) -> int:
        """Size of a file in bytes; raises as :meth:`of`."""
        return self._of(file).file_bytes

    def check_unchanged(self, file: int, source: Any) -> None:
        """Raise if an open file is not the one that was seen first: rows of two files would be mixed.

        Raises:
            ResourceChangedError: it was replaced or changed.
        """
        known, name = self._of(file), self.files.name(file)
        if known.file_bytes != source.size():
            raise ResourceChangedError(name, f"{known.file_bytes} bytes", f"{source.size()} bytes")
        version = self.files.version(file, source)
        if not self._note_version(file, version):
            self._check_digest(file, hashlib.sha256(_tail(source, name)).digest())
            self._versions[file] = version

    def open_unchanged(self, file: int) -> StreamedResource:
        """Open a file as a resource, of which all bytes may be read.

        Raises:
            ResourceChangedError: it is not the file that was seen first.
            ResourceNotFoundError, StorageError: it cannot be opened.
        """
        folder = self.files.folder
        resource = folder.open(self.files.paths[file])
        try:
            if isinstance(folder, ArrowFolder) or not self._note_version(
                file, self._version_of_resource(resource)
            ):
                with self.files.open(file) as source:
                    self.check_unchanged(file, source)
        except BaseException:
            resource.close()
            raise
        return resource

    def _version_of_resource(self, resource: StreamedResource) -> Any:
        """The version of a resource, as :meth:`ParquetFiles.version` has it for a file that is open for pyarrow."""
        if self.files.folder.path is not None:
            return local_version_of(resource)
        return version_of(resource)

    def check_local(self, file: int) -> None:
        """Raise if a local file, of which rows are in memory, is not the one that was seen first. It takes about 3 microseconds.

        A file that was removed is no error: the rows in memory are not mixed with others.

        Raises:
            ResourceChangedError: it was replaced or changed.
            StorageError: the system does not tell.
        """
        known = self._versions[file]
        if type(known) is not LocalVersion:
            return
        path, checked_ns = self._checks[file]
        now_ns = time.perf_counter_ns()
        if now_ns - checked_ns < _FRESH_NS:
            return
        self._checks[file] = path, now_ns
        try:
            status = os.stat(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StorageError(
                f"could not read {path!r}: {os.strerror(error.errno or 0)}", error.errno
            ) from error
        if not known.is_of(status) and not self._note_version(file, LocalVersion.of(status)):
            with reading_parquet(path), self.files.open(file) as source:
                self.check_unchanged(file, source)

    @functools.cached_property
    def _checks(self) -> list[tuple[str, int]]:
        """For each file its path, and when it was checked last, by the clock of ``time.perf_counter_ns``."""
        return [(self.files.name(file), -_FRESH_NS) for file in range(len(self.files.paths))]

    def _note_version(self, file: int, version: Any) -> bool:
        """Note the version of a file when it is first seen.

        Returns:
            Whether the file is certainly the one that was seen before.

        Raises:
            ResourceChangedError: it is another file.
        """
        known = self._versions[file]
        if known is None:
            self._versions[file] = version
            return False
        is_same = is_same_version(known, version)
        if is_same is False:
            raise ResourceChangedError(self.files.name(file), str(known), str(version))
        return is_same is True

    @functools.cached_property
    def beside(self) -> pa.Schema | None:
        """Schema and key-value metadata from the metadata files of the dataset; None without such files.

        Raises:
            DatasetFileCorruptError: it is damaged.
        """
        return read_metadata(self.files.folder, self.files.beside)

    @property
    def metadata(self) -> dict[bytes, bytes]:
        """The key-value metadata of the dataset: from its metadata files, else from the first file."""
        known = self.beside if self.beside is not None or not self.files.paths else self.of(0)
        found = None if known is None else known.metadata
        return {
            key: value
            for key, value in (found or {}).items()
            if key not in (MANIFEST_KEY, b"ARROW:schema")
        }

    @functools.cached_property
    def manifest(self) -> ParquetManifest | None:
        """The manifest of the dataset; None without one.

        Raises:
            DatasetFileCorruptError: it is damaged, or of another version.
        """
        return ParquetManifest.in_metadata(self.beside, self.files.folder, self.files.beside)

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns of the first file, INT96 in nanoseconds; without files, those of the metadata files."""
        if not self.files.paths:
            return pa.schema([]) if self.beside is None else self.beside
        with reading_parquet(self.files.name(0)):
            return self.of(0).schema.to_arrow_schema()

    @property
    def time_zones(self) -> dict[str, str]:
        """The time zones of the columns of instants, by name, from the first file."""
        return {
            field.name: field.type.tz
            for field in self.arrow_schema
            if pa.types.is_timestamp(field.type) and field.type.tz is not None
        }

    def names_of_far_times(self, file: int, names: Sequence[str]) -> list[str]:
        """Which columns of INT96 have times that nanoseconds do not hold, in the first row group of a file that has rows.

        Raises:
            DatasetFileCorruptError, StorageError: the row group cannot be read.
        """
        facts = self.facts(file)
        with_rows = np.flatnonzero(facts.n_rows)
        if not len(with_rows):
            return []
        index = int(with_rows[0])
        leaves = [leaf for name in names for leaf in facts.columns[name]]
        with reading_parquet(self.files.name(file)), self.files.open(file) as source:
            self.check_unchanged(file, source)
            fine = read_int96(source, self.of(file), index, leaves, "ns")
            coarse = read_int96(source, self.of(file), index, leaves, "s")
        return [name for name in names if has_far_times(fine.column(name), coarse.column(name))]

    def name_of(self, group: int) -> str:
        """The name of a row group in messages."""
        return f"row group {self.index_of[group]} of {self.files.name(int(self.file_of[group]))}"

    def _of(self, file: int) -> _Footer:
        return self._footers[file] or self._parse_and_check(file, *self._fetch(file))

    def _fetch(self, file: int) -> tuple[bytes, int, Any]:
        """Fetch the end of a file, its size and its version."""
        name = self.files.name(file)
        with reading_parquet(name), self.files.open(file) as source:
            return _tail(source, name), source.size(), self.files.version(file, source)

    def _parse_and_check(self, file: int, tail: bytes, file_bytes: int, version: Any) -> _Footer:
        """Compare a new footer with the known digest and with the manifest."""
        digest = hashlib.sha256(tail).digest()
        known, record = self._digests[file], self._record(file)
        if record is not None:
            is_other, name = record.footer_sha256 != digest.hex(), self.files.name(file)
            if is_other and known != digest and (known is not None or record.size == file_bytes):
                raise DatasetFileCorruptError(
                    f"the footer of {name} is damaged, or of another tool. {RECREATE}"
                )
            if (
                not is_other and record.size != file_bytes
            ):  # no tool keeps the footer, which has the offsets of the rows
                raise DatasetFileCorruptError(
                    f"{name} is damaged: it has {file_bytes:,} bytes, not {record.size:,}"
                )
        self._check_digest(file, digest)
        with reading_parquet(self.files.name(file)):
            metadata = pq.read_metadata(pa.BufferReader(_MAGIC + tail))
            facts = footer_facts(tail[:-8], file_bytes)
            n_rows = self.n_rows[slice(*self.file_of.searchsorted([file, file + 1]))]
            if self._counts and n_rows.tolist() != facts.n_rows.tolist():
                raise ValueError("its row groups differ from those in the manifest")
            if self._columns[file] not in (None, facts.values_per_row()):
                raise ValueError("its columns differ from those in the manifest")
        if not self._note_version(file, version):
            self._versions[file] = version  # the digest is the same
        footer = self._footers[file] = _Footer(metadata, facts, digest, file_bytes)
        self._digests[file] = digest
        return footer

    def _check_digest(self, file: int, digest: bytes) -> None:
        known = self._digests[file]
        if known is not None and known != digest:
            raise ResourceChangedError(
                self.files.name(file), f"a footer {known.hex()[:16]}…", f"{digest.hex()[:16]}…"
            )

    def _record(self, file: int) -> ParquetFileRecord | None:
        """The manifest's record of a file; None without one."""
        return (
            self.manifest.by_name.get(self.files.paths[file])
            if self._is_verified and self.manifest is not None
            else None
        )

    def __getstate__(self) -> dict[str, Any]:
        made_again = ("_footers", "file_of", "index_of", "manifest", "beside", "_checks")
        return {name: value for name, value in self.__dict__.items() if name not in made_again}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._footers = [None] * len(self.files.paths)
        self._set_row_groups(self._counts, self.n_rows)


def _tail(source: Any, name: str) -> bytes:
    """The end of a Parquet file: footer, its length, magic."""
    size = source.size()
    tail: bytes = source.read_at(min(size, _TAIL_BYTES), max(0, size - _TAIL_BYTES))
    if len(tail) < 12 or tail[-4:] != _MAGIC:
        if tail[-4:] == b"PARE":
            raise DatasetFileCorruptError(f"{name} is encrypted; encrypted files are not supported")
        check_no_stand_in(source.read_at(min(size, HEAD_BYTES), 0), name, size)
        raise DatasetFileCorruptError(
            f"{name} has no Parquet footer: it is truncated, or not a Parquet file"
        )
    length = int.from_bytes(tail[-8:-4], "little") + 8
    if len(tail) < length <= size - 4:
        tail = source.read_at(length, size - length)
    if len(tail) < length or length > size - 4:
        raise DatasetFileCorruptError(
            f"{name} is damaged or truncated: its footer should have {length - 8} bytes"
        )
    return tail[len(tail) - length :]


def digest_of_row_groups(footers: Footers, groups: npt.NDArray[np.int64]) -> str:
    """SHA-256 that identifies the content of row groups: by contents and paths of their files, and their numbers in these.

    Raises:
        ResourceChangedError: a file is not the one that was opened.
    """
    files = np.unique(footers.file_of[groups]).tolist()
    paths = [footers.files.paths[file] for file in files]
    contents = contents_of_resources(
        [functools.partial(footers.open_unchanged, file) for file in files]
    )
    for file in files:  # none was written to meanwhile
        footers.check_local(file)
    chosen = [footers.index_of[groups[footers.file_of[groups] == file]].tolist() for file in files]
    return hashlib.sha256(json.dumps([paths, contents, chosen]).encode()).hexdigest()
