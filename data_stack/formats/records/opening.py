"""Opens a record dataset, whichever of its forms lies there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from data_stack.codecs.registry import Codecs
from data_stack.exception import ResourceNotFoundError
from data_stack.formats.records.layout import SPEC
from data_stack.formats.records.reader import RecordReader
from data_stack.formats.records.sharded import ShardedRecordReader, shard_names
from data_stack.io.folder import folder_of

__all__ = ["open"]


def open(  # noqa: A001  # records.open("train")
    source: Any,
    *,
    prefix: str = "",
    codecs: Codecs | None = None,
    columns: Sequence[str] | None = None,
    mapped: bool = True,
) -> RecordReader | ShardedRecordReader:
    """The samples of a record dataset: of one folder, or of shards; of any version of Granular's files.

    ::

        with records.open("train") as reader: ...
        with records.open("mongodb://localhost/data", prefix="mnist/train") as reader: ...

    The arguments are those of :class:`RecordReader`.

    Raises:
        ResourceNotFoundError: there is no record dataset.
        DatasetFileCorruptError: it is damaged or incomplete, as far as can be told without reading its records.
        ConfigError: there is no such column or codec.
    """
    folder = folder_of(source, prefix)
    options: dict[str, Any] = {"codecs": codecs, "columns": columns, "mapped": mapped}
    if not folder.has_file(SPEC) and shard_names(folder):
        return ShardedRecordReader(folder, **options)
    try:
        return RecordReader(folder, **options)
    except ResourceNotFoundError as error:
        raise ResourceNotFoundError(
            f"there is no record dataset in {folder.name or 'the store'!r}: neither a {SPEC} nor a shard such as 000000/{SPEC}"
        ) from error
