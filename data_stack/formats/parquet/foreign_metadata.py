"""Metadata that other tools need in Parquet datasets, which plugins read and write.

A plugin names a module by an entry point of the group ``data_stack.parquet_metadata``, whose name is the beginning of the keys::

    [project.entry-points."data_stack.parquet_metadata"]
    dataset-toolkit = "data_stack_petastorm.parquet_metadata"

The module has two functions: ``read_schema(metadata)`` returns the schema of the rows, or None; and
``make_metadata(schema, files, before)`` returns the key-value metadata for a dataset of these files.
"""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Mapping, Sequence
from typing import Any

from data_stack.exception import ConfigError
from data_stack.formats.parquet.metadata import ParquetFileRecord, is_foreign
from data_stack.formats.parquet.schema import Schema

_GROUP = "data_stack.parquet_metadata"
_PETASTORM = "dataset-toolkit"


def read_foreign_schema(metadata: Mapping[bytes, bytes]) -> Schema | None:
    """The schema that another tool keeps in key-value metadata; None without one.

    Raises:
        ConfigError: the plugin that reads it is not installed, or a codec is unknown.
        DatasetFileCorruptError: the schema is damaged, or hostile.
    """
    schema: Schema | None = _plugin().read_schema(metadata) if any(map(is_foreign, metadata)) else None
    return schema


def make_foreign_metadata(
    schema: Schema, files: Sequence[ParquetFileRecord], before: Mapping[bytes, bytes]
) -> dict[bytes, bytes]:
    """The metadata ``before``, with what Petastorm needs to read the files.

    Raises:
        ConfigError: the plugin that makes it is not installed, or Petastorm does not support a field.
    """
    ours = {key: value for key, value in before.items() if not is_foreign(key)}
    return {**ours, **_plugin().make_metadata(schema, files, before)}


@functools.cache
def _plugin() -> Any:
    for entry_point in importlib.metadata.entry_points(group=_GROUP, name=_PETASTORM):
        return entry_point.load()
    raise ConfigError("Petastorm's metadata needs the package datastack-petastorm: `pip install ./plugins/petastorm` in a clone")
