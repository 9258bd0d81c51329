"""Decodes single record batches, whatever order they are asked for in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from data_stack.exception import DatasetFileCorruptError


class FedStream:
    """A reader of pyarrow that decodes the messages it is fed.

    pyarrow decodes a record batch only after its schema and dictionaries: those of a file by one
    reader, and those of a stream from start to end. This reader of a stream gets any messages in
    place of the next ones. So a single record batch of either format is decoded, its dictionaries
    once for all record batches that share them, and nothing is copied.

    One thread at a time may use it. After an error it must not be used any more.

    Args:
        schema: the message of the schema.
        columns: the positions of the columns to decode; None for all.

    Raises:
        pyarrow.ArrowException: the schema is damaged.
    """

    #: What pyarrow reads from.
    _file: _FedFile

    #: The reader of pyarrow.
    _reader: pa.RecordBatchStreamReader

    def __init__(self, schema: memoryview, columns: Sequence[int] | None = None) -> None:
        self._file = _FedFile([schema])
        # Without threads, a forked child may use a reader of its parent's class.
        options = pa.ipc.IpcReadOptions(use_threads=False)
        if columns is not None:
            options.included_fields = list(columns)
        self._reader = pa.ipc.open_stream(pa.PythonFile(self._file, mode="r"), options=options)

    def decode(self, messages: Sequence[memoryview]) -> pa.RecordBatch:
        """Decode a record batch, whose buffers are those of the message unless it is compressed.

        Args:
            messages: the messages of dictionaries that are not those of the last call, and then
                that of the record batch.

        Raises:
            DatasetFileCorruptError, pyarrow.ArrowException: a message is damaged.
        """
        self._file.feed(messages)
        batch = self._reader.read_next_batch()
        if self._file.n_left:
            raise DatasetFileCorruptError("a message is longer than its header says")
        return batch


class _FedFile:
    """A file whose next bytes are those that it is fed.

    Args:
        messages: the first bytes.

    Attributes:
        closed: whether the file is closed; it never is.
        n_left: the number of messages that were not read to their end.
    """

    closed: bool
    n_left: int

    #: The messages, of which the first ones were read.
    _messages: Sequence[memoryview]

    #: How much of the first unread message was read.
    _position: int

    def __init__(self, messages: Sequence[memoryview]) -> None:
        self.closed = False
        self.feed(messages)

    def feed(self, messages: Sequence[memoryview]) -> None:
        """Set the next bytes, in place of those that were not read."""
        self._messages = messages
        self._position = 0
        self.n_left = len(messages)

    def read(self, n_bytes: int = -1) -> Any:
        """Return bytes of the next message without a copy, fewer at its end."""
        if not self.n_left:
            return b""
        message = self._messages[-self.n_left]
        end = len(message) if n_bytes < 0 else self._position + n_bytes
        data = message[self._position : end]
        self._position += len(data)
        if self._position == len(message):
            self.n_left -= 1
            self._position = 0
        return data

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        return 0

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass
