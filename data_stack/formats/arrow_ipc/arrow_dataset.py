"""The rows of Arrow files as samples."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from data_stack.dataset.iterator import SampleAccess
from data_stack.exception import ConfigError, LeftOutWarning, ResourceChangedError
from data_stack.formats.arrow_ipc.arrow_rows import ArrowRows
from data_stack.formats.arrow_ipc.batch_column import BatchColumn
from data_stack.formats.arrow_ipc.cell_readers import (
    CellReader,
    FieldCellReader,
    ImageCellReader,
    PlainCellReader,
)
from data_stack.formats.arrow_ipc.features import (
    check_features,
    features_of_schema,
    reader_of_feature,
)
from data_stack.formats.arrow_tables import check_names
from data_stack.formats.arrow_tables.readable_cells import readable_field
from data_stack.formats.column_reader import ColumnReader
from data_stack.formats.columns import ColumnsAccess, ColumnsDatasetIterator, of_files_only
from data_stack.formats.parquet.schema import Schema
from data_stack.formats.text_tables.column_errors import check_columns
from data_stack.io.location import Location, is_path_or_url
from data_stack.io.positional import PositionalFile
from data_stack.io.versions import is_same_version, version_of
from data_stack.util.program_lines import warn_program

#: The rows of open files, and the process that opened them.
_OpenedRows = tuple[int, ArrowRows]


class ArrowDataset(ColumnsDatasetIterator):
    """Samples ``{column: value}`` of files in the IPC formats of Arrow, in any order.

    ::

        rows = ArrowDataset("train.arrow")
        rows[7]  # {"text": "…", "label": 1}
        rows.read_batch([5, 3])

    The file format (``.arrow``, ``.feather`` of version 2) and the stream format (``.arrows``, and
    ``.arrow`` of Hugging Face's ``datasets``) are told apart by their contents. A local file is
    mapped into memory, so processes share its pages, and no program may shorten it meanwhile;
    compressed record batches are decoded as they are needed. Of a file in a store, the record
    batches that are needed are read by range, of large ones only ``columns``; and
    ``read_column(name)`` without positions reads only that column. Small record batches of a stream
    in a store are found by reading it once, large ones by one request for each.

    Values are those of :func:`data_stack.from_arrow`. Where the metadata of the schema has the
    features of ``datasets``, they are those of :func:`data_stack.from_huggingface`: images are
    arrays, ``Array2D`` has its shape, ``ClassLabel`` is an integer, audio and video are dicts with
    ``bytes`` and ``path``. Files that a dataset names by a path are never opened.

    Args:
        files: a file: a path, a URL, a resource of any store or an open binary file; or several
            such with the same columns, whose rows follow one another.
        columns: the columns to read, in this order; None for all. Others need not be readable.
        features: the features of all columns of the files, as ``to_dict()`` of those of
            ``datasets`` returns them; None for those in the metadata.
        image_mode: the mode of Pillow to convert all images to, such as ``"RGB"``; None for the
            mode of their feature, or no conversion.

    Attributes:
        stored_features: the features by column; empty without such.
        metadata: the metadata of the schema of the first file.

    Raises:
        ConfigError: a column does not exist, its type is unsupported, or its feature is unknown.
        DatasetFileCorruptError: a file is damaged, has other columns than the first one, or is a
            Feather file of version 1; or ``features`` are not those of the columns.
        ResourceChangedError: at an access, if a file was written to since it was opened.

    Warns:
        LeftOutWarning: a stream ends without the mark of its end, so that it may be cut off.
    """

    #: The reader of pyarrow and its lock belong to the process that made them.
    _opens_in_each_process = True

    stored_features: dict[str, Any]
    metadata: dict[bytes, bytes]

    #: The files, each of which is read by position.
    _positional_files: list[PositionalFile]

    #: The version of each file when the iterator was made.
    _first_versions: list[Any]

    #: The rows of the open files; None in another process, before the first access.
    _opened_rows: _OpenedRows | None

    #: The features that the caller gave; None without.
    _given_features: dict[str, Any] | None

    #: The mode of Pillow to convert all images to; None for the mode of their feature.
    _image_mode: str | None

    def __init__(
        self,
        files: Any,
        columns: Sequence[str] | None = None,
        *,
        features: Mapping[str, Any] | None = None,
        image_mode: str | None = None,
    ) -> None:
        self._positional_files = [PositionalFile(file) for file in _list_files(files)]
        self._first_versions = [version_of(file.resource) for file in self._positional_files]
        rows = ArrowRows(self._positional_files)
        self._opened_rows = (os.getpid(), rows)
        _warn_of_missing_ends(rows)
        self.metadata = dict(rows.schema.metadata or {})
        self._image_mode = image_mode
        self._given_features = None
        check_names(rows.schema.names)
        if features is None:
            self.stored_features = features_of_schema(rows.schema)
        else:
            self._given_features = dict(features)
            self.stored_features = self._given_features
            check_features(features, rows.schema, "features=")
        names = rows.schema.names if columns is None else list(columns)
        check_columns(self._positional_files[0].name, names, rows.schema.names)
        # Unsupported types and unknown features are refused now, not at the first sample.
        for name in names:
            self._cell_reader_of(rows, name)
        rows.choose_columns([rows.schema.names.index(name) for name in names])
        super().__init__({name: name for name in names})

    # ------------------------------------------------------------------ columns

    @of_files_only
    def _open_columns(self) -> list[ColumnReader]:
        rows = self.rows()
        return self._open_per_source(
            lambda name: BatchColumn(
                rows,
                rows.schema.names.index(name),
                self._cell_reader_of(rows, name),
                len(self._sources),
            )
        )

    def rows(self) -> ArrowRows:
        """Return the rows of the files, which this process opens at the first call.

        Raises:
            ResourceChangedError: a file is not the one that the iterator was made of.
        """
        opened = self._opened_rows
        if opened is not None and opened[0] == os.getpid():
            return opened[1]
        for file, before in zip(self._positional_files, self._first_versions, strict=True):
            now = version_of(file.resource)
            if is_same_version(before, now) is False:
                raise ResourceChangedError(file.name, str(before), str(now))
        rows = ArrowRows(self._positional_files)
        rows.choose_columns([rows.schema.names.index(name) for name in self._sources])
        self._opened_rows = (os.getpid(), rows)
        return rows

    def stored_table(self) -> pa.Table | None:
        """Return the cells of all rows, which are those of the maps of the files.

        Returns:
            None if the files are not mapped as they are, or if a conversion of data_stack has
            written cells that other programs do not read as values.
        """
        rows = self.rows()
        if not all(file.is_mapped for file in rows.files):
            return None
        arrays = []
        fields = []
        for name in self._sources:
            number = rows.schema.names.index(name)
            if not self._cell_reader_of(rows, name).has_plain_cells:
                return None
            field = readable_field(rows.schema.field(number))
            chunks = [rows.column(batch, number) for batch in range(rows.n_batches)]
            arrays.append(pa.chunked_array(chunks, field.type))
            fields.append(field)
        return pa.Table.from_arrays(arrays, schema=pa.schema(fields))

    def picture_columns(self) -> list[str]:
        """Return the columns of pictures that are read in the mode of their files."""
        rows = self.rows()
        names = []
        for name in self._sources:
            reader = self._cell_reader_of(rows, name)
            if isinstance(reader, ImageCellReader) and reader.mode is None:
                names.append(name)
        return names

    def _cell_reader_of(self, rows: ArrowRows, name: str) -> CellReader:
        """Return what makes the values of a column.

        Raises:
            ConfigError: the type of the column is unsupported.
        """
        number = rows.schema.names.index(name)
        field = readable_field(rows.schema.field(number))
        has_nulls = bool(rows.has_nulls[number])
        written_schema = Schema.from_metadata(self.metadata)
        if written_schema is not None and name in written_schema:
            return FieldCellReader(written_schema[name], has_nulls=has_nulls)
        if name in self.stored_features:
            return reader_of_feature(
                field, self.stored_features[name], has_nulls=has_nulls, image_mode=self._image_mode
            )
        return PlainCellReader(field, has_nulls=has_nulls)

    # ------------------------------------------------------------------ the iterator

    def make_access(self) -> SampleAccess:
        return ArrowAccess(self)

    def _arguments(self) -> dict[str, Any]:
        arguments = super()._arguments()
        if self._given_features is not None:
            arguments["features"] = self._given_features
        if self._image_mode is not None:
            arguments["image_mode"] = self._image_mode
        return arguments

    def _files(self) -> list[PositionalFile]:
        return self._positional_files

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_opened_rows": None}


class ArrowAccess(ColumnsAccess):
    """Access to the rows of Arrow files."""

    source: ArrowDataset

    @property
    def releases_gil(self) -> bool:  # type: ignore[override]  # read-only here
        columns: list[Any] = self.source._columns()
        return super().releases_gil or any(column.cells.releases_gil for column in columns)

    def locate(self, position: int) -> str:
        return self.source.rows().describe(position)


def _list_files(files: Any) -> list[Any]:
    """Return the files that a caller gave.

    Raises:
        ConfigError: there are none.
    """
    is_in_store = isinstance(files, tuple) and files and hasattr(files[0], "get_resource")
    is_file = is_path_or_url(files) or isinstance(files, Location) or hasattr(files, "read")
    listed = [files] if is_in_store or is_file else list(files)
    if not listed:
        raise ConfigError("an Arrow dataset needs at least one file")
    return listed


def _warn_of_missing_ends(rows: ArrowRows) -> None:
    """Warn of streams that may be cut off behind a record batch."""
    names = [file.file.name for file in rows.files if not file.layout.has_end]
    if names:
        warn_program(
            f"{', '.join(names)!s:.300} ends without the mark of a stream's end: "
            "rows after its last record batch may be missing",
            LeftOutWarning,
        )
