"""Collects what the headers of the record batches of a file say."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.arrow_ipc.header_form import HeaderForm
from data_stack.formats.arrow_ipc.message import BUFFER, NODE, check_buffers

_Integers = npt.NDArray[np.int64]

#: So many bytes of headers are collected before they are checked at once.
_MAX_PENDING_BYTES: Final = 4 << 20

#: The number of rows that a record batch may have in any case.
_MAX_UNSTORED_ROWS: Final = 1 << 20

#: A record batch may have as many rows for each byte of its body: those of a column of bools.
_MAX_ROWS_PER_BYTE: Final = 8

#: The same for a compressed body: zstd stores 100,000 equal bytes in about 20.
_MAX_ROWS_PER_COMPRESSED_BYTE: Final = 1 << 17


class BatchHeaders:
    """What the headers of the record batches of a file say.

    Headers are checked many at once, by numpy.

    Args:
        top_nodes: the position of the outermost array of each column among the arrays of a record
            batch, shape ``(n_columns,)``.
        null_nodes: the position of the array of each column that counts its nulls, shape
            ``(n_columns,)``.
        n_nodes: how many arrays a record batch has.

    Attributes:
        has_nulls: whether each column has a null in a record batch, shape ``(n_columns,)``.
        is_compressed: whether a record batch is compressed.
    """

    has_nulls: npt.NDArray[np.bool_]
    is_compressed: bool

    #: The position of the outermost array of each column among the arrays of a record batch.
    _top_nodes: npt.NDArray[np.intp]

    #: The position of the array of each column that counts its nulls.
    _null_nodes: npt.NDArray[np.intp]

    #: How many arrays a record batch has.
    _n_nodes: int

    #: The form of the last header; None before the first one.
    _form: HeaderForm | None

    #: The number of rows of each record batch.
    _n_rows: list[int]

    #: The size of the body of each record batch.
    _body_bytes: list[int]

    #: How many of the first record batches are checked.
    _n_checked: int

    #: The arrays of each record batch that is not checked, as in its header.
    _nodes: list[bytes]

    #: The buffers of each record batch that is not checked, as in its header.
    _buffers: list[bytes]

    #: The size of both.
    _pending_bytes: int

    def __init__(
        self, top_nodes: npt.NDArray[np.intp], null_nodes: npt.NDArray[np.intp], n_nodes: int
    ) -> None:
        self.has_nulls = np.zeros(len(top_nodes), np.bool_)
        self.is_compressed = False
        self._top_nodes = top_nodes
        self._null_nodes = null_nodes
        self._n_nodes = n_nodes
        self._form = None
        self._n_rows = []
        self._body_bytes = []
        self._n_checked = 0
        self._nodes = []
        self._buffers = []
        self._pending_bytes = 0

    def __len__(self) -> int:
        return len(self._n_rows)

    def add(self, data: bytes) -> int | None:
        """Add the header of the next record batch.

        Args:
            data: the FlatBuffer of the header of a message.

        Returns:
            The size of the body; None if the message is no record batch, and nothing was added.

        Raises:
            DatasetFileCorruptError: the header is damaged, or an earlier one is.
        """
        form = self._form
        if form is None or not form.fits(data):
            form = HeaderForm.of(data)
            if form is None:
                return None
            self._form = form
            self.is_compressed |= form.is_compressed
        body_bytes = form.integer_of(data, form.body_bytes)
        if body_bytes < 0:
            raise DatasetFileCorruptError(f"a message states a size of {body_bytes} bytes")
        nodes_start, nodes_end = form.nodes
        if nodes_end - nodes_start != self._n_nodes * NODE.itemsize:
            raise DatasetFileCorruptError(
                f"a record batch has {(nodes_end - nodes_start) // NODE.itemsize} arrays, "
                f"but the schema {self._n_nodes}"
            )
        buffers_start, buffers_end = form.buffers

        self._n_rows.append(form.integer_of(data, form.n_rows))
        self._body_bytes.append(body_bytes)
        self._nodes.append(data[nodes_start:nodes_end])
        self._buffers.append(data[buffers_start:buffers_end])
        self._pending_bytes += form.n_bytes
        if self._pending_bytes > _MAX_PENDING_BYTES:
            self.check()
        return body_bytes

    def check(self) -> None:
        """Check the record batches that are not checked yet.

        Raises:
            DatasetFileCorruptError: a number of rows is negative, or more than a body can store; a
                column has another number of rows; or a buffer lies outside of its body.
        """
        n_rows = np.array(self._n_rows[self._n_checked :], np.int64)
        body_bytes = np.array(self._body_bytes[self._n_checked :], np.int64)
        self._check_n_rows(n_rows, body_bytes)

        nodes = np.frombuffer(b"".join(self._nodes), NODE).reshape(len(n_rows), self._n_nodes)
        lengths = nodes["length"][:, self._top_nodes]
        if (lengths != n_rows[:, np.newaxis]).any():
            raise DatasetFileCorruptError("the columns of a record batch differ in length")
        null_counts = nodes["null_count"][:, self._null_nodes]
        self.has_nulls |= (null_counts != 0).any(axis=0)

        buffers = np.frombuffer(b"".join(self._buffers), BUFFER)
        n_buffers = [len(buffers_of_batch) // BUFFER.itemsize for buffers_of_batch in self._buffers]
        check_buffers(buffers, np.repeat(body_bytes, n_buffers))

        self._n_checked = len(self._n_rows)
        self._nodes = []
        self._buffers = []
        self._pending_bytes = 0

    def n_rows(self) -> _Integers:
        """Return the number of rows of each record batch, shape ``(n_batches,)``."""
        return np.array(self._n_rows, np.int64)

    def _check_n_rows(self, n_rows: _Integers, body_bytes: _Integers) -> None:
        """Check that bodies can store as many rows.

        Columns of nulls alone, and structs without fields, take no bytes, so that a few bytes could
        claim any number of rows.

        Raises:
            DatasetFileCorruptError: a body cannot.
        """
        max_rows_per_byte = _MAX_ROWS_PER_BYTE
        if self.is_compressed:
            max_rows_per_byte = _MAX_ROWS_PER_COMPRESSED_BYTE
        # The product of a size and the rows per byte may exceed int64.
        are_too_many = (n_rows > _MAX_UNSTORED_ROWS) & (n_rows // max_rows_per_byte > body_bytes)
        are_wrong = are_too_many | (n_rows < 0)
        if are_wrong.any():
            batch = int(np.argmax(are_wrong))
            raise DatasetFileCorruptError(
                f"a record batch states {n_rows[batch]} rows, but has {body_bytes[batch]} bytes"
            )
