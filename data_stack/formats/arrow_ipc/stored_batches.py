"""Reads the record batches of one Arrow file."""

from __future__ import annotations

import itertools
import mmap
import os
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa

from data_stack.exception import DatasetFileCorruptError, ResourceChangedError
from data_stack.formats.arrow_ipc.column_buffers import ColumnBuffers
from data_stack.formats.arrow_ipc.errors import reading_arrow
from data_stack.formats.arrow_ipc.fed_stream import FedStream
from data_stack.formats.arrow_ipc.header_reader import count_prefix_bytes
from data_stack.formats.arrow_ipc.layout import IpcLayout, Message, read_layout
from data_stack.formats.arrow_ipc.message import parse_header
from data_stack.formats.arrow_tables.readable_cells import (
    is_extension,
    readable_cells,
    readable_type,
)
from data_stack.formats.mapped_files import map_sealed_file
from data_stack.io.positional import PositionalFile
from data_stack.io.versions import LocalVersion, local_version_of
from data_stack.util.byte_cache import ByteCache
from data_stack.util.forks import fork_lock
from data_stack.util.request_limit import check_request

#: How much memory the decoded columns of a file may take that are not those of a map.
_MAX_CACHED_BYTES: Final = 64 << 20

#: What the object of a decoded column takes, beside its values.
_COLUMN_BYTES: Final = 1 << 10

#: How much memory such objects may take: a million columns of record batches.
_MAX_CACHED_OBJECT_BYTES: Final = 1 << 30

#: The first bytes of a compressed buffer state the size of its values. This size means that the
#: buffer is not compressed.
_SIZE_BYTES: Final = 8
_NOT_COMPRESSED: Final = -1

#: How many bytes a compressed byte may stand for: zstd stores 128 KiB of equal bytes in 4.
_MAX_BYTES_PER_COMPRESSED_BYTE: Final = 1 << 15

#: Time between two checks of a mapped file, in nanoseconds; see ``Footers`` of Parquet.
_CHECK_INTERVAL_NS: Final = 10_000

#: Of record batches up to this mean size, all columns are fetched from a store. To request their
#: headers first takes longer than to transfer them, and stores are read in blocks of 255 KiB.
_MAX_WHOLE_BYTES: Final = 512 << 10

#: The positions of some columns, in ascending order; None for all columns.
_Columns = tuple[int, ...] | None

#: A decoded record batch: its position in the file, and the columns that were decoded.
_Key = tuple[int, _Columns]


@dataclass(slots=True)
class _DecodedBatch:
    """A record batch that pyarrow has decoded.

    Attributes:
        batch: all columns, or some of them.
        columns: the columns that are validated, by their positions in the file.
    """

    batch: pa.RecordBatch
    columns: dict[int, pa.Array] = field(default_factory=dict)


class StoredBatches:
    """The record batches of one file, each column of which is decoded when it is needed.

    A local file is mapped into memory: its columns are those of the map, unless they are
    compressed. Of a file in a store, record batches are read by range; where only some columns are
    read, their headers first, and then the buffers of these columns. Threads may share the object;
    a forked child makes its own.

    A column is validated before it is used for the first time: offsets, sizes and indices of a
    damaged file would make pyarrow read any memory.

    Args:
        file: the file.

    Attributes:
        file: the file.
        layout: where its messages lie.
        map: the bytes of the file, mapped into memory; None if it is read by range.
        is_mapped: whether the buffers of columns are parts of the map.

    Raises:
        DatasetFileCorruptError: the file is damaged, or not one of Arrow.
    """

    file: PositionalFile
    layout: IpcLayout
    is_mapped: bool

    map: memoryview | None

    #: The version of the file when it was opened; None if it is not a file of this machine.
    _version: LocalVersion | None

    #: When the version was checked last, by ``time.perf_counter_ns``.
    _checked_ns: int

    #: The decoded record batches.
    _cache: ByteCache[_Key, _DecodedBatch]

    #: The columns that are read of a row; None for all.
    _chosen: _Columns

    #: Tells where the buffers of a column are.
    _buffers: ColumnBuffers

    #: Decodes all columns, by the key None; or some, by their positions.
    _streams: dict[_Columns, FedStream]

    #: The dictionaries that each of these readers has.
    _fed: dict[_Columns, tuple[Message, ...]]

    #: Held by the thread that decodes.
    _lock: threading.Lock

    def __init__(self, file: PositionalFile) -> None:
        self.file = file
        self._version = local_version_of(file.resource)
        self._checked_ns = time.perf_counter_ns()
        mapped = map_sealed_file(file)
        self.map = None if mapped is None else memoryview(mapped)
        self.layout = read_layout(file, self.map)
        self._chosen = None
        self._buffers = ColumnBuffers(self.layout.arrow_schema)
        self._streams = {}
        self._fed = {}
        self._lock = fork_lock()
        are_converted = any(_is_converted(field.type) for field in self.layout.arrow_schema)
        is_copied = self.layout.is_compressed or self.layout.is_big_endian or are_converted
        self.is_mapped = self.map is not None and not is_copied
        if self.is_mapped:
            self._cache = ByteCache(_MAX_CACHED_OBJECT_BYTES, _size_of_objects)
        else:
            self._cache = ByteCache(_MAX_CACHED_BYTES, _size_of_values)

    def choose_columns(self, numbers: Iterable[int]) -> None:
        """Fetch no other columns of rows from a store.

        Args:
            numbers: the positions of the columns.
        """
        chosen = tuple(sorted(set(numbers)))
        is_choice = len(chosen) < len(self.layout.arrow_schema)
        self._chosen = chosen if is_choice else None

    # ------------------------------------------------------------------ columns

    def column(self, batch: int, number: int) -> pa.Array:
        """Return a column of a record batch.

        Args:
            batch: the position of the record batch.
            number: the position of the column.

        Raises:
            DatasetFileCorruptError: the column is damaged.
            RequestLimitError: its values take more memory than a request may.
            ResourceChangedError: the file was written to.
        """
        return self.columns([batch], number)[0]

    def columns(
        self, batches: Sequence[int], number: int, *, is_alone: bool = False
    ) -> list[pa.Array]:
        """Return a column of several record batches.

        Args:
            batches: the positions of the record batches.
            number: the position of the column.
            is_alone: whether no other columns of these record batches will be read.

        Raises:
            DatasetFileCorruptError, RequestLimitError, ResourceChangedError: as :meth:`column`.
        """
        decoded_columns = self._decoded_with(number, is_alone=is_alone)
        decoded = self._decoded_batches(batches, decoded_columns)
        place = number if decoded_columns is None else decoded_columns.index(number)
        columns = []
        with reading_arrow(self.file.name):
            for batch, decoded_batch in zip(batches, decoded, strict=True):
                columns.append(self._valid_column(batch, number, place, decoded_batch))
        return columns

    def _decoded_with(self, number: int, *, is_alone: bool) -> _Columns:
        """Return the columns that are decoded together with a column."""
        if self.map is not None:
            # Each column of a compressed file is decoded by itself.
            return (number,) if self.layout.is_compressed else None
        if is_alone or (self._chosen is not None and number not in self._chosen):
            return (number,)
        return self._chosen

    def _decoded_batches(self, batches: Sequence[int], columns: _Columns) -> list[_DecodedBatch]:
        """Return decoded record batches, those that are not in the cache by one request or two."""
        decoded = self._cache.get_many((batch, columns) for batch in batches)
        missing = [batch for batch in batches if (batch, columns) not in decoded]
        if missing:
            self.check_unchanged()
            with reading_arrow(self.file.name):
                places = [self.layout.batch(batch) for batch in missing]
                messages = self._read_columns(places, columns)
                for batch, message in zip(missing, messages, strict=True):
                    if self.layout.is_compressed:
                        self._check_sizes(message, self.layout.batch(batch))
                    with self._lock:
                        decoded_batch = _DecodedBatch(self._decode(batch, columns, message))
                    decoded[(batch, columns)] = decoded_batch
                    self._cache.put((batch, columns), decoded_batch)
        return [decoded[(batch, columns)] for batch in batches]

    def _valid_column(
        self, batch: int, number: int, place: int, decoded: _DecodedBatch
    ) -> pa.Array:
        """Return a column of a record batch, and check what pyarrow relies on.

        Args:
            batch: the position of the record batch.
            number: the position of the column in the file.
            place: its position among the decoded columns.
            decoded: the decoded record batch.

        Raises:
            DatasetFileCorruptError, pyarrow.ArrowInvalid: the column is damaged.
        """
        cells = decoded.columns.get(number)
        if cells is None:
            cells = decoded.batch.column(place)
            if len(cells) != self.layout.n_rows[batch]:
                raise DatasetFileCorruptError("a column has another length than its record batch")
            if cells.null_count and not self.layout.has_nulls[number]:
                raise DatasetFileCorruptError("a column has nulls that its header does not state")
            _bytes_of_text(cells).validate(full=True)
            cells = readable_cells(cells)
            decoded.columns[number] = cells
        return cells

    def _decode(self, batch: int, columns: _Columns, message: memoryview) -> pa.RecordBatch:
        """Decode columns of a record batch."""
        stream = self._streams.pop(columns, None)
        if stream is None:
            schema = self._read_message(self.layout.schema)
            stream = FedStream(schema, columns)
            self._fed[columns] = ()
        dictionaries = self.layout.dictionaries[batch]
        messages = []
        if dictionaries != self._fed[columns]:
            messages = [self._read_message(dictionary) for dictionary in dictionaries]
            for dictionary, stored in zip(dictionaries, messages, strict=True):
                self._check_sizes(stored, dictionary)
        decoded = stream.decode([*messages, message])
        # A reader that raised is not used again.
        self._streams[columns] = stream
        self._fed[columns] = dictionaries
        return decoded

    # ------------------------------------------------------------------ messages

    def _read_columns(self, messages: Sequence[Message], columns: _Columns) -> list[memoryview]:
        """Return the bytes of record batches, at least those of columns.

        Raises:
            DatasetFileCorruptError, RequestLimitError: as :meth:`_read_ranges`.
        """
        n_bytes = sum(message.n_bytes for message in messages)
        are_small = n_bytes <= _MAX_WHOLE_BYTES * len(messages)
        if self.map is not None or columns is None or are_small:
            return self._read_ranges(messages)
        headers = self._read_ranges([replace(message, body_bytes=0) for message in messages])
        ranges_of_messages: list[list[tuple[int, int]]] = []
        for message, header in zip(messages, headers, strict=True):
            ranges = self._find_ranges(message, header, columns)
            if ranges is None:
                return self._read_ranges(messages)
            ranges_of_messages.append(ranges)
        return self._read_parts(messages, headers, ranges_of_messages)

    def _find_ranges(
        self, message: Message, header: memoryview, columns: Sequence[int]
    ) -> list[tuple[int, int]] | None:
        """Return where the buffers of columns lie in the file, and their sizes.

        None if neither the schema nor the header tells.
        """
        batch = parse_header(_flatbuffer(header)).batch
        if batch is None:
            return None
        places = self._buffers.find(batch, columns)
        if places is None:
            return None
        body_start = message.start + message.header_bytes
        return [(body_start + start, size) for start, size in places]

    def _read_parts(
        self,
        messages: Sequence[Message],
        headers: Sequence[memoryview],
        ranges_of_messages: Sequence[list[tuple[int, int]]],
    ) -> list[memoryview]:
        """Read parts of several messages by one request.

        Args:
            messages: the messages.
            headers: the header of each message.
            ranges_of_messages: for each message, where its parts lie in the file, and their sizes.

        Returns:
            The bytes of each message, in which those outside of the parts and the header are 0.

        Raises:
            DatasetFileCorruptError: the file ends before.
            RequestLimitError: the parts take more memory than a request may.
        """
        all_ranges = list(itertools.chain(*ranges_of_messages))
        check_request(sum(size for _, size in all_ranges), f"columns of {self.file.name!r}")
        pieces = iter(self.file.read_ranges(all_ranges))
        assembled = []
        for message, header, ranges in zip(messages, headers, ranges_of_messages, strict=True):
            # The memory of what is not read is never touched, so it takes none.
            data = mmap.mmap(-1, message.n_bytes)
            data[: len(header)] = header
            for start, size in ranges:
                piece = next(pieces)
                if len(piece) != size:
                    raise DatasetFileCorruptError(f"it ends within the message at {message.start}")
                offset = start - message.start
                data[offset : offset + size] = piece
            assembled.append(memoryview(data))
        return assembled

    def _read_message(self, message: Message) -> memoryview:
        return self._read_ranges([message])[0]

    def _read_ranges(self, messages: Sequence[Message]) -> list[memoryview]:
        """Return the bytes of messages, those of the map without a copy.

        Raises:
            DatasetFileCorruptError: the file ends before.
            RequestLimitError: they take more memory than a request may.
        """
        if self.map is not None:
            return [self.map[message.start : message.end] for message in messages]
        n_bytes = sum(message.n_bytes for message in messages)
        check_request(n_bytes, f"the record batches of {self.file.name!r}")
        pieces = self.file.read_ranges([(message.start, message.n_bytes) for message in messages])
        for message, piece in zip(messages, pieces, strict=True):
            if len(piece) != message.n_bytes:
                raise DatasetFileCorruptError(f"it ends within the message at {message.start}")
        return [memoryview(piece) for piece in pieces]

    def _check_sizes(self, data: memoryview, message: Message) -> None:
        """Check the sizes that the compressed buffers of a message state.

        pyarrow allocates what a buffer states, before it decompresses it.

        Raises:
            DatasetFileCorruptError: a buffer states a negative size, or one that it cannot hold.
            RequestLimitError: together they exceed the limit of a request.
        """
        batch = parse_header(_flatbuffer(data[: message.header_bytes])).batch
        if batch is None or not batch.is_compressed:
            return
        body = data[message.header_bytes :]
        n_bytes = 0
        for start, stored_bytes in batch.buffers.tolist():
            if stored_bytes < _SIZE_BYTES:
                continue
            stated = int.from_bytes(body[start : start + _SIZE_BYTES], "little", signed=True)
            max_bytes = stored_bytes * _MAX_BYTES_PER_COMPRESSED_BYTE
            if not _NOT_COMPRESSED <= stated <= max_bytes:
                raise DatasetFileCorruptError(f"a buffer states a size of {stated} bytes")
            n_bytes += max(stated, 0)
        check_request(n_bytes, f"a record batch of {self.file.name!r}")

    # ------------------------------------------------------------------ the store

    @property
    def fetched_bytes(self) -> int:
        """The size of all record batches, if they are fetched from a store in advance; else 0."""
        if not self.file.resource.prefetches:
            return 0
        return int(self.layout.batch_places[:, 1:].sum())

    def fetch(self, batches: Iterable[int]) -> None:
        """Fetch record batches from the store into its cache."""
        if self._chosen is not None:
            self._decoded_batches(list(batches), self._chosen)
            return
        ranges = []
        for batch in batches:
            message = self.layout.batch(batch)
            ranges.append((message.start, message.n_bytes))
        self.file.resource.prefetch(ranges)

    def check_unchanged(self) -> None:
        """Check that nobody has written to a local file since it was opened.

        A file that replaced it is no change: the open one is read on.

        Raises:
            ResourceChangedError: the file was written to.
            StorageError, UnpicklableResourceError: it was closed; see
                :meth:`~data_stack.io.positional.PositionalFile.check_usable`.
        """
        now_ns = time.perf_counter_ns()
        if now_ns - self._checked_ns < _CHECK_INTERVAL_NS:
            return
        self._checked_ns = now_ns
        self.file.check_usable()
        before = self._version
        if before is None:
            return
        status = os.fstat(self.file.resource.fileno())
        if (status.st_size, status.st_mtime_ns) != (before.size, before.modified_ns):
            now = LocalVersion.of(status)
            raise ResourceChangedError(self.file.name, str(before), str(now))


def _flatbuffer(header: memoryview) -> bytes:
    """Return the FlatBuffer of a header, without what comes before it."""
    return bytes(header[count_prefix_bytes(header) :])


def _is_converted(type_: pa.DataType) -> bool:
    """Return whether the cells of a type are copied to make them readable."""
    while is_extension(type_):
        type_ = type_.storage_type
    return bool(readable_type(type_) != type_)


def _size_of_objects(decoded: _DecodedBatch) -> int:
    """Return what a decoded record batch takes beside its values, which are those of a map."""
    n_columns: int = decoded.batch.num_columns
    return _COLUMN_BYTES * (1 + n_columns)


def _size_of_values(decoded: _DecodedBatch) -> int:
    """Return what a decoded record batch takes with its values.

    ``nbytes`` would read offsets that are not validated yet.
    """
    return _size_of_objects(decoded) + int(decoded.batch.get_total_buffer_size())


def _bytes_of_text(cells: pa.Array) -> pa.Array:
    """Return text as bytes, without a copy; other cells as they are.

    Validating text would read all of it. That text is valid UTF-8 is checked where it is decoded.
    """
    if cells.type == pa.string():
        return cells.view(pa.binary())
    if cells.type == pa.large_string():
        return cells.view(pa.large_binary())
    return cells
