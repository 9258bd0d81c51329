"""Which folder a row belongs into, by the values of the columns that a dataset is partitioned by."""

from __future__ import annotations

import string
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np

from data_stack.exception import ConfigError
from data_stack.formats.parquet.codecs import CellValueError, ScalarCodec
from data_stack.formats.parquet.files import NULL_PARTITION
from data_stack.formats.parquet.schema import Field, Schema

__all__ = ["Partitions"]

#: Written as they are; other characters of ASCII as %XX, as Hive, Spark and pyarrow all read them. Spark reads letters of other
#: scripts only as they are, pyarrow both ways.
_PLAIN: Final = frozenset(string.ascii_letters + string.digits + "_.-~+,@")
_MOST_SEGMENT_BYTES: Final = 200


class Partitions:
    """Folders such as ``day=2024-01-01/vehicle=7``, in Hive's manner.

    Args:
        schema: of the rows.
        names: the columns, outermost folder first; none for a dataset without partitions.

    Raises:
        ConfigError: a column is not in the schema, is of a dtype that no folder is named after, or none is left for the files.
    """

    def __init__(self, schema: Schema, names: Sequence[str]) -> None:
        self.fields = tuple(schema[name] for name in names)
        if len({field.name for field in self.fields}) != len(self.fields):
            raise ConfigError(f"partition_by names a column twice: {', '.join(map(repr, names))}")
        if self.fields and len(self.fields) == len(schema):
            raise ConfigError("a dataset cannot be partitioned by all of its columns: none would be left for the files")
        for field in self.fields:
            is_named = field.dtype is Decimal or (
                isinstance(field.dtype, np.dtype) and (field.dtype.kind in "biuU" or field.dtype == np.dtype("datetime64[D]"))
            )
            if field.shape or not isinstance(field.codec, ScalarCodec) or not is_named:
                raise ConfigError(
                    f"a dataset cannot be partitioned by {field.name!r}: folders are named after text, integers, booleans, dates "
                    f"and Decimals, not after values of dtype {field.dtype} and shape {field.shape}"
                )
        self._segments: list[dict[Any, str]] = [{} for _ in self.fields]

    def __len__(self) -> int:
        return len(self.fields)

    def folder(self, values: Sequence[Any]) -> str:
        """The folder of a row, by its values of the columns; ``""`` without partitions.

        Raises:
            CellValueError: a value is none of its field, or cannot name a folder; its ``row`` is the number of the field.
        """
        segments = []
        for number, (field, value) in enumerate(zip(self.fields, values, strict=True)):
            known = self._segments[number]
            key: Any = (type(value), value)
            try:
                segment = known.get(key)
            except TypeError:  # not hashable, so no scalar
                key = segment = None
            if segment is None:
                try:
                    segment = _segment(field, value)
                except (TypeError, ValueError, OverflowError) as error:
                    raise CellValueError(number, str(error)) from error
                if key is not None:
                    known[key] = segment
            segments.append(segment)
        return "/".join(segments)


def _segment(field: Field, value: Any) -> str:
    if value is None:
        if not field.nullable:
            raise ValueError("the value is null, and the field is not nullable")
        text = NULL_PARTITION
    else:
        cell = field.cells.encode(field, value)
        plain = str(cell).lower() if isinstance(cell, (bool, np.bool_)) else str(cell)
        if plain in ("", NULL_PARTITION):
            raise ValueError(f"{plain!r} cannot be the name of a partition's folder, where it means null")
        text = _quote(plain)
    segment = f"{_quote(field.name)}={text}"
    if len(segment.encode()) > _MOST_SEGMENT_BYTES:
        raise ValueError(f"{segment[:60]!r}… is too long for the name of a partition's folder")
    return segment


def _quote(text: str) -> str:
    return "".join(
        letter if letter in _PLAIN or (not letter.isascii() and letter.isprintable()) else _escape(letter) for letter in text
    )


def _escape(letter: str) -> str:
    return "".join(f"%{byte:02X}" for byte in letter.encode())
