"""The format of NumPy's ``.npz`` files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt

from data_stack.dataset.iterator import ColumnKey, DatasetIteratorIF
from data_stack.formats.format import ColumnChoice
from data_stack.formats.named_arrays_format import NamedArraysFormat
from data_stack.formats.numpy_arrays import NpzDatasetIterator, npz_keys, write_npz
from data_stack.formats.one_file_format import as_fixed_text
from data_stack.formats.registry import register_format
from data_stack.io.location import Location


@register_format
class NpzFormat(NamedArraysFormat):
    """An array for each column; text as strings as long as the longest one."""

    name = "npz"
    suffixes = {".npz": "application/octet-stream"}

    def list_keys(
        self, resource: Any, location: Location, columns: ColumnChoice
    ) -> Sequence[ColumnKey]:
        return npz_keys(resource)

    def open_arrays(
        self, resource: Any, keys: Mapping[str, Any], options: Any
    ) -> DatasetIteratorIF:
        return NpzDatasetIterator(resource, keys)

    def save(self, file: Any, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        arrays = {name: as_fixed_text(name, values) for name, values in columns.items()}
        write_npz(file, arrays)
