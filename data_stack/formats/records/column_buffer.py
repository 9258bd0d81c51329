"""Values of a column on their way to a file: checked, encoded, and kept until it is worth writing them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Union

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import Codec, Column, FixedLayout
from data_stack.codecs.fitting import as_dtype, check_kinds, check_shape, fit_array
from data_stack.dataset.iterator.stacking import as_array
from data_stack.exception import ConfigError
from data_stack.formats.records.bag_writer import Piece
from data_stack.formats.records.memory_blocks import BLOCK_BYTES, MemoryBlocks
from data_stack.formats.records.observed_column import Fact, ObservedColumn, values_in

__all__ = ["ColumnBuffer", "EncodedColumn", "EncodingError", "FixedColumn", "Part", "Parts", "SequenceColumn", "buffer_of"]

_INTEGERS = "iu"
_NUMBERS = "biufc"
_Array = npt.NDArray[Any]
#: A part that is encoded value by value ends with the one that reaches this size.
_PART_BYTES = 1 << 20


class EncodingError(Exception):
    """Value ``number`` of a column is refused, for the reason ``error``. Never leaves this package."""

    def __init__(self, number: int, error: Exception) -> None:
        super().__init__(number, error)
        self.number, self.error = number, error


@dataclass(frozen=True)
class EncodedValues:
    """Records of values, and what was given for each."""

    records: list[bytes]
    facts: list[Fact]

    @property
    def n_records(self) -> int:
        """How many."""
        return len(self.records)

    def first(self, n_records: int) -> EncodedValues:
        """Some of them."""
        return EncodedValues(self.records[:n_records], self.facts[:n_records])


Part = Union[Piece, EncodedValues]


class Parts(ABC):
    """The values of a column, to be encoded a stretch at a time.

    Attributes:
        most_values: how long a stretch may be.
        are_rows: whether the records of a stretch are always as many as asked for; if not there may be fewer.
    """

    most_values = 1 << 10
    are_rows = False

    @abstractmethod
    def encoded(self, start: int, stop: int) -> Part:
        """The records of some values.

        Raises:
            EncodingError: one is refused.
        """


@dataclass(frozen=True)
class _Sealed:
    """Some samples of a column: their records, in one piece, and what is to be learned of them once they are written."""

    piece: Piece
    records: Sequence[bytes] = ()
    facts: Sequence[Fact] = ()
    counts: Sequence[int] = ()


class ColumnBuffer(ABC):
    """The records of a column that are not written yet: sealed pieces, then open samples.

    An open sample is *staged* in a slot, the next free one, and counts as soon as its writer counts it: staging another one in
    that slot forgets it. So all columns of a sample come to count in one step.

    Attributes:
        name: of the column.
        column: as declared.
        codec: of its values.
        blocks: where its pieces lie.
        observed: what the records that are written were seen to be.
        open_bytes: size of the records in the open samples, where they have no fixed size.
        sealed_bytes: size of those in the pieces.
    """

    def __init__(self, name: str, column: Column, codec: Codec, blocks: MemoryBlocks) -> None:
        self.name, self.column, self.codec, self.blocks = name, column, codec, blocks
        self.observed = ObservedColumn(column, codec)
        self.open_bytes = self.sealed_bytes = 0
        self._sealed: list[_Sealed] = []

    def open_slots(self, n_slots: int) -> None:  # noqa: B027  # only some need it
        """Make room for open samples."""

    @abstractmethod
    def stage(self, value: Any, slot: int) -> None:
        """Put the value of a sample into a slot.

        Raises:
            Exception: whatever the codec raises for a value that it does not store.
        """

    @abstractmethod
    def seal(self, n_open: int) -> None:
        """Put the open samples behind the pieces; there are none any more."""

    def parts(self, values: Any) -> Parts:
        """The values of many samples, checked as far as their dtype and shape tell.

        Raises:
            Exception: as for :meth:`stage`.
        """
        if isinstance(values, np.ma.MaskedArray):
            raise TypeError("an array with a mask would lose it; fill it first, or store the mask in a column of its own")
        whole = as_array(values) if hasattr(values, "__array__") else values
        if isinstance(whole, np.ndarray) and whole.ndim and whole.dtype != object:
            layout = self._layout_for(whole)
            if layout is not None:
                dtype = self.column.dtype or layout.dtype
                if whole.size and whole.dtype != dtype:
                    check_kinds(whole.dtype, dtype, is_weak=False)
                    if not np.can_cast(whole.dtype, dtype, "safe"):
                        as_dtype(whole, dtype)
                return _Rows(whole, layout, self.blocks)
        return _Values(self, whole)

    def add(self, part: Part) -> None:
        """Append what :meth:`parts` gave; all open samples are sealed."""
        if isinstance(part, Piece):
            self._push(_Sealed(part))
        else:
            self._push(_Sealed(Piece.of(part.records, self.blocks), part.records, part.facts))

    def take_back(self) -> None:
        """Forget what was sealed or added last."""
        self.sealed_bytes -= self._sealed.pop().piece.n_bytes

    def pieces(self) -> list[Piece]:
        """All records that are sealed and not written yet."""
        return [sealed.piece for sealed in self._sealed if sealed.piece.n_records]

    def counts(self) -> list[int]:
        """How many records each sample has of those that are sealed; of columns of sequences only."""
        return [count for sealed in self._sealed for count in sealed.counts]

    def clear(self) -> None:
        """They are written."""
        for sealed in self._sealed:
            if sealed.piece.layout is not None:
                self.observed.add_layout(sealed.piece.layout)
            else:
                self.observed.add_records(sealed.records, sealed.facts)
        self._sealed, self.sealed_bytes = [], 0

    def _push(self, sealed: _Sealed) -> None:
        self._sealed.append(sealed)
        self.sealed_bytes += sealed.piece.n_bytes

    def _layout_for(self, values: _Array) -> FixedLayout | None:
        """The layout of the values of an array of shape ``(n, ...)``."""
        column = self.column
        check_shape(values.shape[1:], column.shape)
        layout = self.codec.fixed_layout(Column(column.type, column.dtype or values.dtype, values.shape[1:]))
        if layout is not None:
            check_shape(values.shape[1:], layout.shape)
        return layout

    def record(self, value: Any) -> bytes:
        """The record of a value."""
        column = self.column
        if column.dtype is not None or column.shape is not None:
            value = fit_array(value, column.dtype, column.shape)
        record = self.codec.encode(value)
        if type(record) is not bytes:
            raise TypeError(f"its codec gave {type(record).__name__}, not bytes")
        return record


class FixedColumn(ColumnBuffer):
    """Of records of one layout, known beforehand: values are put into their places in one block."""

    def __init__(self, name: str, column: Column, codec: Codec, blocks: MemoryBlocks, layout: FixedLayout) -> None:
        super().__init__(name, column, codec, blocks)
        self.layout = layout
        self._dtype = column.dtype or layout.dtype
        #: The type of numpy's numbers that need no look; what Python's integers may be.
        self._scalar = self._dtype.type if layout.shape == () and self._dtype.kind in _NUMBERS else None
        self._low, self._high = 0, -1
        if layout.shape == () and self._dtype.kind in _INTEGERS:
            limits = np.iinfo(self._dtype)
            self._low, self._high = int(limits.min), int(limits.max)

    def open_slots(self, n_slots: int) -> None:
        layout = self.layout
        self._block = np.zeros((n_slots, layout.record_bytes), np.uint8)
        self._block[:, : len(layout.header)] = np.frombuffer(layout.header, np.uint8)
        self._values = values_in(self._block.data, n_slots, layout)

    def stage(self, value: Any, slot: int) -> None:
        if type(value) is np.ndarray:
            if value.shape == self.layout.shape and value.dtype == self._dtype:
                self._values[slot] = value
                return
        elif type(value) is self._scalar or (type(value) is int and self._low <= value <= self._high):
            self._values[slot] = value
            return
        self._values[slot] = fit_array(value, self._dtype, self.layout.shape)

    def seal(self, n_open: int) -> None:
        layout = self.layout
        data = self.blocks.room(n_open * layout.record_bytes)
        np.frombuffer(data, np.uint8).reshape(n_open, layout.record_bytes)[...] = self._block[:n_open]
        self._push(_Sealed(Piece(data, n_open, layout.record_bytes, layout)))

    def parts(self, values: Any) -> Parts:
        if not hasattr(values, "__array__") or as_array(values).dtype == object:
            stacked = [fit_array(value, self._dtype, self.layout.shape) for value in values]
            values = np.stack(stacked) if stacked else np.empty((0, *self.layout.shape), self._dtype)
        return super().parts(values)


class EncodedColumn(ColumnBuffer):
    """Of records of any size."""

    def __init__(self, name: str, column: Column, codec: Codec, blocks: MemoryBlocks) -> None:
        super().__init__(name, column, codec, blocks)
        self._records: list[bytes] = []
        self._facts: list[Fact] = []

    def stage(self, value: Any, slot: int) -> None:
        if len(self._records) > slot:
            self._forget(slot)
        self._stage(value)

    def _stage(self, value: Any) -> None:
        record = self.record(value)
        self._facts.append(_fact(value))
        self._records.append(record)
        self.open_bytes += len(record)

    def seal(self, n_open: int) -> None:
        self._forget(n_open)
        self._seal(())

    def _seal(self, counts: Sequence[int]) -> None:
        self._push(_Sealed(Piece.of(self._records, self.blocks), self._records, self._facts, counts))
        self._records, self._facts, self.open_bytes = [], [], 0

    def _forget(self, n_records: int) -> None:
        if len(self._facts) > n_records:
            del self._records[n_records:], self._facts[n_records:]
            self.open_bytes = sum(map(len, self._records))


class SequenceColumn(EncodedColumn):
    """Of any number of values a sample."""

    def __init__(self, name: str, column: Column, codec: Codec, blocks: MemoryBlocks) -> None:
        super().__init__(name, column, codec, blocks)
        self._bounds = [0]

    def stage(self, value: Any, slot: int) -> None:
        if isinstance(value, (str, bytes, bytearray)) or not hasattr(value, "__iter__"):
            raise TypeError(f"a column of {self.column.type} takes a list of values for each sample, not {type(value).__name__}")
        del self._bounds[slot + 1 :]
        self._forget(self._bounds[slot])
        for each in value:  # a generator has one value in memory at a time
            self._stage(each)
        self._bounds.append(len(self._records))

    def seal(self, n_open: int) -> None:
        del self._bounds[n_open + 1 :]
        self._forget(self._bounds[n_open])
        bounds, self._bounds = self._bounds, [0]
        self._seal([high - low for low, high in pairwise(bounds)])


def buffer_of(name: str, column: Column, codec: Codec, blocks: MemoryBlocks) -> ColumnBuffer:
    """The buffer that suits a column; its pieces lie in ``blocks``.

    Raises:
        ConfigError: its type has no such dtype or shape.
    """
    if column.is_sequence:
        return SequenceColumn(name, column, codec, blocks)
    layout = codec.fixed_layout(column)
    if layout is None:
        return EncodedColumn(name, column, codec, blocks)
    if column.shape is not None and column.shape != layout.shape:
        raise ConfigError(
            f"column {name!r} is of type {column.type!r}, whose values have the shape {layout.shape}, not {column.shape}"
        )
    if column.dtype is not None and layout.dtype.kind in _INTEGERS and column.dtype.kind not in _INTEGERS:
        raise ConfigError(f"column {name!r} is of type {column.type!r}, whose values are integers, not {column.dtype}")
    return FixedColumn(name, column, codec, blocks, layout)


class _Rows(Parts):
    """Of an array whose rows have one layout."""

    are_rows = True

    def __init__(self, values: _Array, layout: FixedLayout, blocks: MemoryBlocks) -> None:
        self._values, self._layout, self._blocks = values, layout, blocks
        self.most_values = max(1, BLOCK_BYTES // max(1, layout.record_bytes))

    def encoded(self, start: int, stop: int) -> Piece:
        part, layout = self._values[start:stop], self._layout
        n, n_header, n_bytes = len(part), len(layout.header), layout.record_bytes
        data = self._blocks.room(n * n_bytes)
        if n_header:
            _strips(data, n, n_header, 0, n_bytes)[...] = np.frombuffer(layout.header, f"V{n_header}")
        if part.dtype == layout.dtype and part.flags.c_contiguous and part.size:
            # As bytes, whatever they are: values that are not aligned would be copied one by one.
            n_rest = n_bytes - n_header
            _strips(data, n, n_rest, n_header, n_bytes)[...] = _strips(part, n, n_rest, 0, n_rest)
        elif part.size:
            values_in(data, n, layout)[...] = part
        return Piece(data, n, n_bytes, layout)


def _strips(data: Any, n: int, n_bytes: int, offset: int, step: int) -> npt.NDArray[np.void]:
    """Strips of bytes in memory, the first at ``offset`` and each ``step`` behind the one before it, as items of one array."""
    strips: npt.NDArray[np.void] = np.ndarray((n,), f"V{n_bytes}", data, offset, (step,))
    return strips


class _Values(Parts):
    """Of values each of which the codec encodes."""

    def __init__(self, buffer: ColumnBuffer, values: Any) -> None:
        self._buffer, self._values = buffer, values

    def encoded(self, start: int, stop: int) -> EncodedValues:
        encoded, n_bytes = EncodedValues([], []), 0
        for number, value in enumerate(self._values[start:stop], start):
            try:
                record = self._buffer.record(value)
            except Exception as error:
                raise EncodingError(number, error) from error
            encoded.records.append(record)
            encoded.facts.append(_fact(value))
            n_bytes += len(record)
            if n_bytes >= _PART_BYTES:
                break
        return encoded


def _fact(value: Any) -> Fact:
    return (value.dtype, value.shape) if type(value) is np.ndarray else None
