"""Parquet datasets of 12 rows in each layout that our writer knows, for tests of the tools that
read them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np

from data_stack.formats.parquet import Field, ParquetWriter, PngCodec, Schema

COLUMNS: Final = ("id", "text", "image", "day", "lane")
N_ROWS: Final = 12

SCHEMA: Final = Schema(
    "frames",
    [
        Field("id", "int64"),
        Field("text", str, nullable=True),
        Field("image", "uint8", (None, None, 3), PngCodec()),
        Field("day", str),
        Field("lane", "int64"),
    ],
)

#: Arguments of the writer.
LAYOUTS: Final[dict[str, dict[str, Any]]] = {
    "file": {},
    "shards": {"rows_per_file": 5},
    "partitions": {"partition_by": ["day", "lane"]},
    "petastorm": {"rows_per_file": 5, "petastorm": True},
}


def write_layout(folder: Path, layout: str) -> Path:
    """Write one, in two runs, the second of which adds a partition that sorts before the first."""
    for first, last in ((0, 9), (9, N_ROWS)):
        with ParquetWriter(folder, SCHEMA, **LAYOUTS[layout]) as writer:
            for number in range(first, last):
                row = {
                    "id": number,
                    "text": str(number) if number % 2 else None,
                    "image": np.zeros((2, 2, 3), np.uint8),
                }
                writer.append({**row, "day": f"2024-01-{3 - number // 5:02d}", "lane": number % 2})
    return folder
