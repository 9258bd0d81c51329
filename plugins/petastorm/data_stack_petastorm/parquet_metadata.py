"""Petastorm's metadata of Parquet datasets; data_stack finds this module by its entry point."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from data_stack.exception import ConfigError
from data_stack.formats.parquet import Field, ListCodec, ParquetFileRecord, ScalarCodec, Schema
from data_stack_petastorm import codecs
from data_stack_petastorm.pickles.schema_reader import read_pickled_schema
from data_stack_petastorm.pickles.schema_writer import write_pickled_schema
from data_stack_petastorm.schemas import dtype_with_unit
from data_stack_petastorm.unischema_field import UnischemaField

#: Petastorm's pickled schema.
UNISCHEMA_KEY: Final = b"dataset-toolkit.unischema.v1"

#: The number of row groups of each file, as JSON. Petastorm reads only these files.
ROW_GROUPS_KEY: Final = b"dataset-toolkit.num_row_groups_per_file.v1"

#: Petastorm's pickled row-group indexes.
PICKLED_INDEXES_KEY: Final = b"dataset-toolkit.rowgroups_index.v1"


def read_schema(metadata: Mapping[bytes, bytes]) -> Schema | None:
    """Return the schema in key-value metadata; None without one. Its pickle is not run.

    Raises:
        DatasetFileCorruptError: the pickle is damaged, or contains anything but a schema.
        ConfigError: a field has an unknown codec or dtype.
    """
    if UNISCHEMA_KEY not in metadata:
        return None
    name, unischema_fields = read_pickled_schema(metadata[UNISCHEMA_KEY])
    return Schema(name, [stored_field(field) for field in unischema_fields])


def stored_field(field: UnischemaField) -> Field:
    """Return a field of data_stack that reads the cells that Petastorm wrote.

    Raises:
        ConfigError: Parquet cannot store arrays of the field without a codec.
    """
    if field.codec is None and len(field.shape) > 1:
        raise ConfigError(
            f"field {field.name!r} of shape {field.shape} has no codec; Parquet itself cannot "
            "store such arrays"
        )
    codec = _stored_codec(field)
    dtype = dtype_with_unit(field.numpy_dtype, codec)
    return Field(field.name, dtype, field.shape, codec, bool(field.nullable))


def _stored_codec(field: UnischemaField) -> Any:
    """Return the codec of data_stack that reads the cells of a field; None for the default."""
    if not isinstance(field.codec, codecs.ScalarCodec):
        return codecs.as_field_codec(field.codec)
    # Petastorm checks values when it writes them, so a reader need not accept other numbers.
    if field.shape:
        return ListCodec(field.codec.type_name)
    return ScalarCodec(field.codec.type_name)


def make_metadata(
    schema: Schema, files: Sequence[ParquetFileRecord], before: Mapping[bytes, bytes]
) -> dict[bytes, bytes]:
    """Return key-value metadata for ``_common_metadata``, which Petastorm needs to read the files.

    Args:
        schema: the schema of the rows.
        files: the files of the dataset.
        before: all metadata so far. If it has the same schema, as Petastorm wrote it, that stays as
            it is. Pickled indexes stay if the row groups are the same.

    Raises:
        ConfigError: Petastorm does not support a field.
    """
    metadata: dict[bytes, bytes] = {}
    if UNISCHEMA_KEY in before and read_schema(before) == schema:
        metadata[UNISCHEMA_KEY] = before[UNISCHEMA_KEY]
    else:
        metadata[UNISCHEMA_KEY] = write_pickled_schema(schema)

    n_row_groups = {file.name: len(file.row_groups) for file in files}
    metadata[ROW_GROUPS_KEY] = json.dumps(n_row_groups).encode()

    if PICKLED_INDEXES_KEY in before:
        n_row_groups_before = json.loads(before.get(ROW_GROUPS_KEY, b"null"))
        if n_row_groups_before is None or n_row_groups_before == n_row_groups:
            metadata[PICKLED_INDEXES_KEY] = before[PICKLED_INDEXES_KEY]
    return metadata
