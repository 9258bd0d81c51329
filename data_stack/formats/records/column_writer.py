"""Encodes the values of a column into records, and follows whether all of these have one layout."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import Codec, Column, FixedLayout
from data_stack.codecs.fitting import check_shape, fit_array
from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.formats.records.layout import Part
from data_stack.values.stacked_values import as_array

#: A writer keeps memory of this size for a column.
_KEPT_BYTES = 8 << 20

_Array = npt.NDArray[Any]


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
                raise ConfigError(
                    f"column {name!r} has type {column.type!r}, whose shape is {layout.shape}, not {column.shape}"
                )
            if (
                column.dtype is not None
                and layout.dtype.kind in "iu"
                and column.dtype.kind not in "iu"
            ):
                raise ConfigError(
                    f"column {name!r} is of type {column.type!r}, whose values are integers, not {column.dtype}"
                )
        self._fits = column.dtype is None and column.shape is None
        if layout is not None and layout.record_bytes == layout.dtype.itemsize == 8:
            self._fits |= column.dtype in (
                None,
                layout.dtype,
            )  # a codec of numbers takes nothing but what has its dtype
        self._is_known, self.begins_empty = True, False
        self._layout: FixedLayout | None = None
        self.n_records = 0
        #: Rows are encoded into them in turn: touching new memory takes longer than to fill it.
        self._buffers = [np.empty(0, np.uint8), np.empty(0, np.uint8)]

    # ------------------------------------------------------------------ encoding

    def encode(self, value: Any) -> bytes:
        """The record of a value; raises the exception of the codec for a value that it does not store."""
        layout = self._declared
        if (
            layout is not None
            and type(value) is np.ndarray
            and value.dtype == layout.dtype
            and value.shape == layout.shape
        ):
            return (
                layout.header + value.tobytes()
            )  # what the codec would return, in a third of the time
        record = self.codec.encode(
            value if self._fits else fit_array(value, self.column.dtype, self.column.shape)
        )
        if type(record) is not bytes:
            raise TypeError(f"its codec returned {type(record).__name__}, not bytes")
        return record

    def encode_sequence(self, values: Any) -> list[bytes]:
        """The records of a sample's values, of a column that has any number of them."""
        if isinstance(values, (str, bytes, bytearray)) or not hasattr(values, "__iter__"):
            raise TypeError(
                f"a column of {self.column.type} takes a list of values for each sample, not {type(values).__name__}"
            )
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
            layout = self.codec.derive_layout(
                Column(column.type, column.dtype or array.dtype, array.shape[1:])
            )
            if layout is None:
                return array, None
            return fit_array(
                array, column.dtype or layout.dtype, (len(array), *layout.shape)
            ), layout
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
                records.append(self.encode(value))  # how many there are is asked for
        except Exception as error:  # noqa: BLE001  # as above
            self.refuse(error, number + len(records))
        return Part.of(records, self.codec)

    def refuse(self, error: Exception, number: int | None = None) -> NoReturn:
        """Raise the user's error for a refused value; ``number`` is the number of its sample."""
        if isinstance(error, (MissingDependencyError, MemoryError)):
            raise error
        where = f"column {self.name!r}" + ("" if number is None else f", sample {number},")
        raise ConfigError(
            f"{where} of {self._where!r} cannot store the value: {error!s:.400}. It was not appended"
        ) from error

    # ------------------------------------------------------------------ what the records are

    def put(self, part: Part) -> None:
        """Write records at the end of the files."""
        ends = np.cumsum(part.sizes, dtype=np.uint64) + np.uint64(self.bag.size)
        self.bag.put(part.data)  # which is done with the part before
        self._buffers.reverse()
        self.idx.put(ends.astype("<u8", copy=False).tobytes())
        if len(part.sizes):
            self._layout = (
                part.layout if self.n_records == 0 or part.layout == self._layout else None
            )
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
        if self.column.dtype not in (None, earlier.dtype) or self._declared not in (
            None,
            self._layout,
        ):
            declared = f"{self.column.dtype}, {self.column.shape}"
            raise ConfigError(
                f"column {self.name!r} is not of {declared} in earlier records; declare no dtype"
            )

    def result(self) -> tuple[Column, int | None]:
        """The column as declared, completed by the layout of its records; and their size if all have the column's layout."""
        column, seen = self.column, self._layout
        if seen is not None:
            column = Column(
                column.type,
                column.dtype or seen.dtype,
                seen.shape if column.shape is None else column.shape,
            )
        if not self._is_known or _has_fields(column):
            return Column(column.type), None
        layout = self.codec.derive_layout(column)
        return column, layout.record_bytes if layout is not None and (
            layout == seen or self.n_records == 0
        ) else None


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
