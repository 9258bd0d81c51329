"""Bytes as samples: one module a format, each imported when its first name is asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from data_stack.formats.columns import ColumnsDatasetIterator
    from data_stack.formats.conversion import ConversionReport, convert
    from data_stack.formats.csv import CSVDatasetIterator, read_csv, read_csv_matrix
    from data_stack.formats.hdf5 import HDF5DatasetIterator, dataset_keys, write_hdf5
    from data_stack.formats.idx import IdxDatasetIterator, IdxReader, read_idx, write_idx
    from data_stack.formats.image_folder import ImageFolderIterator, ImageFolderWriter
    from data_stack.formats.numpy_arrays import (
        NpzDatasetIterator,
        NumpyDatasetIterator,
        npz_keys,
        read_npy,
        read_npz,
        write_npy,
        write_npz,
    )
    from data_stack.formats.torch_tensors import (
        TensorsDatasetIterator,
        TorchDatasetIterator,
        load_tensors,
        save_tensors,
        write_tensor,
    )
    from data_stack.formats.webdataset import WebDatasetIterator, WebDatasetWriter

_MODULES = {
    "ColumnsDatasetIterator": "columns",
    "CSVDatasetIterator": "csv",
    "read_csv": "csv",
    "read_csv_matrix": "csv",
    "HDF5DatasetIterator": "hdf5",
    "dataset_keys": "hdf5",
    "IdxDatasetIterator": "idx",
    "IdxReader": "idx",
    "read_idx": "idx",
    "write_idx": "idx",
    "NpzDatasetIterator": "numpy_arrays",
    "NumpyDatasetIterator": "numpy_arrays",
    "read_npy": "numpy_arrays",
    "read_npz": "numpy_arrays",
    "write_npy": "numpy_arrays",
    "TorchDatasetIterator": "torch_tensors",
    "load_tensors": "torch_tensors",
    "save_tensors": "torch_tensors",
    "write_tensor": "torch_tensors",
    "ImageFolderIterator": "image_folder",
    "ImageFolderWriter": "image_folder",
    "npz_keys": "numpy_arrays",
    "write_npz": "numpy_arrays",
    "TensorsDatasetIterator": "torch_tensors",
    "write_hdf5": "hdf5",
    "WebDatasetIterator": "webdataset",
    "WebDatasetWriter": "webdataset",
    "convert": "conversion",
    "ConversionReport": "conversion",
}

__all__ = [
    "CSVDatasetIterator",
    "ColumnsDatasetIterator",
    "ConversionReport",
    "HDF5DatasetIterator",
    "IdxDatasetIterator",
    "IdxReader",
    "ImageFolderIterator",
    "ImageFolderWriter",
    "NpzDatasetIterator",
    "NumpyDatasetIterator",
    "TensorsDatasetIterator",
    "TorchDatasetIterator",
    "WebDatasetIterator",
    "WebDatasetWriter",
    "convert",
    "dataset_keys",
    "load_tensors",
    "npz_keys",
    "read_csv",
    "read_csv_matrix",
    "read_idx",
    "read_npy",
    "read_npz",
    "save_tensors",
    "write_hdf5",
    "write_idx",
    "write_npy",
    "write_npz",
    "write_tensor",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
