"""Finds the buffers of single columns in the body of a record batch."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from data_stack.formats.arrow_ipc.message import BatchHeader
from data_stack.formats.parquet.types import is_bytes, is_text


class ColumnBuffers:
    """Tells which buffers of a record batch are those of each column.

    Args:
        schema: the columns.
    """

    #: The number of the first buffer of each column and of the next column; None if the schema does
    #: not tell.
    _spans: list[tuple[int, int]] | None

    #: How many buffers a record batch has.
    _n_buffers: int

    def __init__(self, schema: pa.Schema) -> None:
        self._spans = []
        self._n_buffers = 0
        for field in schema:
            n_buffers = _count_buffers(field.type)
            if n_buffers is None:
                self._spans = None
                return
            self._spans.append((self._n_buffers, self._n_buffers + n_buffers))
            self._n_buffers += n_buffers

    def find(self, batch: BatchHeader, columns: Iterable[int]) -> list[tuple[int, int]] | None:
        """Return where the buffers of columns lie in the body of a record batch.

        Args:
            batch: what the header of the record batch says.
            columns: the positions of the columns.

        Returns:
            For each column, where its buffers begin and their size; None if neither the schema nor
            the header tells.
        """
        # Old writers store other buffers of some types.
        if self._spans is None or len(batch.buffers) != self._n_buffers:
            return None
        places = []
        for column in columns:
            first_buffer, end_buffer = self._spans[column]
            buffers = batch.buffers[first_buffer:end_buffer].tolist()
            stored = [(start, n_bytes) for start, n_bytes in buffers if n_bytes > 0]
            if stored:
                start = min(start for start, _ in stored)
                end = max(start + n_bytes for start, n_bytes in stored)
                places.append((start, end - start))
        return places


def _count_buffers(type_: pa.DataType) -> int | None:
    """Return how many buffers a column of a type has, with the arrays in it; None if that varies.

    https://arrow.apache.org/docs/format/Columnar.html#buffer-listing-for-each-layout
    """
    if isinstance(type_, pa.BaseExtensionType):
        return _count_buffers(type_.storage_type)
    if pa.types.is_null(type_):
        return 0
    if pa.types.is_dictionary(type_):
        return 2  # those of the indices
    if pa.types.is_nested(type_):
        return _count_buffers_of_nested(type_)
    if type_ in (pa.string_view(), pa.binary_view()):
        return None
    has_offsets = (is_text(type_) or is_bytes(type_)) and not pa.types.is_fixed_size_binary(type_)
    return 3 if has_offsets else 2


def _count_buffers_of_nested(type_: pa.DataType) -> int | None:
    """Return how many buffers a column of lists, structs or maps has; None for other types."""
    if pa.types.is_struct(type_) or pa.types.is_fixed_size_list(type_):
        n_buffers = 1
    elif isinstance(type_, (pa.ListType, pa.LargeListType, pa.MapType)):
        n_buffers = 2
    else:
        return None
    for number in range(type_.num_fields):
        n_inner_buffers = _count_buffers(type_.field(number).type)
        if n_inner_buffers is None:
            return None
        n_buffers += n_inner_buffers
    return n_buffers
