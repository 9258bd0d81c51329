"""Formats of one file whose arrays are read by their names."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.iterator.contract import ColumnKey
from data_stack.exception import ConfigError
from data_stack.formats.column_source import ColumnSource, choose_keys, source_of_arrays
from data_stack.formats.format import ALL_COLUMNS, ColumnChoice
from data_stack.formats.one_file_format import OneFileFormat
from data_stack.io.location import Location


class NamedArraysFormat(OneFileFormat):
    """A format of one file whose arrays are read by their names.

    Arrays that are not read need not be columns: they may be longer, or single values.
    """

    @abstractmethod
    def list_keys(
        self, resource: Any, location: Location, columns: ColumnChoice
    ) -> Sequence[ColumnKey]:
        """Return the keys of the arrays in an open file, or at least those of ``columns``.

        Args:
            resource: the open file.
            location: where the file is, for messages.
            columns: the columns that will be read.
        """

    @abstractmethod
    def open_arrays(
        self, resource: Any, keys: Mapping[str, Any], options: Any
    ) -> DatasetIteratorIF:
        """Return the rows of some arrays as samples.

        Args:
            resource: the open file.
            keys: the key of an array by the name of its column.
            options: as for :meth:`open`; never None.
        """

    def open(
        self, location: Location, columns: ColumnChoice = ALL_COLUMNS, options: Any = None
    ) -> DatasetIteratorIF:
        return self.open_source(location, columns, options).values

    def open_source(
        self, location: Location, columns: ColumnChoice = ALL_COLUMNS, options: Any = None
    ) -> ColumnSource:
        with contextlib.ExitStack() as stack:
            resource = stack.enter_context(location.open())
            keys = _keys_by_column(self.list_keys(resource, location, columns), location)
            if not keys:
                raise ConfigError(f"{location.full_name} contains no arrays")
            keys = choose_keys(location.full_name, keys, columns.required, columns.optional)

            samples = self.open_arrays(resource, keys, options or self.options_class())
            column_names: dict[str, ColumnKey] = {name: name for name in keys}
            source = source_of_arrays(location.full_name, samples, column_names)
            source.resources.push(stack.pop_all())
            return source


def _keys_by_column(keys: Sequence[ColumnKey], location: Location) -> dict[str, ColumnKey]:
    """Return each key by the name of its column: ``"column_0"`` for 0.

    Raises:
        ConfigError: two keys would be one column.
    """
    by_column: dict[str, ColumnKey] = {}
    for key in keys:
        name = key if isinstance(key, str) else f"column_{key}"
        if by_column.setdefault(name, key) != key:
            raise ConfigError(
                f"{location.full_name}: the arrays {by_column[name]!r} and {key!r} would both be "
                f"column {name!r}; rename one in the file"
            )
    return by_column
