"""The format of WebDataset's shards."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from data_stack.codecs.codec import ColumnType
from data_stack.codecs.registry import codec_of, media_types, type_of_extension
from data_stack.dataset.iterator import ColumnKey, DatasetIteratorIF
from data_stack.exception import ConfigError
from data_stack.formats.column_source import ColumnSource, choose_keys
from data_stack.formats.column_types import infer_column, media_columns, plain_type
from data_stack.formats.format import (
    ALL_COLUMNS,
    Batch,
    ColumnChoice,
    FormatOptions,
    WritableFormat,
    WriteBatch,
    samples_of_batch,
)
from data_stack.formats.registry import register_format
from data_stack.formats.split_names import warn_of_missing_parts
from data_stack.formats.webdataset import WebDatasetIterator
from data_stack.formats.webdataset_fields import (
    INTEGERS,
    KEY,
    PICKLES_AS_BYTES,
    extension_of_field,
    type_of_field,
)
from data_stack.formats.webdataset_shards import SHARD_INDEX, account_of_shards, shard_names
from data_stack.formats.webdataset_writer import (
    DEFAULT_SHARDLEN,
    SingleShardWriter,
    WebDatasetWriter,
)
from data_stack.io.account import PlaceAccount
from data_stack.io.folder import Folder
from data_stack.io.location import Location

#: The extensions of columns whose types are not those of files.
_EXTENSIONS: Final = {"i64": "cls", "int": "cls", "array": "npy", "u64": "npy"}


@dataclass(frozen=True)
class WebDatasetOptions(FormatOptions):
    """The options of WebDatasets.

    :class:`~data_stack.formats.WebDatasetIterator` documents them.
    """

    types: Mapping[str, Any] | None = None


@register_format
class WebDatasetFormat(WritableFormat):
    """A shard, which is a ``.tar``, or a folder of shards."""

    name = "webdataset"
    suffixes = {".tar": "application/x-tar"}
    listing_files = frozenset({SHARD_INDEX})
    options_class = WebDatasetOptions
    has_shards = True

    def recognize(self, folder: Folder, names: Sequence[str]) -> bool:
        return any(name.lower().endswith(".tar") for name in names)

    def open(
        self,
        location: Location,
        columns: ColumnChoice = ALL_COLUMNS,
        options: WebDatasetOptions | None = None,
    ) -> DatasetIteratorIF:
        samples = _open_location(location, columns, _types_of(options))
        # Reads the index of the shards now, so that load() raises the error of a damaged file.
        len(samples)
        return samples

    def open_parts(
        self,
        parts: Sequence[Location],
        columns: ColumnChoice = ALL_COLUMNS,
        options: WebDatasetOptions | None = None,
    ) -> list[DatasetIteratorIF]:
        are_files = all(part.is_file() for part in parts)
        if len(parts) > 1 and are_files:
            return [_open_shards(parts, columns, _types_of(options))]
        return super().open_parts(parts, columns, options)

    def list_columns(self, samples: Any) -> list[ColumnKey]:
        return [KEY, *samples.fields]

    def account_of(self, folder: Folder) -> PlaceAccount:
        return account_of_shards(folder)

    def open_source(
        self,
        location: Location,
        columns: ColumnChoice = ALL_COLUMNS,
        options: WebDatasetOptions | None = None,
    ) -> ColumnSource:
        types = _types_of(options)
        samples = _open_location(location, columns, types)
        fields = _fields_by_column(samples.fields)

        schema: dict[str, ColumnType] = {}
        for name, field in fields.items():
            column = _column_of_field(field, types)
            if column.type == "npy" and len(samples):
                first_values = list(samples.read_column(field, [0]))
                column = infer_column(first_values, name)
            schema[name] = column

        stored = None
        if media_columns(schema):
            extensions = {extension_of_field(field) for field in fields.values()}
            as_bytes = {
                extension: None
                for extension in extensions
                if type_of_field(extension) in media_types()
            }
            stored = samples.with_fields(samples.fields, {**types, **as_bytes})

        # Keys that only number the samples are no column.
        if list(samples.keys) != [f"{position:09d}" for position in range(len(samples))]:
            schema = {KEY: ColumnType("utf8"), **schema}
        keys: dict[str, ColumnKey] = {KEY: KEY, **fields}
        return ColumnSource(location.full_name, samples, schema, keys, stored)

    # ------------------------------------------------------------------ writing

    def writes_folder(self, location: Location) -> bool:
        return not location.name.lower().endswith(".tar")

    def check(self, source: ColumnSource, location: Location, shardlen: int | None) -> None:
        super().check(source, location, shardlen)
        if shardlen is not None and not self.writes_folder(location):
            raise ConfigError(
                f"{location.name!r} is one file; "
                f"give a folder for shards: {location.name[: -len('.tar')]!r}"
            )
        for column_name in source.schema:
            # The writer leaves out such fields, as WebDataset's does.
            if column_name.startswith("__") and column_name != KEY:
                raise ConfigError(
                    f"column {column_name!r}: WebDataset reserves names that begin with '__'; "
                    "rename the column, or leave it out"
                )
        fields = sorted(_fields_to_write(source).values())
        if len({field.lower() for field in fields}) < len(fields):
            raise ConfigError(
                f"two columns would be one file in a shard: {', '.join(fields)}; rename one"
            )

    @contextlib.contextmanager
    def writer(
        self, location: Location, source: ColumnSource, *, name: str, shardlen: int | None
    ) -> Iterator[WriteBatch]:
        fields = _fields_to_write(source)
        if self.writes_folder(location):
            writer = WebDatasetWriter(
                location.as_folder(), name=name, shardlen=shardlen or DEFAULT_SHARDLEN
            )
        else:
            writer = SingleShardWriter(location)

        def write_batch(batch: Batch) -> None:
            for sample in samples_of_batch(batch):
                writer.append({fields[name]: value for name, value in sample.items()})

        with writer:
            yield write_batch


# ---------------------------------------------------------------------- opening


def _open_location(
    location: Location, columns: ColumnChoice, types: Mapping[str, Any]
) -> WebDatasetIterator:
    """Open a shard, or a folder of shards.

    Args:
        location: the file or folder.
        columns: the columns that will be read.
        types: decoders by extension.
    """
    if location.is_file():
        return _open_shards([location], columns, types)
    folder = location.as_folder()
    shards = [Location(folder, name) for name in shard_names(folder)]
    if not shards:
        raise ConfigError(f"{location.full_name} contains no .tar file")
    samples = _open_shards(shards, columns, types)
    samples.account = account_of_shards(folder)
    samples.account.warn()
    warn_of_missing_parts(location.full_name, [shard.name for shard in shards])
    return samples


def _open_shards(
    shards: Sequence[Location], columns: ColumnChoice, types: Mapping[str, Any]
) -> WebDatasetIterator:
    """Open shards with the fields of the columns that will be read. Others need no decoder.

    Raises:
        ConfigError: a required column does not exist, or is a pickle.
    """
    # The iterator takes a tuple for one shard in a store.
    locations = list(shards)
    if columns.required is None:
        return WebDatasetIterator(locations, types=types)

    all_fields = WebDatasetIterator(locations, types={**PICKLES_AS_BYTES, **types})
    # A user may name a column without the extension of its field. A name that is also that of a
    # field means the field, so that fields are added last.
    keys: dict[str, ColumnKey] = {KEY: KEY}
    for field in all_fields.fields:
        keys[_column_name_of_field(field)] = field
    keys.update({field: field for field in all_fields.fields})
    chosen_keys = choose_keys(locations[0].full_name, keys, columns.required, columns.optional)
    chosen_fields = [field for field in all_fields.fields if field in chosen_keys.values()]
    return all_fields.with_fields(chosen_fields, types)


# ---------------------------------------------------------------------- fields and columns


def _fields_by_column(fields: Sequence[str]) -> dict[str, str]:
    """Return each field by the name of its column.

    The name is the field without its extension, unless two fields would have one name, or it is
    the name of another field.
    """
    names = [_column_name_of_field(field) for field in fields]
    counts = Counter(names)
    by_column = {}
    for name, field in zip(names, fields, strict=True):
        is_unique = counts[name] == 1 and name not in fields
        column_name = name if is_unique else field
        by_column[column_name] = field
    return by_column


def _column_name_of_field(field: str) -> str:
    """Return the name of a field's column: ``"image"`` for ``"image.jpg"``.

    It is the inverse of :func:`_field_of_column`. The column of keys keeps its name for itself.
    """
    stem, _, extension = field.rpartition(".")
    is_extension = extension in INTEGERS or type_of_extension(extension) is not None
    if stem and stem != KEY and is_extension:
        return stem
    return field


def _column_of_field(field: str, types: Mapping[str, Any]) -> ColumnType:
    """Return the type of the column of a field.

    Args:
        field: the field.
        types: the decoders that a user gave, by extension.
    """
    extension = extension_of_field(field)
    if extension not in types:
        return ColumnType(type_of_field(field))
    decoder = types[extension]
    if decoder is None:
        return ColumnType("bytes")
    if isinstance(decoder, str):
        return ColumnType(decoder)
    # A decoder of the user's may return anything.
    return ColumnType("json")


def _fields_to_write(source: ColumnSource) -> dict[str, str]:
    """Return the field in which each column of a source is written."""
    fields = {}
    for name, column in source.schema.items():
        fields[name] = KEY if name == KEY else _field_of_column(name, plain_type(column.type))
    return fields


def _field_of_column(column_name: str, type_name: str) -> str:
    """Return the field of a column, such as ``"image.jpg"``.

    A column whose name is such an extension keeps its name.

    Raises:
        ConfigError: shards have no files of the type.
    """
    extension = _extension_of_type(type_name)
    if extension is None:
        raise ConfigError(
            f"column {column_name!r} is of type {type_name!r}, which WebDataset cannot store; "
            "leave it out"
        )
    if "." not in column_name and type_of_field(column_name) == type_of_field(extension):
        return column_name
    return f"{column_name}.{extension}"


def _extension_of_type(type_name: str) -> str | None:
    """Return the extension of files of a type; None if the type has no files."""
    if type_name in _EXTENSIONS:
        return _EXTENSIONS[type_name]
    is_wrapped = type_name.endswith(")")
    if is_wrapped:
        return None
    extensions = codec_of(type_name).extensions
    return extensions[0] if extensions else None


def _types_of(options: WebDatasetOptions | None) -> dict[str, Any]:
    """Return the decoders that a user gave, by extension."""
    if options is None or options.types is None:
        return {}
    return dict(options.types)
