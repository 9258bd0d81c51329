"""The known formats of stored datasets."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import Column, media_types
from data_stack.codecs.fitting import as_dtype
from data_stack.exception import ConfigError
from data_stack.formats import image_folder, records, webdataset_writer  # noqa: F401  # two register their formats
from data_stack.formats.conversion import format as conversion
from data_stack.formats.conversion.format import FORMATS as FORMATS
from data_stack.formats.conversion.format import (
    Batches,
    ConvertibleFormat,
    Format,
    ReadableFormat,
    Source,
    plain_type,
    register_format,
)
from data_stack.formats.managed_tables import refuse_managed_table
from data_stack.formats.numpy_arrays import NpzDatasetIterator, npz_keys, write_npz
from data_stack.formats.records.layout import SPEC, shard_name
from data_stack.io.account import PlaceAccount
from data_stack.io.folder import Folder
from data_stack.io.location import Location
from data_stack.util.request_limit import check_request
from data_stack.util.suggestions import did_you_mean

_Array = npt.NDArray[Any]

_INTEGERS = {"i64": np.dtype(np.int64), "u64": np.dtype(np.uint64), "int": np.dtype(np.int64)}
#: Names beside Parquet files; the package that defines them needs pyarrow.
_UNFINISHED = "_data_stack_progress"
#: Suffixes of compressed files.
COMPRESSED: Final = re.compile(r"(\.(gz|bz2|xz|zst))+$")
PARQUET_NAMES = frozenset(
    {"_common_metadata", "_metadata", "_data_stack_manifest.parquet", _UNFINISHED}
)


# ---------------------------------------------------------------------- files that load() reads and no conversion writes


class TextTableFormat(ReadableFormat):
    """A table in text, which a conversion copies first, in bounded memory."""

    is_streamed = True

    def open(self, location: Location) -> Source:
        return self.open_columns(location, None)

    def open_columns(
        self,
        location: Location,
        columns: Sequence[str] | None,
        *,
        optional: Collection[str] = (),
        **options: Any,
    ) -> Source:
        from data_stack.formats.conversion.text_sources import open_text_table

        given = {**self.options_of_name(location.name), **options}
        return open_text_table(location, self.name, columns, optional, given)

    def options_of_name(self, name: str) -> dict[str, Any]:
        """The options that the name of a file says."""
        return {}


@register_format
class CSVFormat(TextTableFormat):
    """Comma- or tab-separated values with a header; :func:`data_stack.from_csv` reads them."""

    name = "csv"
    suffixes = {".csv": "text/csv", ".tsv": "text/tab-separated-values"}
    options = frozenset(
        {"dtypes", "delimiter", "encoding", "missing", "header", "names", "quoting", "filters"}
    )

    def options_of_name(self, name: str) -> dict[str, Any]:
        return {"delimiter": "\t"} if ".tsv" in name.lower() else {}


@register_format
class JsonLinesFormat(TextTableFormat):
    """A JSON object per line; :func:`data_stack.from_jsonl` reads them."""

    name = "jsonl"
    suffixes = {".jsonl": "application/jsonlines", ".ndjson": "application/x-ndjson"}
    options = frozenset({"dtypes", "filters"})


@register_format
class NpyFormat(Format):
    """One array of NumPy."""

    name = "npy"
    suffixes = {".npy": "application/x-npy"}


@register_format
class RawFormat(Format):
    """Numbers, one behind the other, of the dtype that the option says; files of tokens are such."""

    name = "bin"
    suffixes = {".bin": "application/octet-stream"}
    options = frozenset({"dtype", "header_bytes"})


# ---------------------------------------------------------------------- files with an array for each column


class OneFileFormat(ConvertibleFormat):
    """A format of one file that holds an array for each column; these are collected in memory, then written at once."""

    keeps_files = False
    #: The types of columns that it holds, in addition to images, sound and videos.
    types: ClassVar[Collection[str]] = ("array", "npy", "utf8", *_INTEGERS)

    def is_folder(self, location: Location) -> bool:
        return False

    def check(self, source: Source, location: Location, shardlen: int | None) -> None:
        super().check(source, location, shardlen)
        for name, column in source.schema.items():
            if plain_type(column.type) not in media_types().union(self.types):
                raise ConfigError(
                    f"column {name!r} is of type {column.type!r}, which {self.name} cannot hold; leave it out"
                )

    def write(
        self, source: Source, place: Location, name: str, shardlen: int | None, batches: Batches
    ) -> None:
        parts: dict[str, list[_Array]] = {column: [] for column in source.schema}
        n_bytes = 0
        for batch in batches:
            n_bytes += sum(map(conversion.size_of, batch.values()))
            check_request(
                n_bytes, f"the samples of {source.name!r}, which {self.name} writes from memory,"
            )
            for column, values in batch.items():
                parts[column].append(values)
        columns = {
            name: self._join(name, parts.pop(name), column)
            for name, column in source.schema.items()
        }
        with place.folder.create(place.name) as file:
            self.save(file, columns)

    @abstractmethod
    def save(self, file: Any, columns: Mapping[str, _Array]) -> None:
        """Write all columns into a file.

        Raises:
            ConfigError: the format has no such dtype.
        """

    def _join(self, name: str, parts: list[_Array], column: Column) -> _Array:
        """All values of a column, shape ``(n_samples, ...)``; text has dtype object."""
        kind = plain_type(column.type)
        dtype = column.dtype or _INTEGERS.get(kind)
        if not parts:
            parts = [np.empty((0, *(size or 0 for size in column.shape or ())), dtype)]
        try:
            values = np.concatenate(parts)
            if kind == "utf8":
                return values.astype(object)
            if values.dtype == object:
                raise TypeError("its values differ in shape, or no dtype holds all of them")
            return values if dtype is None else as_dtype(values, dtype)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"{self.name} cannot hold column {name!r}: {error}. Change it, or leave it out"
            ) from error


class ArraysFormat(OneFileFormat):
    """A format whose files are read array by array, so that those that are not asked for need not be columns."""

    def open(self, location: Location) -> Source:
        return self.open_columns(location, None)

    @abstractmethod
    def open_columns(
        self,
        location: Location,
        columns: Sequence[str] | None,
        *,
        optional: Collection[str] = (),
        **options: Any,
    ) -> Source: ...


def _open_arrays(
    location: Location,
    iterator_class: Any,
    keys_of: Callable[[Any], list[Any]],
    columns: Sequence[str] | None,
    optional: Collection[str],
) -> Source:
    """Some arrays of a file, whose keys ``keys_of`` lists, as columns.

    Args:
        location: the file.
        iterator_class: makes an iterator of a resource and the keys by column.
        keys_of: lists the keys of all arrays of a resource.
        columns: as of :meth:`ConvertibleFormat.open_columns`.
        optional: likewise.

    Raises:
        ConfigError: it contains no arrays, or not the columns.
    """
    with contextlib.ExitStack() as stack:
        resource = stack.enter_context(location.open())
        keys = {
            (key if isinstance(key, str) else f"column_{key}"): key for key in keys_of(resource)
        }
        if not keys:
            raise ConfigError(f"{location.full_name} contains no arrays")
        keys = conversion.choose_keys(location.full_name, keys, columns, optional)
        iterator = iterator_class(resource, keys)
        schema = {
            name: column_of_rows(iterator.read_column(name, [0] if len(iterator) else []))
            for name in keys
        }
        return Source(
            location.full_name,
            iterator,
            schema,
            {name: name for name in keys},
            None,
            stack.pop_all(),
        )


def column_of_rows(rows: _Array) -> Column:
    """Describe an array of values, shape ``(n, ...)``, as a column of records.

    Raises:
        ConfigError: no format stores its objects.
    """
    dtype, shape = rows.dtype, rows.shape[1:]
    if dtype.kind == "O":
        return conversion.infer_column(rows.tolist(), "") if len(rows) else Column("utf8")
    return conversion.column_of_dtype(dtype, shape)


@register_format
class HDF5Format(ArraysFormat):
    """An HDF5 file with a contiguous dataset for each column."""

    name = "hdf5"
    suffixes = dict.fromkeys((".h5", ".hdf5", ".hdf"), "application/x-hdf5")
    options = frozenset({"encoding"})

    def open_columns(
        self,
        location: Location,
        columns: Sequence[str] | None,
        *,
        optional: Collection[str] = (),
        **options: Any,
    ) -> Source:
        from data_stack.formats.hdf5 import HDF5DatasetIterator, dataset_keys, datasets_to_read

        open_file = functools.partial(HDF5DatasetIterator, **options)
        if columns is not None and not optional:
            # a file may hold more objects than are listed
            named = list(columns)
            return _open_arrays(location, open_file, lambda _: named, columns, optional)
        # A user who names columns wants nothing else.
        keys_of = datasets_to_read if columns is None else dataset_keys
        return _open_arrays(location, open_file, keys_of, columns, optional)

    def save(self, file: Any, columns: Mapping[str, _Array]) -> None:
        from data_stack.formats.hdf5 import write_hdf5

        write_hdf5(file, columns)


@register_format
class NpzFormat(ArraysFormat):
    """An array for each column; text as strings as long as the longest one."""

    name = "npz"
    suffixes = {".npz": "application/octet-stream"}

    def open_columns(
        self,
        location: Location,
        columns: Sequence[str] | None,
        *,
        optional: Collection[str] = (),
        **options: Any,
    ) -> Source:
        return _open_arrays(location, NpzDatasetIterator, npz_keys, columns, optional)

    def save(self, file: Any, columns: Mapping[str, _Array]) -> None:
        arrays = {
            name: np.array(each.tolist(), np.str_) if each.dtype == object else each
            for name, each in columns.items()
        }
        for name, values in columns.items():
            if values.dtype == object and arrays[name].tolist() != values.tolist():
                raise ConfigError(
                    f"column {name!r} has text that ends with a NUL, which NumPy's strings lose"
                )
        write_npz(file, arrays)


@register_format
class TorchFormat(ArraysFormat):
    """A dict of tensors."""

    name = "torch"
    suffixes = dict.fromkeys((".pt", ".pth"), "application/octet-stream")
    types = ("array", "npy", *_INTEGERS)

    def open_columns(
        self,
        location: Location,
        columns: Sequence[str] | None,
        *,
        optional: Collection[str] = (),
        **options: Any,
    ) -> Source:
        from data_stack.formats.torch_tensors import (
            TensorsDatasetIterator,
            entries_left_out,
            load_tensors,
            tensors_of,
        )

        def keys_of(resource: Any) -> list[str | int]:
            loaded = load_tensors(resource, map_location="meta")
            tensors = tensors_of(loaded, location.full_name)
            if columns is None:
                left_out = entries_left_out(loaded)
                PlaceAccount(location.full_name, len(tensors), tuple(left_out)).warn()
            return list(tensors)

        return _open_arrays(location, TensorsDatasetIterator, keys_of, columns, optional)

    def save(self, file: Any, columns: Mapping[str, _Array]) -> None:
        from data_stack.formats.torch_tensors import save_tensors, tensor_of

        tensors = {}
        for name, values in columns.items():
            try:
                tensors[name] = tensor_of(
                    values.astype(values.dtype.newbyteorder("=")), values.dtype.name
                )
            except TypeError as error:
                raise ConfigError(
                    f"column {name!r} is of dtype {values.dtype}, which torch does not have"
                ) from error
        memory = io.BytesIO()  # torch aborts the process if writing to a Python file fails
        save_tensors(memory, tensors)
        file.write(memory.getbuffer())


# ---------------------------------------------------------------------- folders of files with many samples each


@register_format
class RecordsFormat(ConvertibleFormat):
    """A folder of records, or of shards of records."""

    name = "records"
    has_shards = True

    def recognizes(self, folder: Folder, names: Sequence[str]) -> bool:
        is_sharded = shard_name(0) in names and folder.subfolder(shard_name(0)).has_file(SPEC)
        return SPEC in names or (is_sharded and _UNFINISHED not in names)

    def open(self, location: Location) -> Source:
        with contextlib.ExitStack() as stack:
            reader: Any = stack.enter_context(records.open(location.as_folder()))
            schema, stored = dict(reader.schema), None
            if conversion.holds_files(schema):
                stored = stack.enter_context(
                    records.open(location.as_folder(), codecs=dict.fromkeys(media_types()))
                )
            return Source(
                location.full_name,
                reader,
                schema,
                {name: name for name in schema},
                stored,
                stack.pop_all(),
            )

    def write(
        self, source: Source, place: Location, name: str, shardlen: int | None, batches: Batches
    ) -> None:
        # The bytes of files are stored as they are, so their dtype and shape are not checked.
        spec = {
            name: Column(each.type) if each.codec_type in media_types() else each
            for name, each in source.schema.items()
        }
        options: Any = {} if shardlen is None else {"shardlen": shardlen}
        writer_class: Any = records.ShardedRecordWriter if options else records.RecordWriter
        with writer_class(place.as_folder(), spec, **options) as writer:
            for columns in batches:
                writer.extend(columns)


@register_format
class ParquetFormat(ConvertibleFormat):
    """A Parquet file, or a folder of Parquet files."""

    name = "parquet"
    suffixes = dict.fromkeys((".parquet", ".parq", ".pq"), "application/x-parquet")
    has_shards = True
    options = frozenset({"nulls", "filters"})

    def recognizes(self, folder: Folder, names: Sequence[str]) -> bool:
        endings, folders = (
            tuple(self.suffixes),
            [name for name in names if "=" in name and not name.endswith((".bag", ".idx"))],
        )
        return (
            bool(folders)
            or not PARQUET_NAMES.isdisjoint(names)
            or any(name.endswith(endings) for name in names)
        )

    def open(self, location: Location) -> Source:
        from data_stack.formats.conversion.parquet_columns import (
            columns_of_parquet,
            find_stored_schema,
            open_parquet,
        )

        values = open_parquet(location)
        schema = columns_of_parquet(values)
        stored = (
            open_parquet(location, find_stored_schema(values.schema, schema))
            if conversion.holds_files(schema)
            else None
        )
        return Source(
            location.full_name,
            values,
            schema,
            {name: name for name in values.schema.fields},
            stored,
        )

    def check(self, source: Source, location: Location, shardlen: int | None) -> None:
        from data_stack.formats.conversion.parquet_columns import parquet_schema

        super().check(source, location, shardlen)
        parquet_schema(location.name, source)

    def write(
        self, source: Source, place: Location, name: str, shardlen: int | None, batches: Batches
    ) -> None:
        from data_stack.formats.conversion.parquet_columns import parquet_schema
        from data_stack.formats.parquet import ParquetWriter

        with ParquetWriter(
            place.as_folder(), parquet_schema(name, source), rows_per_file=shardlen
        ) as writer:
            for columns in batches:
                writer.append_columns(columns, encoded=source.stored_names)


# ---------------------------------------------------------------------- finding a format


def convertible_formats() -> dict[str, ConvertibleFormat]:
    """The formats that can be converted, by name."""
    return {
        name: each for name, each in sorted(FORMATS.items()) if isinstance(each, ConvertibleFormat)
    }


def readable_formats() -> dict[str, ReadableFormat]:
    """The formats that a conversion reads, by name."""
    return {
        name: each for name, each in sorted(FORMATS.items()) if isinstance(each, ReadableFormat)
    }


def readable_format_named(name: str) -> ReadableFormat:
    """The format of a name, for the source of a conversion.

    Raises:
        ConfigError: there is no such format.
    """
    formats = readable_formats()
    if name.lower() not in formats:
        raise ConfigError(
            f"unknown format {name!r:.40}{did_you_mean(name, formats)}; known formats: {', '.join(formats)}"
        )
    return formats[name.lower()]


def format_named(name: str) -> ConvertibleFormat:
    """The convertible format of a name.

    Raises:
        ConfigError: there is no such format.
    """
    formats = convertible_formats()
    if name.lower() not in formats:
        raise ConfigError(
            f"unknown format {name!r:.40}{did_you_mean(name, formats)}; known formats: {', '.join(formats)}"
        )
    return formats[name.lower()]


def format_of_suffix(suffix: str) -> Format | None:
    """The format of files whose names end in ``suffix``, such as ``".h5"``; None if it is unknown."""
    return next((each for each in FORMATS.values() if suffix in each.suffixes), None)


def format_of_name(name: str) -> Format | None:
    """The format of a file by the suffix of its name, also of a compressed one; None if the suffix is unknown."""
    plain = COMPRESSED.sub("", name.lower())
    known = format_of_suffix(os.path.splitext(plain)[1])
    if known is None or (plain != name.lower() and not known.is_streamed):
        return None
    return known


def find_format(location: Location, choice: str) -> str:
    """Detect the format of the dataset at ``location`` by the suffix of a file or by the contents of a folder.

    Args:
        location: the dataset.
        choice: how to name the format, for errors.

    Raises:
        ConfigError: nothing is there, or no format or several formats fit.
    """
    folder, formats = location.as_folder(), convertible_formats().values()
    names = folder.list_names() if folder.can_delete else []
    if not names and location.is_file():
        return find_format_of_name(location, choice, ReadableFormat)
    names = names or folder.list_names()
    if not names:
        if location.path is not None and location.path.is_dir():
            raise ConfigError(f"the folder {location.full_name} is empty")
        raise ConfigError(f"there is nothing at {location.full_name}")
    refuse_managed_table(folder, names)
    for is_fallback in (False, True):
        found = [
            each.name
            for each in formats
            if each.is_fallback == is_fallback and each.recognizes(folder, names)
        ]
        if found:
            break
    if len(found) != 1:
        why = f"its contents fit {' and '.join(found) or 'no format'}"
        raise ConfigError(f"cannot detect the format of {location.full_name}: {why}; {choice}")
    return found[0]


def find_format_of_name(
    location: Location, choice: str, kind: type[Format] = ConvertibleFormat
) -> str:
    """The format of a suffix, which must be of a kind; raises as :func:`find_format`."""
    known_format = format_of_name(location.name)
    if not isinstance(known_format, kind):
        known = ", ".join(suffix for each in FORMATS.values() for suffix in each.suffixes)
        raise ConfigError(
            f"cannot detect the format of {location.full_name} by its suffix (known: {known}); {choice}"
        )
    return known_format.name
