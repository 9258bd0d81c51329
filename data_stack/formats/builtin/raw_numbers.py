"""The format of files that are nothing but numbers."""

from __future__ import annotations

from typing import Any

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.exception import ArgumentError
from data_stack.formats.column_source import ColumnSource, source_of_arrays
from data_stack.formats.format import ALL_COLUMNS, ColumnChoice, Format
from data_stack.formats.numpy_arrays import RawDatasetIterator
from data_stack.formats.registry import register_format
from data_stack.io.location import Location


@register_format
class RawNumbersFormat(Format):
    """Numbers, one behind the other, of the dtype that an option says, such as files of tokens.

    The options are those of :class:`~data_stack.formats.RawDatasetIterator`.
    """

    name = "bin"
    suffixes = {".bin": "application/octet-stream"}
    is_suffix_vague = True
    options = frozenset({"dtype", "header_bytes"})

    def open(
        self, location: Location, columns: ColumnChoice = ALL_COLUMNS, **options: Any
    ) -> DatasetIteratorIF:
        if "dtype" not in options:
            raise ArgumentError(
                f"{location.full_name} holds bare numbers; pass their type, such as uint16, by",
                "dtype",
            )
        return RawDatasetIterator([location.open()], **options)

    def open_source(
        self, location: Location, columns: ColumnChoice = ALL_COLUMNS, **options: Any
    ) -> ColumnSource:
        samples = self.open(location, columns, **options)
        return source_of_arrays(location.full_name, samples, {"column_0": 0})
