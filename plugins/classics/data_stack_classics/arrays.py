"""Datasets of arrays of one shape, such as images of one size."""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import IO, Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from data_stack import DatasetIteratorIF, PreparedResources, Resources
from data_stack.exception import DatasetFileCorruptError
from data_stack.formats import NumpyDatasetIterator
from data_stack_classics.classic import ClassicFactory

Array: TypeAlias = npt.NDArray[Any]

#: How much of a file is in memory at once.
_BLOCK_BYTES = 4 << 20


class ArraysFactory(ClassicFactory):
    """Samples are tuples; each column is a ``.npy`` file, of which rows are read on access.

    A column named ``tag`` repeats the second column, as the tags of the original DataStack do.

    Attributes:
        unlabeled_splits: splits without labels: theirs are -1.
    """

    columns = ("image", "label", "tag")
    unlabeled_splits: ClassVar[Collection[str]] = ()

    @contextlib.contextmanager
    def open_column(
        self, prepared: PreparedResources, split: str, column: str, source: str
    ) -> Iterator[ColumnWriter]:
        """Open a writer for a column of a split, which takes the column block by block.

        Args:
            prepared: stores the column.
            split: name of the split.
            column: name of the column.
            source: the file that the column comes from, for messages.

        Raises:
            DatasetFileCorruptError: the number of rows is not ``n_samples``, or a label is not a
                position in ``class_names``; the message names ``source``.
        """
        check_block = None
        is_labeled = self.class_names is not None and split not in self.unlabeled_splits
        if column == "label" and is_labeled:
            check_block = partial(self.check_labels, source)
        with prepared.create(f"preprocessed/{split}/{column}.npy") as file:
            writer = ColumnWriter(file, self.n_samples[split], check_block)
            yield writer
            self.check_count(source, split, writer.n_rows)

    def write(
        self,
        prepared: PreparedResources,
        split: str,
        column: str,
        blocks: Iterable[Array],
        source: str,
    ) -> None:
        """Write a column from blocks of its rows, with one block in memory.

        The arguments and the errors are those of :meth:`open_column`.
        """
        with self.open_column(prepared, split, column, source) as writer:
            for block in blocks:
                writer.append(block)

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        """Return one split; rows are read on access."""
        columns = list(self.columns)
        if columns[2] == "tag":
            columns[2] = columns[1]
        return NumpyDatasetIterator(
            [prepared[f"preprocessed/{split}/{column}.npy"] for column in columns]
        )


class ColumnWriter:
    """Writes an array to a ``.npy`` file, block by block.

    Args:
        file: a binary file, empty.
        n_rows: number of rows of the whole array.
        check_block: called with each block before it is written; it raises an error if a value is
            wrong. None if nothing is checked.
    """

    #: Number of rows that were written.
    n_rows: int

    _file: io.BufferedIOBase
    _n_expected_rows: int
    _check_block: Callable[[Array], None] | None

    def __init__(
        self,
        file: io.BufferedIOBase,
        n_rows: int,
        check_block: Callable[[Array], None] | None = None,
    ) -> None:
        self.n_rows = 0
        self._file = file
        self._n_expected_rows = n_rows
        self._check_block = check_block

    def append(self, block: Array) -> None:
        """Write the next rows; the first block decides on the dtype and the shape of a row."""
        if self._check_block is not None:
            self._check_block(block)
        if self.n_rows == 0:
            header = {
                "descr": np.lib.format.dtype_to_descr(block.dtype),
                "fortran_order": False,
                "shape": (self._n_expected_rows, *block.shape[1:]),
            }
            np.lib.format.write_array_header_1_0(self._file, header)
        self._file.write(block.tobytes())
        self.n_rows += len(block)


def read_rows(
    stream: IO[bytes],
    name: str,
    shape: tuple[int, ...],
    dtype: npt.DTypeLike,
    *,
    is_last: bool = True,
) -> Iterator[Array]:
    """Read an array in C order from a stream, in blocks of rows.

    Args:
        stream: a binary stream, at the first value.
        name: its name for messages.
        shape: shape of the whole array.
        dtype: dtype of the stored values; blocks have native byte order.
        is_last: whether the stream ends with the array.

    Raises:
        DatasetFileCorruptError: the stream is too short, or longer than the array if ``is_last``.
    """
    stored_dtype = np.dtype(dtype)
    native_dtype = stored_dtype.newbyteorder("=")
    n_all_rows = shape[0]
    row_shape = shape[1:]
    row_bytes = math.prod(row_shape) * stored_dtype.itemsize
    block_rows = max(1, _BLOCK_BYTES // max(1, row_bytes))

    for start in range(0, n_all_rows, block_rows):
        n_rows = min(block_rows, n_all_rows - start)
        data = stream.read(n_rows * row_bytes)
        if len(data) < n_rows * row_bytes:
            n_present = start + len(data) // row_bytes
            raise DatasetFileCorruptError(
                f"{name!r} ends after {n_present:,} of {n_all_rows:,} rows. Fetch it again"
            )
        values = np.frombuffer(data, stored_dtype).astype(native_dtype, copy=False)
        yield values.reshape(n_rows, *row_shape)

    if is_last and stream.read(1):
        raise DatasetFileCorruptError(
            f"{name!r} has more than {n_all_rows:,} rows of {row_bytes} bytes. Fetch it again"
        )
