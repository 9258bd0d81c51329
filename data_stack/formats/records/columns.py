"""The values of a column as records: rows of a strided view, or bytes that its codec decodes one by one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NoReturn, Union

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import Codec, Column, FixedLayout
from data_stack.codecs.fitting import check_shape, fit_array
from data_stack.codecs.plain import BytesCodec
from data_stack.exception import ConfigError, MissingDependencyError, RequestLimitError
from data_stack.formats.columns import StoredRowsColumn
from data_stack.formats.records.bag import Bag, Places
from data_stack.formats.records.layout import Part
from data_stack.util.executor import computing, n_threads_here
from data_stack.util.request_limit import Request, check_request, current_request, decoding_for
from data_stack.values.stacked_values import as_array, python_values, stack_values
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
#: A writer keeps memory of this size for a column.
_KEPT_BYTES = 8 << 20

_Integers = npt.NDArray[np.int64]
_Array = npt.NDArray[Any]


class FixedColumn:
    """Records of one layout: a header, then an array. The values are a strided view of the file.

    Args:
        bag: the records.
        layout: of all of them, as their size says.
        dtype: of the values that are handed out; None for that of the layout.
    """

    is_fixed = True

    def __init__(self, bag: Bag, layout: FixedLayout, dtype: np.dtype[Any] | None) -> None:
        self.bag = bag
        self._stored, self._shape, self._record_bytes = layout.dtype, layout.shape, layout.record_bytes
        self._dtype = layout.dtype if dtype is None else dtype
        if layout.dtype.kind == "b":  # bytes other than 0 and 1 are not valid booleans
            self._stored = np.dtype(np.uint8)
        self._header_bytes = len(layout.header)
        self._is_number = not layout.shape
        self._is_scalar = self._is_number and not layout.header
        self._is_cast = self._stored != self._dtype
        self._gives_items = self._is_scalar and self._stored.kind in "iuf" and self._dtype.kind in "iuf"
        self._is_boxed = self._is_number and not self._gives_items
        # In one piece each: fancy indexing copies these at the speed of memory, and it needs no rows side by side.
        self._item = self._stored if self._is_number else np.dtype(f"V{self._record_bytes - self._header_bytes}")
        self._rows: StoredRowsColumn | None = None
        file = bag.file
        if file.ranges is not None:
            self._rows = StoredRowsColumn(file.ranges, 0, (len(bag), self._record_bytes), np.dtype(np.uint8))
        else:
            data = file.buffer if len(bag) else bytes(self._record_bytes)
            self._items = self._items_of(len(bag), data)
            shape, strides = (len(bag), *layout.shape), np.empty((1, *layout.shape), self._stored).strides[1:]
            strides = (self._record_bytes, *strides)
            self._values: _Array = np.ndarray(shape, self._stored, data, self._header_bytes, strides)
            self._is_contiguous = self._items.flags.c_contiguous and self._items.flags.aligned

    def __len__(self) -> int:
        return len(self.bag)

    @property
    def row_bytes(self) -> int:
        """Size of a value."""
        return self._record_bytes - self._header_bytes

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
            items = self._items_of(len(indices), self._rows.read(indices)) if len(indices) else np.empty(0, self._item)
            return self._array_of(items.copy())
        if not self.bag.file.checks.is_done:
            self._check(places)
        if isinstance(places, range):
            return self._array_of(self._items[places.start : places.stop].copy())
        # take is faster, but first copies an array whose items do not lie side by side
        return self._array_of(self._items.take(places) if self._is_contiguous else self._items[places])

    def runs(self, starts: _Integers, length: int) -> _Array | None:
        """The values of ``length`` records from each of ``starts`` on, shape ``(n, length, ...)``."""
        if self._rows is not None:
            records = self._rows.runs(starts, length)
            items = self._items_of(len(starts) * length, records).copy() if len(starts) else np.empty(0, self._item)
        else:
            if not self.bag.file.checks.is_done:
                ends = (starts + length) * self._record_bytes
                self.bag.file.check((starts * self._record_bytes).tolist(), ends.tolist())
            items = take_runs(self._items, starts, length).reshape(-1)
        values = self._array_of(items)
        return values.reshape(len(starts), length, *values.shape[1:])

    def _array_of(self, items: _Array) -> _Array:
        values: _Array = items if self._is_number else np.ndarray((len(items), *self._shape), self._stored, items)
        return values.astype(self._dtype) if self._is_cast else values

    def _items_of(self, n_records: int, data: Any) -> _Array:
        items: _Array = np.ndarray((n_records,), self._item, data, self._header_bytes, (self._record_bytes,))
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
    def row_bytes(self) -> int:
        """About how much a value takes."""
        dtype, shape = self._column.dtype, self._column.shape
        if dtype is not None and shape is not None and None not in shape:
            return dtype.itemsize * math.prod(size for size in shape if size is not None)
        return self.bag.n_bytes * (_EXPANSION if self._codec.is_compressed else 1) // max(1, len(self.bag))

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
        n_threads = min(_MAX_THREADS, n_threads_here()) if self._codec.releases_gil and n_records > 1 else 1
        if n_threads == 1 or n_bytes < _BYTES_FOR_THREADS:
            return self._decode(records, places, request)
        n_pieces = min(n_records, n_threads * _PIECES_PER_THREAD)
        bounds = list(pairwise(n_records * piece // n_pieces for piece in range(n_pieces + 1)))
        pieces = [(records[start:stop], places[start:stop], request) for start, stop in bounds]
        futures = [computing.submit(self._decode, *piece) for piece in pieces]
        try:
            # From the end on, this thread decodes what no other has begun; to wait for it could be to wait for itself.
            own = {n: self._decode(*pieces[n]) for n in reversed(range(n_pieces)) if futures[n].cancel()}
            return [value for n, future in enumerate(futures) for value in (own[n] if n in own else future.result())]
        finally:
            for future in futures:
                future.cancel()

    def each(self, places: _Integers) -> Iterator[Any]:
        """The values one after the other; the bytes of several come in one request, from a store those of all."""
        n_records = len(places) if self.bag.file.ranges is not None else _BYTES_AT_ONCE * len(self) // max(1, self.bag.n_bytes)
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
        values = self.values(places)
        if self._is_plain or set(map(type, values)) in ({bytes}, {str}):
            objects: _Array = np.empty(len(values), object)
            objects[:] = values
            return objects
        stacked, dtype = stack_values(values), self._column.dtype
        if dtype is None or stacked.dtype.kind not in "biufc" or any(hasattr(value, "dtype") for value in values):
            return stacked
        return stacked.astype(dtype, copy=False)  # Python's numbers have no dtype of their own

    def _failure(self, index: int, error: Exception) -> Exception:
        if isinstance(error, RequestLimitError):
            return error.at(f"record {index:,} of column {self.bag.column!r} of {self.bag.file.name}")
        return error if isinstance(error, MissingDependencyError) else self.bag.undecodable(index, error)


ValueColumn = Union[FixedColumn, RaggedColumn]
"""One value for each record of a column; every value is a copy. Places are known to lie in ``[0, len(column))``."""


def sequences_of(elements: ValueColumn, firsts: _Integers, counts: _Integers) -> list[list[Any]]:
    """Runs of values that begin at ``firsts``, each as a list, in one request."""
    total = int(counts.sum())
    check_request(total * (elements.row_bytes + 24), f"sequences of {total:,} values")  # which may all be of one record
    before = np.cumsum(counts) - counts
    values = elements.values(np.repeat(firsts - before, counts) + np.arange(total)) if total else []
    return [values[start : start + count] for start, count in zip(before.tolist(), counts.tolist(), strict=True)]


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


# ---------------------------------------------------------------------- writing


class ColumnWriter:
    """Encodes the values of a column, writes them, and follows whether all of its records have one layout.

    Args:
        name: of the column.
        column: as declared.
        codec: of its values.
        where: the dataset, for messages.

    Attributes:
        bag, idx: its files, which its dataset opens.
        n_records: number of its records.
        begins_empty: whether the first of them is empty.

    Raises:
        ConfigError: the column's type has no such dtype or shape.
    """

    bag: Any
    idx: Any

    def __init__(self, name: str, column: Column, codec: Codec, where: str) -> None:
        self.name, self.column, self.codec, self._where = name, column, codec, where
        self._declared = layout = codec.derive_layout(column)
        if layout is not None:
            if column.shape is not None and column.shape != layout.shape:
                raise ConfigError(f"column {name!r} has type {column.type!r}, whose shape is {layout.shape}, not {column.shape}")
            if column.dtype is not None and layout.dtype.kind in "iu" and column.dtype.kind not in "iu":
                raise ConfigError(f"column {name!r} is of type {column.type!r}, whose values are integers, not {column.dtype}")
        self._fits = column.dtype is None and column.shape is None
        if layout is not None and layout.record_bytes == layout.dtype.itemsize == 8:
            self._fits |= column.dtype in (None, layout.dtype)  # a codec of numbers takes nothing but what has its dtype
        self._is_known, self.begins_empty = True, False
        self._layout: FixedLayout | None = None
        self.n_records = 0
        #: Rows are encoded into them in turn: touching new memory takes longer than to fill it.
        self._buffers = [np.empty(0, np.uint8), np.empty(0, np.uint8)]

    # ------------------------------------------------------------------ encoding

    def encode(self, value: Any) -> bytes:
        """The record of a value; raises the exception of the codec for a value that it does not store."""
        layout = self._declared
        if layout is not None and type(value) is np.ndarray and value.dtype == layout.dtype and value.shape == layout.shape:
            return layout.header + value.tobytes()  # what the codec would return, in a third of the time
        record = self.codec.encode(value if self._fits else fit_array(value, self.column.dtype, self.column.shape))
        if type(record) is not bytes:
            raise TypeError(f"its codec returned {type(record).__name__}, not bytes")
        return record

    def encode_sequence(self, values: Any) -> list[bytes]:
        """The records of a sample's values, of a column that has any number of them."""
        if isinstance(values, (str, bytes, bytearray)) or not hasattr(values, "__iter__"):
            raise TypeError(f"a column of {self.column.type} takes a list of values for each sample, not {type(values).__name__}")
        return [self.encode(value) for value in values]

    def prepare(self, values: Any) -> tuple[Any, FixedLayout | None]:
        """Check the dtype and shape of the values of many samples; return the values, and the layout that all records share.

        Raises:
            ConfigError: they do not fit.
        """
        column = self.column
        try:
            array = as_array(values) if hasattr(values, "__array__") else values
            if not isinstance(array, np.ndarray) or array.dtype == object:
                return array, None
            check_shape(array.shape[1:], column.shape)
            layout = self.codec.derive_layout(Column(column.type, column.dtype or array.dtype, array.shape[1:]))
            if layout is None:
                return array, None
            return fit_array(array, column.dtype or layout.dtype, (len(array), *layout.shape)), layout
        except Exception as error:  # noqa: BLE001  # a codec may raise anything
            self.refuse(error)

    def encode_many(self, values: Any, layout: FixedLayout | None, number: int) -> Part:
        """Encode some of the values that :meth:`prepare` returned; records of one layout last until two parts more are put.

        Args:
            values: the values.
            layout: the layout that :meth:`prepare` returned.
            number: number of the first sample.

        Raises:
            ConfigError: the codec refuses a value.
        """
        if layout is not None:
            n_bytes = len(values) * layout.record_bytes
            buffer = self._buffers[0]
            if len(buffer) < n_bytes:
                buffer = np.empty(n_bytes, np.uint8)
                if n_bytes <= _KEPT_BYTES:
                    self._buffers[0] = buffer
            return _rows(values, layout, buffer[:n_bytes])
        records: list[bytes] = []
        try:
            for value in values:
                records.append(self.encode(value))  # noqa: PERF401  # how many there are is asked for
        except Exception as error:  # noqa: BLE001  # as above
            self.refuse(error, number + len(records))
        return Part.of(records, self.codec)

    def refuse(self, error: Exception, number: int | None = None) -> NoReturn:
        """Raise the user's error for a refused value; ``number`` is the number of its sample."""
        if isinstance(error, (MissingDependencyError, MemoryError)):
            raise error
        where = f"column {self.name!r}" + ("" if number is None else f", sample {number},")
        raise ConfigError(f"{where} of {self._where!r} cannot store the value: {error!s:.400}. It was not appended") from error

    # ------------------------------------------------------------------ what the records are

    def put(self, part: Part) -> None:
        """Write records at the end of the files."""
        ends = np.cumsum(part.sizes, dtype=np.uint64) + np.uint64(self.bag.size)
        self.bag.put(part.data)  # which is done with the part before
        self._buffers.reverse()
        self.idx.put(ends.astype("<u8", copy=False).tobytes())
        if len(part.sizes):
            self._layout = part.layout if self.n_records == 0 or part.layout == self._layout else None
            self.begins_empty |= self.n_records == 0 and not part.sizes[0]
            self.n_records += len(part.sizes)

    def follow(self, earlier: Column | None, record_bytes: int | None, n_records: int) -> None:
        """Start with the manifest's description of the first ``n_records``; None without one.

        Raises:
            ConfigError: the column is declared with another dtype or shape.
        """
        self.n_records = n_records
        if n_records == 0:
            return
        if earlier is None or _has_fields(self.column):
            self._is_known = False
            return
        self._layout = None if record_bytes is None else self.codec.derive_layout(earlier)
        if self.column.dtype not in (None, earlier.dtype) or self._declared not in (None, self._layout):
            declared = f"{self.column.dtype}, {self.column.shape}"
            raise ConfigError(f"column {self.name!r} is not of {declared} in earlier records; declare no dtype")

    def result(self) -> tuple[Column, int | None]:
        """The column as declared, completed by the layout of its records; and their size if all have the column's layout."""
        column, seen = self.column, self._layout
        if seen is not None:
            column = Column(column.type, column.dtype or seen.dtype, seen.shape if column.shape is None else column.shape)
        if not self._is_known or _has_fields(column):
            return Column(column.type), None
        layout = self.codec.derive_layout(column)
        return column, layout.record_bytes if layout is not None and (layout == seen or self.n_records == 0) else None


def _has_fields(column: Column) -> bool:
    """Whether its dtype is one that a manifest cannot name."""
    return column.dtype is not None and column.dtype.names is not None


def _rows(values: _Array, layout: FixedLayout, buffer: _Array) -> Part:
    """The rows of an array as records of one layout, in ``buffer``."""
    n, n_header, n_bytes = len(values), len(layout.header), layout.record_bytes
    if n_bytes and not n_header:
        buffer.view(layout.dtype).reshape(values.shape)[...] = values
    elif n:
        records = buffer.reshape(n, n_bytes)
        records[:, :n_header] = np.frombuffer(layout.header, np.uint8)
        if values.size:
            rows = np.ascontiguousarray(values, layout.dtype)
            records[:, n_header:] = rows.reshape(-1).view(np.uint8).reshape(n, n_bytes - n_header)
    return Part(buffer.data, np.full(n, n_bytes, np.uint64), layout)
