"""Reads the numbers in headers of record batches that are laid out alike."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.arrow_ipc.flatbuffer import FlatTable
from data_stack.formats.arrow_ipc.message import (
    BUFFER,
    NODE,
    BatchField,
    MessageField,
    MessageKind,
)

_INT64: Final = struct.Struct("<q")

#: Where a number or vector begins in a header, and where it ends; empty if it is not stored.
_Span = tuple[int, int]

_NOT_STORED: Final = (0, 0)


@dataclass(frozen=True, slots=True)
class HeaderForm:
    """Where the numbers stand in headers of record batches.

    A writer lays out the headers of all record batches of a table alike, so that they differ in
    their numbers alone. To parse the FlatBuffer of each takes 30 µs; to compare it with a form and
    to cut the numbers out takes 3 µs.

    Attributes:
        n_bytes: the size of such a header.
        fixed_parts: where each part without numbers begins and ends, and its bytes.
        body_bytes: where the size of the body stands.
        n_rows: where the number of rows stands.
        nodes: where the array of :data:`~data_stack.formats.arrow_ipc.message.NODE` stands.
        buffers: where the array of :data:`~data_stack.formats.arrow_ipc.message.BUFFER` stands.
        is_compressed: whether each buffer is compressed.
    """

    n_bytes: int
    fixed_parts: tuple[tuple[int, int, bytes], ...]
    body_bytes: _Span
    n_rows: _Span
    nodes: _Span
    buffers: _Span
    is_compressed: bool

    @classmethod
    def of(cls, data: bytes) -> HeaderForm | None:
        """Return the form of a header; None if it is not that of a record batch.

        Raises:
            DatasetFileCorruptError: the header is damaged.
        """
        message = FlatTable.root(data)
        if message.integer(MessageField.KIND, "<B") != MessageKind.RECORD_BATCH:
            return None
        batch = message.table(MessageField.CONTENT)
        if batch is None:
            raise DatasetFileCorruptError("a message has no content")
        body_bytes = _span_of_integer(message, MessageField.BODY_BYTES)
        n_rows = _span_of_integer(batch, BatchField.N_ROWS)
        nodes = batch.span_of_structs(BatchField.NODES, NODE.itemsize)
        buffers = batch.span_of_structs(BatchField.BUFFERS, BUFFER.itemsize)
        return cls(
            n_bytes=len(data),
            fixed_parts=_parts_without(data, [body_bytes, n_rows, nodes, buffers]),
            body_bytes=body_bytes,
            n_rows=n_rows,
            nodes=nodes,
            buffers=buffers,
            is_compressed=batch.position_of(BatchField.COMPRESSION) is not None,
        )

    def fits(self, data: bytes) -> bool:
        """Return whether a header has this form."""
        if len(data) != self.n_bytes:
            return False
        for start, end, expected in self.fixed_parts:
            if data[start:end] != expected:
                return False
        return True

    def integer_of(self, data: bytes, span: _Span) -> int:
        """Return an integer of a header of this form; 0 if it is not stored."""
        if span == _NOT_STORED:
            return 0
        value: int = _INT64.unpack_from(data, span[0])[0]
        return value


def _span_of_integer(table: FlatTable, number: int) -> _Span:
    """Return where an int64 of a table begins and ends.

    Raises:
        DatasetFileCorruptError: the buffer ends before.
    """
    table.integer(number, "<q")
    start = table.find(number)
    if start is None:
        return _NOT_STORED
    return start, start + _INT64.size


def _parts_without(data: bytes, spans: list[_Span]) -> tuple[tuple[int, int, bytes], ...]:
    """Return the parts of a header that lie outside of spans."""
    parts = []
    start = 0
    for span_start, span_end in sorted(spans):
        if start < span_start:
            parts.append((start, span_start, data[start:span_start]))
        start = max(start, span_end)
    parts.append((start, len(data), data[start:]))
    return tuple(parts)
