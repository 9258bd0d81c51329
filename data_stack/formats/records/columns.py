"""The values of a column as records: rows of a strided view, or bytes that its codec decodes one by one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Union

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import Codec, Column, FixedLayout
from data_stack.codecs.plain import BytesCodec
from data_stack.exception import MissingDependencyError, RequestLimitError
from data_stack.formats.records.bag import Bag, Places
from data_stack.formats.stored_rows import StoredRowsReader
from data_stack.util.executor import computing, n_threads_here
from data_stack.util.request_limit import Request, check_request, current_request, decoding_for
from data_stack.values.stacked_values import objects, python_values, stack_values
from data_stack.values.stacking import take_runs

#: About how many times as large values are as their compressed records.
_EXPANSION = 16
_MAX_THREADS = 32
#: Less than this is decoded before a thread has woken up.
_BYTES_FOR_THREADS = 1 << 15
#: Records that are larger on average take much longer to decode than it takes to map their pages again.
_BYTES_TO_GIVE_BACK = 1 << 14
#: Number of pieces that each thread decodes one after the other, so that a slow piece does not delay the others.
_PIECES_PER_THREAD = 4
#: Read at once where each is decoded by itself.
_BYTES_AT_ONCE = 1 << 20

_Integers = npt.NDArray[np.int64]
_Array = npt.NDArray[Any]


class FixedColumn:
    """Records of one layout: a header, then an array. The values are a strided view of the file.

    Args:
        bag: the records.
        layout: of all of them, as their size says.
        dtype: of the values that are handed out; None for that of the layout.

    Attributes:
        row_bytes: size of a value.
    """

    is_fixed = True

    def __init__(self, bag: Bag, layout: FixedLayout, dtype: np.dtype[Any] | None) -> None:
        self.bag = bag
        self._stored, self._shape, self._record_bytes = (
            layout.dtype,
            layout.shape,
            layout.record_bytes,
        )
        self._dtype = layout.dtype if dtype is None else dtype
        if layout.dtype.kind == "b":  # bytes other than 0 and 1 are not valid booleans
            self._stored = np.dtype(np.uint8)
        self._header_bytes = len(layout.header)
        self.row_bytes = self._record_bytes - self._header_bytes
        self._is_number = not layout.shape
        self._is_scalar = self._is_number and not layout.header
        self._is_cast = self._stored != self._dtype
        self._gives_items = (
            self._is_scalar and self._stored.kind in "iuf" and self._dtype.kind in "iuf"
        )
        self._is_boxed = self._is_number and not self._gives_items
        # In one piece each: fancy indexing copies these at the speed of memory, and it needs no rows side by side.
        self._item = (
            self._stored
            if self._is_number
            else np.dtype(f"V{self._record_bytes - self._header_bytes}")
        )
        self._rows: StoredRowsReader | None = None
        file = bag.file
        if file.ranges is not None:
            self._rows = StoredRowsReader(
                file.ranges, 0, (len(bag), self._record_bytes), np.dtype(np.uint8)
            )
        else:
            data = file.buffer if len(bag) else bytes(self._record_bytes)
            self._items = self._items_of(len(bag), data)
            shape, strides = (
                (len(bag), *layout.shape),
                np.empty((1, *layout.shape), self._stored).strides[1:],
            )
            strides = (self._record_bytes, *strides)
            self._values: _Array = np.ndarray(
                shape, self._stored, data, self._header_bytes, strides
            )
            self._is_contiguous = self._items.flags.c_contiguous and self._items.flags.aligned

    def __len__(self) -> int:
        return len(self.bag)

    def value(self, index: int) -> Any:
        """A value by itself.

        Raises:
            DatasetFileCorruptError: its record is damaged.
        """
        if self._rows is not None or self._is_boxed:
            return self.values(range(index, index + 1))[0]
        if not self.bag.file.checks.is_done:
            self._check(range(index, index + 1))
        if self._gives_items:
            return self._values.item(index)
        value = self._values[index]
        return value.astype(self._dtype) if self._is_cast else value.copy()

    def values(self, places: Places) -> list[Any]:
        """Values, each by itself, in one request. Small arrays of one request may lie in one piece of memory."""
        values = self.read(places)
        if self._is_scalar:
            scalars: list[Any] = python_values(values)
            return scalars
        if self._is_number:
            return [values[place : place + 1].reshape(()).copy() for place in range(len(values))]
        return list(values)

    def read(self, places: Places) -> _Array:
        """Values stacked, shape ``(len(places), ...)``."""
        if self._rows is not None:
            indices = np.arange(places.start, places.stop) if isinstance(places, range) else places
            items = (
                self._items_of(len(indices), self._rows.read(indices))
                if len(indices)
                else np.empty(0, self._item)
            )
            return self._array_of(items.copy())
        if not self.bag.file.checks.is_done:
            self._check(places)
        if isinstance(places, range):
            return self._array_of(self._items[places.start : places.stop].copy())
        # take is faster, but first copies an array whose items do not lie side by side
        return self._array_of(
            self._items.take(places) if self._is_contiguous else self._items[places]
        )

    def runs(self, starts: _Integers, length: int) -> _Array | None:
        """The values of ``length`` records from each of ``starts`` on, shape ``(n, length, ...)``."""
        if self._rows is not None:
            records = self._rows.runs(starts, length)
            items = (
                self._items_of(len(starts) * length, records).copy()
                if len(starts)
                else np.empty(0, self._item)
            )
        else:
            if not self.bag.file.checks.is_done:
                ends = (starts + length) * self._record_bytes
                self.bag.file.check((starts * self._record_bytes).tolist(), ends.tolist())
            items = take_runs(self._items, starts, length).reshape(-1)
        values = self._array_of(items)
        return values.reshape(len(starts), length, *values.shape[1:])

    def _array_of(self, items: _Array) -> _Array:
        values: _Array = (
            items
            if self._is_number
            else np.ndarray((len(items), *self._shape), self._stored, items)
        )
        return values.astype(self._dtype) if self._is_cast else values

    def _items_of(self, n_records: int, data: Any) -> _Array:
        items: _Array = np.ndarray(
            (n_records,), self._item, data, self._header_bytes, (self._record_bytes,)
        )
        return items

    def _check(self, places: Places) -> None:
        n_bytes = self._record_bytes
        if isinstance(places, range):
            self.bag.file.check((places.start * n_bytes,), (places.stop * n_bytes,))
        else:
            self.bag.file.check((places * n_bytes).tolist(), ((places + 1) * n_bytes).tolist())


class RaggedColumn:
    """Records of any size, each decoded by its codec.

    Args:
        bag: the records.
        codec: of the column.
        column: what its values are known to be.
    """

    is_fixed = False

    def __init__(self, bag: Bag, codec: Codec, column: Column) -> None:
        self.bag, self._codec, self._column = bag, codec, column
        self._is_plain = type(codec) is BytesCodec

    def __len__(self) -> int:
        return len(self.bag)

    @property
    def declared_dtype(self) -> np.dtype[Any] | None:
        """The dtype of numbers that the schema declares; None without one."""
        dtype = self._column.dtype
        return None if dtype is None or dtype.kind not in "biufc" else dtype

    @property
    def row_bytes(self) -> int:
        """About how much a value takes."""
        dtype, shape = self._column.dtype, self._column.shape
        if dtype is not None and shape is not None and None not in shape:
            return dtype.itemsize * math.prod(size for size in shape if size is not None)
        return (
            self.bag.n_bytes
            * (_EXPANSION if self._codec.is_compressed else 1)
            // max(1, len(self.bag))
        )

    def value(self, index: int) -> Any:
        """As of a :class:`FixedColumn`."""
        record = self.bag.record(index)
        if self._is_plain:
            return record
        try:
            return self._codec.decode(record)
        except MemoryError:
            raise
        except Exception as error:  # a codec may raise anything
            raise self._failure(index, error) from error

    def values(self, places: Places) -> list[Any]:
        """As of a :class:`FixedColumn`."""
        records, request = self.bag.records(places), current_request()
        if self._is_plain:
            return records
        n_records, n_bytes = len(records), sum(map(len, records))
        if n_bytes >= n_records * _BYTES_TO_GIVE_BACK:
            self.bag.file.give_back()
        n_threads = (
            min(_MAX_THREADS, n_threads_here()) if self._codec.releases_gil and n_records > 1 else 1
        )
        if n_threads == 1 or n_bytes < _BYTES_FOR_THREADS:
            return self._decode(records, places, request)
        n_pieces = min(n_records, n_threads * _PIECES_PER_THREAD)
        bounds = list(pairwise(n_records * piece // n_pieces for piece in range(n_pieces + 1)))
        pieces = [(records[start:stop], places[start:stop], request) for start, stop in bounds]
        futures = [computing.submit(self._decode, *piece) for piece in pieces]
        try:
            # From the end on, this thread decodes what no other has begun; to wait for it could be to wait for itself.
            own = {
                n: self._decode(*pieces[n])
                for n in reversed(range(n_pieces))
                if futures[n].cancel()
            }
            return [
                value
                for n, future in enumerate(futures)
                for value in (own[n] if n in own else future.result())
            ]
        finally:
            for future in futures:
                future.cancel()

    def each(self, places: _Integers) -> Iterator[Any]:
        """The values one after the other; the bytes of several come in one request, from a store those of all."""
        n_records = (
            len(places)
            if self.bag.file.ranges is not None
            else _BYTES_AT_ONCE * len(self) // max(1, self.bag.n_bytes)
        )
        for start in range(0, len(places), max(1, n_records)):
            records = self.bag.records(places[start : start + max(1, n_records)])
            self.bag.file.give_back()
            for place, record in enumerate(records, start):
                yield self._decode([record], places[place : place + 1], current_request())[0]

    def _decode(self, records: Sequence[bytes], places: Places, request: Request) -> list[Any]:
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
            raise self._failure(int(places[len(values)]), error) from error
        return values

    def runs(self, starts: _Integers, length: int) -> _Array | None:
        """None: the values of other records may be of another dtype or shape."""
        return None

    def read(self, places: Places) -> _Array:
        """As of a :class:`FixedColumn`; text and bytes as objects."""
        if not len(places) and len(self.bag):
            return self.read(range(1))[:0]
        values, dtype = self.values(places), self._column.dtype
        if not values:
            layout = self._codec.derive_layout(self._column)
            return (
                np.empty(0, object)
                if layout is None
                else np.empty((0, *layout.shape), dtype or layout.dtype)
            )
        if self._is_plain or set(map(type, values)) in ({bytes}, {str}):
            column: _Array = np.empty(len(values), object)
            column[:] = values
            return column
        stacked = stack_values(values)
        if (
            dtype is None
            or stacked.dtype.kind not in "biufc"
            or any(hasattr(value, "dtype") for value in values)
        ):
            return stacked
        return stacked.astype(dtype, copy=False)  # Python's numbers have no dtype of their own

    def _failure(self, index: int, error: Exception) -> Exception:
        if isinstance(error, RequestLimitError):
            return error.at(
                f"record {index:,} of column {self.bag.column!r} of {self.bag.file.name}"
            )
        return (
            error
            if isinstance(error, MissingDependencyError)
            else self.bag.undecodable(index, error)
        )


ValueColumn = Union[FixedColumn, RaggedColumn]
"""One value for each record of a column; every value is a copy. Places are known to lie in ``[0, len(column))``."""


def stack_sequences(elements: ValueColumn, firsts: _Integers, counts: _Integers) -> _Array:
    """The same as a column: numbers as arrays of the declared dtype, also those of empty sequences.

    Shape ``(n, length, ...)`` where all sequences have one length, otherwise ``(n,)`` of objects.
    """
    if isinstance(elements, RaggedColumn):
        stacked = stack_values(sequences_of(elements, firsts, counts))
        declared = elements.declared_dtype
        if declared is None or counts.any():
            return stacked
        return np.empty((len(counts), 0), declared)  # no value decides the dtype
    total = int(counts.sum())
    check_request(total * elements.row_bytes, f"sequences of {total:,} values")
    before = np.cumsum(counts) - counts
    values = elements.read(np.repeat(firsts - before, counts) + np.arange(total))
    sizes = set(counts.tolist())
    if len(sizes) <= 1:
        size = sizes.pop() if sizes else 0
        return values.reshape(len(counts), size, *values.shape[1:])
    return objects(np.split(values, before[1:]))


def sequences_of(elements: ValueColumn, firsts: _Integers, counts: _Integers) -> list[list[Any]]:
    """Runs of values that begin at ``firsts``, each as a list, in one request."""
    total = int(counts.sum())
    check_request(
        total * (elements.row_bytes + 24), f"sequences of {total:,} values"
    )  # which may all be of one record
    before = np.cumsum(counts) - counts
    values = elements.values(np.repeat(firsts - before, counts) + np.arange(total)) if total else []
    return [
        values[start : start + count]
        for start, count in zip(before.tolist(), counts.tolist(), strict=True)
    ]


def samples_of(keys: Sequence[str], columns: Sequence[Iterable[Any]]) -> Iterator[dict[str, Any]]:
    """Samples out of columns. Two and three columns are written out, which takes a third of the time."""
    if len(keys) == 2:
        key, key_2 = keys
        for a, b in zip(*columns, strict=True):
            yield {key: a, key_2: b}
    elif len(keys) == 3:
        key, key_2, key_3 = keys
        for a, b, c in zip(*columns, strict=True):
            yield {key: a, key_2: b, key_3: c}
    else:
        for values in zip(*columns, strict=True):
            yield dict(zip(keys, values, strict=True))
