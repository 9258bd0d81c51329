"""Reads cells of JSON text, whose values are parsed at each access."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.dataset.iterator.access import DeclaredColumn
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.formats.arrow_tables.origin import Origin
from data_stack.formats.arrow_tables.values import update_digest
from data_stack.formats.column_reader import ColumnReader
from data_stack.values.stacked_values import objects

#: The kind of the origin of a column of JSON text.
JSON_TEXT: Final = "json"


class JsonColumn(ColumnReader):
    """Reads cells of JSON text, whose values are dicts, lists, text and numbers.

    Args:
        cells: text, in any number of chunks.
        name: the name of the column.
    """

    #: A column of JSON has no classes.
    class_names = None

    #: The text of each value; null for a missing value.
    _cells: pa.ChunkedArray

    #: What a schema says of the column.
    _declared: DeclaredColumn

    def __init__(self, cells: pa.ChunkedArray, name: str) -> None:
        self.name = name
        self.origin = Origin(None, kind=JSON_TEXT)
        self._cells = cells
        self._declared = DeclaredColumn("object", (), bool(cells.null_count), self.origin)

    def __len__(self) -> int:
        return len(self._cells)

    def declare(self) -> DeclaredColumn:
        return self._declared

    def value(self, index: int) -> Any:
        return _parse_cell(self._cells[index].as_py())

    def read(self, indices: npt.NDArray[np.int64] | None) -> npt.NDArray[Any]:
        cells = self._cells if indices is None else self._take(indices)
        return objects([_parse_cell(text) for text in cells.to_pylist()])

    def _take(self, indices: npt.NDArray[np.int64]) -> pa.ChunkedArray:
        return self._cells.take(pa.array(indices))

    def values(self, indices: IndexArrayOfInts) -> list[Any]:
        return [self.value(index) for index in indices.tolist()]

    def digest(self) -> str:
        """Return the SHA-256 of the text, whatever its chunks are."""
        digest = hashlib.sha256(repr(self._declared[:3]).encode())
        update_digest(digest, len(self), self._take)
        return digest.hexdigest()


def _parse_cell(text: str | None) -> Any:
    """Return the value of a cell; None for null."""
    if text is None:
        return None
    return json.loads(text)
