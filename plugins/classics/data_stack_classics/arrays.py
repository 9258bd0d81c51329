"""The base class of datasets whose columns are arrays, such as images of one size."""

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

#: Size of the blocks in which a file is read, which is what is in memory at once.
_BLOCK_BYTES = 4 << 20

#: The third column of the samples of the original DataStack, which repeats the second one.
_TAG = "tag"


class ArraysFactory(ClassicFactory):
    """A dataset whose samples are tuples, one value of each column.

    Each column is stored as a ``.npy`` file. A row is read when it is asked for.

    A derived class declares ``columns``, and overrides ``preprocess``, in which it writes each
    column by :meth:`write`. It does not write a column named ``tag``: that repeats the second
    column, as the tags of the original DataStack do.

    Attributes:
        unlabeled_splits: names of the splits without labels. Their column ``label`` is -1.
    """

    columns = ("image", "label", "tag")
    unlabeled_splits: ClassVar[Collection[str]] = ()

    @contextlib.contextmanager
    def open_column(
        self, prepared: PreparedResources, split: str, column: str, source: str
    ) -> Iterator[ColumnWriter]:
        """Open a writer for a column of a split, when several columns are written together.

        Args:
            prepared: stores the column.
            split: name of the split.
            column: name of the column. The values of a column ``label`` are checked.
            source: name of the file that the column comes from, for messages.

        Raises:
            DatasetFileCorruptError: the number of rows is not ``n_samples``, or a label is not a
                position in ``class_names``.
        """
        has_classes = self.class_names is not None and split not in self.unlabeled_splits
        check_block = None
        if column == "label" and has_classes:
            check_block = partial(self.check_labels, source)
        with prepared.create(f"preprocessed/{split}/{column}.npy") as file:
            writer = ColumnWriter(file, self.n_samples[split], check_block)
            yield writer
            # An error here, inside of the block, keeps the file from being stored.
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

        Args:
            prepared: stores the column.
            split: name of the split.
            column: name of the column. The values of a column ``label`` are checked.
            blocks: arrays of shape ``(n, ...)``, with equal dtypes and equal shapes of a row.
            source: name of the file that the column comes from, for messages.

        Raises:
            DatasetFileCorruptError: the number of rows is not ``n_samples``, or a label is not a
                position in ``class_names``.
            ValueError: two blocks have different dtypes or shapes of a row.
        """
        with self.open_column(prepared, split, column, source) as writer:
            for block in blocks:
                writer.append(block)

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        """Return one split. A row is read when it is asked for."""
        files = []
        for column in self.columns:
            stored_column = self.columns[1] if column == _TAG else column
            files.append(prepared[f"preprocessed/{split}/{stored_column}.npy"])
        return NumpyDatasetIterator(files)


class ColumnWriter:
    """Writes an array to a ``.npy`` file block by block, where ``np.save`` needs the whole array.

    The format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html.

    Args:
        file: an empty binary file.
        n_rows: number of rows that the whole array will have, which the header of the file says.
        check_block: called with each block before it is written. It raises an error if a value is
            wrong. None if nothing is checked.

    Attributes:
        n_rows: number of rows that were written so far.
    """

    n_rows: int
    _file: io.BufferedIOBase
    #: Number of rows of the whole array.
    _n_all_rows: int
    _check_block: Callable[[Array], None] | None
    #: The dtype and the shape of a row, which the first block decides; None before it.
    _row_type: tuple[np.dtype[Any], tuple[int, ...]] | None

    def __init__(
        self,
        file: io.BufferedIOBase,
        n_rows: int,
        check_block: Callable[[Array], None] | None = None,
    ) -> None:
        self.n_rows = 0
        self._file = file
        self._n_all_rows = n_rows
        self._check_block = check_block
        self._row_type = None

    def append(self, block: Array) -> None:
        """Write the next rows. The first block decides on the dtype and the shape of a row.

        Args:
            block: an array of shape ``(n, ...)``.

        Raises:
            ValueError: a row has another dtype or shape than those of the first block.
        """
        if self._check_block is not None:
            self._check_block(block)
        row_type = (block.dtype, block.shape[1:])
        if self._row_type is None:
            self._row_type = row_type
            self._write_header(block)
        if row_type != self._row_type:
            dtype, shape = self._row_type
            raise ValueError(
                f"expected rows of {dtype} and shape {shape}, as in the first block, "
                f"got {block.dtype} and {block.shape[1:]}"
            )
        self._file.write(block.tobytes())
        self.n_rows += len(block)

    def _write_header(self, first_block: Array) -> None:
        header = {
            "descr": np.lib.format.dtype_to_descr(first_block.dtype),
            "fortran_order": False,
            "shape": (self._n_all_rows, *first_block.shape[1:]),
        }
        np.lib.format.write_array_header_1_0(self._file, header)


def read_rows(
    stream: IO[bytes] | io.BufferedIOBase,
    name: str,
    shape: tuple[int, ...],
    dtype: npt.DTypeLike,
    *,
    is_last: bool = True,
) -> Iterator[Array]:
    """Iterate over the rows of an array that is stored in C order, in blocks.

    Args:
        stream: a binary stream, at the first value.
        name: name of the stream, for messages.
        shape: shape of the whole array.
        dtype: dtype of the stored values.
        is_last: whether nothing may follow the array in the stream.

    Yields:
        Arrays of shape ``(n, *shape[1:])``, of the stored dtype in native byte order.

    Raises:
        DatasetFileCorruptError: the stream ends within the array; or it goes on behind the array,
            if ``is_last``. The latter is noticed after the last block.
    """
    stored_dtype = np.dtype(dtype)
    native_dtype = stored_dtype.newbyteorder("=")
    n_all_rows = shape[0]
    row_shape = shape[1:]
    row_bytes = math.prod(row_shape) * stored_dtype.itemsize
    # At least one row, however large; rows without values have no bytes.
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
