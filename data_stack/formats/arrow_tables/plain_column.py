"""Reads an array of numpy as a column of a table."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from data_stack.codecs.plain_data import json_digest
from data_stack.dataset.iterator.access import DeclaredColumn
from data_stack.dataset.recipes.recipe_values import content_of
from data_stack.formats.arrow_tables.origin import IndexLevel, Origin
from data_stack.formats.column_reader import ArrayReader


class PlainColumn(ArrayReader):
    """Reads an array of numpy as a column of a table.

    Args:
        array: the values, shape ``(n, ...)``.
        level: the level of pandas' index that the column was; None for other columns.
    """

    #: None if the array itself says all that a conversion back needs.
    _origin: Origin | None

    def __init__(self, array: npt.NDArray[Any], level: IndexLevel | None = None) -> None:
        super().__init__(array)
        self._origin = None if level is None else Origin(None, level=level)

    def declare(self) -> DeclaredColumn:
        return DeclaredColumn(self._array.dtype.name, self._array.shape[1:], origin=self._origin)

    def digest(self) -> str:
        """Return the SHA-256 of the values."""
        return json_digest(content_of(self._array, of_samples=True))
