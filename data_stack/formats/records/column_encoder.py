"""The values of a column as records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import Codec, Column, FixedLayout
from data_stack.codecs.fitting import check_shape, fit_array
from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.values.stacking import as_array

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined]  # typeshed: Python 3.12

_Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Part:
    """Some records of a column, end to end.

    Attributes:
        data: their bytes, which do not change any more.
        sizes: of each record in bytes, shape ``(n_records,)``.
        layout: of all of them, where they have one.
    """

    data: Buffer
    sizes: npt.NDArray[np.uint64]
    layout: FixedLayout | None = None

    @classmethod
    def of(cls, records: Sequence[bytes], codec: Codec | None = None) -> Part:
        """Records of a codec end to end; None for those that never have a layout."""
        layout = codec.layout_of(records[0]) if codec is not None and records else None
        if layout is not None:
            size, header = layout.record_bytes, layout.header
            if not all(len(record) == size and record.startswith(header) for record in records):
                layout = None
        return cls(b"".join(records), np.fromiter(map(len, records), np.uint64, len(records)), layout)


class ColumnEncoder:
    """Checks and encodes the values of a column, and follows whether all of its records have one layout.

    Args:
        name: of the column.
        column: as declared.
        codec: of its values.
        where: the dataset, for messages.

    Raises:
        ConfigError: the column's type has no such dtype or shape.
    """

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
        self._known: Column | None = column
        self._layout: FixedLayout | None = None
        self._n_seen = 0

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
        """Encode some of the values that :meth:`prepare` returned.

        Args:
            values: the values.
            layout: the layout that :meth:`prepare` returned.
            number: number of the first sample.

        Raises:
            ConfigError: the codec refuses a value.
        """
        if layout is not None:
            return _rows(values, layout)
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

    def observe(self, part: Part) -> None:
        """Records were written."""
        if len(part.sizes):
            self._layout = part.layout if self._n_seen == 0 or part.layout == self._layout else None
            self._n_seen += len(part.sizes)

    def follow(self, earlier: Column | None, record_bytes: int | None, n_records: int) -> None:
        """Start with the manifest's description of the first ``n_records``; None without one.

        Raises:
            ConfigError: the column is declared with another dtype or shape.
        """
        if n_records == 0:
            return
        self._n_seen = n_records
        if earlier is None or _has_fields(self.column):
            self._known = None
            return
        self._layout = None if record_bytes is None else self.codec.derive_layout(earlier)
        if self.column.dtype not in (None, earlier.dtype) or self._declared not in (None, self._layout):
            raise ConfigError(
                f"column {self.name!r} is not of {self.column.dtype}, {self.column.shape} in earlier records; declare no dtype"
            )

    def result(self) -> tuple[Column, int | None]:
        """The column as declared, completed by the layout of its records; and their size if all have the column's layout."""
        if self._known is None:
            return Column(self.column.type), None
        declared, seen = self.column, self._layout
        column = declared
        if seen is not None:
            column = Column(declared.type, declared.dtype or seen.dtype, seen.shape if declared.shape is None else declared.shape)
        if _has_fields(column):
            return Column(declared.type), None
        layout = self.codec.derive_layout(column)
        return column, layout.record_bytes if layout is not None and (layout == seen or self._n_seen == 0) else None


def _has_fields(column: Column) -> bool:
    """Whether its dtype is one that a manifest cannot name."""
    return column.dtype is not None and column.dtype.names is not None


def _rows(values: _Array, layout: FixedLayout) -> Part:
    """The rows of an array as records of one layout."""
    n, n_header, n_bytes = len(values), len(layout.header), layout.record_bytes
    rows = np.ascontiguousarray(values, layout.dtype)
    if not n_header:
        return Part(rows.tobytes(), np.full(n, n_bytes, np.uint64), layout)
    records = np.empty((n, n_bytes), np.uint8)
    records[:, :n_header] = np.frombuffer(layout.header, np.uint8)
    if rows.size:
        records[:, n_header:] = rows.reshape(-1).view(np.uint8).reshape(n, n_bytes - n_header)
    return Part(records.data, np.full(n, n_bytes, np.uint64), layout)
