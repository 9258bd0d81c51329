"""The content of Petastorm's pickles as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class PickledCodec:
    """The codec of a field of Petastorm.

    Attributes:
        kind: ``"scalar"``, ``"ndarray"``, ``"compressed_ndarray"``, ``"image"``, or ``"registered"`` for a plugin's codec.
        spark_type: of a scalar, Spark's simple name: ``"boolean"``, ``"tinyint"``, ``"smallint"``, ``"int"``, ``"bigint"``,
            ``"float"``, ``"double"``, ``"decimal(10,3)"``, ``"string"``, ``"binary"``, ``"date"``, ``"timestamp"`` or
            ``"timestamp_ntz"``; None for the others.
        image_format: of an image, ``"png"``, ``"jpeg"`` or another format of OpenCV such as ``"webp"``; else None.
        quality: JPEG quality of an image, 0 to 100; else None.
        class_name: module and name of a registered class; else None.
        state: attributes of a registered codec as plain data; else empty.
    """

    kind: Literal["scalar", "ndarray", "compressed_ndarray", "image", "registered"]
    spark_type: str | None = None
    image_format: str | None = None
    quality: int | None = None
    class_name: str | None = None
    state: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PickledField:
    """A field of a Petastorm schema.

    Attributes:
        name: name of the Parquet column.
        numpy_type: name of the numpy scalar type as numpy 2 spells it (``"int32"``, ``"str_"``, ``"bytes_"``, ``"bool_"``,
            ``"datetime64"``), or ``"Decimal"``.
        shape: ``()`` for a scalar; None for a variable size.
        codec: None for Parquet's own type.
        nullable: whether a cell may be missing.
    """

    name: str
    numpy_type: str
    shape: tuple[int | None, ...]
    codec: PickledCodec | None
    nullable: bool


@dataclass(frozen=True, slots=True)
class PickledSchema:
    """A Petastorm schema ("Unischema"): its name and its fields in their order."""

    name: str
    fields: tuple[PickledField, ...]


@dataclass(frozen=True, slots=True)
class PickledIndex:
    """A row-group index of Petastorm.

    The number of a row group counts through all files, sorted by path.

    Attributes:
        name: name of the index.
        kind: ``"single_field"`` or ``"not_null"``.
        column: the indexed field.
        row_groups: of a single-field index: value → the row groups that hold it. Values are plain Python values (str,
            bytes, bool, int, float, Decimal, date, datetime, time, timedelta; a numpy.datetime64 or numpy.timedelta64 if those
            cannot hold it exactly). Else empty.
        ordinals: of a not-null index: the row groups with at least one value. Else empty.
    """

    name: str
    kind: Literal["single_field", "not_null"]
    column: str
    row_groups: Mapping[Any, frozenset[int]] = field(default_factory=dict)
    ordinals: frozenset[int] = frozenset()
