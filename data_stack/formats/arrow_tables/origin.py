"""Says which type a column has in the library that it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa


@dataclass(frozen=True)
class IndexLevel:
    """A level of the index of a frame of pandas.

    Attributes:
        number: the position of the level, 0 for the outermost.
        name: the name of the level, None without one.
    """

    number: int
    name: Any


@dataclass(frozen=True, eq=False)
class Origin:
    """The type of a column in the library that it comes from, so that it can be converted back.

    Attributes:
        field: the Arrow field of the column; None if its cells are not the values.
        categories: the values of a categorical column; None for other columns.
        as_codes: whether samples hold the indices of the categories.
        kind: the dtype of pandas, or the feature of Hugging Face; None if ``field`` suffices.
        level: the level of pandas' index that the column was; None for other columns.
    """

    field: pa.Field | None
    categories: pa.Array | None = None
    as_codes: bool = False
    kind: Any = None
    level: IndexLevel | None = None
