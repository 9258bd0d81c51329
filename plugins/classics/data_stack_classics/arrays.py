"""Datasets of arrays of one shape, such as pictures of one size: each column becomes a ``.npy`` file, read row by row."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from data_stack import DatasetIteratorIF, PreparedResources, Resources
from data_stack.exception import DatasetFileCorruptError
from data_stack.formats import NumpyDatasetIterator
from data_stack_classics.classic import ClassicFactory

_BLOCK_BYTES = 1 << 22
Array: TypeAlias = npt.NDArray[Any]


class ArraysFactory(ClassicFactory):
    """A dataset of tuples; a column named ``tag`` repeats the second column, as DataStack's tags do."""

    columns = ("image", "label", "tag")

    def write(
        self,
        prepared: PreparedResources,
        split: str,
        column: str,
        blocks: Iterable[Array],
        source: str,
    ) -> None:
        """Write a column from blocks of its rows, with one block in memory.

        Raises:
            DatasetFileCorruptError: the number of rows is not ``n_samples``, or a label is not a position in ``class_names``;
                the message names ``source``.
        """
        n_rows = 0
        with prepared.create(f"preprocessed/{split}/{column}.npy") as file:
            for block in blocks:
                if not n_rows:
                    facts = {
                        "fortran_order": False,
                        "shape": (self.n_samples[split], *block.shape[1:]),
                    }
                    np.lib.format.write_array_header_1_0(
                        file, np.lib.format.header_data_from_array_1_0(block) | facts
                    )
                if column == "label" and self.class_names is not None and split != "unlabeled":
                    self.check_labels(source, block)
                file.write(block.tobytes())
                n_rows += len(block)
            self.check_count(source, split, n_rows)

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        """Open one split; rows are read on access."""
        first, target, tag = self.columns
        names = (first, target, target if tag == "tag" else tag)
        return NumpyDatasetIterator(
            [prepared[f"preprocessed/{split}/{name}.npy"] for name in names]
        )


def read_rows(
    stream: Any, name: str, shape: tuple[int, ...], dtype: Any, *, is_last: bool = True
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
    stored = np.dtype(dtype)
    row_bytes = math.prod(shape[1:]) * stored.itemsize
    n_at_once = max(1, _BLOCK_BYTES // max(1, row_bytes))
    for start in range(0, shape[0], n_at_once):
        n_rows = min(n_at_once, shape[0] - start)
        data = stream.read(n_rows * row_bytes)
        if len(data) < n_rows * row_bytes:
            n_there = start + len(data) // row_bytes
            raise DatasetFileCorruptError(
                f"{name!r} ends after {n_there:,} of {shape[0]:,} rows. Fetch it again"
            )
        yield (
            np.frombuffer(data, stored)
            .astype(stored.newbyteorder("="), copy=False)
            .reshape(n_rows, *shape[1:])
        )
    if is_last and stream.read(1):
        raise DatasetFileCorruptError(
            f"{name!r} has more than {shape[0]:,} rows of {row_bytes} bytes. Fetch it again"
        )
