"""Reads and writes the metadata that another tool needs, by a plugin.

A plugin names a module by an entry point of the group ``data_stack.parquet_metadata``, whose name
is the beginning of the keys::

    [project.entry-points."data_stack.parquet_metadata"]
    dataset-toolkit = "data_stack_petastorm.parquet_metadata"

The module has two functions: ``read_schema(metadata)`` returns the schema of the rows, or None; and
``make_metadata(schema, files, before)`` returns the key-value metadata for a dataset of these
files.
"""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Mapping, Sequence
from typing import Any, Final

from data_stack.exception import ConfigError, install_command
from data_stack.formats.parquet.manifest import ParquetFileRecord
from data_stack.formats.parquet.schema import Schema

#: The entry points of plugins.
_GROUP: Final = "data_stack.parquet_metadata"


def is_foreign(key: bytes) -> bool:
    """Return whether a key is Petastorm's, and belongs into ``_common_metadata``."""
    return key.startswith(b"dataset-toolkit.")


def has_foreign(metadata: Mapping[bytes, bytes]) -> bool:
    """Return whether metadata have keys of Petastorm."""
    return any(is_foreign(key) for key in metadata)


def without_foreign(metadata: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Return metadata without the keys of Petastorm."""
    return {key: value for key, value in metadata.items() if not is_foreign(key)}


def read_foreign_schema(metadata: Mapping[bytes, bytes]) -> Schema | None:
    """Read the schema that another tool keeps in key-value metadata; None without one.

    Raises:
        ConfigError: the plugin that reads it is not installed, or a codec is unknown.
        DatasetFileCorruptError: the schema is damaged, or hostile.
    """
    if not has_foreign(metadata):
        return None
    schema: Schema | None = _petastorm_plugin().read_schema(metadata)
    return schema


def add_foreign_metadata(
    metadata: Mapping[bytes, bytes],
    schema: Schema,
    files: Sequence[ParquetFileRecord],
    *,
    always: bool,
) -> Mapping[bytes, bytes]:
    """Add what Petastorm needs to read the files, or update it.

    Args:
        metadata: key-value metadata of the dataset.
        schema: of the rows.
        files: of the dataset.
        always: whether to add it to metadata without it; otherwise these are unchanged.

    Raises:
        ConfigError: the plugin that makes it is not installed, or Petastorm does not support a
            field.
    """
    if not always and not has_foreign(metadata):
        return metadata
    foreign = _petastorm_plugin().make_metadata(schema, files, metadata)
    return {**without_foreign(metadata), **foreign}


@functools.cache
def _petastorm_plugin() -> Any:
    for entry_point in importlib.metadata.entry_points(group=_GROUP, name="dataset-toolkit"):
        return entry_point.load()
    raise ConfigError(
        "Petastorm's metadata needs the package lazy-data-stack-petastorm: "
        f"{install_command('petastorm')}"
    )
