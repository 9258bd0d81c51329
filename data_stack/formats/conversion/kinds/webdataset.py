"""WebDataset's shards."""

from __future__ import annotations

from collections.abc import Sequence

from data_stack.codecs.codec import Column, media_types
from data_stack.dataset.iterator.contract import ColumnKey
from data_stack.exception import ConfigError
from data_stack.formats.conversion.format import Batches, ConvertibleFormat, Destination, register_format
from data_stack.formats.conversion.source import Source, infer_column, plain_type, samples_of_batches
from data_stack.io.folder import Folder
from data_stack.io.location import Location

_DEFAULT_SHARDLEN = 10_000


@register_format
class WebDatasetFormat(ConvertibleFormat):
    """A ``.tar``, or a folder of shards with a list of them, which is written last."""

    name = "webdataset"
    suffixes = {".tar": "application/x-tar"}
    has_shards = True

    def is_folder(self, location: Location) -> bool:
        return not location.name.lower().endswith(".tar")

    def recognizes(self, folder: Folder, names: Sequence[str]) -> bool:
        return any(name.endswith(".tar") for name in names)

    def open(self, location: Location) -> Source:
        from data_stack.formats.webdataset import KEY, WebDatasetIterator, column_of_field, shard_names, type_of_field

        folder = location.as_folder()
        shards = [location] if location.is_file() else [Location(folder, name) for name in shard_names(folder)]
        if not shards:
            raise ConfigError(f"{location.full_name} contains no .tar file")
        values = WebDatasetIterator(shards)
        columns = [column_of_field(each) for each in values.fields]
        keys: dict[str, ColumnKey] = {
            (column if columns.count(column) == 1 else each): each for column, each in zip(columns, values.fields, strict=True)
        }
        schema = {column: Column(type_of_field(str(each))) for column, each in keys.items()}
        for column, each in keys.items():
            if schema[column].type == "npy" and len(values):
                schema[column] = infer_column([values.read_column(each, [0])[0]], column)
        stored = None
        if any(column.type in media_types() for column in schema.values()):
            endings = {str(each).rpartition(".")[2] for each in keys.values()}
            files = {ending: None for ending in endings if type_of_field(ending) in media_types()}
            stored = WebDatasetIterator(shards, types=files)
        if list(values.keys) != [f"{position:09d}" for position in range(len(values))]:
            schema = {KEY: Column("utf8"), **schema}
        return Source(location.full_name, values, schema, {KEY: KEY, **keys}, stored)

    def check(self, source: Source, destination: Destination) -> None:
        super().check(source, destination)
        name = destination.location.name
        if destination.shardlen is not None and not self.is_folder(destination.location):
            raise ConfigError(f"{name!r} is one file; give a folder for shards: {name[:-4]!r}")
        fields = _fields(source)
        if len({field.lower() for field in fields.values()}) < len(fields):
            raise ConfigError(f"two columns would be one file in a shard: {', '.join(sorted(fields.values()))}; rename one")

    def write(self, source: Source, destination: Destination, batches: Batches) -> None:
        from data_stack.formats.webdataset_writer import WebDatasetWriter, write_shard

        place, samples = destination.place, samples_of_batches(batches, _fields(source))
        if not self.is_folder(destination.location):
            write_shard(place.folder, place.name, samples)
            return
        shardlen = destination.shardlen or _DEFAULT_SHARDLEN
        with WebDatasetWriter(place.as_folder(), name=destination.location.name, shardlen=shardlen) as writer:
            for sample in samples:
                writer.append(sample)


def _fields(source: Source) -> dict[str, str]:
    """The name of the file in a sample by column."""
    from data_stack.formats.webdataset import KEY, field_of_column

    return {
        name: KEY if name == KEY else field_of_column(name, plain_type(column.type)) for name, column in source.schema.items()
    }
