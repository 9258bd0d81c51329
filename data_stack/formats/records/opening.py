"""Opens record datasets, in one folder or in shards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from data_stack.codecs.codec import Codecs
from data_stack.formats.records.layout import SPEC, shard_names
from data_stack.formats.records.reader import RecordReader
from data_stack.formats.records.sharded_reader import ShardedRecordReader
from data_stack.io.folder import folder_of


def open(  # noqa: A001  # records.open("train")
    source: Any,
    *,
    prefix: str = "",
    codecs: Codecs | None = None,
    columns: Sequence[str] | None = None,
    mapped: bool = True,
) -> RecordReader | ShardedRecordReader:
    """Open a record dataset, in one folder or in shards, of any version of Granular's files.

    ::

        with records.open("train") as reader: ...
        with records.open("mongodb://localhost/data", prefix="mnist/train") as reader: ...

    The arguments are those of :class:`RecordReader`.

    Raises:
        ResourceNotFoundError: there is no record dataset.
        DatasetFileCorruptError: the dataset is damaged or incomplete, as far as that shows without
            reading records.
        ConfigError: a column or codec does not exist.
    """
    folder = folder_of(source, prefix)
    is_sharded = not folder.has_file(SPEC) and len(shard_names(folder)) > 0
    if is_sharded:
        return ShardedRecordReader(folder, codecs=codecs, columns=columns, mapped=mapped)
    return RecordReader(folder, codecs=codecs, columns=columns, mapped=mapped)
