"""Names the folders of partitions as Hive does, such as ``day=2024-01-01``."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final
from urllib.parse import quote

import numpy as np

from data_stack.exception import ConfigError
from data_stack.formats.parquet.codecs import ScalarCodec
from data_stack.formats.parquet.files import NULL_PARTITION
from data_stack.formats.parquet.schema import Field, Schema

#: ASCII characters that are written as %XX, which Hive, Spark and pyarrow read, unless ``quote``
#: keeps them. Spark reads letters of other scripts only unchanged, pyarrow both ways.
_QUOTED: Final = re.compile(r"[\0-\x9f]+")
#: Below the 255 bytes that file systems allow for a name.
_MAX_FOLDER_BYTES: Final = 200


def partition_fields(schema: Schema, names: Sequence[str]) -> list[Field]:
    """Return the fields of partition columns.

    Args:
        schema: of the rows.
        names: of the partition columns.

    Raises:
        ConfigError: a column is not in the schema, is named twice or cannot name folders; or no
            column is left for the files.
    """
    fields = [schema[name] for name in names]
    if len(set(names)) != len(names):
        raise ConfigError(f"partition_by names a column twice: {', '.join(map(repr, names))}")
    if fields and len(fields) == len(schema):
        raise ConfigError(
            "a dataset cannot be partitioned by all of its columns: the files would have no columns"
        )
    for field in fields:
        if not _can_name_folders(field):
            raise ConfigError(
                f"cannot partition by {field.name!r}, "
                "only by text, integers, booleans, dates and Decimals"
            )
    return fields


def _can_name_folders(field: Field) -> bool:
    if field.shape or not isinstance(field.codec, ScalarCodec):
        return False
    dtype = field.dtype
    if not isinstance(dtype, np.dtype):
        return dtype is Decimal
    return dtype.kind in "biuU" or dtype == np.dtype("M8[D]")


@functools.lru_cache(maxsize=1024, typed=True)
def folder_of_value(name: str, value: Any) -> str:
    """Return the name of the folder with the rows of a value.

    Args:
        name: of the partition column.
        value: in the column; None for null.

    Raises:
        ValueError: the value cannot name a folder.
    """
    if value is None:
        quoted_value = NULL_PARTITION
    else:
        text = _text_of(value)
        if text in ("", NULL_PARTITION):
            raise ValueError(f"{text!r} cannot name a partition's folder: it would mean null")
        quoted_value = _quote(text)
    folder = f"{_quote(name)}={quoted_value}"
    if len(folder.encode()) > _MAX_FOLDER_BYTES:
        raise ValueError(f"{folder[:60]!r}… is too long to name a partition's folder")
    return folder


def _text_of(value: Any) -> str:
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _quote(text: str) -> str:
    return _QUOTED.sub(lambda match: quote(match[0], safe="~+,@"), text)
