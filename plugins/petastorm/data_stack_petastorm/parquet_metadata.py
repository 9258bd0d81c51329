"""Petastorm's metadata of Parquet datasets; data_stack finds this module by its entry point."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from data_stack.exception import ConfigError
from data_stack.formats.parquet import Field, ListCodec, ParquetFileRecord, ScalarCodec, Schema
from data_stack_petastorm import codecs
from data_stack_petastorm.column_codec import UnischemaField
from data_stack_petastorm.pickled_schema import read_pickled_schema, write_pickled_schema
from data_stack_petastorm.schemas import dtype_with_unit

#: Petastorm's pickled schema.
UNISCHEMA_KEY: Final = b"dataset-toolkit.unischema.v1"
#: The number of row groups of each file, as JSON. Petastorm reads only these files.
ROW_GROUPS_KEY: Final = b"dataset-toolkit.num_row_groups_per_file.v1"
#: Petastorm's pickled row-group indexes.
PICKLED_INDEXES_KEY: Final = b"dataset-toolkit.rowgroups_index.v1"


def read_schema(metadata: Mapping[bytes, bytes]) -> Schema | None:
    """The schema in key-value metadata; None without one. Its pickle is not run.

    Raises:
        DatasetFileCorruptError: the pickle is damaged, or contains anything but a schema.
        ConfigError: a field has an unknown codec or dtype.
    """
    if UNISCHEMA_KEY not in metadata:
        return None
    name, fields = read_pickled_schema(metadata[UNISCHEMA_KEY])
    return Schema(name, map(stored_field, fields))


def stored_field(field: UnischemaField) -> Field:
    """A field of data_stack that reads the cells that Petastorm wrote."""
    codec = field.codec
    if codec is None and len(field.shape) > 1:
        raise ConfigError(
            f"field {field.name!r} of shape {field.shape} has no codec; Parquet itself cannot store such arrays"
        )
    if isinstance(codec, codecs.ScalarCodec):
        codec = ListCodec(codec.type_name) if field.shape else ScalarCodec(codec.type_name)
    stored = codecs.as_field_codec(codec)
    dtype = dtype_with_unit(field.numpy_dtype, stored)
    return Field(field.name, dtype, field.shape, stored, bool(field.nullable))


def make_metadata(
    schema: Schema, files: Sequence[ParquetFileRecord], before: Mapping[bytes, bytes]
) -> dict[bytes, bytes]:
    """Key-value metadata for ``_common_metadata``, which Petastorm needs to read the files.

    Args:
        schema: of the rows.
        files: of the dataset.
        before: all metadata so far. A schema that Petastorm wrote stays as it is if it is the same; pickled indexes stay if the
            row groups are the same.

    Raises:
        ConfigError: Petastorm does not support a field.
    """
    counts = {file.name: len(file.row_groups) for file in files}
    is_same = UNISCHEMA_KEY in before and read_schema(before) == schema
    made = {
        UNISCHEMA_KEY: before[UNISCHEMA_KEY] if is_same else write_pickled_schema(schema),
        ROW_GROUPS_KEY: json.dumps(counts).encode(),
    }
    if PICKLED_INDEXES_KEY in before and json.loads(before.get(ROW_GROUPS_KEY, b"null")) in (
        None,
        counts,
    ):
        made[PICKLED_INDEXES_KEY] = before[PICKLED_INDEXES_KEY]
    return made
