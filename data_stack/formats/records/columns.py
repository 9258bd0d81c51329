"""The values of one column: rows of a strided view, records that are decoded one by one, or sequences of either."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import Codec, Column, FixedLayout
from data_stack.codecs.plain import BytesCodec
from data_stack.dataset.iterator.stacking import stack_values
from data_stack.exception import DatasetFileCorruptError, MissingDependencyError, RequestLimitError
from data_stack.formats.records.bag import Bag
from data_stack.formats.records.decoding import UndecodableError, decoded, decoded_into
from data_stack.formats.records.manifest import MANIFEST
from data_stack.formats.records.stored_file import BlockDamage
from data_stack.formats.rows import StoredRowsColumn
from data_stack.util.exact import python_values
from data_stack.util.request_limit import check_request, current_request

__all__ = ["FixedColumn", "RaggedColumn", "ValueColumn", "has_rows", "sequences_of"]

#: Rows of at least this size are copied one by one in an iteration, so that one that is kept does not keep its block.
_LARGE_ROW_BYTES = 1 << 12
#: Of an array in numpy 1, one of which numbers the values.
_MOST_DIMENSIONS = 32

_Integers = npt.NDArray[np.int64]
_Array = npt.NDArray[Any]


class ValueColumn(ABC):
    """One value for each record of a column; every value is the caller's own.

    Indices are known to lie in ``[0, len(column))``.
    """

    bag: Bag

    def __len__(self) -> int:
        return len(self.bag)

    @property
    @abstractmethod
    def row_bytes(self) -> int:
        """About how much a value takes."""

    @abstractmethod
    def value(self, index: int) -> Any:
        """A value by itself.

        Raises:
            DatasetFileCorruptError: its record is damaged.
        """

    @abstractmethod
    def getter(self) -> Callable[[int], Any]:
        """:meth:`value` without checking blocks; only once :meth:`settle` says so."""

    def taker(self) -> Callable[[_Integers], _Array]:
        """:meth:`read` likewise."""
        return self.read

    def run_reader(self) -> Callable[[int, int], _Array]:
        """:meth:`read_run` likewise."""
        return self.read_run

    def iterated(self, start: int, stop: int) -> Iterable[Any]:
        """:meth:`run_values`, which may be made as they are asked for."""
        return self.run_values(start, stop)

    @property
    def iterated_bytes(self) -> int:
        """How much of a value :meth:`iterated` holds before it is asked for."""
        return self.row_bytes

    @property
    def is_fixed(self) -> bool:
        """Whether :meth:`read` gives one dtype and shape, whichever values it reads."""
        return False

    def settle(self) -> bool:
        """Whether no block has to be checked any more."""
        return self.bag.settle()

    @abstractmethod
    def values(self, indices: _Integers) -> list[Any]:
        """Values, each by itself, in one request. Small arrays of one request may lie in one piece of memory."""

    @abstractmethod
    def run_values(self, start: int, stop: int) -> list[Any]:
        """Those of records that follow each other."""

    @abstractmethod
    def read(self, indices: _Integers) -> _Array:
        """Values stacked, shape ``(len(indices), ...)``."""

    @abstractmethod
    def read_run(self, start: int, stop: int) -> _Array:
        """Those of records that follow each other."""


def has_rows(layout: FixedLayout) -> bool:
    """Whether records of a layout can be rows of an array. (What is in strings is for their codec to look at.)"""
    is_array = layout.dtype.itemsize > 0 and 0 not in layout.shape and len(layout.shape) < _MOST_DIMENSIONS
    return is_array and layout.dtype.kind in "biufcSVmM"


class FixedColumn(ValueColumn):
    """Records of one layout: a header, then an array. The values are a strided view of the file.

    Args:
        bag: the records.
        layout: of all of them, as their size says; :func:`has_rows`.
        dtype: of the values that are handed out; None for that of the layout.
        others: where a value comes from whose record has another header; None where all are known to have this one.
    """

    def __init__(self, bag: Bag, layout: FixedLayout, dtype: np.dtype[Any] | None, others: RaggedColumn | None = None) -> None:
        self.bag = bag
        self._header, self._stored, self._shape = layout.header, layout.dtype, layout.shape
        self._cast = None if dtype is None or dtype == layout.dtype else dtype
        self._record_bytes, self._others = layout.record_bytes, others
        self._value_bytes = self._record_bytes - len(layout.header)
        self._is_scalar = not layout.shape and not layout.header
        self._is_number = not layout.shape
        self._rows: StoredRowsColumn | None = None
        n_records, header_bytes = len(bag), len(layout.header)
        file = bag.file
        if file.ranges is not None:
            self._rows = StoredRowsColumn(file.ranges, 0, (n_records, self._record_bytes), np.dtype(np.uint8))
        elif file.buffer is not None and n_records:
            strides = np.empty((1, *layout.shape), layout.dtype).strides[1:]
            values = np.ndarray(
                (n_records, *layout.shape), layout.dtype, file.buffer, header_bytes, (self._record_bytes, *strides)
            )
            self._values: _Array = values
            # In one piece each: fancy indexing copies these at the speed of memory, and it needs no rows side by side.
            self._pieces = np.ndarray((n_records,), f"V{self._value_bytes}", file.buffer, header_bytes, (self._record_bytes,))
            self._headers = np.ndarray((n_records, header_bytes), np.uint8, file.buffer, 0, (self._record_bytes, 1))

    @property
    def is_fixed(self) -> bool:
        return self._others is None

    @property
    def row_bytes(self) -> int:
        return self._value_bytes

    @property
    def checks_bounds(self) -> bool:
        """Whether :meth:`read` raises IndexError for an index outside, and counts negative ones from the end."""
        return self._rows is None and self._others is None and len(self) > 0

    # ------------------------------------------------------------------ one value

    def value(self, index: int) -> Any:
        begin = index * self._record_bytes
        if self._rows is None:
            try:
                self.bag.file.check(begin, begin + self._record_bytes)
            except BlockDamage as damage:
                raise self.bag.damaged(index, str(damage), begin, begin + self._record_bytes) from damage
            return self._get(index)
        record = self.bag.record(index)
        if self._others is not None and record[: len(self._header)] != self._header:
            return self._others.value(index)
        return self._each(self._cast_values(self._values_in(record, 1), lambda _: index))[0]

    def getter(self) -> Callable[[int], Any]:
        if not len(self.bag) or self._others is not None or self._stored.kind == "b" or (self._is_number and not self._is_scalar):
            return self._get
        values, cast = self._values, self._cast
        if self._is_scalar:
            if self._stored.kind in "iu" and self._stored.isnative:
                getter: Callable[[int], Any] = memoryview(values.data).__getitem__
                return getter
            return values.item
        if cast is not None:
            return lambda index: values[index].astype(cast)
        return lambda index: values[index].copy()

    def taker(self) -> Callable[[_Integers], _Array]:
        if not self.checks_bounds or self._stored.kind == "b":
            return self.read
        values, pieces, stored, shape, cast = self._values, self._pieces, self._stored, self._shape, self._cast
        if self._is_number:
            # take is quicker, but first copies all of an array whose numbers do not lie side by side
            is_plain = values.flags.c_contiguous and values.flags.aligned
            take: Callable[[_Integers], _Array] = values.take if is_plain else values.__getitem__
        else:

            def take(indices: _Integers) -> _Array:
                taken: _Array = np.ndarray((len(indices), *shape), stored, pieces[indices])
                return taken

        if cast is None:
            return take

        def take_cast(indices: _Integers) -> _Array:
            return take(indices).astype(cast)

        return take_cast

    def run_reader(self) -> Callable[[int, int], _Array]:
        if not self.checks_bounds or self._stored.kind == "b":
            return self.read_run
        values, pieces, stored, shape, cast = self._values, self._pieces, self._stored, self._shape, self._cast
        if cast is not None:
            return lambda start, stop: values[start:stop].astype(cast, order="C")
        if self._is_number:
            return lambda start, stop: values[start:stop].copy()
        return lambda start, stop: np.ndarray((stop - start, *shape), stored, pieces[start:stop].copy())

    def _get(self, index: int) -> Any:
        """A value out of the map, as it is."""
        if self._others is not None and self._headers[index].tobytes() != self._header:
            return self._others.value(index)
        if self._is_scalar:
            return self._values.item(index)
        return self._each(self._cast_values(self._values[index : index + 1].copy(), lambda _: index))[0]

    # ------------------------------------------------------------------ many values

    def values(self, indices: _Integers) -> list[Any]:
        rows = self._read(indices)
        return self._others_values(indices) if rows is None else self._each(rows)

    def run_values(self, start: int, stop: int) -> list[Any]:
        rows = self._read_run(start, stop)
        if rows is None:
            return self._others_values(np.arange(start, stop))
        values = self._each(rows)
        return [value.copy() for value in values] if self._shape and self._value_bytes >= _LARGE_ROW_BYTES else values

    def read(self, indices: _Integers) -> _Array:
        rows = self._read(indices)
        return stack_values(self._others_values(indices)) if rows is None else rows

    def read_run(self, start: int, stop: int) -> _Array:
        rows = self._read_run(start, stop)
        return stack_values(self._others_values(np.arange(start, stop))) if rows is None else rows

    def _read(self, indices: _Integers) -> _Array | None:
        """Values stacked; None if one has another layout."""
        if not len(indices) or not len(self.bag):
            return self._empty()
        if self._rows is not None:
            return self._out_of_records(self._fetched(indices), indices)
        if not self.bag.file.checks.is_done:
            begins = indices * self._record_bytes
            self._check(begins, begins + self._record_bytes, lambda place: int(indices[place]))
        if self._others is not None and not self._have_header(self._headers[indices]):
            return None
        if self._is_number:
            taken = self._values.take(indices) if self._is_scalar else self._values[indices]
        else:
            taken = self._pieces[indices].view(self._stored).reshape(-1, *self._shape)
        return self._cast_values(taken, lambda place: int(indices[place]))

    def _read_run(self, start: int, stop: int) -> _Array | None:
        if start >= stop:
            return self._empty()
        if self._rows is not None:
            indices = np.arange(start, stop)
            return self._out_of_records(self._fetched(indices), indices)
        if not self.bag.file.checks.is_done:
            begins = np.array([start * self._record_bytes])
            try:
                self.bag.file.check(int(begins[0]), stop * self._record_bytes)
            except BlockDamage:
                indices = np.arange(start, stop)
                begins = indices * self._record_bytes
                self._check(begins, begins + self._record_bytes, lambda place: start + place)
        if self._others is not None and not self._have_header(self._headers[start:stop]):
            return None
        if self._is_number:
            rows = self._values[start:stop].copy()
        else:
            rows = self._pieces[start:stop].copy().view(self._stored).reshape(-1, *self._shape)
        return self._cast_values(rows, lambda place: start + place)

    def _check(self, begins: _Integers, ends: _Integers, number_of: Callable[[int], int]) -> None:
        try:
            self.bag.file.check_many(begins, ends)
        except BlockDamage as damage:
            raise self.bag.damaged_among(begins, ends, damage, number_of) from damage

    def _fetched(self, indices: _Integers) -> npt.NDArray[np.uint8]:
        """Records read by range, shape ``(n, record_bytes)``."""
        if self._rows is None:
            raise ValueError(f"{self.bag.file.name} is mapped")
        try:
            records: npt.NDArray[np.uint8] = self._rows.read(indices)
        except BlockDamage as damage:
            begins = indices * self._record_bytes
            ends = begins + self._record_bytes
            raise self.bag.damaged_among(begins, ends, damage, lambda place: int(indices[place])) from damage
        return records

    def _out_of_records(self, records: npt.NDArray[np.uint8], indices: _Integers) -> _Array | None:
        if self._others is not None and not self._have_header(records[:, : len(self._header)]):
            return None
        return self._cast_values(self._values_in(records, len(records)), lambda place: int(indices[place]))

    def _values_in(self, records: Any, n_records: int) -> _Array:
        """The values of records that lie end to end, copied."""
        header_bytes = len(self._header)
        pieces = np.ndarray((n_records,), f"V{self._value_bytes}", records, header_bytes, (self._record_bytes,))
        values: _Array = pieces.copy().view(self._stored).reshape(n_records, *self._shape)
        return values

    def _have_header(self, headers: npt.NDArray[np.uint8]) -> bool:
        return bool((headers == np.frombuffer(self._header, np.uint8)).all())

    def _others_values(self, indices: _Integers) -> list[Any]:
        if self._others is None:
            raise ValueError(f"column {self.bag.column!r} has one layout")
        return self._others.values(indices)

    def _empty(self) -> _Array:
        return np.empty((0, *self._shape), self._stored if self._cast is None else self._cast)

    def _cast_values(self, values: _Array, number_of: Callable[[int], int]) -> _Array:
        if self._stored.kind == "b":
            wrong = values.view(np.uint8).reshape(len(values), -1).max(axis=1) > 1
            if wrong.any():
                raise self.bag.undecodable(number_of(int(wrong.argmax())), ValueError("booleans other than 0 and 1"))
        return values if self._cast is None else values.astype(self._cast)

    def _each(self, values: _Array) -> list[Any]:
        """Stacked values, each by itself."""
        if self._is_scalar:
            scalars: list[Any] = python_values(values)
            return scalars
        if self._is_number:
            return [values[place : place + 1].reshape(()).copy() for place in range(len(values))]
        return list(values)


class RaggedColumn(ValueColumn):
    """Records of any size, each decoded by its codec.

    Args:
        bag: the records.
        codec: of the column.
        column: what its values are known to be.
    """

    def __init__(self, bag: Bag, codec: Codec, column: Column) -> None:
        self.bag, self._codec, self._column = bag, codec, column
        self._is_plain = type(codec) is BytesCodec
        #: Whether values that nobody knows the shape of are tried to be decoded into one array; not where it failed once.
        self._may_be_of_one_shape = codec.releases_gil and type(codec).decode_into is not Codec.decode_into
        shape = column.shape
        self._out: tuple[np.dtype[Any], tuple[int, ...]] | None = None
        if column.dtype is not None and shape and not column.dtype.hasobject:
            sizes = tuple(size for size in shape if size is not None)
            if len(sizes) == len(shape) < _MOST_DIMENSIONS and 0 not in sizes:
                self._out = (column.dtype, sizes)

    @property
    def row_bytes(self) -> int:
        if self._out is not None:
            return self._out[0].itemsize * math.prod(self._out[1])
        return self.bag.n_bytes // max(1, len(self.bag))

    def value(self, index: int) -> Any:
        return self._decoded(index, self.bag.record(index))

    def getter(self) -> Callable[[int], Any]:
        ends, buffer = self.bag.ends.view, self.bag.file.buffer
        if ends is None or buffer is None:
            return self.value
        n_bytes, decode, failed, wrong_bounds = self.bag.n_bytes, self._codec.decode, self._failed, self.bag.wrong_bounds
        if self._is_plain:

            def get_bytes(index: int) -> Any:
                end = ends[index]
                begin = ends[index - 1] if index else 0
                if 0 <= begin <= end <= n_bytes:
                    return buffer[begin:end]
                raise wrong_bounds(index, begin, end)

            return get_bytes

        def get(index: int) -> Any:
            end = ends[index]
            begin = ends[index - 1] if index else 0
            if 0 <= begin <= end <= n_bytes:
                try:
                    return decode(buffer[begin:end])
                except Exception as error:  # whatever a codec raises
                    raise failed(index, error) from error
            raise wrong_bounds(index, begin, end)

        return get

    @property
    def iterated_bytes(self) -> int:
        return 0 if self._is_lazy else self.row_bytes

    @property
    def _is_lazy(self) -> bool:
        return self._is_plain and self.bag.file.is_settled

    def iterated(self, start: int, stop: int) -> Iterable[Any]:
        buffer = self.bag.file.buffer
        if buffer is None or start >= stop or not self._is_lazy:
            return self.run_values(start, stop)
        begins, ends = self.bag.run_bounds(start, stop)
        # Each when it is asked for: copies of a whole block would have left the cache by then.
        return map(buffer.__getitem__, map(slice, begins.tolist(), ends.tolist()))

    def values(self, indices: _Integers) -> list[Any]:
        return self._decoded_all(self._records(indices), lambda place: int(indices[place]))

    def run_values(self, start: int, stop: int) -> list[Any]:
        return self._decoded_all(self._run(start, stop), lambda place: start + place)

    def read(self, indices: _Integers) -> _Array:
        return self._read(self._records(indices), lambda place: int(indices[place]))

    def read_run(self, start: int, stop: int) -> _Array:
        return self._read(self._run(start, stop), lambda place: start + place)

    def _records(self, indices: _Integers) -> list[bytes]:
        begins, ends = self.bag.many_bounds(indices)
        return self.bag.records_between(begins, ends, lambda place: int(indices[place]))

    def _run(self, start: int, stop: int) -> list[bytes]:
        if start >= stop:
            return []
        begins, ends = self.bag.run_bounds(start, stop)
        return self.bag.records_between(begins, ends, lambda place: start + place)

    def _read(self, records: list[bytes], number_of: Callable[[int], int]) -> _Array:
        if not records and len(self.bag):
            return self.read_run(0, 1)[:0]
        if self._is_plain:
            return _objects(records)
        if self._out is not None:
            out = self._room_for(records, *self._out, number_of)
            try:
                decoded_into(self._codec, records, out)
            except UndecodableError as refused:
                raise self._failed(number_of(refused.place), refused.error) from refused.error
            return out
        if self._may_be_of_one_shape and len(records) > 1:
            rows = self._read_as_first(records)
            if rows is not None:
                return rows
        values = self._decoded_all(records, number_of)
        self._may_be_of_one_shape = self._may_be_of_one_shape and len(set(map(np.shape, values))) == 1
        stacked = _stacked(values)
        dtype = self._column.dtype
        if dtype is not None and stacked.dtype != dtype and stacked.dtype.kind in "biufc" and dtype.kind in "biufc":
            return stacked.astype(dtype)
        return stacked

    def _room_for(
        self, records: list[bytes], dtype: np.dtype[Any], shape: tuple[int, ...], number_of: Callable[[int], int]
    ) -> _Array:
        try:
            if self._codec.is_compressed:
                what = f"{len(records):,} values of column {self.bag.column!r}"
                current_request().reserve(len(records) * dtype.itemsize * math.prod(shape), what)
            return np.empty((len(records), *shape), dtype)
        except (MemoryError, ValueError, RequestLimitError):
            # So much, or is it a manifest that lies? The first record tells.
            value = self._decoded(number_of(0), records[0]) if records else None
            if getattr(value, "shape", None) != shape:
                raise DatasetFileCorruptError(
                    f"column {self.bag.column!r}: its values have the shape {shape} as {MANIFEST} says, for which there is no "
                    f"room, but not in {self.bag.file.name}"
                ) from None
            raise

    def _read_as_first(self, records: list[bytes]) -> _Array | None:
        """Values stacked, if all are arrays like the first one; None if not, or if one cannot be decoded."""
        request = current_request()
        n_bytes_before = request.n_bytes
        try:
            first = self._codec.decode(records[0])
            if type(first) is not np.ndarray or first.dtype.hasobject or not first.size or not first.ndim:
                return None
            if self._column.dtype not in (None, first.dtype):
                return None
            request.reserve(len(records) * first.nbytes, f"{len(records):,} values of one shape")
            out: _Array = np.empty((len(records), *first.shape), first.dtype)
            out[0] = first
            decoded_into(self._codec, records[1:], out[1:])
        except Exception:  # noqa: BLE001  # whatever a codec raises; it does so again where values are decoded one by one
            request.n_bytes = n_bytes_before
            return None
        return out

    def _decoded_all(self, records: list[bytes], number_of: Callable[[int], int]) -> list[Any]:
        if self._is_plain:
            return list(records)
        try:
            return decoded(self._codec, records)
        except UndecodableError as refused:
            raise self._failed(number_of(refused.place), refused.error) from refused.error

    def _decoded(self, index: int, record: bytes) -> Any:
        try:
            return self._codec.decode(record)
        except Exception as error:  # whatever a codec raises
            raise self._failed(index, error) from error

    def _failed(self, index: int, error: Exception) -> Exception:
        if isinstance(error, RequestLimitError):
            return error.at(f"record {index:,} of column {self.bag.column!r} of {self.bag.file.name}")
        return error if isinstance(error, MissingDependencyError) else self.bag.undecodable(index, error)


def sequences_of(elements: ValueColumn, firsts: _Integers, counts: _Integers) -> list[list[Any]]:
    """Runs of values that begin at ``firsts``, each as a list, in one request."""
    total = int(counts.sum())
    check_request(total * (elements.row_bytes + 24), f"sequences of {total:,} values")  # which may all be of one record
    before = np.cumsum(counts) - counts
    values = elements.values(np.repeat(firsts - before, counts) + np.arange(total)) if total else []
    return [values[start : start + count] for start, count in zip(before.tolist(), counts.tolist(), strict=True)]


def _stacked(values: Sequence[Any]) -> _Array:
    return _objects(values) if set(map(type, values)) in ({bytes}, {str}) else stack_values(values)


def _objects(values: Sequence[Any]) -> _Array:
    """Text or bytes as an array of objects."""
    column = np.empty(len(values), object)
    column[:] = values
    return column
