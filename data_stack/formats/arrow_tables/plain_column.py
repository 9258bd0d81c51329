"""Reads a column of a table that is a numpy array."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from data_stack.codecs.plain_data import json_digest
from data_stack.dataset.iterator.access import DeclaredColumn
from data_stack.dataset.recipes.recipe_values import content_of
from data_stack.formats.arrow_tables.origin import IndexLevel, Origin
from data_stack.formats.column_reader import ArrayReader


class PlainColumn(ArrayReader):
    """Reads a column of a table that is a numpy array.

    Args:
        array: the values, shape ``(n, ...)``, any dtype.
        level: the level of the index of a pandas data frame, if the column was one; else None.
    """

    #: What a conversion back needs beside the array; None if it needs nothing.
    _origin: Origin | None

    def __init__(self, array: npt.NDArray[Any], level: IndexLevel | None = None) -> None:
        super().__init__(array)
        self._origin = None
        if level is not None:
            self._origin = Origin(None, level=level)

    def declare(self) -> DeclaredColumn:
        return DeclaredColumn(
            dtype=self._array.dtype.name, shape=self._array.shape[1:], origin=self._origin
        )

    def digest(self) -> str:
        """Return the SHA-256 of the values, in hexadecimal."""
        return json_digest(content_of(self._array, of_samples=True))
