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
from data_stack.formats.parquet.types import numpy_dtype

#: Characters of ASCII, and control characters. :func:`_quote` writes them as %XX, which Hive, Spark
#: and pyarrow read, except letters, digits, ``_.-`` and :data:`_UNQUOTED`. Other characters stay as
#: they are: pyarrow would read them as %XX, Spark would not.
_QUOTABLE: Final = re.compile(r"[\0-\x9f]+")
#: Marks that Hive, Spark and pyarrow read as they are, besides ``_.-``.
_UNQUOTED: Final = "~+,@"

#: The longest name of a folder in bytes; file systems allow 255.
_MAX_FOLDER_BYTES: Final = 200
#: How many characters of a name that is too long are shown.
_SHOWN_CHARACTERS: Final = 60

#: The kinds of numpy's dtypes whose values can name folders: bools, integers, text.
_KINDS_OF_FOLDERS: Final = "biuU"


def partition_fields(schema: Schema, names: Sequence[str]) -> list[Field]:
    """Return the fields of partition columns.

    Args:
        schema: the schema of the rows.
        names: the names of the partition columns.

    Raises:
        ConfigError: a column is not in the schema, is named twice or cannot name folders; or no
            column is left for the files.
    """
    fields = [schema[name] for name in names]  # raises if the schema lacks a column
    if len(set(names)) != len(names):
        listed = ", ".join(map(repr, names))
        raise ConfigError(f"partition_by names a column twice: {listed}")
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
    """Return whether each value of a field has one text that a folder can be named after."""
    if field.shape or not isinstance(field.codec, ScalarCodec):
        return False
    if field.dtype is Decimal:
        return True
    dtype = numpy_dtype(field.dtype)
    return dtype.kind in _KINDS_OF_FOLDERS or dtype == np.dtype("datetime64[D]")


# typed: True and 1 are equal, but name different folders
@functools.lru_cache(maxsize=1024, typed=True)
def folder_of_value(name: str, value: Any) -> str:
    """Return the name of the folder that holds the rows with a value.

    Args:
        name: the name of the partition column.
        value: the value as Python's ``str``, ``int``, ``bool``, ``datetime.date`` or ``Decimal``;
            None for null.

    Raises:
        ValueError: the value cannot name a folder.
    """
    if value is None:
        quoted_value = NULL_PARTITION
    else:
        text = _text_of(value)
        if text in ("", NULL_PARTITION):
            raise ValueError(
                f"{text!r} cannot name a partition's folder: such a folder holds the rows with null"
            )
        quoted_value = _quote(text)
    folder = f"{_quote(name)}={quoted_value}"
    if len(folder.encode()) > _MAX_FOLDER_BYTES:
        shown = folder[:_SHOWN_CHARACTERS] + "…"
        raise ValueError(f"{shown!r} is too long to name a partition's folder")
    return folder


def _text_of(value: Any) -> str:
    if isinstance(value, Decimal):
        return _text_of_decimal(value)
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _text_of_decimal(value: Decimal) -> str:
    """Return all digits of a Decimal, without zeros at the end of its fraction.

    ``Decimal.normalize`` would round to the 28 digits of the default context; Parquet's decimals
    have up to 76.
    """
    text = f"{value:f}"
    if "." in text:
        text = text.rstrip("0").removesuffix(".")
    return text


def _quote(text: str) -> str:
    return _QUOTABLE.sub(_quote_match, text)


def _quote_match(match: re.Match[str]) -> str:
    return quote(match[0], safe=_UNQUOTED)
