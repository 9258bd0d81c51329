"""Reads the samples of a record dataset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from data_stack.codecs.codec import Codec, Codecs, ColumnType
from data_stack.codecs.registry import codec_of, with_provided_codecs
from data_stack.dataset.iterator import Sample, SampleAccess
from data_stack.dataset.positions import check_index
from data_stack.exception import ConfigError, ResourceChangedError
from data_stack.formats.records.layout import (
    check_column_exists,
    list_column_names,
)
from data_stack.formats.records.manifest import MANIFEST, RecordsManifest
from data_stack.formats.records.open_columns import OpenColumns
from data_stack.formats.records.record_access import RecordAccess
from data_stack.formats.records.record_files import RecordFiles
from data_stack.formats.records.records_iterator import Mask, RecordsIterator
from data_stack.formats.records.sample_columns import SampleColumns
from data_stack.formats.records.sample_count import count_samples
from data_stack.io.folder import Folder, folder_of


class RecordReader(RecordsIterator):
    """The samples of a record dataset: dicts with a value per column.

    ::

        with RecordReader("train") as reader:
            reader[17]["image"]                          # one sample
            reader.read_batch([3, 1, 4])["image"]        # columns, stacked; one request
            reader[17, ["label"]]                        # only these columns
            reader[17, {"frames": range(32, 42)}]        # part of a sequence; one request
            reader.split({"train": 0.8, "val": 0.2})     # as any iterator

    The reader reads datasets of :class:`RecordWriter` and of Granular 0.8 to 0.24. Values are
    copies; arrays of one request or iteration may share memory.

    If there is a manifest, each process compares each block of 64 KiB with its checksum on the
    first read. Without a manifest (Granular writes none), all columns must have the same number of
    samples, and the reader checks sizes, offsets and headers. If Granular appended to a finished
    dataset, its own samples are read as without a manifest, and the log says so once;
    :func:`~data_stack.formats.records.write_manifest` renews the manifest. The length stays what it
    was on opening, also while a writer appends.

    If a codec releases the GIL, requests for several samples are decoded in one thread per
    processor; worker processes use one thread. Local files are memory-mapped; pass ``mapped=False``
    for files that another program may truncate, or on an unreliable network file system.

    Threads may share a reader, forked children may use it, and it pickles as its folder and
    options.

    Args:
        source: folder, storage connector, URL, or resources of a dataset; see
            :func:`~data_stack.io.folder.folder_of`.
        prefix: folder below ``source``.
        codecs: custom codecs by type, which take precedence over built-in ones; None as a codec
            returns the raw bytes.
        columns: names of the columns to read, in this order; None for all, sorted by name. Other
            columns are not opened.
        mapped: map files into memory.

    Raises:
        ResourceNotFoundError: there is no record dataset.
        DatasetFileCorruptError: the dataset is damaged or incomplete, as far as that shows without
            reading records.
        ConfigError: a column or codec does not exist.
    """

    #: The access refers to the reader: they would keep each other in memory.
    _keeps_access = False

    #: The folder of the dataset.
    _folder: Folder

    #: The arguments that open the same reader again: ``codecs``, ``columns``, ``mapped``.
    _options: dict[str, Any]

    #: The files of the dataset, of all columns.
    _files: RecordFiles

    #: The columns to read, and the number of samples.
    _columns: SampleColumns

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
        chosen = None if columns is None else list_column_names(columns)
        self._files = RecordFiles(self._folder, mapped=mapped)
        types = self._files.description.types
        keys = list(types) if chosen is None else chosen

        # A pickle keeps the codecs of plugins, which a spawned process may not know.
        types_to_read = [types[name] for name in keys if name in types]
        codecs_to_read = with_provided_codecs(types_to_read, codecs)
        self._options = {"codecs": codecs_to_read, "columns": chosen, "mapped": mapped}
        codecs_by_name = _find_codecs(keys, types, codecs_to_read, self._folder.name)

        references = self._files.references()
        n_samples = count_samples(self._files, references)
        if references is not None and not references.is_remote:
            # Of hundreds of shards, only those that are read have files open.
            references.release()

        # Columns keep the number of records that they have now, also if samples are appended.
        n_records = None if self._files.description.has_references else n_samples
        open_columns = OpenColumns(self._files, codecs_by_name, references, n_records)
        sequence_names = frozenset(name for name, kind in types.items() if kind.endswith("[]"))
        self._columns = SampleColumns(
            open_columns, codecs_by_name, sequence_names, references, n_samples
        )

    # ------------------------------------------------------------------ description

    def make_access(self) -> SampleAccess:
        return RecordAccess(self, self._columns, self._files)

    def __len__(self) -> int:
        return self._columns.n_samples

    @property
    def spec(self) -> dict[str, str]:
        """The types of the columns to read, by name, as in Granular's ``spec.json``."""
        return {name: self._files.description.types[name] for name in self._columns.keys}

    @property
    def schema(self) -> dict[str, ColumnType]:
        """Type, dtype and shape of each column to read.

        Dtype and shape are None without a manifest.
        """
        return {name: self._files.description.schema[name] for name in self._columns.keys}

    @property
    def manifest(self) -> RecordsManifest | None:
        """The manifest of the dataset; None if it has none, or does not cover all samples."""
        return self._files.description.manifest

    @property
    def size(self) -> int:
        """The size of all columns and their indexes in bytes."""
        return self._files.n_bytes

    def available(self, index: int) -> dict[str, bool | range]:
        """Return what a sample has. No value is read.

        Returns:
            By column: True for a value, the range of positions for a sequence.

        Raises:
            DatasetOutOfBoundsError: ``index`` is out of bounds.
        """
        columns = self._columns
        position = check_index(index, self._columns.n_samples)
        entries = columns.find_records(np.array([position]), columns.keys)
        available: dict[str, bool | range] = {}
        for name in columns.keys:
            if name in columns.sequence_names:
                _, counts = entries[name]
                available[name] = range(counts.item())
            else:
                available[name] = True
        return available

    # ------------------------------------------------------------------ samples

    def __getitem__(self, index: Any) -> Any:
        # As nearly always: the base class would first look for all other kinds of an index. The
        # one attribute of ``self`` costs a tenth of this method, due to __getattr__.
        columns = self._columns
        if type(index) is int and 0 <= index < columns.n_samples:
            # One call less than read_sample(), which is a twentieth of this method.
            read_sample = columns.open_columns.sample_reader
            if read_sample is not None:
                return read_sample(index)
            return columns.read_sample(index)
        return super().__getitem__(index)

    def read(self, index: int, columns: Iterable[str] | Mask | None = None) -> Sample:
        position = check_index(index, self._columns.n_samples)
        mask: Mask
        if columns is None:
            mask = dict.fromkeys(self._columns.keys, True)
        elif isinstance(columns, Mapping):
            mask = columns
        else:
            mask = dict.fromkeys(list_column_names(columns), True)
        return self._columns.read_part(position, self._parse_mask(mask))

    def _parse_mask(self, mask: Mask) -> dict[str, slice | None]:
        """Return the columns to read, with the slice of a sequence, None for a single value.

        Raises:
            ConfigError: a column does not exist, or has no such part.
        """
        parts: dict[str, slice | None] = {}
        for name, part in mask.items():
            check_column_exists(name, self._columns.codecs)
            is_sequence = name in self._columns.sequence_names
            if isinstance(part, (bool, np.bool_)):
                if part:
                    parts[name] = slice(None) if is_sequence else None
            elif isinstance(part, (range, slice)) and is_sequence:
                parts[name] = slice(part.start, part.stop, part.step)
            else:
                raise ConfigError(
                    f"column {name!r} takes True, False, or a range if it holds sequences, "
                    f"got {part!r:.80}"
                )
        return parts

    def _arguments(self) -> dict[str, Any]:
        return {"columns": self._columns.keys, "codecs": self._options["codecs"]}

    # ------------------------------------------------------------------ verification, end

    def verify(self) -> None:
        """Compare all files with the manifest, also those of columns that are not read.

        If no manifest covers all samples, each record is decoded.

        Raises:
            DatasetFileCorruptError: a file is damaged; the error names the first damage.
        """
        self._files.verify()
        if self._files.description.manifest is None:
            options_of_all_columns = {**self._options, "columns": None}
            with type(self)(self._folder, **options_of_all_columns) as reader:
                for _ in reader:
                    pass

    def release(self) -> None:
        """Close all files until they are needed again; reads of other threads finish first."""
        self._columns.open_columns.release()

    def close(self) -> None:
        """Close all files; reads fail afterwards."""
        self._columns.open_columns.close()

    def __reduce__(self) -> tuple[Any, ...]:
        manifest_sha256 = self._files.description.manifest_sha256
        arguments = (
            type(self),
            self._folder,
            self._options,
            self._columns.n_samples,
            manifest_sha256,
        )
        return _reopen, arguments


def _reopen(
    reader_class: type[RecordReader],
    folder: Folder,
    options: dict[str, Any],
    length: int,
    manifest_sha256: str | None,
) -> RecordReader:
    """Open a pickled reader, which keeps its length if samples were appended since.

    Raises:
        ResourceChangedError: the dataset was replaced.
    """
    reader = reader_class(folder, **options)
    if reader._files.description.manifest_sha256 != manifest_sha256 or len(reader) < length:
        before = f"{length} samples, sha256 {manifest_sha256}"
        now = f"{len(reader)}, sha256 {reader._files.description.manifest_sha256}"
        raise ResourceChangedError(folder.full_name(MANIFEST), before, now)
    reader._columns.n_samples = length
    return reader


def _find_codecs(
    names: Sequence[str], types: Mapping[str, str], codecs: Codecs | None, dataset_name: str
) -> dict[str, Codec]:
    """Return the codec of each column.

    Raises:
        ConfigError: a column or its codec does not exist.
    """
    codecs_by_name = {}
    for name in names:
        check_column_exists(name, types)
        try:
            codecs_by_name[name] = codec_of(types[name], codecs)
        except ConfigError as error:
            raise ConfigError(f"column {name!r} of {dataset_name}: {error}") from error
    return codecs_by_name
