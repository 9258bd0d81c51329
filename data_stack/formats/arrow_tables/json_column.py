"""Reads a column of JSON text, and parses the values at each access."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.dataset.iterator.access import DeclaredColumn
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import ConfigError
from data_stack.formats.arrow_tables.origin import Origin
from data_stack.formats.arrow_tables.values import update_digest
from data_stack.formats.column_reader import ColumnReader
from data_stack.values.stacked_values import objects

#: The ``kind`` of the :class:`Origin` of a column of JSON text.
JSON_TEXT: Final = "json"


class JsonColumn(ColumnReader):
    """Reads a column of JSON text. Its values are what the text stands for: dicts, lists, scalars.

    A cell that is not JSON raises ConfigError when it is read.

    Args:
        cells: the text of each value, null for a missing value, in any number of chunks.
        name: the name of the column.

    Attributes:
        name: the name of the column.
        origin: says that the column is JSON text.
    """

    #: A column of JSON has no classes.
    class_names = None

    name: str
    origin: Origin

    #: The text of each value; null for a missing value.
    _cells: pa.ChunkedArray

    #: What a schema says of the column.
    _declared: DeclaredColumn

    def __init__(self, cells: pa.ChunkedArray, name: str) -> None:
        self.name = name
        self.origin = Origin(None, kind=JSON_TEXT)
        self._cells = cells
        self._declared = DeclaredColumn(
            dtype="object", shape=(), is_nullable=cells.null_count > 0, origin=self.origin
        )

    def __len__(self) -> int:
        return len(self._cells)

    def declare(self) -> DeclaredColumn:
        return self._declared

    def value(self, index: int) -> Any:
        return self._parse(self._cells[index].as_py())

    def read(self, indices: npt.NDArray[np.int64] | None) -> npt.NDArray[Any]:
        cells = self._cells
        if indices is not None:
            cells = self._take(indices)
        return objects([self._parse(text) for text in cells.to_pylist()])

    def _take(self, indices: npt.NDArray[np.int64]) -> pa.ChunkedArray:
        """Return the cells at some positions."""
        return self._cells.take(pa.array(indices))

    def values(self, indices: IndexArrayOfInts) -> list[Any]:
        return [self.value(index) for index in indices.tolist()]

    def digest(self) -> str:
        """Return the SHA-256 of the text, in hexadecimal, whatever its chunks are."""
        declared = self._declared
        # The text of this tuple is a part of the digest, so it must not change.
        content_of_schema = repr((declared.dtype, declared.shape, declared.is_nullable))
        digest = hashlib.sha256(content_of_schema.encode())
        update_digest(digest, len(self), self._take)
        return digest.hexdigest()

    def _parse(self, text: str | None) -> Any:
        """Return the value of a cell; None for null.

        Raises:
            ConfigError: the text is not JSON, is nested too deeply, or has a number of too many
                digits.
        """
        if text is None:
            return None
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ConfigError(
                f"column {self.name!r} has a cell that cannot be read as JSON: {text!r:.80}: "
                f"{error!s:.200}"
            ) from error
