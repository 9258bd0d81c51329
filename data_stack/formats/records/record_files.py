"""The files of a record dataset, and the columns that are read from them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable
from typing import Any

from data_stack.codecs.codec import Codec, ColumnType, FixedLayout
from data_stack.exception import (
    DatasetFileCorruptError,
    ResourceChangedError,
    ResourceNotFoundError,
)
from data_stack.formats.records.bag import Bag
from data_stack.formats.records.block_checks import BlockChecks, block_damage
from data_stack.formats.records.decoded_column import DecodedColumn
from data_stack.formats.records.description import missing_file, read_description
from data_stack.formats.records.fixed_column import open_fixed_column
from data_stack.formats.records.layout import ENTRY_BYTES, REFS, bag_name, idx_name
from data_stack.formats.records.manifest import MANIFEST, FileRecord
from data_stack.formats.records.record_offsets import (
    RecordOffsets,
    find_offsets_in_bag,
    find_offsets_in_index,
)
from data_stack.formats.records.sample_references import SampleReferences
from data_stack.formats.records.stored_file import StoredFile
from data_stack.formats.records.value_column import ValueColumn
from data_stack.io.content import contents_of_resources
from data_stack.io.folder import Folder
from data_stack.io.integrity import BLOCK_BYTES, Digest, differing_blocks
from data_stack.io.local_files import map_file
from data_stack.io.resources import StreamedResource
from data_stack.io.versions import is_same_version, version_of
from data_stack.util.executor import waiting

#: Indexes up to this size in bytes are read whole where they cannot be mapped: a request for a part
#: takes about as long.
_MAX_LOADED_INDEX_BYTES = 1 << 20

#: Records of one size, such as labels, are read whole up to this size in bytes where they cannot be
#: mapped: a store fetches a whole block for any of them.
_MAX_LOADED_BAG_BYTES = BLOCK_BYTES

#: A file is hashed in pieces of this size in bytes.
_READ_BYTES = 1 << 20

#: The maximum number of dimensions of an array in numpy 1, one of which numbers the records.
_MAX_DIMENSIONS = 32


class RecordFiles:
    """The files of a record dataset. A column is opened on its first read.

    Args:
        folder: the folder of the dataset.
        mapped: map files into memory if possible.

    Attributes:
        folder: as given.
        description: what the spec and the manifest say.
        first: the files of the first shard, which lie in the same store; None for a dataset that is
            not a shard, or is the first.

    Raises:
        ResourceNotFoundError: the folder has no record dataset.
        DatasetFileCorruptError: the dataset is damaged.
    """

    first: RecordFiles | None

    #: The checked blocks of each file. A file that is closed and opened again is not checked twice.
    _checks: dict[str, BlockChecks]

    #: The version of each file when it was opened first.
    _versions: dict[str, Any]

    #: Whether files are read by range; None if that is not known yet.
    _is_remote: bool | None

    #: The size of the records of columns whose files were opened to find it out, in bytes.
    _n_bytes: dict[str, int]

    def __init__(self, folder: Folder, *, mapped: bool = True) -> None:
        self.folder = folder
        self.first = None
        self.description = read_description(folder)
        self._mapped = mapped
        self._checks = {}
        self._versions = {}
        self._is_remote = None
        if self.description.is_prefetched:
            self._is_remote = True
        self._n_bytes = {}

    # ------------------------------------------------------------------ columns

    def bag(self, name: str, n_records: int | None = None) -> Bag:
        """Open the records of a column, or of the references.

        Args:
            name: the name of the column.
            n_records: the number of records of the dataset; None for all complete records.

        Raises:
            DatasetFileCorruptError: a file is missing, cut short, or has no index.
        """
        if self.description.has_references:
            file = self._open(bag_name(name))
            offsets, n_bytes = find_offsets_in_bag(name, file)
            return Bag(name, file, n_bytes, offsets)
        file, index = self._open_with_index(name)
        if n_records is None:
            offsets = find_offsets_in_index(index, file.size)
        elif n_records * ENTRY_BYTES > index.size:
            raise DatasetFileCorruptError(
                f"{index.name} is cut short: {index.size:,} bytes for {n_records:,} records"
            )
        else:
            offsets = RecordOffsets(index, 0, n_records)
        return Bag(name, file, file.size, offsets)

    def _open_with_index(self, name: str) -> tuple[StoredFile, StoredFile]:
        """Open the file of a column's records, and its index."""
        open_index = functools.partial(self._open, idx_name(name), _MAX_LOADED_INDEX_BYTES)
        if not self._is_remote:
            bag = self._open(bag_name(name))
            return bag, open_index()
        # Each of them takes a request: both are sent at once.
        future_index = waiting.submit(open_index)
        bag = self._open(bag_name(name))
        return bag, future_index.result()

    def column(self, name: str, codec: Codec, n_records: int | None) -> ValueColumn:
        """Open the values of a column.

        Args:
            name: the name of the column.
            codec: the codec of its values.
            n_records: the number of records of the dataset; None for all complete records.

        Raises:
            DatasetFileCorruptError: as for :meth:`bag`, or the manifest contradicts itself.
        """
        description = self.description
        column = description.schema[name]
        record_bytes = None
        if description.manifest is not None:
            record_bytes = description.manifest.record_bytes[name]
        if not record_bytes:
            # The size of a file does not tell how many empty records it holds.
            return DecodedColumn(self.bag(name, n_records), codec, column)

        bag = self._bag_of_equal_records(name, record_bytes, n_records)
        layout = codec.derive_layout(ColumnType(column.codec_type, column.dtype, column.shape))
        _check_dtype_fits(name, column, layout)
        if layout is None or layout.record_bytes != record_bytes or not _is_stackable(layout):
            return DecodedColumn(bag, codec, column)
        return open_fixed_column(bag, layout, column.dtype)

    def _bag_of_equal_records(self, name: str, record_bytes: int, n_records: int | None) -> Bag:
        """Open records of one size, whose index need not be read.

        Raises:
            DatasetFileCorruptError: the file does not have the size of so many records.
        """
        if self.description.has_references:
            bag_with_index = self.bag(name)
            file = bag_with_index.file
            n_bytes = bag_with_index.n_bytes
            n_records = len(bag_with_index)
        else:
            file = self._open(bag_name(name), _MAX_LOADED_BAG_BYTES)
            n_bytes = file.size
            n_records = n_records or 0
        if n_records * record_bytes != n_bytes:
            raise DatasetFileCorruptError(
                f"{file.name} has {n_bytes:,} bytes, not {n_records:,} records of {record_bytes:,}"
            )
        return Bag(name, file, n_bytes, RecordOffsets(None, record_bytes, n_records))

    def references(self) -> SampleReferences | None:
        """Return the map from samples to records; None if sample i has record i of each column.

        Raises:
            DatasetFileCorruptError: there are sequences, but no map.
        """
        types = self.description.types
        if self.description.has_references:
            return SampleReferences(lambda: self.bag(REFS), types)
        if any(column_type.endswith("[]") for column_type in types.values()):
            raise DatasetFileCorruptError(
                f"{self.folder.name}: {REFS}.bag, the index of sequences, is missing; restore it"
            )
        return None

    # ------------------------------------------------------------------ sizes

    def is_remote(self, names: Iterable[str]) -> bool:
        """Return whether the records of columns are read by range.

        Finding out may take a request. Of shards, only the first is asked.
        """
        if self._is_remote is None:
            if self.first is not None:
                self._is_remote = self.first.is_remote(names)
            else:
                largest = max(names, key=self.n_bytes_of)
                self._is_remote = self._is_read_by_range(bag_name(largest))
        return self._is_remote

    def _is_read_by_range(self, file: str) -> bool:
        with self.folder.open(file) as resource:
            if resource.prefetches or not self._mapped:
                return True
            return map_file(resource, resource.size) is None

    def n_bytes_of(self, name: str) -> int:
        """Return the size of a column's records in bytes."""
        manifest = self.description.manifest
        if manifest is not None and not self.description.has_references:
            return manifest.files[bag_name(name)].size
        if name not in self._n_bytes:
            with contextlib.closing(self.bag(name)) as bag:
                self._n_bytes[name] = bag.n_bytes
        return self._n_bytes[name]

    @property
    def n_bytes(self) -> int:
        """The size of all columns and their indexes in bytes."""
        n_bytes = 0
        manifest = self.description.manifest
        if manifest is not None:
            for file, record in manifest.files.items():
                if file.endswith((".bag", ".idx")):
                    n_bytes += record.size
            return n_bytes
        for name in self._with_references(self.description.types):
            bag = self.bag(name)
            n_bytes += bag.n_bytes + ENTRY_BYTES * len(bag)
        return n_bytes

    def _with_references(self, names: Iterable[str]) -> list[str]:
        """Return the names of columns, after that of the references if there are any."""
        if self.description.has_references:
            return [REFS, *names]
        return list(names)

    # ------------------------------------------------------------------ content

    def verify(self) -> None:
        """Compare all files with the manifest, as far as it covers them; do nothing without one.

        Raises:
            DatasetFileCorruptError: a file is damaged; the error names the first damage.
        """
        for file, record in self.description.covered.items():
            verify_file(self.folder, file, record)
        manifest = self.description.manifest
        if manifest is not None and not self.description.has_references:
            for name in self.description.schema:
                # Raises if the index is shorter.
                self.bag(name, manifest.count)

    def content(self, names: Iterable[str]) -> dict[str, Any]:
        """Return what identifies the content of columns.

        Returns:
            The types, dtypes and shapes of the columns, and the digests of their files: those of
            the manifest, or without one those of the bytes.
        """
        columns = {}
        for name in names:
            column = self.description.schema[name]
            columns[name] = [column.type, str(column.dtype), column.shape]
        files = []
        for name in self._with_references(columns):
            files += self.description.files_of(name)

        manifest = self.description.manifest
        if manifest is not None:
            digests = {file: manifest.files[file].sha256 for file in files}
            return {"columns": columns, "files": digests}
        opens = [functools.partial(self._open_first, file) for file in files]
        digests_of_bytes = contents_of_resources(opens)
        return {"columns": columns, "files": dict(zip(files, digests_of_bytes, strict=True))}

    # ------------------------------------------------------------------ files

    def _open(self, file: str, load_bytes: int = 0) -> StoredFile:
        """Open a file.

        Args:
            file: the name of the file.
            load_bytes: a file up to this size is read into memory if it is not mapped.

        Raises:
            DatasetFileCorruptError: the file is missing, or shorter than the manifest says.
        """
        description = self.description
        try:
            stored = StoredFile(
                self.folder,
                file,
                description.covered.get(file),
                is_longer=description.manifest is None,
                mapped=self._mapped,
                load_bytes=load_bytes,
                checks=self._checks.get(file),
            )
        except ResourceNotFoundError as error:
            raise missing_file(self.folder, file, description.types) from error
        self._checks[file] = stored.checks
        self._versions.setdefault(file, stored.version)
        return stored

    def _open_first(self, file: str) -> StreamedResource:
        """Open the bytes of a file, which must be the file that was read first.

        Raises:
            ResourceChangedError: the file was replaced, or written to.
        """
        resource = self.folder.open(file)
        first_version = self._versions.get(file)
        version = version_of(resource)
        # None if one of them is unknown, as for a file that was not read.
        if is_same_version(first_version, version) is False:
            resource.close()
            raise ResourceChangedError(
                self.folder.full_name(file), str(first_version), str(version)
            )
        return resource


def _check_dtype_fits(name: str, column: ColumnType, layout: FixedLayout | None) -> None:
    """Check the dtype of a column in the manifest against the layout of its type.

    Raises:
        DatasetFileCorruptError: records of integers have another dtype than one of integers.
    """
    if layout is None or column.dtype is None:
        return
    stores_integers = layout.dtype.kind in "iu"
    if stores_integers and column.dtype.kind not in "iu":
        raise DatasetFileCorruptError(
            f"column {name!r} of type {column.type!r} cannot hold {column.dtype}"
        )


def _is_stackable(layout: FixedLayout) -> bool:
    """Return whether the records of a layout are rows of one array, of numbers, bytes or times.

    Strings are not: their codec checks what is in them.
    """
    has_bytes = layout.dtype.itemsize > 0 and 0 not in layout.shape
    is_plain = layout.dtype.kind in "biufcSVmM"
    return has_bytes and is_plain and len(layout.shape) < _MAX_DIMENSIONS


def verify_file(folder: Folder, file: str, record: FileRecord) -> None:
    """Compare the bytes of a file with the digests in the manifest.

    Args:
        folder: the folder of the dataset.
        file: the name of the file.
        record: what the manifest says of it. Bytes that follow its size are not compared.

    Raises:
        DatasetFileCorruptError: a byte differs; the error names the first damaged block.
    """
    full_name = folder.full_name(file)
    digest = Digest()
    with folder.open(file) as resource:
        while digest.size < record.size:
            data = resource.read(min(_READ_BYTES, record.size - digest.size))
            if not data:
                break
            digest.update(data)
    damaged_blocks = differing_blocks(digest.blocks, record.blocks)
    if damaged_blocks:
        raise block_damage(full_name, damaged_blocks[0])
    if digest.sha256 != record.sha256:
        raise DatasetFileCorruptError(
            f"{full_name} is damaged: its SHA-256 differs from {MANIFEST}. Restore it"
        )
