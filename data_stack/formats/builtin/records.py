"""The format of records."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

from data_stack.codecs.codec import ColumnType
from data_stack.codecs.registry import media_types
from data_stack.dataset.iterator import ColumnKey, DatasetIteratorIF
from data_stack.formats import records
from data_stack.formats.column_source import ColumnSource
from data_stack.formats.column_types import media_columns
from data_stack.formats.format import ALL_COLUMNS, ColumnChoice, WritableFormat, WriteBatch
from data_stack.formats.records.layout import SPEC, shard_name
from data_stack.formats.records.manifest import MANIFEST
from data_stack.formats.registry import register_format
from data_stack.io.account import PlaceAccount, account_of
from data_stack.io.folder import Folder
from data_stack.io.location import Location

#: The folder that a writer of Parquet keeps beside its files until the dataset is complete.
_UNFINISHED: Final = "_data_stack_progress"

#: The rule that leaves a file out of a folder of records.
_NO_RECORDS: Final = "no file of records"


@register_format
class RecordsFormat(WritableFormat):
    """A folder of records, or of shards of records."""

    name = "records"
    listing_files = frozenset({SPEC})
    is_loaded_by_name = True
    has_shards = True
    holds_sequences = True

    def recognize(self, folder: Folder, names: Sequence[str]) -> bool:
        if SPEC in names:
            return True
        first_shard = shard_name(0)
        if first_shard not in names or _UNFINISHED in names:
            return False
        return folder.subfolder(first_shard).has_file(SPEC)

    def open(
        self, location: Location, columns: ColumnChoice = ALL_COLUMNS, options: Any = None
    ) -> DatasetIteratorIF:
        folder = location.as_folder()
        self.account_of(folder).warn()
        return records.open(folder)

    def list_columns(self, samples: Any) -> list[ColumnKey]:
        return list(samples.schema)

    def account_of(self, folder: Folder) -> PlaceAccount:
        paths, links = folder.survey()
        paths_read = [path for path in paths if _is_of_records(path)]
        return account_of(folder.full_name(""), paths_read, paths, _NO_RECORDS, links)

    def open_source(
        self, location: Location, columns: ColumnChoice = ALL_COLUMNS, options: Any = None
    ) -> ColumnSource:
        folder = location.as_folder()
        with contextlib.ExitStack() as stack:
            samples: Any = stack.enter_context(records.open(folder))
            schema = dict(samples.schema)
            stored = None
            if media_columns(schema):
                as_bytes = dict.fromkeys(media_types())
                stored = stack.enter_context(records.open(folder, codecs=as_bytes))
            keys: dict[str, ColumnKey] = {name: name for name in schema}
            return ColumnSource(location.full_name, samples, schema, keys, stored, stack.pop_all())

    @contextlib.contextmanager
    def writer(
        self, location: Location, source: ColumnSource, *, name: str, shardlen: int | None
    ) -> Iterator[WriteBatch]:
        # The bytes of files are stored as they are, so their dtype and shape are not checked.
        spec = dict(source.schema)
        for column_name in media_columns(source.schema):
            spec[column_name] = ColumnType(spec[column_name].type)

        folder = location.as_folder()
        writer: Any
        if shardlen is None:
            writer = records.RecordWriter(folder, spec)
        else:
            writer = records.ShardedRecordWriter(folder, spec, shardlen=shardlen)
        with writer:
            yield writer.extend


def _is_of_records(path: str) -> bool:
    """Return whether a file is one of records: of a column, or one that describes them."""
    # Shards lie one folder below.
    if path.count("/") > 1:
        return False
    file_name = path.rpartition("/")[2]
    return file_name in (SPEC, MANIFEST) or file_name.endswith((".bag", ".idx"))
