"""NumPy's ``.npz`` files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from data_stack.exception import ConfigError
from data_stack.formats.conversion.format import register_format
from data_stack.formats.conversion.one_file import OneFileFormat, open_keyed
from data_stack.formats.conversion.source import Source
from data_stack.formats.numpy_arrays import NpzDatasetIterator, npz_keys, write_npz
from data_stack.io.location import Location


@register_format
class NpzFormat(OneFileFormat):
    """An array for each column; text as strings as long as the longest one."""

    name = "npz"
    suffixes = {".npz": "application/octet-stream"}

    def open(self, location: Location) -> Source:
        return open_keyed(location, NpzDatasetIterator, npz_keys)

    def save(self, file: Any, columns: Mapping[str, Any]) -> None:
        arrays = {name: np.array(each.tolist(), np.str_) if each.dtype == object else each for name, each in columns.items()}
        for name, values in columns.items():
            if values.dtype == object and arrays[name].tolist() != values.tolist():
                raise ConfigError(f"column {name!r} has text that ends with a NUL, which NumPy's strings lose")
        write_npz(file, arrays)
