"""Writes the values of a column as records."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import Codec, ColumnType, FixedLayout
from data_stack.codecs.fitting import check_shape, fit_array
from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.formats.records.record_batch import RecordBatch
from data_stack.formats.records.written_records import WrittenRecords
from data_stack.values.stacked_values import as_array

#: A writer keeps buffers of up to this size in bytes for a column.
_MAX_KEPT_BYTES = 8 << 20

_Array = npt.NDArray[Any]


class ColumnWriter:
    """Encodes the values of a column and writes the records.

    Args:
        name: the name of the column.
        column: the column as declared.
        codec: the codec of its values.
        dataset_name: the name of the dataset, for messages.

    Attributes:
        bag: the file of the records, which the dataset opens.
        idx: the file of their end offsets, which the dataset opens.
        written: the number and the layout of the records.

    Raises:
        ConfigError: the type of the column has no such dtype or shape.
    """

    bag: Any
    idx: Any

    #: The layout of a record of the column as declared; None if it depends on the value.
    _declared_layout: FixedLayout | None

    #: Whether values are converted to the declared dtype and shape before they are encoded.
    _needs_fitting: bool

    def __init__(self, name: str, column: ColumnType, codec: Codec, dataset_name: str) -> None:
        self.name = name
        self.column = column
        self.codec = codec
        self._dataset_name = dataset_name
        self._declared_layout = codec.derive_layout(column)
        if self._declared_layout is not None:
            _check_declared(name, column, self._declared_layout)
        self._needs_fitting = _needs_fitting(column, self._declared_layout)
        self.written = WrittenRecords(name, column, codec)
        self._buffers = _TwoBuffers()

    # ------------------------------------------------------------------ encoding

    def encode(self, value: Any) -> bytes:
        """Encode a value as a record.

        Raises:
            Exception: whatever the codec raises for a value that it does not store.
        """
        layout = self._declared_layout
        if (
            layout is not None
            and type(value) is np.ndarray
            and value.dtype == layout.dtype
            and value.shape == layout.shape
        ):
            # This is what the codec would return, in a third of the time.
            return layout.header + value.tobytes()
        if self._needs_fitting:
            value = fit_array(value, self.column.dtype, self.column.shape)
        record = self.codec.encode(value)
        if type(record) is not bytes:
            raise TypeError(f"its codec returned {type(record).__name__}, not bytes")
        return record

    def encode_sequence(self, values: Any) -> list[bytes]:
        """Encode the values that one sample has in a column of sequences.

        Raises:
            Exception: as for :meth:`encode`.
        """
        is_text = isinstance(values, (str, bytes, bytearray))
        if is_text or not hasattr(values, "__iter__"):
            raise TypeError(
                f"a column of {self.column.type} takes a list of values for each sample, "
                f"not {type(values).__name__}"
            )
        return [self.encode(value) for value in values]

    def prepare(self, values: Any) -> tuple[Any, FixedLayout | None]:
        """Check the dtype and shape of the values of many samples.

        Returns:
            The values, and the layout that all their records have; None if it depends on the
            value.

        Raises:
            ConfigError: the values do not fit.
        """
        try:
            return self._fit_many(values)
        except Exception as error:  # noqa: BLE001  # a codec may raise anything
            self.refuse(error)

    def _fit_many(self, values: Any) -> tuple[Any, FixedLayout | None]:
        """Convert the values of many samples to the declared dtype, and find their layout.

        Returns:
            What :meth:`prepare` returns. Values that are no array of numbers are returned as they
            are, without a layout.
        """
        column = self.column
        array = as_array(values) if hasattr(values, "__array__") else values
        if not isinstance(array, np.ndarray) or array.dtype == object:
            return array, None
        value_shape = array.shape[1:]
        check_shape(value_shape, column.shape)
        # What is not declared is as in the array.
        column_of_array = ColumnType(column.type, column.dtype or array.dtype, value_shape)
        layout = self.codec.derive_layout(column_of_array)
        if layout is None:
            return array, None
        shape = (len(array), *layout.shape)
        return fit_array(array, column.dtype or layout.dtype, shape), layout

    def encode_many(self, values: Any, layout: FixedLayout | None, number: int) -> RecordBatch:
        """Encode some of the values that :meth:`prepare` returned.

        Args:
            values: the values.
            layout: the layout that :meth:`prepare` returned. The bytes of a batch with a layout
                last until two more batches are put.
            number: the number of the first sample, for messages.

        Raises:
            ConfigError: the codec refuses a value.
        """
        if layout is not None:
            buffer = self._buffers.take(len(values) * layout.record_bytes)
            return RecordBatch.encode_rows(values, layout, buffer)
        records: list[bytes] = []
        try:
            for value in values:
                # Not a comprehension: the error names the sample after those in the list.
                records.append(self.encode(value))
        except Exception as error:  # noqa: BLE001  # a codec may raise anything
            self.refuse(error, number + len(records))
        return RecordBatch.join(records, self.codec)

    def refuse(self, error: Exception, number: int | None = None) -> NoReturn:
        """Raise the error that tells a user that a value cannot be stored.

        Args:
            error: the error of the codec.
            number: the number of the sample; None for values of many samples.

        Raises:
            ConfigError: always, except for errors that are none of the value.
        """
        if isinstance(error, (MissingDependencyError, MemoryError)):
            raise error
        where = f"column {self.name!r}"
        if number is not None:
            where += f", sample {number},"
        raise ConfigError(
            f"{where} of {self._dataset_name!r} cannot store the value: {error!s:.400}. "
            "It was not appended"
        ) from error

    # ------------------------------------------------------------------ writing

    def put(self, batch: RecordBatch) -> None:
        """Write records at the end of the files."""
        ends = np.cumsum(batch.sizes, dtype=np.uint64) + np.uint64(self.bag.size)
        self.bag.put(batch.data)
        self._buffers.swap()
        self.idx.put(ends.astype("<u8", copy=False).tobytes())
        self.written.add(batch)


class _TwoBuffers:
    """Two buffers that take rows in turn, as touching new memory takes longer than to fill it.

    A file hashes the bytes that it was given in the background, until it is given the next ones.
    With one buffer, the next rows would overwrite bytes that are still being hashed.
    """

    def __init__(self) -> None:
        self._next = np.empty(0, np.uint8)
        self._in_use = np.empty(0, np.uint8)

    def take(self, n_bytes: int) -> _Array:
        """Return a buffer of ``n_bytes`` that no file uses."""
        buffer = self._next
        if len(buffer) < n_bytes:
            buffer = np.empty(n_bytes, np.uint8)
            if n_bytes <= _MAX_KEPT_BYTES:
                self._next = buffer
        return buffer[:n_bytes]

    def swap(self) -> None:
        """Note that a file was given the bytes of :meth:`take`, and is done with those before."""
        given = self._next
        self._next = self._in_use
        self._in_use = given


def _check_declared(name: str, column: ColumnType, layout: FixedLayout) -> None:
    """Check the declared dtype and shape of a column against the layout of its type.

    Raises:
        ConfigError: the type has no such dtype or shape.
    """
    if column.shape is not None and column.shape != layout.shape:
        raise ConfigError(
            f"column {name!r} has type {column.type!r}, whose shape is {layout.shape}, "
            f"not {column.shape}"
        )
    stores_integers = layout.dtype.kind in "iu"
    if stores_integers and column.dtype is not None and column.dtype.kind not in "iu":
        raise ConfigError(
            f"column {name!r} is of type {column.type!r}, whose values are integers, "
            f"not {column.dtype}"
        )


def _needs_fitting(column: ColumnType, layout: FixedLayout | None) -> bool:
    """Return whether values are converted to the declared dtype and shape before encoding."""
    if column.dtype is None and column.shape is None:
        return False
    if layout is None:
        return True
    # The codecs of numbers of 64 bits refuse by themselves what does not have their dtype.
    is_plain_number = layout.record_bytes == 8 and layout.dtype.itemsize == 8
    has_dtype_of_codec = column.dtype is None or column.dtype == layout.dtype
    return not (is_plain_number and has_dtype_of_codec)
