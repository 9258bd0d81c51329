"""Writes IDX files, the format of MNIST."""

from __future__ import annotations

from typing import Any

import numpy as np

_CODES = {"uint8": 8, "int8": 9, "int16": 11, "int32": 12, "float32": 13, "float64": 14}


def write_idx(file: Any, array: np.ndarray[Any, Any]) -> None:
    """Write ``array`` into a binary file."""
    file.write(
        bytes([0, 0, _CODES[array.dtype.name], array.ndim]) + np.array(array.shape, ">u4").tobytes()
    )
    file.write(array.astype(array.dtype.newbyteorder(">")).tobytes())
