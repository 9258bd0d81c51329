"""Which files a record dataset has, and what its columns are read from."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from data_stack.codecs.codec import Codec, ColumnType
from data_stack.exception import (
    DatasetFileCorruptError,
    ResourceChangedError,
    ResourceNotFoundError,
)
from data_stack.formats.records.bag import Bag
from data_stack.formats.records.decoded_column import DecodedColumn
from data_stack.formats.records.fixed_column import open_fixed_column
from data_stack.formats.records.layout import REFS, SPEC, bag_name, idx_name, parse_spec
from data_stack.formats.records.manifest import MANIFEST, UNFINISHED, FileRecord, RecordsManifest
from data_stack.formats.records.record_offsets import (
    RecordOffsets,
    find_offsets_in_bag,
    find_offsets_in_index,
)
from data_stack.formats.records.sample_references import SampleReferences
from data_stack.formats.records.stored_file import BlockChecks, StoredFile, block_damage, check_size
from data_stack.formats.records.value_column import ValueColumn
from data_stack.io.content import contents_of_resources
from data_stack.io.folder import Folder
from data_stack.io.integrity import Digest, differing_blocks
from data_stack.io.local_files import map_file
from data_stack.io.resources import StreamedResource
from data_stack.io.versions import is_same_version, version_of
from data_stack.util.executor import waiting
from data_stack.util.logger import logger

#: Indexes up to this size are read whole where they cannot be mapped: a request costs about as much.
_LOADED_INDEX_BYTES = 1 << 20
_READ_BYTES = 1 << 20
#: Of an array in numpy 1, one of which numbers the records.
_MAX_DIMENSIONS = 32


class RecordFiles:
    """The files of a record dataset, as its spec and manifest describe them; a column is opened on its first read.

    Args:
        folder: the folder of the dataset.
        mapped: map files into memory if possible.

    Attributes:
        manifest: the manifest; None if Granular wrote the dataset or appended to it, or if it is unfinished.
        manifest_sha256: digest of the manifest's file, 64 hex digits; None without one.
        types: types of the columns by name, sorted.
        schema: type, dtype and shape of each column, as far as they are known.
        has_references: whether ``refs.bag`` maps samples to records.
        first: the files of the first shard, which lie in the same store; None for themselves.

    Raises:
        ResourceNotFoundError: the folder has no record dataset.
        DatasetFileCorruptError: the dataset is damaged.
    """

    manifest: RecordsManifest | None
    manifest_sha256: str | None
    types: dict[str, str]
    schema: Mapping[str, ColumnType]
    has_references: bool

    def __init__(self, folder: Folder, *, mapped: bool = True) -> None:
        self.folder, self._mapped = folder, mapped
        # A file that is closed and opened again is not checked twice.
        self._checks: dict[str, BlockChecks] = {}
        #: The version of each file when it was opened first.
        self._versions: dict[str, Any] = {}
        self.first: RecordFiles | None = None
        self._is_remote: bool | None = None
        self._n_bytes: dict[str, int] = {}
        self._read_description()
        if self._is_appended_to():
            before = self.manifest_sha256
            self._read_description()
            if before == self.manifest_sha256:  # else a writer finished just now
                _warn_once(
                    f"{folder.full_name(MANIFEST)} does not cover all samples: another program, such as Granular, appended some. "
                    "Those are read without checksums; renew them with "
                    f"data_stack.formats.records.write_manifest({folder.name!r})"
                )
                self.manifest, self.schema = (
                    None,
                    {name: ColumnType(kind) for name, kind in self.types.items()},
                )

    # ------------------------------------------------------------------ spec and manifest

    def _read_description(self) -> None:
        """Read the manifest and the spec, and check the sizes of local files; others are checked when they are opened."""
        folder, self.manifest, self.manifest_sha256 = self.folder, None, None
        #: What the manifest covers is compared with it, also where other records follow.
        self._covered: Mapping[str, FileRecord] | None = None
        with contextlib.suppress(ResourceNotFoundError), folder.open(MANIFEST) as resource:
            data = folder.read_small(resource)
            self.manifest = RecordsManifest.from_json(data, folder.full_name(MANIFEST))
            self._covered = self.manifest.files
            self.manifest_sha256 = hashlib.sha256(data).hexdigest()
            self._is_remote = resource.prefetches or None  # as the other files there
        manifest, what = self.manifest, folder.full_name(SPEC)
        record = None if manifest is None else manifest.files.get(SPEC)
        if manifest is not None and folder.path is None:
            # It has all that the spec says, which verify() compares: a request less for each shard.
            self.types = {name: column.type for name, column in sorted(manifest.columns.items())}
        else:
            try:
                data = folder.read(SPEC)
            except ResourceNotFoundError as error:
                if manifest is not None:
                    raise DatasetFileCorruptError(
                        f"{what} is missing, but {MANIFEST} lists it"
                    ) from error
                raise ResourceNotFoundError(
                    f"no record dataset in {folder.name or 'the store'!r}: it has no {SPEC}"
                ) from error
            if record is not None and (len(data), hashlib.sha256(data).hexdigest()) != (
                record.size,
                record.sha256,
            ):
                raise DatasetFileCorruptError(
                    f"{what} is damaged: its digest differs from the one in {MANIFEST}"
                )
            self.types = parse_spec(data, what)
        if manifest is None:
            self.schema = {name: ColumnType(kind) for name, kind in self.types.items()}
            self.has_references = folder.has_file(bag_name(REFS))
            return
        self.schema, self.has_references = manifest.columns, bag_name(REFS) in manifest.files
        if self.types != {name: column.type for name, column in self.schema.items()}:
            raise DatasetFileCorruptError(f"{what} and {MANIFEST} name different columns or types")
        for file in (SPEC, *(each for name in self.types for each in self._files_of(name))):
            if file not in manifest.files:
                raise DatasetFileCorruptError(
                    f"{folder.full_name(MANIFEST)} has no digest of {file!r}"
                )
        for file, record in manifest.files.items() if folder.path is not None else ():
            try:
                size = os.path.getsize(f"{folder.path}/{file}")
            except OSError as error:
                raise self._missing(file) from error
            check_size(folder.full_name(file), size, record)

    def _is_appended_to(self) -> bool:
        """Whether all indexes have more entries than the manifest covers, and no writer of ours is at work."""
        path = self.folder.path
        if path is None or self.has_references or self.manifest is None:
            return False
        indexes = {
            name: record for name, record in self.manifest.files.items() if name.endswith(".idx")
        }
        longer = (
            os.path.getsize(path / name) >= record.size + 8 for name, record in indexes.items()
        )
        return bool(indexes) and all(longer) and not self.folder.has_file(UNFINISHED)

    def _files_of(self, name: str) -> tuple[str, ...]:
        """The files of a column."""
        return (bag_name(name),) if self.has_references else (bag_name(name), idx_name(name))

    # ------------------------------------------------------------------ columns

    def bag(self, name: str, n_records: int | None = None) -> Bag:
        """The records of a column, or of the references.

        Args:
            name: of the column.
            n_records: number of records of the dataset; None for all complete records.

        Raises:
            DatasetFileCorruptError: a file is missing, cut short, or has no index.
        """
        bag, *indexes = self._files_of(name)
        # Of a store, each takes a request.
        beside = [
            waiting.submit(self._open, each, _LOADED_INDEX_BYTES)
            for each in indexes
            if self._is_remote
        ]
        file = self._open(bag)
        if not indexes:
            offsets, n_bytes = find_offsets_in_bag(name, file)
            return Bag(name, file, n_bytes, offsets)
        index = beside[0].result() if beside else self._open(indexes[0], _LOADED_INDEX_BYTES)
        if n_records is None:
            return Bag(name, file, file.size, find_offsets_in_index(index, file.size))
        if n_records * 8 > index.size:
            raise DatasetFileCorruptError(
                f"{index.name} is cut short: {index.size:,} bytes for {n_records:,} records"
            )
        return Bag(name, file, file.size, RecordOffsets(index, 0, n_records))

    def column(self, name: str, codec: Codec, n_records: int | None) -> ValueColumn:
        """The values of a column; ``n_records`` as for :meth:`bag`."""
        column = self.schema[name]
        record_bytes = None if self.manifest is None else self.manifest.record_bytes[name]
        if not record_bytes:  # a file may hold any number of empty records
            return DecodedColumn(self.bag(name, n_records), codec, column)
        if self.has_references:
            stored = self.bag(name)
            file, n_bytes, n_records = stored.file, stored.n_bytes, len(stored)
        else:
            file, n_records = self._open(bag_name(name)), n_records or 0
            n_bytes = file.size
        if n_records * record_bytes != n_bytes:
            raise DatasetFileCorruptError(
                f"{file.name} has {n_bytes:,} bytes, not {n_records:,} records of {record_bytes:,}"
            )
        bag = Bag(name, file, n_bytes, RecordOffsets(None, record_bytes, n_records))
        layout = codec.derive_layout(ColumnType(column.codec_type, column.dtype, column.shape))
        if (
            layout is not None
            and layout.dtype.kind in "iu"
            and column.dtype is not None
            and column.dtype.kind not in "iu"
        ):
            raise DatasetFileCorruptError(
                f"column {name!r} of type {column.type!r} cannot hold {column.dtype}"
            )
        if layout is not None and layout.record_bytes == record_bytes:
            has_rows = (
                layout.dtype.itemsize > 0
                and 0 not in layout.shape
                and len(layout.shape) < _MAX_DIMENSIONS
            )
            if (
                has_rows and layout.dtype.kind in "biufcSVmM"
            ):  # what is in strings is for their codec to look at
                return open_fixed_column(bag, layout, column.dtype)
        return DecodedColumn(bag, codec, column)

    def is_remote(self, names: Iterable[str]) -> bool:
        """Whether the records of columns are read by range; of the first shard only, as that may take a request."""
        if self._is_remote is None and self.first is not None:
            self._is_remote = self.first.is_remote(names)
        elif self._is_remote is None:
            with self.folder.open(bag_name(max(names, key=self.n_bytes_of))) as resource:
                self._is_remote = (
                    resource.prefetches
                    or not self._mapped
                    or map_file(resource, resource.size) is None
                )
        return self._is_remote

    def n_bytes_of(self, name: str) -> int:
        """Size of a column's records."""
        if self.manifest is not None and not self.has_references:
            return self.manifest.files[bag_name(name)].size
        if name not in self._n_bytes:
            with contextlib.closing(self.bag(name)) as bag:
                self._n_bytes[name] = bag.n_bytes
        return self._n_bytes[name]

    def references(self) -> SampleReferences | None:
        """The map from samples to records; None if sample i has record i of each column.

        Raises:
            DatasetFileCorruptError: there are sequences, but no map.
        """
        if self.has_references:
            return SampleReferences(lambda: self.bag(REFS), self.types)
        if any(kind.endswith("[]") for kind in self.types.values()):
            raise DatasetFileCorruptError(
                f"{self.folder.name}: {REFS}.bag, the index of sequences, is missing; restore it"
            )
        return None

    def count_samples(self, references: SampleReferences | None) -> int:
        """Count the samples of a dataset without a manifest.

        Args:
            references: maps samples to records; None if sample i has record i of each column.

        Raises:
            DatasetFileCorruptError: the columns do not hold the same samples, or a file is missing, or has no index.
        """
        lengths, is_torn = {}, False
        for name in self.types:
            bag = self.bag(name)
            lengths[name] = len(bag)
            end = int(bag.bounds(range(len(bag) - 1, len(bag)))[1][0]) if len(bag) else 0
            index = bag.offsets.file
            is_torn |= bag.n_bytes != end or (
                index is not None and index is not bag.file and index.size != 8 * len(bag)
            )
            bag.close()
        n_samples = min(lengths.values()) if references is None else len(references)
        single = {
            length
            for name, length in lengths.items()
            if references is None or not self.types[name].endswith("[]")
        }
        if references is not None and n_samples:
            last = np.array([n_samples - 1])
            for name, (firsts, counts) in references.many(last).items():
                references.check(name, lengths[name], last, firsts, counts)
        if is_torn or not single <= {n_samples}:
            problem = f"the columns of {self.folder.name!r} differ in their numbers of complete records: {lengths}"
            remedy = "Restore it from a copy, or open it with RecordWriter, which keeps its complete samples"
            raise DatasetFileCorruptError(f"{problem}. {remedy}")
        return n_samples

    # ------------------------------------------------------------------ files

    def verify(self) -> None:
        """Compare what the manifest covers of all files with it, if there is one.

        Raises:
            DatasetFileCorruptError: a file is damaged; the error names the first damage.
        """
        for file, record in (self._covered or {}).items():
            name, digest = self.folder.full_name(file), Digest()
            with self.folder.open(file) as resource:
                while digest.size < record.size and (
                    data := resource.read(min(_READ_BYTES, record.size - digest.size))
                ):
                    digest.update(data)
            for block in differing_blocks(digest.blocks, record.blocks):
                raise block_damage(name, block)
            if digest.sha256 != record.sha256:
                raise DatasetFileCorruptError(
                    f"{name} is damaged: its SHA-256 differs from {MANIFEST}. Restore it"
                )
        if self.manifest is not None and not self.has_references:
            for name in self.schema:
                self.bag(name, self.manifest.count)  # raises if the index is shorter

    @property
    def n_bytes(self) -> int:
        """Size of all columns and their indexes."""
        if self.manifest is not None:
            return sum(
                record.size
                for file, record in self.manifest.files.items()
                if file.endswith((".bag", ".idx"))
            )
        bags = [self.bag(name) for name in [REFS] * self.has_references + list(self.types)]
        return sum(bag.n_bytes + 8 * len(bag) for bag in bags)

    def content(self, names: Iterable[str]) -> dict[str, Any]:
        """What identifies the content of columns: types, dtypes and shapes, and the digests of their files.

        The digests are those of the manifest, or without one those of the files.
        """
        columns = {name: self.schema[name] for name in names}
        held = {name: [each.type, str(each.dtype), each.shape] for name, each in columns.items()}
        files = [
            file
            for name in [REFS] * self.has_references + list(columns)
            for file in self._files_of(name)
        ]
        if self.manifest is not None:
            return {
                "columns": held,
                "files": {file: self.manifest.files[file].sha256 for file in files},
            }
        digests = contents_of_resources(
            [functools.partial(self._open_first, file) for file in files]
        )
        return {"columns": held, "files": dict(zip(files, digests, strict=True))}

    def _open(self, file: str, load_bytes: int = 0) -> StoredFile:
        options: dict[str, Any] = {
            "mapped": self._mapped,
            "load_bytes": load_bytes,
            "checks": self._checks.get(file),
        }
        try:
            record = None if self._covered is None else self._covered[file]
            stored = StoredFile(
                self.folder, file, record, is_longer=self.manifest is None, **options
            )
        except ResourceNotFoundError as error:
            raise self._missing(file) from error
        self._checks[file] = stored.checks
        self._versions.setdefault(file, stored.version)
        return stored

    def _open_first(self, file: str) -> StreamedResource:
        """Open a file that is the one that was read first; one that was not read is opened as it is.

        Raises:
            ResourceChangedError: it was replaced, or written to.
        """
        resource = self.folder.open(file)
        before = self._versions.get(file)
        now = version_of(resource)
        if is_same_version(before, now) is False:
            resource.close()
            raise ResourceChangedError(self.folder.full_name(file), str(before), str(now))
        return resource

    def _missing(self, file: str) -> DatasetFileCorruptError:
        what = f"{self.folder.full_name(file)} is missing; the dataset has the columns {', '.join(self.types)}"
        return DatasetFileCorruptError(
            f"{what}. Restore the file from a copy, or write the dataset again"
        )


@functools.cache
def _warn_once(message: str) -> None:
    logger.warning("%s", message)
