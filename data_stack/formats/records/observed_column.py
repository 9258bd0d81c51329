"""What the records of a column were all seen to be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Union

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import Codec, Column, FixedLayout
from data_stack.exception import ConfigError
from data_stack.formats.records.bag_writer import FolderBag

__all__ = ["Fact", "ObservedColumn", "values_in"]

Fact = Union[tuple[np.dtype[Any], tuple[int, ...]], None]
"""Dtype and shape of a value that was given; None if it was no array."""

#: More different shapes than that are not decoded to see what comes back.
_MOST_SHAPES = 8
_READ_BYTES = 4 << 20
_READ_RECORDS = 1 << 16


class ObservedColumn:
    """Follows the records of a column: their dtype, shape, and whether all have one layout.

    What a codec cannot tell from a record is unknown, rather than guessed.
    """

    def __init__(self, column: Column, codec: Codec) -> None:
        self._column, self._codec = column, codec
        self._has_records = False
        self._dtype: np.dtype[Any] | None = None
        self._shape: tuple[int | None, ...] | None = None
        self._layout: FixedLayout | None = None
        self._shapes: set[Fact] = set()
        self._gave_up = self._is_contradicted = False

    def follow(self, earlier: Column, record_bytes: int | None, n_records: int) -> None:
        """Begin with what a manifest says of the first ``n_records``."""
        if n_records == 0:
            return
        self._has_records = True
        self._dtype, self._shape = earlier.dtype, earlier.shape
        self._is_contradicted = self._column.dtype not in (None, earlier.dtype)
        if record_bytes is not None:
            self._layout = self._codec.fixed_layout(earlier)
        self._gave_up = self._dtype is None and self._shape is None

    def add_records(self, records: Sequence[bytes], facts: Sequence[Fact] = ()) -> None:
        """Records of any kind, with what was given for each where that was looked at."""
        if self._is_unknown():
            return
        layout = self._layout
        for number, record in enumerate(records):
            if layout is not None and len(record) == layout.record_bytes and record.startswith(layout.header):
                continue
            found = self._codec.layout_of(record)
            if found is None:
                self._add_value(facts[number] if facts else None, record)
            else:
                self.add_layout(found)
            if self._is_unknown():
                return
            layout = self._layout

    def add_stored(self, bag: FolderBag, start: int, stop: int) -> None:
        """Records that are stored already, read anew."""
        while start < stop and not self._is_unknown():
            n_records = min(stop - start, _READ_RECORDS)
            first = bag.end_of(start)
            ends = bag.ends(start, start + n_records)
            n_records = max(1, int(np.searchsorted(ends, np.uint64(first + _READ_BYTES), "right")))
            ends = ends[:n_records]
            data = b"".join(bag.bag.pieces(first, int(ends[-1])))
            if not self._add_alike(data, ends, first):
                bounds = [0, *(ends - np.uint64(first)).tolist()]
                self.add_records([data[low:high] for low, high in pairwise(bounds)])
            start += n_records

    def result(self) -> tuple[Column, int | None]:
        """The column as declared, completed by what was seen; and the size of each record if all have the column's layout."""
        declared = self._column
        column = Column(declared.type, declared.dtype or self._dtype, self._shape if declared.shape is None else declared.shape)
        layout = self._codec.fixed_layout(column)
        if layout is None or (self._has_records and layout != self._layout):
            return column, None
        return column, layout.record_bytes

    def check(self, name: str) -> None:
        """Whether records that an earlier writer left are what the column is declared to be.

        Raises:
            ConfigError: they are not.
        """
        if self._is_contradicted or (self._has_records and self._codec.fixed_layout(self._column) not in (None, self._layout)):
            raise ConfigError(
                f"column {name!r} is declared with dtype {self._column.dtype} and shape {self._column.shape}, but records that "
                f"an earlier writer left there are something else. Open the dataset with {name!r}: {self._column.type!r} alone"
            )

    def _add_alike(self, data: bytes, ends: Any, first: int) -> bool:
        """Take in records if all are of the layout that the first one has."""
        sizes = np.diff(ends, prepend=np.uint64(first))
        size = int(sizes[0])
        layout = self._codec.layout_of(data[:size]) if (sizes == size).all() else None
        if layout is None:
            return False
        n_header = len(layout.header)
        headers = np.frombuffer(data, np.uint8).reshape(len(ends), size)[:, :n_header]
        if not (headers == np.frombuffer(layout.header, np.uint8)).all():
            return False
        self.add_layout(layout)
        declared = self._column.dtype
        if declared is not None and declared.kind in "iu" and layout.dtype.kind in "iu" and declared != layout.dtype:
            values = values_in(data, len(ends), layout)
            limits = np.iinfo(declared)
            self._is_contradicted |= bool(values.size and not (limits.min <= values.min() and values.max() <= limits.max))
        return True

    def add_layout(self, layout: FixedLayout) -> None:
        """Records of one layout."""
        if not self._has_records:
            self._layout = layout
        elif layout != self._layout:
            self._layout = None
        self._add(layout.dtype, layout.shape)

    def _add_value(self, fact: Fact, record: bytes) -> None:
        self._layout = None
        if fact is not None and fact not in self._shapes and len(self._shapes) < _MOST_SHAPES and self._comes_back(fact, record):
            self._shapes.add(fact)
        if fact is None or fact not in self._shapes:
            self._dtype = self._shape = None
            self._has_records = self._gave_up = True
        else:
            self._add(*fact)

    def _is_unknown(self) -> bool:
        return self._gave_up

    def _comes_back(self, fact: Fact, record: bytes) -> bool:
        """Whether what is read has the dtype and shape that were given; a codec may change either."""
        try:
            value = self._codec.decode(record)
        except Exception:  # noqa: BLE001  # it is the reader's business; then it is unknown
            return False
        return type(value) is np.ndarray and (value.dtype, value.shape) == fact

    def _add(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        if not self._has_records:
            self._has_records, self._dtype, self._shape = True, dtype, shape
            return
        if dtype != self._dtype:
            self._dtype = None
        if self._shape is None or len(shape) != len(self._shape):
            self._shape = None
        elif shape != self._shape:
            self._shape = tuple(old if old == new else None for old, new in zip(self._shape, shape, strict=True))
        self._gave_up = self._dtype is None and self._shape is None


def values_in(records: Any, n_records: int, layout: FixedLayout) -> npt.NDArray[Any]:
    """The values in records of one layout that lie end to end, shape ``(n_records, ...)``; writable where these are."""
    shape, itemsize = layout.shape, layout.dtype.itemsize
    strides = (layout.record_bytes, *(itemsize * math.prod(shape[axis + 1 :]) for axis in range(len(shape))))
    values: npt.NDArray[Any] = np.ndarray((n_records, *shape), layout.dtype, records, len(layout.header), strides)
    return values
