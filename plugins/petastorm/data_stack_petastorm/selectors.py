"""Which row groups are read, in Petastorm's spelling."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

from data_stack.exception import ConfigError
from data_stack.formats.parquet import IntersectIndexSelector, SingleIndexSelector, UnionIndexSelector
from data_stack.formats.parquet.indexes import RowGroupIndex

__all__ = ["IntersectIndexSelector", "RowGroupSelectorBase", "SingleIndexSelector", "UnionIndexSelector"]


class RowGroupSelectorBase(ABC):
    """Derive from it for a selector of your own; those of this module count as derived from it."""

    @abstractmethod
    def get_index_names(self) -> Iterable[str]:
        """The names of the indexes that are needed."""

    @abstractmethod
    def select_row_groups(self, index_dict: Mapping[str, Any]) -> Iterable[int]:
        """The numbers of the row groups to read.

        Args:
            index_dict: the indexes of the dataset by name, with ``indexed_values`` and ``get_row_group_indexes(value)``.
        """

    def select(self, indexes: Mapping[str, RowGroupIndex]) -> set[int]:
        """The numbers of the row groups to read, as data_stack asks for them.

        Raises:
            ConfigError: the dataset lacks an index that is needed.
        """
        missing = sorted(set(self.get_index_names()) - set(indexes))
        if missing:
            raise ConfigError(f"Some of required indexes {missing} are not available in {sorted(indexes)}")
        return set(self.select_row_groups({name: _Index(index) for name, index in indexes.items()}))


class _Index:
    """An index as Petastorm's selectors know it."""

    def __init__(self, index: RowGroupIndex) -> None:
        self._index = index
        self.index_name, self.column_names = index.name, [index.field]
        self.indexed_values = list(index.row_groups)

    def get_row_group_indexes(self, value_key: Any = None) -> set[int]:
        """The numbers of the row groups with a value."""
        return set(self._index.row_groups_with(value_key))


for _class in (IntersectIndexSelector, SingleIndexSelector, UnionIndexSelector):
    RowGroupSelectorBase.register(_class)
