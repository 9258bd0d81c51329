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
from data_stack.util.untrusted_text import distinct_fields
from data_stack.values.stacked_values import objects
from data_stack.values.text_numbers import parse_exact_float

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
        return self.value_of_cell(self._cells, index)

    def value_of_cell(self, cells: pa.ChunkedArray, index: int) -> Any:
        """Return the value of a cell of this column, as :meth:`value` does.

        Args:
            cells: cells of the column, which may be elsewhere than the column itself.
            index: the position of the cell in ``cells``.
        """
        return self._parse(cells[index].as_py())

    def values_of_cells(self, cells: pa.ChunkedArray) -> list[Any]:
        """Return the values of cells of this column, as :meth:`values` does."""
        return [self._parse(text) for text in cells.to_pylist()]

    def array_of_cells(self, cells: pa.ChunkedArray) -> npt.NDArray[Any]:
        """Return the values of cells of this column, as :meth:`read` does."""
        return objects(self.values_of_cells(cells))

    def read(self, indices: npt.NDArray[np.int64] | None) -> npt.NDArray[Any]:
        return self.array_of_cells(self._take(indices))

    def _take(self, indices: npt.NDArray[np.int64] | None) -> pa.ChunkedArray:
        """Return the cells at indices; None for all. A subclass may read them from elsewhere."""
        if indices is None:
            return self._cells
        return self._cells.take(pa.array(indices))

    def values(self, indices: IndexArrayOfInts) -> list[Any]:
        return [self.value(index) for index in indices.tolist()]

    def digest(self) -> str:
        """Return the SHA-256 of the text, in hexadecimal, whatever its chunks are."""
        digest = self.begin_digest()
        update_digest(digest, len(self), self._take)
        return str(digest.hexdigest())

    def begin_digest(self) -> Any:
        """Return the digest of the column before its first cell."""
        declared = self._declared
        # The text of this tuple is a part of the digest, so it must not change.
        content_of_schema = repr((declared.dtype, declared.shape, declared.is_nullable))
        return hashlib.sha256(content_of_schema.encode())

    def _parse(self, text: str | None) -> Any:
        """Return the value of a cell; None for null.

        Raises:
            ConfigError: the text is not JSON, is nested too deeply, has a number of too many
                digits or one that float64 lacks, or an object with a name twice.
        """
        if text is None:
            return None
        try:
            return json.loads(
                text, parse_float=parse_exact_float, object_pairs_hook=distinct_fields
            )
        except (ValueError, RecursionError) as error:
            raise ConfigError(
                f"column {self.name!r} has a cell that cannot be read as JSON: {text!r:.80}: "
                f"{error!s:.200}"
            ) from error
