"""HDF5 files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from data_stack.formats.conversion.format import register_format
from data_stack.formats.conversion.one_file import OneFileFormat, open_keyed
from data_stack.formats.conversion.source import Source
from data_stack.io.location import Location


@register_format
class HDF5Format(OneFileFormat):
    """An HDF5 file with a contiguous dataset for each column."""

    name = "hdf5"
    suffixes = dict.fromkeys((".h5", ".hdf5", ".hdf"), "application/x-hdf5")

    def open(self, location: Location) -> Source:
        from data_stack.formats.hdf5 import HDF5DatasetIterator, dataset_keys

        return open_keyed(location, HDF5DatasetIterator, dataset_keys)

    def save(self, file: Any, columns: Mapping[str, Any]) -> None:
        from data_stack.formats.hdf5 import write_hdf5

        write_hdf5(file, columns)
