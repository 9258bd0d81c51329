"""The format of files that are nothing but numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.exception import ArgumentError
from data_stack.formats.column_source import ColumnSource, source_of_arrays
from data_stack.formats.format import ALL_COLUMNS, ColumnChoice, Format, FormatOptions
from data_stack.formats.numpy_arrays import RawDatasetIterator
from data_stack.formats.registry import register_format
from data_stack.io.location import Location


@dataclass(frozen=True)
class RawNumbersOptions(FormatOptions):
    """The options of files of bare numbers.

    :class:`~data_stack.formats.RawDatasetIterator` documents them. ``dtype`` is required.
    """

    dtype: Any = None
    header_bytes: int = 0


_DEFAULTS: Final = RawNumbersOptions()


@register_format
class RawNumbersFormat(Format):
    """Numbers, one after the other, of the dtype that an option says, such as files of tokens."""

    name = "bin"
    suffixes = {".bin": "application/octet-stream"}
    is_suffix_vague = True
    options_class = RawNumbersOptions

    def open(
        self,
        location: Location,
        columns: ColumnChoice = ALL_COLUMNS,
        options: RawNumbersOptions | None = None,
    ) -> DatasetIteratorIF:
        options = options or _DEFAULTS
        if options.dtype is None:
            raise ArgumentError(
                f"{location.full_name} holds bare numbers; pass their type, such as uint16, by",
                "dtype",
            )
        return RawDatasetIterator(
            [location.open()], options.dtype, header_bytes=options.header_bytes
        )

    def open_source(
        self,
        location: Location,
        columns: ColumnChoice = ALL_COLUMNS,
        options: RawNumbersOptions | None = None,
    ) -> ColumnSource:
        samples = self.open(location, columns, options)
        return source_of_arrays(location.full_name, samples, {"column_0": 0})
