"""Reads the headers of Arrow's messages: how many rows and bytes a message holds.

The format: https://arrow.apache.org/docs/format/Columnar.html#serialization-and-interprocess-communication-ipc
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.arrow_ipc.flatbuffer import FlatTable

NODE: Final = np.dtype([("length", "<i8"), ("null_count", "<i8")])
"""Arrow's ``FieldNode``: the length of an array, and how many of its values are null."""

BUFFER: Final = np.dtype([("start", "<i8"), ("n_bytes", "<i8")])
"""Arrow's ``Buffer``: where it begins in the body of its message, and its size."""

#: Arrow's ``Block``: where a message begins in the file, and the sizes of its two parts.
_BLOCK: Final = np.dtype(
    [("start", "<i8"), ("header_bytes", "<i4"), ("padding", "<i4"), ("body_bytes", "<i8")]
)


class MessageKind(enum.IntEnum):
    """What a message holds; other kinds are not those of tables."""

    SCHEMA = 1
    DICTIONARY = 2
    RECORD_BATCH = 3


# The numbers of the fields that are read, as in Message.fbs, Schema.fbs and File.fbs of Arrow.


class MessageField(enum.IntEnum):
    """Fields of a ``Message``."""

    KIND = 1
    CONTENT = 2
    BODY_BYTES = 3


class BatchField(enum.IntEnum):
    """Fields of a ``RecordBatch``."""

    N_ROWS = 0
    NODES = 1
    BUFFERS = 2
    COMPRESSION = 3


class _DictionaryField(enum.IntEnum):
    """Fields of a ``DictionaryBatch``."""

    ID = 0
    VALUES = 1
    IS_DELTA = 2


class _SchemaField(enum.IntEnum):
    """Fields of a ``Schema``."""

    ENDIANNESS = 0


class _FooterField(enum.IntEnum):
    """Fields of a ``Footer``."""

    DICTIONARIES = 2
    BATCHES = 3


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """What the header of a message says of the arrays in its body.

    Attributes:
        n_rows: the number of rows.
        nodes: length and null count of each array, followed by the arrays in it; a structured
            array with the fields ``length`` and ``null_count``.
        buffers: the buffers of all arrays; a structured array with the fields ``start``, within the
            body, and ``n_bytes``.
        is_compressed: whether each buffer is compressed.
    """

    n_rows: int
    nodes: npt.NDArray[np.void]
    buffers: npt.NDArray[np.void]
    is_compressed: bool


@dataclass(frozen=True, slots=True)
class MessageHeader:
    """The header of a message.

    Attributes:
        kind: the number of its kind, one of :class:`MessageKind` or another.
        body_bytes: the size of the body, which follows the header.
        batch: the arrays of a record batch or dictionary; None for another message.
        dictionary_id: the number of the dictionary; 0 for another message.
        is_delta: whether a dictionary is appended to the previous one with the same number.
        is_big_endian: whether a schema says that numbers are stored in that order of bytes.
    """

    kind: int
    body_bytes: int
    batch: BatchHeader | None
    dictionary_id: int = 0
    is_delta: bool = False
    is_big_endian: bool = False


def parse_header(data: bytes) -> MessageHeader:
    """Parse the header of a message.

    Args:
        data: the FlatBuffer of the header.

    Raises:
        DatasetFileCorruptError: the header is damaged.
    """
    message = FlatTable.root(data)
    kind = message.integer(MessageField.KIND, "<B")
    body_bytes = message.integer(MessageField.BODY_BYTES, "<q")
    if body_bytes < 0:
        raise DatasetFileCorruptError(f"a message states a size of {body_bytes} bytes")
    content = message.table(MessageField.CONTENT)
    if content is None:
        raise DatasetFileCorruptError("a message has no content")
    if kind == MessageKind.RECORD_BATCH:
        return MessageHeader(kind, body_bytes, _parse_batch(content, body_bytes))
    if kind == MessageKind.DICTIONARY:
        values = content.table(_DictionaryField.VALUES)
        if values is None:
            raise DatasetFileCorruptError("a dictionary has no values")
        return MessageHeader(
            kind,
            body_bytes,
            _parse_batch(values, body_bytes),
            dictionary_id=content.integer(_DictionaryField.ID, "<q"),
            is_delta=bool(content.integer(_DictionaryField.IS_DELTA, "<?")),
        )
    is_big_endian = False
    if kind == MessageKind.SCHEMA:
        is_big_endian = content.integer(_SchemaField.ENDIANNESS, "<h") != 0
    return MessageHeader(kind, body_bytes, None, is_big_endian=is_big_endian)


def _parse_batch(table: FlatTable, body_bytes: int) -> BatchHeader:
    """Parse what a header says of arrays, and check that all buffers lie in the body.

    Raises:
        DatasetFileCorruptError: a number of rows is negative, or a buffer lies outside of the body.
    """
    n_rows = table.integer(BatchField.N_ROWS, "<q")
    nodes = np.frombuffer(table.structs(BatchField.NODES, NODE.itemsize), NODE)
    buffers = np.frombuffer(table.structs(BatchField.BUFFERS, BUFFER.itemsize), BUFFER)
    check_buffers(buffers, np.array(body_bytes))
    if n_rows < 0:
        raise DatasetFileCorruptError(f"a message states {n_rows} rows")
    is_compressed = table.position_of(BatchField.COMPRESSION) is not None
    return BatchHeader(n_rows, nodes, buffers, is_compressed)


def check_buffers(buffers: npt.NDArray[np.void], body_bytes: npt.NDArray[np.int64]) -> None:
    """Check that buffers lie in the bodies of their messages.

    Args:
        buffers: the buffers, shape ``(n,)``.
        body_bytes: the size of the body of each buffer, shape ``(n,)``, or that of all, ``()``.

    Raises:
        DatasetFileCorruptError: a buffer lies outside.
    """
    starts = buffers["start"]
    sizes = buffers["n_bytes"]
    # The end of a buffer is not computed: it may exceed int64.
    are_inside = (starts >= 0) & (sizes >= 0) & (starts <= body_bytes)
    are_inside &= sizes <= body_bytes - np.minimum(starts, body_bytes)
    if not are_inside.all():
        raise DatasetFileCorruptError("a buffer lies outside of its message")


@dataclass(frozen=True, slots=True)
class Footer:
    """The end of a file in Arrow's file format, which lists the messages before it.

    Attributes:
        dictionaries: the messages of dictionaries; a structured array with the fields ``start``,
            ``header_bytes`` and ``body_bytes``.
        batches: the messages of record batches, in such an array.
    """

    dictionaries: npt.NDArray[np.void]
    batches: npt.NDArray[np.void]


def parse_footer(data: bytes) -> Footer:
    """Parse the FlatBuffer of a footer.

    Raises:
        DatasetFileCorruptError: the footer is damaged.
    """
    table = FlatTable.root(data)
    dictionaries = np.frombuffer(table.structs(_FooterField.DICTIONARIES, _BLOCK.itemsize), _BLOCK)
    batches = np.frombuffer(table.structs(_FooterField.BATCHES, _BLOCK.itemsize), _BLOCK)
    return Footer(dictionaries, batches)
