"""The format of NumPy's ``.npy`` files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.exception import ArgumentError
from data_stack.formats.column_source import ColumnSource, source_of_arrays
from data_stack.formats.format import ALL_COLUMNS, ColumnChoice
from data_stack.formats.numpy_arrays import NumpyDatasetIterator, write_npy
from data_stack.formats.one_file_format import OneFileFormat, as_fixed_text
from data_stack.formats.registry import register_format
from data_stack.io.location import Location


@register_format
class NpyFormat(OneFileFormat):
    """One array, which is the only column. The name of the column is not stored."""

    name = "npy"
    suffixes = {".npy": "application/x-npy"}
    keeps_names = False

    def open(
        self, location: Location, columns: ColumnChoice = ALL_COLUMNS, options: Any = None
    ) -> DatasetIteratorIF:
        return NumpyDatasetIterator([location.open()])

    def open_source(
        self, location: Location, columns: ColumnChoice = ALL_COLUMNS, options: Any = None
    ) -> ColumnSource:
        samples = self.open(location, columns)
        return source_of_arrays(location.full_name, samples, {"column_0": 0})

    def check(self, source: ColumnSource, location: Location, shardlen: int | None) -> None:
        super().check(source, location, shardlen)
        if len(source.schema) != 1:
            raise ArgumentError(
                f"a .npy file holds one column, and {source.name} has "
                f"{', '.join(source.schema)}; choose one by",
                "columns",
            )

    def save(self, file: Any, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        for name, values in columns.items():
            write_npy(file, as_fixed_text(name, values))
