"""Petastorm's row-group indexes, which record the row groups that hold a value.

The number of a row group counts from 0 through all files of the dataset, sorted by path.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
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

#: The NaN of all indexes. NaN equals nothing, but a dict finds a key that is the same object.
_NAN: Final = math.nan

_MICROSECOND: Final = timedelta(microseconds=1)


class Indexer(RowGroupIndexerBase, ABC):
    """An index of a field: the row groups that hold each of its values.

    A program makes an index without row groups and passes it to ``build_rowgroup_index``, which
    builds it.

    Args:
        index_name: the name by which selectors find the index.
        index_field: name of the field.
        row_groups: numbers of row groups by value; None for an index that is not built. A value is
            a str, bytes, bool, int, float, Decimal, datetime, time or timedelta, or a
            numpy.datetime64 or numpy.timedelta64 that these cannot hold exactly. A day is indexed
            as its midnight. Nulls are not indexed.

    Attributes:
        index_name: as given.
        field: name of the field.
        row_groups: as given; empty if the index is not built.
        kind: the kind of the index in stored indexes.
    """

    kind: str
    index_name: str
    field: str
    row_groups: Mapping[Any, frozenset[int]]

    def __init__(
        self,
        index_name: str,
        index_field: str,
        row_groups: Mapping[Any, frozenset[int]] | None = None,
    ) -> None:
        self.index_name = index_name
        self.field = index_field
        self.row_groups = row_groups or {}

    @property
    def column_names(self) -> list[str]:
        """The field, in a list."""
        return [self.field]

    @property
    def indexed_values(self) -> list[Any]:
        """The values that the index has, as in ``row_groups``."""
        return list(self.row_groups)

    def get_row_group_indexes(self, value_key: Any = None) -> set[int]:
        """Return the numbers of the row groups that hold a value; empty if none does.

        Args:
            value_key: the value, of Python or a scalar of numpy. For a field of float32, pass
                ``numpy.float32(0.1)``: Python's 0.1 is another number.
        """
        value = plain_index_value(value_key)
        return set(self.row_groups.get(value, ()))

    def build(self, columns: Iterable[tuple[int, npt.NDArray[Any]]]) -> Indexer:
        """Return this index, built from the decoded values of its field.

        Args:
            columns: the number of each row group with its column, shape ``(n_rows, ...)``. A column
                of objects has None for a null, and may have an array in each cell.

        Raises:
            ConfigError: the field has values that cannot be looked up, e.g. dicts.
        """
        row_groups = _RowGroupsOfValues()
        try:
            for row_group, column in columns:
                for value in self._values_in(column):
                    row_groups.add(value, [row_group])
        except TypeError as error:
            raise ConfigError(
                f"row-group index {self.index_name!r} cannot hold the field {self.field!r}: {error}"
            ) from error
        return type(self)(self.index_name, self.field, row_groups.freeze())

    @abstractmethod
    def _values_in(self, column: npt.NDArray[Any]) -> Iterator[Any]:
        """Iterate over the values of a column to index; a value may occur several times.

        Args:
            column: the column, shape ``(n_rows, ...)``.
        """

    def to_json(self) -> dict[str, Any]:
        """Return the index as plain data for :func:`indexer_of_json`; its values are sorted."""
        pairs = [
            [to_plain(value, _value_to_plain), sorted(row_groups)]
            for value, row_groups in self.row_groups.items()
        ]
        return {
            "kind": self.kind,
            "name": self.index_name,
            "field": self.field,
            "values": sorted(pairs, key=canonical_json),
        }


class SingleFieldIndexer(Indexer):
    """Maps each value of a field to the row groups that hold it.

    Each element of an array is a value.

    Args: as for :class:`Indexer`.
    """

    kind = "SingleFieldIndex"

    def _values_in(self, column: npt.NDArray[Any]) -> Iterator[Any]:
        cells = column.flat if column.dtype == object else np.unique(column)
        for cell in cells:
            if isinstance(cell, np.ndarray):
                yield from self._values_in(cell)
            elif isinstance(cell, (list, tuple)):
                yield from self._values_in(np.array(cell, dtype=object))
            elif not _is_null(cell):
                yield cell


class FieldNotNullIndexer(Indexer):
    """Lists the row groups in which a field has a value that is not null, under the value True.

    Args: as for :class:`Indexer`.
    """

    kind = "NotNullIndex"

    @property
    def indexed_values(self) -> list[Any]:
        """One text, always the same: the index has no values."""
        return ["Field is Not Null"]

    def get_row_group_indexes(self, value_key: Any = None) -> set[int]:
        """Return the numbers of the row groups with any value; ``value_key`` is ignored."""
        return super().get_row_group_indexes(True)

    def _values_in(self, column: npt.NDArray[Any]) -> Iterator[Any]:
        if any(cell is not None for cell in column.flat):
            yield True


def _is_null(cell: Any) -> bool:
    """Return whether a cell is None or NaT. NaN is a value."""
    if isinstance(cell, (np.datetime64, np.timedelta64)):
        return bool(np.isnat(cell))
    return cell is None


def plain_index_value(value: Any) -> Any:
    """Return a value as it is indexed.

    Scalars of numpy become values of Python, if these hold them exactly. A day becomes its
    midnight, and each NaN the same NaN.
    """
    if isinstance(value, (np.datetime64, np.timedelta64)):
        value = plain_time(value)
    elif isinstance(value, np.generic):
        value = value.item()
    is_day = isinstance(value, date) and not isinstance(value, datetime)
    if is_day:
        return datetime.combine(value, time())
    if isinstance(value, float) and math.isnan(value):
        return _NAN
    return value


class _RowGroupsOfValues:
    """Collects the row groups of each value."""

    _sets: dict[Any, set[int]]

    def __init__(self) -> None:
        self._sets = {}

    def add(self, value: Any, row_groups: Iterable[int]) -> None:
        """Add row groups that hold a value."""
        key = plain_index_value(value)
        self._sets.setdefault(key, set()).update(row_groups)

    def freeze(self) -> dict[Any, frozenset[int]]:
        """Return the row groups of each value."""
        # Millions of values may be in the same few row groups. Their equal sets become one.
        shared_sets: dict[frozenset[int], frozenset[int]] = {}
        frozen = {}
        for value, row_groups in self._sets.items():
            frozen_set = frozenset(row_groups)
            frozen[value] = shared_sets.setdefault(frozen_set, frozen_set)
        return frozen


# ------------------------------------------------------------------------------- indexes as JSON


def indexer_of_json(data: Any) -> Indexer:
    """Return the index that :meth:`Indexer.to_json` described.

    Raises:
        ValueError, TypeError, KeyError, ArithmeticError: the data is invalid.
    """
    name = data["name"]
    field = data["field"]
    if not isinstance(name, str) or not isinstance(field, str):
        raise TypeError("an index without a name or field")
    row_groups = _RowGroupsOfValues()
    for plain_value, numbers in data["values"]:
        for number in numbers:
            if type(number) is not int or number < 0:  # a bool is no number
                raise TypeError("row groups must be a list of numbers")
        row_groups.add(from_plain(plain_value, _VALUES_FROM_PLAIN), numbers)
    indexer_class = _INDEXER_CLASSES[data["kind"]]
    return indexer_class(name, field, row_groups.freeze())


def _value_to_plain(value: Any) -> dict[str, Any] | None:
    """Return a time or decimal as an object of JSON with one key, its type; None for others."""
    if isinstance(value, (datetime, time)):
        return {type(value).__name__: value.isoformat()}
    if isinstance(value, timedelta):
        return {"timedelta": value // _MICROSECOND}
    if isinstance(value, Decimal):
        return {"Decimal": str(value)}
    return None


def _timedelta_of(microseconds: int) -> timedelta:
    return timedelta(microseconds=microseconds)


#: What makes the value of an object of :func:`_value_to_plain`, by its key.
_VALUES_FROM_PLAIN: Final[dict[str, Callable[[Any], Any]]] = {
    "datetime": datetime.fromisoformat,
    "time": time.fromisoformat,
    "timedelta": _timedelta_of,
    "Decimal": Decimal,
}

#: The classes of indexes by their kind.
_INDEXER_CLASSES: Final[dict[str, type[Indexer]]] = {
    SingleFieldIndexer.kind: SingleFieldIndexer,
    FieldNotNullIndexer.kind: FieldNotNullIndexer,
}
