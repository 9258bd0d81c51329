"""Some rows of a row group: those that a filter takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from data_stack.formats.parquet.row_groups import LOCAL_OPTIONS, GroupReading, RowGroups

__all__ = ["ReadingSomeRows"]

#: So much is decoded at once: as much as is in a page, as a rule, and little enough to stay in the processor's cache.
_BYTES_AT_ONCE: Final = 1 << 20
#: What that takes, with its pages before and after they are decompressed.
_DECODED_BYTES: Final = 4 * _BYTES_AT_ONCE


class ReadingSomeRows(GroupReading):
    """As :class:`GroupReading`, of some rows: what is decoded of others goes at once, what lies behind the last is not decoded.

    Args:
        groups: that the row group is one of.
        group: its number.
        names: of the columns.
        rows: which rows, ascending, at least one.
    """

    def __init__(self, groups: RowGroups, group: int, names: Sequence[str], rows: npt.NDArray[np.int32]) -> None:
        super().__init__(groups, group, names, rows)
        self._some_rows = rows

    @property
    def stored_bytes(self) -> int:
        """What the rows take, as far as the footer tells, and what is decoded at once."""
        n_bytes = super().stored_bytes
        share = n_bytes * self._n_rows // max(1, int(self._groups.footers.n_rows[self._group]))
        return min(n_bytes, share + _DECODED_BYTES) if self.is_local else n_bytes

    def _options(self) -> Mapping[str, Any]:
        return LOCAL_OPTIONS if self.is_local else super()._options()

    def _table_of(self, file: pq.ParquetFile, index: int, numbers: list[int]) -> pa.Table:
        facts = self._facts
        n_bytes = int(facts.n_bytes[index, numbers].sum())
        n_at_once = max(1, _BYTES_AT_ONCE * int(facts.n_rows[index]) // max(1, n_bytes))
        rows, taken = self._some_rows, list[pa.RecordBatch]()
        start = n_taken = 0
        # one column after the other: for so few rows at once, threads take longer to wait for each other
        for batch in file.reader.iter_batches(n_at_once, row_groups=[index], column_indices=numbers, use_threads=False):
            end = start + len(batch)
            n_before, n_taken = n_taken, int(np.searchsorted(rows, end))
            if n_taken > n_before:
                taken += _taken(batch, rows[n_before:n_taken] - start)
            if n_taken == len(rows):
                break
            start = end
        return pa.Table.from_batches(taken)


def _taken(batch: pa.RecordBatch, rows: npt.NDArray[np.int32]) -> list[pa.RecordBatch]:
    """A copy of some rows."""
    # pa.array(rows) imports pandas wherever it is installed
    places = pa.Array.from_buffers(pa.int32(), len(rows), [None, pa.py_buffer(np.ascontiguousarray(rows))])
    try:
        return [batch.take(places)]
    except pa.ArrowNotImplementedError:  # pyarrow cannot take out of columns of views
        single = [batch.slice(row, 1) for row in rows.tolist()]
        copied: list[pa.RecordBatch] = pa.Table.from_batches(single).combine_chunks().to_batches()
        return copied
