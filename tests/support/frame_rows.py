"""A schema with fields of all kinds of codecs, and its rows: what writers of Parquet are tested
with, ours and Spark.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np

from data_stack.formats.parquet import (
    CompressedNdarrayCodec,
    Field,
    NdarrayCodec,
    PngCodec,
    ScalarCodec,
    Schema,
)

SCHEMA = Schema(
    "frames",
    [
        Field("id", "int64"),
        Field("small", "uint8"),
        Field("name", str, nullable=True),
        Field("image", "uint8", (None, None, 3), PngCodec()),
        Field("vector", "float32", (3,)),
        Field("values", "float64", (None,)),
        Field("ragged", "int32", (None,), NdarrayCodec(), nullable=True),
        Field("zipped", "float64", (2, None), CompressedNdarrayCodec()),
        Field("price", Decimal, (), ScalarCodec("decimal(10,3)"), nullable=True),
        Field("day", "datetime64[D]"),
        Field("time", "datetime64[us]", (), ScalarCodec("timestamp")),
        Field("is_good", bool),
        Field("more", object, (), "json"),
    ],
)


def row(number: int) -> dict[str, Any]:
    """Row ``number``; some values are None."""
    return {
        "id": number,
        "small": np.uint8(255 - number % 256),
        "name": None if number % 3 == 1 else f"é {number}",
        "image": np.full((2 + number % 2, 4, 3), number % 256, np.uint8),
        "vector": np.array([number, 0.5, -1], np.float32),
        "values": np.arange(number % 3) / 7,
        "ragged": None if number % 4 == 0 else np.arange(number % 5, dtype=np.int32),
        "zipped": np.full((2, number % 3), number, np.float64),
        "price": None if number % 5 == 0 else Decimal(number) / 8,
        "day": np.datetime64("2024-01-01") + number,
        "time": np.datetime64("2024-01-01T00:00:00.000001") + np.timedelta64(number, "s"),
        "is_good": number % 2 == 0,
        "more": {"number": number},
    }
