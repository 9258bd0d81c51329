"""Converts between our metadata of a Parquet dataset and Petastorm's, which a plugin knows.

"Foreign" metadata are Petastorm's. The plugin is a module with two functions:

- ``read_schema(metadata)`` returns the schema of the rows, or None if the metadata have no schema;
- ``make_metadata(schema, files, before)`` returns the foreign metadata of a dataset of these files.
  ``before`` are the key-value metadata so far.

A package names its module by an entry point of the group ``data_stack.parquet_metadata``. The name
of the entry point is the beginning of the foreign keys::

    [project.entry-points."data_stack.parquet_metadata"]
    dataset-toolkit = "data_stack_petastorm.parquet_metadata"
"""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Mapping, Sequence
from typing import Any, Final

from data_stack.exception import ConfigError, install_command
from data_stack.formats.parquet.manifest import ParquetFileRecord
from data_stack.formats.parquet.schema import Schema

#: The group of the entry points of plugins.
_GROUP: Final = "data_stack.parquet_metadata"
#: The name of the entry point, with which Petastorm's keys begin.
_PETASTORM: Final = "dataset-toolkit"


def is_foreign(key: bytes) -> bool:
    """Return whether a key of metadata is Petastorm's."""
    return key.startswith(f"{_PETASTORM}.".encode())


def has_foreign(metadata: Mapping[bytes, bytes]) -> bool:
    """Return whether metadata have keys of Petastorm."""
    return any(is_foreign(key) for key in metadata)


def without_foreign(metadata: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Return a copy of metadata without the keys of Petastorm."""
    return {key: value for key, value in metadata.items() if not is_foreign(key)}


def read_foreign_schema(metadata: Mapping[bytes, bytes]) -> Schema | None:
    """Read the schema that Petastorm keeps in key-value metadata; None without one.

    Raises:
        ConfigError: the plugin is not installed, or a codec is unknown.
        DatasetFileCorruptError: the schema is damaged, or would run code.
    """
    if not has_foreign(metadata):
        return None
    schema: Schema | None = _load_petastorm_plugin().read_schema(metadata)
    return schema


def add_foreign_metadata(
    metadata: Mapping[bytes, bytes],
    schema: Schema,
    files: Sequence[ParquetFileRecord],
    *,
    always: bool,
) -> Mapping[bytes, bytes]:
    """Add the metadata that Petastorm needs to read the files, or replace older ones.

    Args:
        metadata: the key-value metadata of the dataset.
        schema: the schema of the rows.
        files: the files of the dataset.
        always: True adds foreign metadata in any case; False only replaces those that exist.

    Returns:
        The metadata with the foreign ones; ``metadata`` itself if nothing is added.

    Raises:
        ConfigError: the plugin is not installed, or Petastorm does not support a field.
    """
    if not always and not has_foreign(metadata):
        return metadata
    foreign = _load_petastorm_plugin().make_metadata(schema, files, metadata)
    return {**without_foreign(metadata), **foreign}


@functools.cache
def _load_petastorm_plugin() -> Any:
    """Load the module of the plugin.

    Raises:
        ConfigError: the plugin is not installed.
    """
    entry_points = tuple(importlib.metadata.entry_points(group=_GROUP, name=_PETASTORM))
    if not entry_points:
        raise ConfigError(
            "Petastorm's metadata needs the package lazy-data-stack-petastorm: "
            f"{install_command('petastorm')}"
        )
    return entry_points[0].load()
