"""Columns whose records may have any size: a codec decodes each of them by itself."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import Codec, ColumnType
from data_stack.codecs.plain import BytesCodec
from data_stack.exception import MissingDependencyError, RequestLimitError
from data_stack.formats.records.bag import Bag
from data_stack.formats.records.record_offsets import RecordNumbers
from data_stack.formats.records.value_column import ValueColumn
from data_stack.util.executor import computing, n_threads_here
from data_stack.util.request_limit import Request, current_request, decoding_for
from data_stack.values.stacked_values import stack_values

#: Values are about this many times as large as their compressed records.
_EXPANSION = 16

#: A request is decoded in at most this many threads.
_MAX_THREADS = 32

#: Records of less than this many bytes are decoded before a thread has woken up.
_MIN_BYTES_FOR_THREADS = 1 << 15

#: Each thread decodes this many pieces one after the other, so that a slow piece does not delay
#: the others.
_PIECES_PER_THREAD = 4

#: Records of this many bytes on average take much longer to decode than it takes to map their
#: pages again.
_MIN_RECORD_BYTES_TO_RELEASE = 1 << 14

#: An iteration over a column reads about this many bytes at once.
_BYTES_AT_ONCE = 1 << 20

_Integers = npt.NDArray[np.int64]
_Array = npt.NDArray[Any]


class _Piece(NamedTuple):
    """Records of a request that one thread decodes."""

    records: Sequence[bytes]
    numbers: RecordNumbers
    request: Request


class DecodedColumn(ValueColumn):
    """Records of any size, each decoded by its codec.

    Args:
        bag: the records.
        codec: decodes a record.
        column: what the schema says about the values.
    """

    def __init__(self, bag: Bag, codec: Codec, column: ColumnType) -> None:
        super().__init__(bag)
        self._codec = codec
        self._column = column
        #: Whether a value is the bytes of its record.
        self._is_plain = type(codec) is BytesCodec

    @property
    def is_fixed(self) -> bool:
        return False

    @property
    def declared_dtype(self) -> np.dtype[Any] | None:
        """The dtype of numbers that the schema declares; None without one."""
        dtype = self._column.dtype
        if dtype is None or dtype.kind not in "biufc":
            return None
        return dtype

    @property
    def row_bytes(self) -> int:
        dtype = self._column.dtype
        shape = self._column.shape
        if dtype is not None and shape is not None:
            known_sizes = [size for size in shape if size is not None]
            if len(known_sizes) == len(shape):
                return dtype.itemsize * math.prod(known_sizes)
        n_bytes = self.bag.n_bytes
        if self._codec.is_compressed:
            n_bytes *= _EXPANSION
        return n_bytes // max(1, len(self.bag))

    def value(self, index: int) -> Any:
        record = self.bag.record(index)
        if self._is_plain:
            return record
        try:
            return self._codec.decode(record)
        except MemoryError:
            raise
        except Exception as error:  # a codec may raise anything
            raise self._explain(index, error) from error

    def values(self, numbers: RecordNumbers) -> list[Any]:
        records = self.bag.records(numbers)
        if self._is_plain:
            return records

        n_bytes = sum(map(len, records))
        if n_bytes >= len(records) * _MIN_RECORD_BYTES_TO_RELEASE:
            self.bag.file.release_pages()

        request = current_request()
        n_threads = self._choose_threads(len(records), n_bytes)
        if n_threads == 1:
            return self._decode(records, numbers, request)
        n_pieces = min(len(records), n_threads * _PIECES_PER_THREAD)
        bounds = [len(records) * number // n_pieces for number in range(n_pieces + 1)]
        pieces = [
            _Piece(records[start:stop], numbers[start:stop], request)
            for start, stop in pairwise(bounds)
        ]
        return self._decode_in_threads(pieces)

    def read(self, numbers: RecordNumbers) -> _Array:
        """Read values stacked; texts and bytes are an array of objects."""
        if len(numbers) == 0 and len(self.bag) > 0:
            # The first value tells the dtype and shape of an array without values.
            return self.read(range(1))[:0]

        values = self.values(numbers)
        if not values:
            return self._stack_none()
        value_types = set(map(type, values))
        are_texts_or_bytes = value_types == {str} or value_types == {bytes}
        if self._is_plain or are_texts_or_bytes:
            column: _Array = np.empty(len(values), object)
            column[:] = values
            return column

        stacked = stack_values(values)
        dtype = self._column.dtype
        is_number = stacked.dtype.kind in "biufc"
        if dtype is None or not is_number:
            return stacked
        if any(hasattr(value, "dtype") for value in values):
            return stacked
        # Python's numbers have no dtype of their own.
        return stacked.astype(dtype, copy=False)

    def runs(self, starts: _Integers, length: int) -> _Array | None:
        """Return None: the values of other records may have another dtype or shape."""
        return None

    def iterate_values(self, numbers: _Integers) -> Iterator[Any]:
        """Iterate over values, decoding one at a time.

        The bytes of several records are read in one request; from a store, those of all records.

        Raises:
            DatasetFileCorruptError: a record is damaged.
        """
        n_at_once = len(numbers)
        if self.bag.file.ranges is None:
            n_at_once = _BYTES_AT_ONCE * len(self) // max(1, self.bag.n_bytes)
        n_at_once = max(1, n_at_once)
        for start in range(0, len(numbers), n_at_once):
            records = self.bag.records(numbers[start : start + n_at_once])
            self.bag.file.release_pages()
            for index, record in enumerate(records, start):
                number = numbers[index : index + 1]
                yield self._decode([record], number, current_request())[0]

    # ------------------------------------------------------------------ decoding

    def _choose_threads(self, n_records: int, n_bytes: int) -> int:
        """Return in how many threads to decode a request; 1 for the calling thread alone."""
        if not self._codec.releases_gil:
            return 1
        if n_records <= 1 or n_bytes < _MIN_BYTES_FOR_THREADS:
            return 1
        return min(_MAX_THREADS, n_threads_here())

    def _decode(
        self, records: Sequence[bytes], numbers: RecordNumbers, request: Request
    ) -> list[Any]:
        """Decode records one after the other, counting the values towards the request's limit.

        Raises:
            DatasetFileCorruptError: a record is damaged.
            RequestLimitError: the values take more memory than the request may.
        """
        values: list[Any] = []
        try:
            with decoding_for(request):
                for record in records:
                    value = self._codec.decode(record)
                    values.append(value)
                    if self._codec.is_compressed:
                        request.add(value)
        except MemoryError:
            raise
        except Exception as error:  # a codec may raise anything
            raise self._explain(int(numbers[len(values)]), error) from error
        return values

    def _decode_in_threads(self, pieces: Sequence[_Piece]) -> list[Any]:
        """Decode pieces in the threads of this process, and in the calling thread.

        The calling thread decodes, from the last piece on, what no other thread has begun. If it
        waited instead, and were a thread of the same pool, it could wait for itself.
        """
        futures = [computing.submit(self._decode, *piece) for piece in pieces]
        try:
            values_of_pieces = self._decode_unbegun(pieces, futures)
            values: list[Any] = []
            for number, future in enumerate(futures):
                if number in values_of_pieces:
                    values += values_of_pieces[number]
                else:
                    values += future.result()
            return values
        finally:
            for future in futures:
                future.cancel()

    def _decode_unbegun(
        self, pieces: Sequence[_Piece], futures: Sequence[Future[list[Any]]]
    ) -> dict[int, list[Any]]:
        """Decode pieces that no thread has begun; return their values by the piece's number."""
        values_of_pieces = {}
        for number in reversed(range(len(pieces))):
            if futures[number].cancel():
                values_of_pieces[number] = self._decode(*pieces[number])
        return values_of_pieces

    def _stack_none(self) -> _Array:
        """Return the stack of no values of a column without records."""
        layout = self._codec.derive_layout(self._column)
        if layout is None:
            return np.empty(0, object)
        return np.empty((0, *layout.shape), self._column.dtype or layout.dtype)

    def _explain(self, index: int, error: Exception) -> Exception:
        """Return the error to raise for an error of the codec."""
        if isinstance(error, MissingDependencyError):
            return error
        if isinstance(error, RequestLimitError):
            where = f"record {index:,} of column {self.bag.column!r} of {self.bag.file.name}"
            return error.at(where)
        return self.bag.undecodable(index, error)
