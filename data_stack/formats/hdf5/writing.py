"""Writes arrays as HDF5 files."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import h5py
import numpy.typing as npt

from data_stack.exception import ConfigError


def write_hdf5(file: Any, columns: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write arrays as an HDF5 file, plain and contiguous, so that rows are read by position.

    Args:
        file: a binary file open for writing. It is written from memory, as HDF5 aborts the process
            if a Python file fails.
        columns: arrays by the path of their dataset; those of dtype object hold text of any length.

    Raises:
        ConfigError: the name or dtype of a column is invalid in HDF5, or ``columns`` is no mapping.
    """
    if not isinstance(columns, Mapping):
        raise ConfigError(
            f"expected arrays by name, got {columns!r:.200}; convert(iterator, path) writes those "
            "of an iterator"
        )
    memory = io.BytesIO()
    with h5py.File(memory, "w") as root:
        for name, values in columns.items():
            _write_dataset(root, name, values)
    file.write(memory.getbuffer())


def _write_dataset(root: h5py.File, name: str, values: npt.NDArray[Any]) -> None:
    """Write an array as a dataset.

    Raises:
        ConfigError: HDF5 has no such path or dtype.
    """
    is_path = not any(part in ("", ".", "..") for part in name.split("/"))
    if not is_path or "\0" in name:
        raise ConfigError(f"{name!r} cannot be the path of an HDF5 dataset; rename the column")
    if values.dtype.kind not in "biufcO":
        raise ConfigError(
            f"column {name!r} of dtype {values.dtype} cannot be stored in HDF5; leave it out"
        )
    is_text = values.dtype.kind == "O"
    dtype = h5py.string_dtype() if is_text else values.dtype
    try:
        root.create_dataset(name, data=values, dtype=dtype)
    except (ValueError, TypeError, OSError) as error:
        # For example, the path leads through another dataset.
        raise ConfigError(f"HDF5 cannot store a dataset {name!r}: {error}") from error
