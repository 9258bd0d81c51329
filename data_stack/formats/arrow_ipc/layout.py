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
from data_stack.formats.arrow_ipc.batch_headers import BatchHeaders
from data_stack.formats.arrow_ipc.errors import reading_arrow
from data_stack.formats.arrow_ipc.header_reader import (
    HeaderReader,
    StoredHeader,
    check_header_size,
    count_prefix_bytes,
)
from data_stack.formats.arrow_ipc.message import (
    MessageKind,
    parse_footer,
    parse_header,
)
from data_stack.formats.arrow_tables.readable_cells import readable_type
from data_stack.io.positional import PositionalFile

#: The first and last bytes of a file in the file format. A file without them is a stream.
_MAGIC: Final = b"ARROW1"

#: Where the first message of a file in the file format begins.
_FIRST_MESSAGE: Final = 8

#: The first bytes of a Feather file of version 1, which holds another format.
_MAGIC_OF_FEATHER_1: Final = b"FEA1"

#: The size of a footer's size and the magic at the end of a file.
_END_BYTES: Final = 4 + len(_MAGIC)


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
        batch_places: where each record batch begins, the size of its header and that of its body,
            shape ``(n_batches, 3)``.
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
    batch_places: npt.NDArray[np.int64]
    n_rows: npt.NDArray[np.int64]
    dictionaries: list[tuple[Message, ...]]
    is_compressed: bool
    is_big_endian: bool
    has_end: bool = True

    @property
    def n_batches(self) -> int:
        """The number of record batches."""
        return len(self.batch_places)

    def batch(self, number: int) -> Message:
        """Return the message of a record batch."""
        start, header_bytes, body_bytes = self.batch_places[number].tolist()
        return Message(start, header_bytes, body_bytes)


def read_layout(file: PositionalFile, mapped: memoryview | None = None) -> IpcLayout:
    """Find the messages of a file, in the file format or the stream format.

    Args:
        file: the file.
        mapped: the bytes of the file, mapped into memory; None if it is read by range.

    Raises:
        DatasetFileCorruptError: the file is damaged, truncated, or not one of Arrow.
    """
    with reading_arrow(file.name):
        return _read_layout(file, mapped)


def _read_layout(file: PositionalFile, mapped: memoryview | None) -> IpcLayout:
    head = file.read_at(0, _FIRST_MESSAGE)
    if head.startswith(_MAGIC_OF_FEATHER_1):
        raise DatasetFileCorruptError(
            "it is a Feather file of version 1, which Arrow has replaced; write it again by "
            "pyarrow.feather.write_feather(pyarrow.feather.read_table(path), new_path)"
        )
    if head.startswith(_MAGIC):
        return _layout_of_file(file, mapped)
    return _layout_of_stream(file, mapped)


# ---------------------------------------------------------------------- the file format


def _layout_of_file(file: PositionalFile, mapped: memoryview | None) -> IpcLayout:
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
    check_header_size(footer_bytes)
    footer = parse_footer(file.read_exactly_at(footer_start, footer_bytes))

    headers = HeaderReader(file, mapped, footer_start)
    builder = _LayoutBuilder(file, headers, _FIRST_MESSAGE, footer_start)
    _add_listed_messages(builder, headers, footer.dictionaries, MessageKind.DICTIONARY)
    _add_listed_messages(builder, headers, footer.batches, MessageKind.RECORD_BATCH)
    return builder.build()


def _add_listed_messages(
    builder: _LayoutBuilder,
    headers: HeaderReader,
    blocks: npt.NDArray[np.void],
    kind: MessageKind,
) -> None:
    """Add the messages of a kind that a footer lists, see :class:`Footer`."""
    starts = blocks["start"].tolist()
    places = zip(starts, blocks["header_bytes"].tolist(), strict=True)
    for start, header in zip(starts, headers.read_many(places), strict=True):
        builder.add(start, header, kind)


# ---------------------------------------------------------------------- the stream format


def _layout_of_stream(file: PositionalFile, mapped: memoryview | None) -> IpcLayout:
    """Find the messages one after the other, as each says where the next one begins.

    A dictionary serves the record batches after it, until another one replaces it.
    """
    file_bytes = file.size
    headers = HeaderReader(file, mapped, file_bytes)
    builder = _LayoutBuilder(file, headers, 0, file_bytes)
    next_start = builder.first_start
    while next_start < file_bytes:
        header = headers.read(next_start)
        if header is None:
            _check_end(file, next_start)
            return builder.build()
        next_start = builder.add(next_start, header)
    return replace(builder.build(), has_end=False)


def _check_end(file: PositionalFile, start: int) -> None:
    """Check that nothing follows the mark of a stream's end.

    Raises:
        DatasetFileCorruptError: something does, which pyarrow would leave out.
    """
    n_left = file.size - start - count_prefix_bytes(file.read_at(start, 4))
    if n_left > 0:
        raise DatasetFileCorruptError(
            f"{n_left} bytes follow the end of the stream; write each stream to a file of its own"
        )


# ---------------------------------------------------------------------- messages


class _LayoutBuilder:
    """Collects the messages of a file, which begin with that of the schema.

    Args:
        file: the file.
        headers: reads the headers of its messages.
        start: where the first message begins.
        end: where the last message ends.

    Attributes:
        first_start: where the message behind the schema begins.

    Raises:
        DatasetFileCorruptError: the first message is not a schema.
    """

    first_start: int

    #: Where the last message ends.
    _end: int

    #: The message of the schema.
    _schema: Message

    #: The columns.
    _arrow_schema: pa.Schema

    #: The dictionaries that the next record batch needs, by their numbers.
    _current: dict[int, list[Message]]

    #: The same as one tuple; None if it must be made again.
    _current_tuple: tuple[Message, ...] | None

    #: What the headers of the record batches say.
    _batches: BatchHeaders

    #: Where each record batch begins, the size of its header and that of its body.
    _batch_places: list[tuple[int, int, int]]

    #: The dictionaries of each record batch.
    _dictionaries: list[tuple[Message, ...]]

    #: Whether the values of each column are indices into a dictionary.
    _have_dictionaries: npt.NDArray[np.bool_]

    #: Whether a dictionary has a null.
    _has_null_in_dictionary: bool

    #: Whether numbers are stored in that order of bytes.
    _is_big_endian: bool

    def __init__(self, file: PositionalFile, headers: HeaderReader, start: int, end: int) -> None:
        self._end = end
        header = headers.read(start)
        content = None if header is None else parse_header(header.data)
        if header is None or content is None or content.kind != MessageKind.SCHEMA:
            raise DatasetFileCorruptError("it does not begin with a schema")
        self._schema = self._message_at(start, header, content.body_bytes)
        self._is_big_endian = content.is_big_endian
        self.first_start = self._schema.end
        stored_schema = file.read_exactly_at(start, self._schema.n_bytes)
        self._arrow_schema = pa.ipc.read_schema(pa.py_buffer(stored_schema))

        top_nodes: list[int] = []
        null_nodes: list[int] = []
        have_dictionaries: list[bool] = []
        n_nodes = 0
        for field in self._arrow_schema:
            _ = field.name  # pyarrow decodes it now, and raises if it is damaged
            top_nodes.append(n_nodes)
            null_nodes.append(n_nodes + _node_of_nulls(field.type))
            n_nodes += _count_nodes(field.type)
            have_dictionaries.append(pa.types.is_dictionary(readable_type(field.type)))
        self._batches = BatchHeaders(
            np.array(top_nodes, np.intp), np.array(null_nodes, np.intp), n_nodes
        )
        self._batch_places = []
        self._current = {}
        self._current_tuple = None
        self._dictionaries = []
        self._have_dictionaries = np.array(have_dictionaries, np.bool_)
        self._has_null_in_dictionary = False

    def add(self, start: int, header: StoredHeader | None, kind: MessageKind | None = None) -> int:
        """Add a message behind the schema.

        Args:
            start: where the message begins.
            header: its header; None for the mark of a stream's end.
            kind: the kind that a footer says; None without a footer.

        Returns:
            Where the message ends.

        Raises:
            DatasetFileCorruptError: it is none of a table, or of another kind, or cut off.
        """
        if header is None:
            raise DatasetFileCorruptError(f"the footer lists no message at byte {start}")
        body_bytes = None
        if kind != MessageKind.DICTIONARY:
            body_bytes = self._batches.add(header.data)
        if body_bytes is None:
            return self._add_dictionary(start, header, kind)

        end = start + header.n_bytes + body_bytes
        self._check_end_of(start, end)
        if self._current_tuple is None:
            self._current_tuple = tuple(itertools.chain(*self._current.values()))
        self._batch_places.append((start, header.n_bytes, body_bytes))
        self._dictionaries.append(self._current_tuple)
        return end

    def _add_dictionary(self, start: int, header: StoredHeader, kind: MessageKind | None) -> int:
        """Append a dictionary to the previous one with its number, or replace that."""
        content = parse_header(header.data)
        if kind is not None and content.kind != kind:
            raise DatasetFileCorruptError(f"the footer lists no {kind.name} at byte {start}")
        if content.kind != MessageKind.DICTIONARY or content.batch is None:
            raise DatasetFileCorruptError(
                f"the message at byte {start} is neither a record batch nor a dictionary"
            )
        message = self._message_at(start, header, content.body_bytes)
        self._current_tuple = None
        self._has_null_in_dictionary |= bool(content.batch.nodes["null_count"][:1].any())
        if content.is_delta:
            self._current.setdefault(content.dictionary_id, []).append(message)
        else:
            self._current[content.dictionary_id] = [message]
        return message.end

    def build(self) -> IpcLayout:
        """Return the messages that were added.

        Raises:
            DatasetFileCorruptError: a record batch is damaged.
        """
        self._batches.check()
        has_nulls = self._batches.has_nulls
        if self._has_null_in_dictionary:
            # Which columns use the dictionary is not known here: all with one may have nulls.
            has_nulls = has_nulls | self._have_dictionaries
        return IpcLayout(
            schema=self._schema,
            arrow_schema=self._arrow_schema,
            has_nulls=has_nulls,
            batch_places=np.array(self._batch_places, np.int64).reshape(-1, 3),
            n_rows=self._batches.n_rows(),
            dictionaries=self._dictionaries,
            is_compressed=self._batches.is_compressed,
            is_big_endian=self._is_big_endian,
        )

    def _message_at(self, start: int, header: StoredHeader, body_bytes: int) -> Message:
        """Return a message; raises as :meth:`_check_end_of`."""
        message = Message(start, header.n_bytes, body_bytes)
        self._check_end_of(start, message.end)
        return message

    def _check_end_of(self, start: int, end: int) -> None:
        """Check that a message is whole.

        Raises:
            DatasetFileCorruptError: it is cut off.
        """
        if end > self._end:
            raise DatasetFileCorruptError(
                f"the message at byte {start} has {end - start} bytes, "
                f"of which {self._end - start} are there"
            )


def _count_nodes(type_: pa.DataType) -> int:
    """Return how many arrays a column of a type has: its own, and those in it.

    Raises:
        UnicodeDecodeError: the name of a field in it, or a time zone, is damaged.
    """
    if isinstance(type_, pa.BaseExtensionType):
        return _count_nodes(type_.storage_type)
    # pyarrow decodes names and time zones now, and raises if they are damaged.
    if pa.types.is_timestamp(type_):
        _ = type_.tz
    if pa.types.is_dictionary(type_):
        _count_nodes(type_.value_type)
    n_nodes = 1
    for number in range(type_.num_fields):
        inner_field = type_.field(number)
        _ = inner_field.name
        n_nodes += _count_nodes(inner_field.type)
    return n_nodes


def _node_of_nulls(type_: pa.DataType) -> int:
    """Return which array of a column of a type counts its nulls: mostly its own, the first one."""
    if isinstance(type_, pa.BaseExtensionType):
        return _node_of_nulls(type_.storage_type)
    if isinstance(type_, pa.RunEndEncodedType):
        # Behind its own are those of the ends of runs and of their values.
        return 2
    return 0
