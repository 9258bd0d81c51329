"""Petastorm's selectors of row groups. A selector selects whole row groups; a predicate selects rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from data_stack.exception import ConfigError
from data_stack_petastorm.etl.rowgroup_indexing import get_row_group_indexes

__all__ = [
    "IntersectIndexSelector",
    "RowGroupSelectorBase",
    "SingleIndexSelector",
    "UnionIndexSelector",
    "select_row_groups",
]


class RowGroupSelectorBase(ABC):
    """Derive from it for a selector of your own."""

    @abstractmethod
    def get_index_names(self) -> Iterable[str]:
        """Return the names of the required indexes."""

    @abstractmethod
    def select_row_groups(self, index_dict: Mapping[str, Any]) -> Iterable[int]:
        """Return the numbers of the row groups to read.

        Args:
            index_dict: the indexes of the dataset by name, with ``indexed_values`` and ``get_row_group_indexes(value)``.
        """


class SingleIndexSelector(RowGroupSelectorBase):
    """The row groups that hold any of some values, by one index.

    Args:
        index_name: an index.
        values_list: a list, also for a single value; an index of values that are not null ignores it.
    """

    def __init__(self, index_name: str, values_list: Iterable[Any] = ()) -> None:
        if isinstance(values_list, (str, bytes)) or not isinstance(values_list, Iterable):
            raise ConfigError(
                f"SingleIndexSelector({index_name!r}, {values_list!r}): pass the values as a list"
            )
        self._index_name, self._values = index_name, tuple(values_list)

    def get_index_names(self) -> list[str]:
        return [self._index_name]

    def select_row_groups(self, index_dict: Mapping[str, Any]) -> set[int]:
        index = index_dict[self._index_name]
        return set().union(
            *(index.get_row_group_indexes(value) for value in self._values or (None,))
        )


class _CombinedSelector(RowGroupSelectorBase):
    combine: Callable[..., set[int]]

    def __init__(self, single_index_selectors: Iterable[RowGroupSelectorBase]) -> None:
        self._selectors = tuple(single_index_selectors)
        if not self._selectors:
            raise ConfigError(f"{type(self).__name__} needs at least one selector")

    def get_index_names(self) -> list[str]:
        return [name for selector in self._selectors for name in selector.get_index_names()]

    def select_row_groups(self, index_dict: Mapping[str, Any]) -> set[int]:
        return type(self).combine(
            *(set(selector.select_row_groups(index_dict)) for selector in self._selectors)
        )


class IntersectIndexSelector(_CombinedSelector):
    """The row groups that all of several selectors select."""

    combine = set.intersection


class UnionIndexSelector(_CombinedSelector):
    """The row groups that at least one of several selectors selects."""

    combine = set.union


def select_row_groups(dataset: Any, selector: RowGroupSelectorBase) -> list[int]:
    """Return the numbers of the row groups that a selector selects, for ``ParquetDataset(…, row_groups=…)``.

    Args:
        dataset: URL or path of the dataset, or a ``ParquetDataset`` of pyarrow.
        selector: any selector.

    Raises:
        ConfigError: the dataset lacks a required index, or its row groups have changed since it was built.
        DatasetFileCorruptError: the indexes are damaged, or hostile.
    """
    indexes = get_row_group_indexes(dataset)
    missing = sorted(set(selector.get_index_names()) - set(indexes))
    if missing:
        raise ConfigError(
            f"Some of required indexes {missing} are not available in {sorted(indexes)}"
        )
    return sorted(selector.select_row_groups(indexes))
