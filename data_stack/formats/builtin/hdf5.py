"""The format of HDF5 files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from data_stack.dataset.iterator import ColumnKey, DatasetIteratorIF
from data_stack.formats.format import ColumnChoice, FormatOptions
from data_stack.formats.named_arrays_format import NamedArraysFormat
from data_stack.formats.registry import register_format
from data_stack.io.location import Location


@dataclass(frozen=True)
class HDF5Options(FormatOptions):
    """The options of HDF5 files.

    :class:`~data_stack.formats.HDF5DatasetIterator` documents them.
    """

    encoding: str | None = "utf-8"


@register_format
class HDF5Format(NamedArraysFormat):
    """An HDF5 file with a contiguous dataset for each column."""

    name = "hdf5"
    suffixes = {
        ".h5": "application/x-hdf5",
        ".hdf5": "application/x-hdf5",
        ".hdf": "application/x-hdf5",
    }
    options_class = HDF5Options

    def list_keys(
        self, resource: Any, location: Location, columns: ColumnChoice
    ) -> Sequence[ColumnKey]:
        from data_stack.formats.hdf5 import dataset_keys, datasets_to_read

        if columns.required is None:
            # This warns of what is left out.
            return datasets_to_read(resource)
        if not columns.optional:
            # Nothing is listed: a file may hold more objects than can be listed.
            return list(columns.required)
        # A user who names columns wants nothing else, so that there is no warning.
        return dataset_keys(resource)

    def open_arrays(
        self, resource: Any, keys: Mapping[str, Any], options: HDF5Options
    ) -> DatasetIteratorIF:
        from data_stack.formats.hdf5 import HDF5DatasetIterator

        return HDF5DatasetIterator(resource, keys, encoding=options.encoding)

    def save(self, file: Any, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        from data_stack.formats.hdf5 import write_hdf5

        write_hdf5(file, columns)
