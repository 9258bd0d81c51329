"""Finds the messages of an Arrow file, so that each record batch can be read by itself."""

from __future__ import annotations

import itertools
import struct
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.arrow_ipc.errors import reading_arrow
from data_stack.formats.arrow_ipc.message import (
    BatchHeader,
    MessageHeader,
    MessageKind,
    parse_footer,
    parse_header,
)
from data_stack.formats.arrow_tables.cell_types import plain_field
from data_stack.io.positional import PositionalFile

#: The first and last bytes of a file in the file format. A file without them is a stream.
_MAGIC: Final = b"ARROW1"

#: Where the first message of a file in the file format begins.
_FIRST_MESSAGE: Final = 8

#: The first bytes of a Feather file of version 1, which holds another format.
_MAGIC_OF_FEATHER_1: Final = b"FEA1"

#: The size of a footer's size and the magic at the end of a file.
_END_BYTES: Final = 4 + len(_MAGIC)

#: Comes before the size of each header; files of Arrow before version 0.15 lack it.
_CONTINUATION: Final = 0xFFFFFFFF

#: How much of a file is read to find a header, which is mostly smaller.
_READ_AHEAD_BYTES: Final = 1 << 12

#: The largest header and footer that are read. That of 100,000 columns has 10 MiB.
_MAX_HEADER_BYTES: Final = 256 << 20

#: The number of rows that a record batch may have in any case.
_MAX_UNSTORED_ROWS: Final = 1 << 20

#: A record batch may have as many rows for each byte of its body: those of a column of bools.
_MAX_ROWS_PER_BYTE: Final = 8

#: The same for a compressed body: zstd stores 100,000 equal bytes in about 20.
_MAX_ROWS_PER_COMPRESSED_BYTE: Final = 1 << 17


@dataclass(frozen=True, slots=True)
class Message:
    """Where a message lies in a file.

    Attributes:
        start: where it begins.
        header_bytes: the size of its header, with what comes before the FlatBuffer.
        body_bytes: the size of its body, which follows the header.
    """

    start: int
    header_bytes: int
    body_bytes: int

    @property
    def n_bytes(self) -> int:
        """The size of the message."""
        return self.header_bytes + self.body_bytes

    @property
    def end(self) -> int:
        """Where the message ends."""
        return self.start + self.n_bytes


@dataclass(frozen=True, slots=True)
class IpcLayout:
    """The messages of a file.

    Attributes:
        schema: the message of the schema.
        arrow_schema: the columns.
        has_nulls: whether each column has a null in any record batch, shape ``(n_columns,)``.
        batches: the messages of the record batches.
        n_rows: the number of rows of each record batch, shape ``(n_batches,)``.
        dictionaries: the dictionaries that each record batch needs, in their order. Batches that
            need the same ones share the tuple.
        is_compressed: whether a record batch is compressed.
        is_big_endian: whether numbers are stored in that order of bytes.
        has_end: whether the file says where it ends. A stream need not, and may be cut off.
    """

    schema: Message
    arrow_schema: pa.Schema
    has_nulls: npt.NDArray[np.bool_]
    batches: list[Message]
    n_rows: npt.NDArray[np.int64]
    dictionaries: list[tuple[Message, ...]]
    is_compressed: bool
    is_big_endian: bool
    has_end: bool = True


def read_layout(file: PositionalFile) -> IpcLayout:
    """Find the messages of a file, in the file format or the stream format.

    Raises:
        DatasetFileCorruptError: the file is damaged, truncated, or not one of Arrow.
    """
    with reading_arrow(file.name):
        return _read_layout(file)


def _read_layout(file: PositionalFile) -> IpcLayout:
    head = file.read_at(0, _FIRST_MESSAGE)
    if head.startswith(_MAGIC_OF_FEATHER_1):
        raise DatasetFileCorruptError(
            "it is a Feather file of version 1, which Arrow has replaced; write it anew by "
            "pyarrow.feather.write_feather(pyarrow.feather.read_table(path), new_path)"
        )
    if head.startswith(_MAGIC):
        return _layout_of_file(file)
    return _layout_of_stream(file)


# ---------------------------------------------------------------------- the file format


def _layout_of_file(file: PositionalFile) -> IpcLayout:
    """Find the messages that the footer lists.

    The dictionaries are the same for all record batches: the format has no replacements.
    """
    end = file.read_at(max(0, file.size - _END_BYTES), _END_BYTES)
    if file.size < _FIRST_MESSAGE + _END_BYTES or end[-len(_MAGIC) :] != _MAGIC:
        raise DatasetFileCorruptError("the footer is missing")
    footer_bytes = struct.unpack("<i", end[:4])[0]
    footer_start = file.size - _END_BYTES - footer_bytes
    if footer_bytes < 0 or footer_start < _FIRST_MESSAGE:
        raise DatasetFileCorruptError(f"the footer states a size of {footer_bytes} bytes")
    _check_header_size(footer_bytes)
    footer = parse_footer(file.read_exactly_at(footer_start, footer_bytes))

    builder = _LayoutBuilder(file, _FIRST_MESSAGE, footer_start)
    for block in footer.dictionaries.tolist():
        builder.add_listed(block[0], MessageKind.DICTIONARY)
    for block in footer.batches.tolist():
        builder.add_listed(block[0], MessageKind.RECORD_BATCH)
    return builder.build()


# ---------------------------------------------------------------------- the stream format


def _layout_of_stream(file: PositionalFile) -> IpcLayout:
    """Find the messages one after the other, as each says where the next one begins.

    A dictionary serves the record batches behind it, until another one replaces it.
    """
    builder = _LayoutBuilder(file, 0, file.size)
    next_start = builder.first_start
    while next_start < file.size:
        found = builder.find(next_start)
        if found is None:
            _check_end(file, next_start)
            return builder.build()
        message, header = found
        builder.add(message, header)
        next_start = message.end
    return replace(builder.build(), has_end=False)


def _check_end(file: PositionalFile, start: int) -> None:
    """Check that nothing follows the mark of a stream's end.

    Raises:
        DatasetFileCorruptError: something does, which pyarrow would leave out.
    """
    is_long_mark = file.read_at(start, 4) == struct.pack("<I", _CONTINUATION)
    n_left = file.size - start - (8 if is_long_mark else 4)
    if n_left > 0:
        raise DatasetFileCorruptError(
            f"{n_left} bytes follow the end of the stream; write each stream to a file of its own"
        )


# ---------------------------------------------------------------------- messages


class _LayoutBuilder:
    """Collects the messages of a file, which begin with that of the schema.

    Args:
        file: the file.
        start: where the first message begins.
        end: where the last message ends.

    Attributes:
        first_start: where the message behind the schema begins.

    Raises:
        DatasetFileCorruptError: the first message is not a schema.
    """

    first_start: int

    #: The file.
    _file: PositionalFile

    #: Where the last message ends.
    _end: int

    #: Where the piece of the file that was read last begins.
    _piece_start: int

    #: The bytes of that piece.
    _piece: bytes

    #: The message of the schema.
    _schema: Message

    #: The columns.
    _arrow_schema: pa.Schema

    #: The position of the outermost array of each column among the arrays of a record batch.
    _top_nodes: npt.NDArray[np.intp]

    #: How many arrays a record batch has.
    _n_nodes: int

    #: The dictionaries that the next record batch needs, by their numbers.
    _current: dict[int, list[Message]]

    #: The same as one tuple; None if it must be made again.
    _current_tuple: tuple[Message, ...] | None

    #: The record batches.
    _batches: list[Message]

    #: The number of rows of each record batch.
    _n_rows: list[int]

    #: The dictionaries of each record batch.
    _dictionaries: list[tuple[Message, ...]]

    #: Whether each column has a null in a record batch.
    _has_nulls: npt.NDArray[np.bool_]

    #: Whether the values of each column are indices into a dictionary.
    _have_dictionaries: npt.NDArray[np.bool_]

    #: Whether a record batch is compressed.
    _is_compressed: bool

    #: Whether numbers are stored in that order of bytes.
    _is_big_endian: bool

    def __init__(self, file: PositionalFile, start: int, end: int) -> None:
        self._file = file
        self._end = end
        self._piece_start = 0
        self._piece = b""
        found = self.find(start)
        if found is None or found[1].kind != MessageKind.SCHEMA:
            raise DatasetFileCorruptError("it does not begin with a schema")
        self._schema, schema_header = found
        self._is_big_endian = schema_header.is_big_endian
        self.first_start = self._schema.end
        stored_schema = file.read_exactly_at(start, self._schema.n_bytes)
        self._arrow_schema = pa.ipc.read_schema(pa.py_buffer(stored_schema))

        n_nodes_of_columns: list[int] = []
        have_dictionaries: list[bool] = []
        for field in self._arrow_schema:
            _ = field.name  # pyarrow decodes it now, and raises if it is damaged
            n_nodes_of_columns.append(_count_nodes(field.type))
            have_dictionaries.append(pa.types.is_dictionary(plain_field(field).type))
        ends = np.cumsum([0, *n_nodes_of_columns])
        self._top_nodes = ends[:-1]
        self._n_nodes = int(ends[-1])
        self._current = {}
        self._current_tuple = None
        self._batches = []
        self._n_rows = []
        self._dictionaries = []
        self._has_nulls = np.zeros(len(self._arrow_schema), np.bool_)
        self._have_dictionaries = np.array(have_dictionaries, np.bool_)
        self._is_compressed = False

    def add_listed(self, start: int, kind: MessageKind) -> None:
        """Add a message that a footer lists.

        Raises:
            DatasetFileCorruptError: there is no such message.
        """
        if start < 0:
            raise DatasetFileCorruptError("the footer lists a message before the file")
        found = self.find(start)
        if found is None or found[1].kind != kind:
            raise DatasetFileCorruptError(f"the footer lists no {kind.name} at byte {start}")
        self.add(*found)

    def add(self, message: Message, header: MessageHeader) -> None:
        """Add a message behind the schema.

        Raises:
            DatasetFileCorruptError: it is none of a table, or a record batch states more rows than
                it can store.
        """
        if header.batch is None:
            raise DatasetFileCorruptError(
                f"the message at byte {message.start} is neither a record batch nor a dictionary"
            )
        if header.kind == MessageKind.DICTIONARY:
            self._add_dictionary(message, header)
            return
        self._note_batch(header.batch, message.body_bytes)
        if self._current_tuple is None:
            self._current_tuple = tuple(itertools.chain(*self._current.values()))
        self._batches.append(message)
        self._dictionaries.append(self._current_tuple)

    def _note_batch(self, batch: BatchHeader, body_bytes: int) -> None:
        """Note the number of rows of a record batch, and which of its columns have nulls.

        Raises:
            DatasetFileCorruptError: it lacks a column, or a column has another number of rows.
        """
        _check_n_rows(batch, body_bytes)
        if len(batch.nodes) != self._n_nodes:
            raise DatasetFileCorruptError(
                f"a record batch has {len(batch.nodes)} arrays, but the schema {self._n_nodes}"
            )
        columns = batch.nodes[self._top_nodes]
        if (columns["length"] != batch.n_rows).any():
            raise DatasetFileCorruptError("the columns of a record batch differ in length")
        self._n_rows.append(batch.n_rows)
        self._has_nulls |= columns["null_count"] != 0
        self._is_compressed |= batch.is_compressed

    def _add_dictionary(self, message: Message, header: MessageHeader) -> None:
        """Append a dictionary to the former one with its number, or replace that."""
        self._current_tuple = None
        if header.batch is not None and header.batch.nodes["null_count"][:1].any():
            # Which columns use the dictionary is not known here: all with one may have nulls.
            self._has_nulls |= self._have_dictionaries
        if header.is_delta:
            self._current.setdefault(header.dictionary_id, []).append(message)
        else:
            self._current[header.dictionary_id] = [message]

    def build(self) -> IpcLayout:
        """Return the messages that were added."""
        return IpcLayout(
            schema=self._schema,
            arrow_schema=self._arrow_schema,
            has_nulls=self._has_nulls,
            batches=self._batches,
            n_rows=np.array(self._n_rows, np.int64),
            dictionaries=self._dictionaries,
            is_compressed=self._is_compressed,
            is_big_endian=self._is_big_endian,
        )

    # ------------------------------------------------------------------ reading

    def find(self, start: int) -> tuple[Message, MessageHeader] | None:
        """Return the message at a position.

        Returns:
            None for the mark of a stream's end.

        Raises:
            DatasetFileCorruptError: the message is damaged, or is cut off.
        """
        prefix_bytes = 4
        size = int.from_bytes(self._read(start, prefix_bytes), "little")
        if size == _CONTINUATION:
            prefix_bytes = 8
            size = int.from_bytes(self._read(start, prefix_bytes)[4:], "little")
        if size == 0:
            return None
        _check_header_size(size)
        header = parse_header(self._read(start + prefix_bytes, size))
        message = Message(start, prefix_bytes + size, header.body_bytes)
        if message.end > self._end:
            raise DatasetFileCorruptError(
                f"the message at byte {start} has {message.n_bytes} bytes, "
                f"of which {self._end - start} are there"
            )
        return message, header

    def _read(self, start: int, n_bytes: int) -> bytes:
        """Return bytes of the file.

        Raises:
            DatasetFileCorruptError: the file ends before.
        """
        piece_end = self._piece_start + len(self._piece)
        is_in_piece = self._piece_start <= start and start + n_bytes <= piece_end
        if not is_in_piece:
            wanted_bytes = min(max(n_bytes, _READ_AHEAD_BYTES), max(0, self._end - start))
            self._piece = self._file.read_at(start, wanted_bytes)
            self._piece_start = start
        offset = start - self._piece_start
        data = self._piece[offset : offset + n_bytes]
        if len(data) < n_bytes:
            raise DatasetFileCorruptError(f"it ends within the message at byte {start}")
        return data


def _check_header_size(n_bytes: int) -> None:
    """Check the size of a header or footer.

    Raises:
        DatasetFileCorruptError: it is too large to be one.
    """
    if n_bytes > _MAX_HEADER_BYTES:
        raise DatasetFileCorruptError(f"a header states a size of {n_bytes} bytes")


def _check_n_rows(batch: BatchHeader, body_bytes: int) -> None:
    """Check that a body can store as many rows.

    Columns of nulls alone, and structs without fields, take no bytes, so that a few bytes could
    claim any number of rows.

    Raises:
        DatasetFileCorruptError: it cannot.
    """
    max_rows_per_byte = _MAX_ROWS_PER_BYTE
    if batch.is_compressed:
        max_rows_per_byte = _MAX_ROWS_PER_COMPRESSED_BYTE
    if batch.n_rows > max(_MAX_UNSTORED_ROWS, max_rows_per_byte * body_bytes):
        raise DatasetFileCorruptError(
            f"a record batch states {batch.n_rows} rows, but has {body_bytes} bytes"
        )


def _count_nodes(type_: pa.DataType) -> int:
    """Return how many arrays a column of a type has: its own, and those in it.

    Raises:
        UnicodeDecodeError: the name of a field in it is damaged.
    """
    if isinstance(type_, pa.BaseExtensionType):
        return _count_nodes(type_.storage_type)
    n_nodes = 1
    for number in range(type_.num_fields):
        inner_field = type_.field(number)
        _ = inner_field.name  # as above
        n_nodes += _count_nodes(inner_field.type)
    return n_nodes
