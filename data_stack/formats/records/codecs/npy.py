"""Arrays as records in the manner of ``.npy`` files."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.numpy_arrays import read_npy, write_npy
from data_stack.formats.records.codecs.arrays import exactly_array
from data_stack.formats.records.codecs.codec import Codec, Column, FixedLayout

__all__ = ["NpyCodec"]


@dataclass(frozen=True)
class NpyCodec(Codec):
    """Arrays as ``.npy`` files (``numpy.load`` reads each record), also those with fields; never Python objects, never pickle.

    An array in any memory order is taken and stored in C order. What comes back is an array of its own, writable.
    """

    def encode(self, value: Any) -> bytes:
        file = io.BytesIO()
        write_npy(file, exactly_array(value))
        return file.getvalue()

    def decode(self, record: bytes) -> npt.NDArray[Any]:
        file = io.BytesIO(record)
        array = read_npy(file)
        if file.tell() != len(record):
            raise ValueError(f"an .npy file of {file.tell()} bytes is followed by {len(record) - file.tell()} others")
        return array

    def fixed_layout(self, column: Column) -> FixedLayout | None:
        dtype, shape = column.dtype, column.shape
        if dtype is None or shape is None or any(size is None for size in shape) or dtype.hasobject or not dtype.itemsize:
            return None
        sizes = tuple(int(size) for size in shape if size is not None)
        file = io.BytesIO()
        header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": sizes}
        try:
            np.lib.format.write_array_header_1_0(file, header)
        except ValueError:  # a thousand fields do not fit into a header of that version
            return None
        return FixedLayout(file.getvalue(), dtype, sizes)

    def layout_of(self, record: bytes) -> FixedLayout | None:
        """The layout of this record; None if it is in Fortran order, or damaged, which :meth:`decode` tells."""
        try:
            array = self.decode(record)
        except (ValueError, DatasetFileCorruptError):
            return None
        if array.ndim > 1 and not array.flags.c_contiguous:
            return None
        header = record[: len(record) - array.dtype.itemsize * math.prod(array.shape)]
        return FixedLayout(bytes(header), array.dtype, array.shape)
