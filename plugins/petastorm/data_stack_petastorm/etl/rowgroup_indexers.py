"""Petastorm's row-group indexes, which record the row groups that hold a value.

The number of a row group counts from 0 through all files of the dataset, sorted by path.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.codecs.plain_data import canonical_json, from_plain, to_plain
from data_stack.exception import ConfigError
from data_stack_petastorm.etl import RowGroupIndexerBase
from data_stack_petastorm.plain_times import plain_time

#: One object, so that a dict finds it.
_NAN: Final = math.nan


class Indexer(RowGroupIndexerBase):
    """The row groups that hold each value of a field. Without row groups, the index is not built yet.

    Args:
        index_name: name for selectors.
        index_field: name of the field.
        row_groups: numbers of row groups by plain Python value: str, bytes, bool, int, float, Decimal, datetime, time, timedelta;
            a numpy.datetime64 or numpy.timedelta64 if these cannot hold it exactly. A day is its midnight. Nulls are not indexed.

    Attributes:
        index_name, field, row_groups: as given.
        kind: name of the class in stored indexes.
    """

    kind: str

    def __init__(
        self,
        index_name: str,
        index_field: str,
        row_groups: Mapping[Any, frozenset[int]] | None = None,
    ) -> None:
        self.index_name, self.field, self.row_groups = index_name, index_field, row_groups or {}

    @property
    def column_names(self) -> list[str]:
        """The field, in a list."""
        return [self.field]

    @property
    def indexed_values(self) -> list[Any]:
        """The values, of Python's types."""
        return list(self.row_groups)

    def get_row_group_indexes(self, value_key: Any = None) -> set[int]:
        """Return the numbers of the row groups with a value, which may be a numpy scalar.

        A field of float32 has other values than a field of float64: ask for ``numpy.float32(0.1)`` there.
        """
        return set(self.row_groups.get(plain_index_value(value_key), ()))

    def build(self, columns: Iterable[tuple[int, npt.NDArray[Any]]]) -> Indexer:
        """Build the index from the decoded values of its field.

        Args:
            columns: for each row group its number and its column, shape ``(n_rows, ...)``; an object array has None where a cell
                is null, and may hold an array in each cell.

        Raises:
            ConfigError: the field has values that cannot be looked up, e.g. dicts.
        """
        try:
            found = by_value(
                (value, [group]) for group, column in columns for value in self._values_in(column)
            )
        except TypeError as error:
            raise ConfigError(
                f"row-group index {self.index_name!r} cannot hold the field {self.field!r}: {error}"
            ) from error
        return type(self)(self.index_name, self.field, found)

    @abstractmethod
    def _values_in(self, column: npt.NDArray[Any]) -> Iterator[Any]:
        """The values of a column to index."""

    def to_json(self) -> dict[str, Any]:
        """The plain data that :func:`indexer_of_json` reads; its values are sorted."""
        pairs = [
            [to_plain(value, _as_text), sorted(groups)] for value, groups in self.row_groups.items()
        ]
        return {
            "kind": self.kind,
            "name": self.index_name,
            "field": self.field,
            "values": sorted(pairs, key=canonical_json),
        }


class SingleFieldIndexer(Indexer):
    """Maps each value of a field to the row groups that hold it; each element of an array is a value.

    Args: as for :class:`Indexer`.
    """

    kind = "SingleFieldIndex"

    def _values_in(self, column: npt.NDArray[Any]) -> Iterator[Any]:
        for cell in column.flat if column.dtype == object else np.unique(column):
            if isinstance(cell, (np.ndarray, list, tuple)):
                yield from self._values_in(
                    np.array(cell, dtype=object) if not isinstance(cell, np.ndarray) else cell
                )
            elif cell is not None and not (
                isinstance(cell, (np.datetime64, np.timedelta64)) and np.isnat(cell)
            ):
                yield cell


class FieldNotNullIndexer(Indexer):
    """Lists the row groups in which a field has a value that is not null, under the value True.

    Args: as for :class:`Indexer`.
    """

    kind = "NotNullIndex"

    @property
    def indexed_values(self) -> list[Any]:
        """A constant text."""
        return ["Field is Not Null"]

    def get_row_group_indexes(self, value_key: Any = None) -> set[int]:
        """Return the numbers of the row groups with any value; ``value_key`` is ignored."""
        return super().get_row_group_indexes(True)

    def _values_in(self, column: npt.NDArray[Any]) -> Iterator[Any]:
        if any(cell is not None for cell in column.flat):
            yield True


def plain_index_value(value: Any) -> Any:
    """A value as it is indexed."""
    if isinstance(value, (np.datetime64, np.timedelta64)):
        value = plain_time(value)
    elif isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime.combine(value, time())
    return _NAN if isinstance(value, float) and math.isnan(value) else value


def by_value(pairs: Iterable[tuple[Any, Iterable[int]]]) -> dict[Any, frozenset[int]]:
    """Collect the row groups of each value."""
    found: dict[Any, set[int]] = {}
    for value, groups in pairs:
        found.setdefault(plain_index_value(value), set()).update(groups)
    sets: dict[frozenset[int], frozenset[int]] = {}  # a million values share few different sets
    frozen = ((value, frozenset(groups)) for value, groups in found.items())
    return {value: sets.setdefault(groups, groups) for value, groups in frozen}


def indexer_of_json(data: Any) -> Indexer:
    """The index that :meth:`Indexer.to_json` described.

    Raises:
        ValueError, TypeError, KeyError, ArithmeticError: the data is invalid.
    """
    kinds: dict[str, type[Indexer]] = {
        kind.kind: kind for kind in (SingleFieldIndexer, FieldNotNullIndexer)
    }
    name, field = data["name"], data["field"]
    if not isinstance(name, str) or not isinstance(field, str):
        raise TypeError("an index without a name or field")
    pairs = [(from_plain(value, _OF_TEXT), groups) for value, groups in data["values"]]
    if any(type(group) is not int or group < 0 for _, groups in pairs for group in groups):
        raise TypeError("row groups must be a list of numbers")
    return kinds[data["kind"]](name, field, by_value(pairs))


def _as_text(value: Any) -> dict[str, Any] | None:
    """Values that JSON does not have."""
    if isinstance(value, (datetime, time)):
        return {type(value).__name__: value.isoformat()}
    if isinstance(value, timedelta):
        return {"timedelta": value // timedelta(microseconds=1)}
    return {"Decimal": str(value)} if isinstance(value, Decimal) else None


_OF_TEXT: Final[dict[str, Callable[[Any], Any]]] = {
    "datetime": datetime.fromisoformat,
    "time": time.fromisoformat,
    "timedelta": lambda microseconds: timedelta(microseconds=microseconds),
    "Decimal": Decimal,
}
