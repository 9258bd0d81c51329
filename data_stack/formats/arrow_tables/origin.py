"""Describes what a column is in the library that it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa


@dataclass(frozen=True)
class IndexLevel:
    """A level of the index of a pandas data frame.

    Attributes:
        number: the position of the level, 0 for the outermost one.
        name: the name of the level, which may be any hashable object; None without a name.
    """

    number: int
    name: Any


# Two origins are equal only if they are one object: an Arrow array has no single truth value.
@dataclass(frozen=True, eq=False)
class Origin:
    """What a column is in the library that it comes from, to convert it back.

    Attributes:
        field: the Arrow field of the column. None if it does not describe the values: those of
            numpy arrays, of JSON text and of some features of Hugging Face.
        categories: the values of a categorical column; None for other columns.
        as_codes: whether samples hold the positions of the values in ``categories``.
        kind: what ``field`` does not tell: a dtype of pandas, a feature of Hugging Face, or
            :data:`JSON_TEXT`. None if ``field`` suffices.
        level: the level of the index of a pandas data frame, if the column was one; else None.
    """

    field: pa.Field | None
    categories: pa.Array | None = None
    as_codes: bool = False
    kind: Any = None
    level: IndexLevel | None = None
