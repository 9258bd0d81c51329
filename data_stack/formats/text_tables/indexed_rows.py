"""Rows of a text file that are parsed when they are read."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.arrow_tables import TableRows
from data_stack.formats.arrow_tables.table_rows import StoredRows
from data_stack.formats.text_tables.indexed_text import IndexedText


class IndexedRows(TableRows):
    """Rows of a text file, which an index finds, and which are parsed when they are read.

    A subclass defines ``parse``.

    Attributes:
        text: the file.
        n_header_rows: the number of rows of the file before the first one that is a sample.
        block_bytes: the size of the text that is parsed at once.
    """

    text: IndexedText
    n_header_rows: int = 0
    block_bytes: int

    @abstractmethod
    def parse(
        self, rows: Sequence[bytes], names: Sequence[str]
    ) -> Mapping[str, Sequence[pa.Array]]:
        """Return the cells of rows, all of which were valid when the types were inferred.

        Args:
            rows: the text of the rows.
            names: the columns to return.

        Returns:
            The cells of each column, in one array or several.

        Raises:
            DatasetFileCorruptError: a row is not valid now.
        """

    def __len__(self) -> int:
        # A file that could have a header may be empty.
        return max(0, self.text.n_rows - self.n_header_rows)

    def read(
        self, positions: npt.NDArray[np.int64] | None, names: Sequence[str]
    ) -> dict[str, pa.ChunkedArray]:
        if positions is None:
            positions = np.arange(len(self))
        numbers = positions + self.n_header_rows
        chunks: dict[str, list[pa.Array]] = {name: [] for name in names}
        start = 0
        for end in self.text.block_ends(numbers, self.block_bytes):
            cells = self.parse(self.text.read_rows(numbers[start:end]), names)
            start = end
            for name in names:
                chunks[name].extend(cells[name])

        columns = {}
        for name in names:
            columns[name] = pa.chunked_array(chunks[name], self.schema.field(name).type)
        return columns

    @property
    def stored_rows(self) -> StoredRows:
        return StoredRows(self.text.name)

    @property
    def remote_bytes(self) -> int:
        return self.text.remote_bytes

    def fetch(self, positions: range) -> None:
        first = positions.start + self.n_header_rows
        self.text.fetch(range(first, first + len(positions)))


def error_of_change(name: str) -> DatasetFileCorruptError:
    """Return the error for rows that no longer have the types that the file had.

    Args:
        name: the name of the file.
    """
    return DatasetFileCorruptError(f"{name!r} has changed since it was opened; load it again")
