"""Record datasets."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from data_stack.codecs.codec import Column, media_types
from data_stack.formats import records
from data_stack.formats.conversion.format import Batches, ConvertibleFormat, Destination, register_format
from data_stack.formats.conversion.source import Source
from data_stack.formats.records.layout import SPEC, shard_name
from data_stack.io.folder import Folder
from data_stack.io.location import Location


@register_format
class RecordsFormat(ConvertibleFormat):
    """A folder of records, or of shards of records."""

    name = "records"
    has_shards = True

    def recognizes(self, folder: Folder, names: Sequence[str]) -> bool:
        return SPEC in names or (shard_name(0) in names and folder.subfolder(shard_name(0)).has_file(SPEC))

    def open(self, location: Location) -> Source:
        with contextlib.ExitStack() as stack:
            reader: Any = stack.enter_context(records.open(location.as_folder()))
            schema, stored = dict(reader.schema), None
            if any(column.codec_type in media_types() for column in schema.values()):
                stored = stack.enter_context(records.open(location.as_folder(), codecs=dict.fromkeys(media_types())))
            return Source(location.full_name, reader, schema, {name: name for name in schema}, stored, stack.pop_all())

    def write(self, source: Source, destination: Destination, batches: Batches) -> None:
        # The bytes of files are stored as they are, so their dtype and shape are not checked.
        spec = {
            name: Column(column.type) if column.codec_type in media_types() else column for name, column in source.schema.items()
        }
        folder, shardlen = destination.place.as_folder(), destination.shardlen
        options: Any = {} if shardlen is None else {"shardlen": shardlen}
        writer_class: Any = records.ShardedRecordWriter if options else records.RecordWriter
        with writer_class(folder, spec, **options) as writer:
            for columns in batches:
                writer.extend(columns)
