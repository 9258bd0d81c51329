"""Petastorm's selectors of row groups."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

from data_stack.exception import ConfigError
from data_stack.formats.parquet import IntersectIndexSelector, SingleIndexSelector, UnionIndexSelector
from data_stack.formats.parquet.indexes import RowGroupIndex

__all__ = ["IntersectIndexSelector", "RowGroupSelectorBase", "SingleIndexSelector", "UnionIndexSelector"]


class RowGroupSelectorBase(ABC):
    """Derive from it for a selector of your own; the selectors of this module are registered as subclasses."""

    @abstractmethod
    def get_index_names(self) -> Iterable[str]:
        """Return the names of the required indexes."""

    @abstractmethod
    def select_row_groups(self, index_dict: Mapping[str, Any]) -> Iterable[int]:
        """Return the numbers of the row groups to read.

        Args:
            index_dict: the indexes of the dataset by name, with ``indexed_values`` and ``get_row_group_indexes(value)``.
        """

    def select(self, indexes: Mapping[str, RowGroupIndex]) -> set[int]:
        """Return the numbers of the row groups to read; data_stack calls this.

        Raises:
            ConfigError: the dataset lacks a required index.
        """
        missing = sorted(set(self.get_index_names()) - set(indexes))
        if missing:
            raise ConfigError(f"Some of required indexes {missing} are not available in {sorted(indexes)}")
        return set(self.select_row_groups({name: _Index(index) for name, index in indexes.items()}))


class _Index:
    """An index with the names of Petastorm."""

    def __init__(self, index: RowGroupIndex) -> None:
        self._index = index
        self.index_name, self.column_names = index.name, [index.field]
        self.indexed_values = list(index.row_groups)

    def get_row_group_indexes(self, value_key: Any = None) -> set[int]:
        """Return the numbers of the row groups with a value."""
        return set(self._index.row_groups_with(value_key))


for _class in (IntersectIndexSelector, SingleIndexSelector, UnionIndexSelector):
    RowGroupSelectorBase.register(_class)
