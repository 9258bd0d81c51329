"""The schema that the files of a dataset tell."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.parquet.files import partition_names
from data_stack.formats.parquet.footers import Footers
from data_stack.formats.parquet.inference import infer_schema
from data_stack.formats.parquet.petastorm_metadata import UNISCHEMA_KEY, schema_from_pickled
from data_stack.formats.parquet.pickled import read_pickled_schema
from data_stack.formats.parquet.schema import Field, Schema

__all__ = ["read_schema"]

_INTEGER: Final = re.compile(r"-?(0|[1-9]\d{0,17})")


def read_schema(footers: Footers) -> Schema:
    """The schema in the metadata of a dataset: ours, or Petastorm's, which is not run; else one that its columns tell.

    Columns in the names of folders that it does not name are added.

    Raises:
        DatasetFileCorruptError: it is damaged, or hostile.
        ConfigError: it has a codec that is not known here.
    """
    metadata = footers.metadata
    try:
        schema = Schema.from_metadata(metadata)
        if schema is None and UNISCHEMA_KEY in metadata:
            schema = schema_from_pickled(read_pickled_schema(metadata[UNISCHEMA_KEY]))
        if schema is None:
            schema = infer_schema(footers.arrow_schema)
    except (ConfigError, DatasetFileCorruptError) as error:
        raise type(error)(f"the schema of {footers.files.folder.name}: {error}") from error
    fields = list(schema)
    for name in partition_names(footers.files.partitions):
        if name not in schema:
            texts = [values.get(name) for values in footers.files.partitions]
            is_integer = all(text is None or _INTEGER.fullmatch(text) for text in texts) and any(texts)
            fields.append(Field(name, np.int64 if is_integer else str, (), None, None in texts))
    return Schema(schema.name, fields)
