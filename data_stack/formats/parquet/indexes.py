"""Row-group indexes: which row groups hold a value, and selectors that ask them.

Petastorm's indexes and selectors, with the same names and meaning, stored as JSON instead of as a pickle. Row groups are known by
their number: counted from 0 through all files of the dataset, which are sorted by path. A selector gives whole row groups; a
predicate picks the rows.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.parquet.pickled.values import PickledIndex
from data_stack.formats.parquet.plain_times import plain_time

__all__ = [
    "IntersectIndexSelector",
    "NotNullIndex",
    "RowGroupIndex",
    "RowGroupSelector",
    "SingleFieldIndex",
    "SingleIndexSelector",
    "UnionIndexSelector",
    "build_index",
    "from_json",
    "index_of_pickled",
    "to_json",
]

_IndexT = TypeVar("_IndexT", bound="RowGroupIndex")
_SingleT = TypeVar("_SingleT", bound="SingleFieldIndex")
_NotNullT = TypeVar("_NotNullT", bound="NotNullIndex")

_VERSION: Final = 1
#: One object for all, so that a dict finds it.
_NAN: Final = math.nan


@dataclass(frozen=True)
class RowGroupIndex(ABC):
    """Which row groups hold what of one field. Made with its name and field only, it is still to be built.

    Attributes:
        name: of the index.
        field: name of the field that is indexed.
    """

    name: str
    field: str

    @abstractmethod
    def row_groups_with(self, value: Any) -> Set[int]:
        """The numbers of the row groups with ``value``; empty where there is none."""

    @abstractmethod
    def built_from(self: _IndexT, column_values_by_row_group: Iterable[tuple[int, npt.NDArray[Any]]]) -> _IndexT:
        """The same index, built; see :func:`build_index`."""


@dataclass(frozen=True)
class SingleFieldIndex(RowGroupIndex):
    """Value → the row groups that hold it. Where a cell is an array, each element of it is a value.

    Attributes:
        row_groups: by plain Python value: str, bytes, bool, int, float, Decimal, date, datetime, time, timedelta; a
            numpy.datetime64 or numpy.timedelta64 if these cannot hold it exactly. Nulls are not in it.
    """

    row_groups: Mapping[Any, frozenset[int]] = dataclass_field(default_factory=dict)

    def row_groups_with(self, value: Any) -> Set[int]:
        """The numbers of the row groups with ``value``, which may be a numpy scalar.

        A field of float32 has other values than a field of float64: ask for ``numpy.float32(0.1)`` there.
        """
        found: set[int] = set()
        for spelling in _spellings(_plain_value(value)):
            found |= self.row_groups.get(spelling, frozenset())
        return found

    def built_from(self: _SingleT, column_values_by_row_group: Iterable[tuple[int, npt.NDArray[Any]]]) -> _SingleT:
        """The same index, built; see :func:`build_index`."""
        collected: dict[Any, set[int]] = {}
        for ordinal, column in column_values_by_row_group:
            for value in _distinct_values(column, self):
                collected.setdefault(value, set()).add(int(ordinal))
        return replace(self, row_groups=_shared(collected.items()))


@dataclass(frozen=True)
class NotNullIndex(RowGroupIndex):
    """The row groups in which at least one cell of the field is not null.

    Attributes:
        row_groups: their numbers.
    """

    row_groups: frozenset[int] = frozenset()

    def row_groups_with(self, value: Any = None) -> Set[int]:
        """The numbers of the row groups with any value; ``value`` does not matter, as in Petastorm."""
        return self.row_groups

    def built_from(self: _NotNullT, column_values_by_row_group: Iterable[tuple[int, npt.NDArray[Any]]]) -> _NotNullT:
        """The same index, built; see :func:`build_index`."""
        return replace(
            self, row_groups=frozenset(int(ordinal) for ordinal, column in column_values_by_row_group if _has_value(column))
        )


def build_index(column_values_by_row_group: Iterable[tuple[int, npt.NDArray[Any]]], index: _IndexT) -> _IndexT:
    """Build an index from the decoded values of its field.

    Args:
        column_values_by_row_group: for each row group its number and its column, shape ``(n_rows, ...)``; an object array has
            None where a cell is null, and may hold an array in each cell. A row group may come in several parts.
        index: name and field, e.g. ``SingleFieldIndex("by_vehicle", "vehicle")``; what it holds already is not kept.

    Raises:
        ConfigError: the field has values that cannot be looked up, e.g. dicts.
    """
    return index.built_from(column_values_by_row_group)


# Values


def _plain_value(value: Any) -> Any:
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return plain_time(value)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and math.isnan(value):
        return _NAN
    return value


def _spellings(value: Any) -> Iterator[Any]:
    # A day is midnight, whichever of them the field holds.
    yield value
    if isinstance(value, datetime):
        if value.tzinfo is None and value.time() == time():
            yield value.date()
    elif isinstance(value, date):
        yield datetime.combine(value, time())


def _distinct_values(column: npt.NDArray[Any], index: RowGroupIndex) -> Iterator[Any]:
    if column.dtype != object:
        for value in np.unique(column):
            if not _is_no_time(value):
                yield _plain_value(value)
        return
    for cell in column.flat:
        if isinstance(cell, np.ndarray):
            yield from _distinct_values(cell, index)
        elif isinstance(cell, (list, tuple)):
            yield from _distinct_values(_object_array(cell), index)
        elif cell is not None and not _is_no_time(cell):
            value = _plain_value(cell)
            if _kind_of(value) is None:
                raise ConfigError(
                    f"the row-group index {index.name!r} cannot hold the field {index.field!r}: {type(cell).__name__} "
                    f"cannot be looked up; it holds {', '.join(_KINDS)}. Index another field, or use a predicate."
                )
            yield value


def _object_array(cells: Sequence[Any]) -> npt.NDArray[np.object_]:
    array = np.empty(len(cells), dtype=object)
    array[:] = cells
    return array


def _is_no_time(value: Any) -> bool:
    return isinstance(value, (np.datetime64, np.timedelta64)) and bool(np.isnat(value))


def _has_value(column: npt.NDArray[Any]) -> bool:
    return column.shape[0] > 0 and (column.dtype != object or any(cell is not None for cell in column.flat))


def _shared(items: Iterable[tuple[Any, Iterable[int]]]) -> dict[Any, frozenset[int]]:
    # A million values are in a few row groups each: the sets are few.
    sets: dict[frozenset[int], frozenset[int]] = {}
    row_groups = {}
    for value, ordinals in items:
        frozen = frozenset(ordinals)
        row_groups[value] = sets.setdefault(frozen, frozen)
    return row_groups


# Selectors


class RowGroupSelector(ABC):
    """Chooses row groups by what indexes say."""

    @property
    @abstractmethod
    def index_names(self) -> tuple[str, ...]:
        """The indexes that are asked."""

    @abstractmethod
    def select(self, indexes: Mapping[str, RowGroupIndex]) -> set[int]:
        """The numbers of the row groups to read.

        Args:
            indexes: those of the dataset, by name.

        Raises:
            ConfigError: the dataset has no index of that name.
        """


class SingleIndexSelector(RowGroupSelector):
    """The row groups that hold any of ``values``, by the index ``index_name``.

    Args:
        index_name: a single-field index, or a not-null index, for which the values do not matter.
        values: a list, also for a single value.
    """

    def __init__(self, index_name: str, values: Collection[Any] = ()) -> None:
        if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
            raise ConfigError(f"SingleIndexSelector({index_name!r}, {values!r}): give the values as a list, [{values!r}]")
        self._index_name, self._values = index_name, tuple(values)

    @property
    def index_names(self) -> tuple[str, ...]:
        """The index that is asked."""
        return (self._index_name,)

    def select(self, indexes: Mapping[str, RowGroupIndex]) -> set[int]:
        """The numbers of the row groups that hold any of the values."""
        index = indexes.get(self._index_name)
        if index is None:
            existing = ", ".join(map(repr, sorted(indexes)))
            raise ConfigError(
                f"the dataset has no row-group index {self._index_name!r}; "
                + (f"it has {existing}" if existing else "it has none, build one or use a predicate")
            )
        if isinstance(index, NotNullIndex):
            return set(index.row_groups)
        found: set[int] = set()
        for value in self._values:
            found |= index.row_groups_with(value)
        return found

    def __repr__(self) -> str:
        return f"SingleIndexSelector({self._index_name!r}, {list(self._values)!r})"


class _CombinedSelector(RowGroupSelector):
    def __init__(self, selectors: Iterable[RowGroupSelector]) -> None:
        self._selectors = tuple(selectors)
        if not self._selectors:
            raise ConfigError(f"{type(self).__name__} needs at least one selector")

    @property
    def index_names(self) -> tuple[str, ...]:
        """The indexes that are asked, each once."""
        return tuple(dict.fromkeys(name for selector in self._selectors for name in selector.index_names))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self._selectors)!r})"


class IntersectIndexSelector(_CombinedSelector):
    """The row groups that every one of several selectors chooses."""

    def select(self, indexes: Mapping[str, RowGroupIndex]) -> set[int]:
        """The numbers of the row groups that all selectors choose."""
        return set.intersection(*(selector.select(indexes) for selector in self._selectors))


class UnionIndexSelector(_CombinedSelector):
    """The row groups that at least one of several selectors chooses."""

    def select(self, indexes: Mapping[str, RowGroupIndex]) -> set[int]:
        """The numbers of the row groups that any selector chooses."""
        return set.union(*(selector.select(indexes) for selector in self._selectors))


# As JSON


def to_json(indexes: Iterable[RowGroupIndex] | Mapping[str, RowGroupIndex]) -> str:
    """Write indexes as one JSON text; its values are sorted, in whatever order they were met.

    ``{"version": 1, "indexes": [{"kind": "single_field", "name": …, "field": …, "values": {"str": [["car_1", [0, 3]], …]}}]}``:
    values stand under the name of their type, so 1, true, "1" and the bytes of "1" differ.

    Raises:
        ConfigError: two indexes have one name, or a value is of a type that cannot be stored.
    """
    all_indexes = list(indexes.values() if isinstance(indexes, Mapping) else indexes)
    names = [index.name for index in all_indexes]
    if len(set(names)) != len(names):
        raise ConfigError(f"two row-group indexes have the same name: {names}")
    return json.dumps({"version": _VERSION, "indexes": [_document(index) for index in all_indexes]})


def from_json(text: str | bytes) -> dict[str, SingleFieldIndex | NotNullIndex]:
    """Read the indexes that :func:`to_json` wrote, by name.

    Raises:
        DatasetFileCorruptError: the text is no such JSON, or of a later version.
    """
    try:
        document = json.loads(text)
        if document["version"] != _VERSION:
            raise DatasetFileCorruptError(
                f"the row-group indexes are of version {document['version']!r}, this data_stack reads {_VERSION}; update it"
            )
        return {index.name: index for index in map(_index_of_document, document["indexes"])}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError, InvalidOperation) as error:
        raise DatasetFileCorruptError(
            f"the row-group indexes of the dataset are damaged ({type(error).__name__}: {error}); build them again"
        ) from error


def _document(index: RowGroupIndex) -> dict[str, Any]:
    if isinstance(index, NotNullIndex):
        return {"kind": "not_null", "name": index.name, "field": index.field, "row_groups": sorted(index.row_groups)}
    if not isinstance(index, SingleFieldIndex):
        raise ConfigError(f"{type(index).__name__} is no kind of row-group index that is stored")
    values: dict[str, list[tuple[Any, list[int]]]] = {}
    for value, ordinals in index.row_groups.items():
        kind = _kind_of(value)
        if kind is None:
            raise ConfigError(f"the row-group index {index.name!r} holds {value!r}, which cannot be stored as JSON")
        values.setdefault(kind, []).append((_KINDS[kind].written(value), sorted(ordinals)))
    ordered = {kind: sorted(values[kind], key=lambda pair: (str(type(pair[0])), pair[0])) for kind in sorted(values)}
    return {"kind": "single_field", "name": index.name, "field": index.field, "values": ordered}


def _index_of_document(document: dict[str, Any]) -> SingleFieldIndex | NotNullIndex:
    name, field_name, kind = document["name"], document["field"], document["kind"]
    if not isinstance(name, str) or not isinstance(field_name, str):
        raise TypeError("an index without a name or field")
    if kind == "not_null":
        return NotNullIndex(name, field_name, _ordinals(document["row_groups"]))
    if kind != "single_field":
        raise ValueError(f"an index of the unknown kind {kind!r}")
    pairs = (
        (_KINDS[kind_of_value].read(value), _ordinals(ordinals))
        for kind_of_value, values in document["values"].items()
        for value, ordinals in values
    )
    return SingleFieldIndex(name, field_name, _shared(pairs))


def _ordinals(ordinals: list[int]) -> frozenset[int]:
    if any(type(ordinal) is not int or ordinal < 0 for ordinal in ordinals):
        raise TypeError("row groups that are no list of numbers")
    return frozenset(ordinals)


@dataclass(frozen=True)
class _Kind:
    type: type
    written: Callable[[Any], Any]
    read: Callable[[Any], Any]


def _exactly(expected: type) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if type(value) is not expected:
            raise TypeError(f"{value!r} where a {expected.__name__} belongs")
        return value

    return read


def _written_float(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)  # JSON has no NaN and no infinity


def _read_float(value: float | str) -> float:
    if isinstance(value, str) and value not in ("nan", "inf", "-inf"):
        raise ValueError(f"{value!r} where a number belongs")
    number = float(value)
    return _NAN if math.isnan(number) else number


def _read_bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"{text!r} is no Base64") from error


def _written_numpy_time(value: np.datetime64 | np.timedelta64) -> list[Any]:
    unit, count = np.datetime_data(value.dtype)
    return [int(value.astype(np.int64)), unit, count]


_TIME_UNITS = frozenset({"Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as"})


def _numpy_time(code: str) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        number, unit, count = value
        if type(number) is not int or unit not in _TIME_UNITS or type(count) is not int or not 1 <= count < 2**31:
            raise ValueError(f"{value!r} is no time")
        return np.array(number, np.int64).astype(f"{code}[{count}{unit}]")[()]

    return read


#: By name; the order matters, since a bool is an int and a datetime a date.
_KINDS: dict[str, _Kind] = {
    "str": _Kind(str, str, _exactly(str)),
    "bool": _Kind(bool, bool, _exactly(bool)),
    "int": _Kind(int, int, _exactly(int)),
    "float": _Kind(float, _written_float, _read_float),
    "bytes": _Kind(bytes, lambda value: base64.b64encode(value).decode("ascii"), _read_bytes),
    "Decimal": _Kind(Decimal, str, lambda value: Decimal(_exactly(str)(value))),
    "datetime": _Kind(datetime, datetime.isoformat, datetime.fromisoformat),
    "date": _Kind(date, date.isoformat, date.fromisoformat),
    "time": _Kind(time, time.isoformat, time.fromisoformat),
    "timedelta": _Kind(
        timedelta, lambda value: value // timedelta(microseconds=1), lambda value: timedelta(microseconds=_exactly(int)(value))
    ),
    "datetime64": _Kind(np.datetime64, _written_numpy_time, _numpy_time("M8")),
    "timedelta64": _Kind(np.timedelta64, _written_numpy_time, _numpy_time("m8")),
}


def _kind_of(value: Any) -> str | None:
    return next((name for name, kind in _KINDS.items() if isinstance(value, kind.type)), None)


# As Petastorm's


def index_of_pickled(index: PickledIndex) -> SingleFieldIndex | NotNullIndex:
    """The index that Petastorm stored, as read by :func:`~data_stack.formats.parquet.pickled.read_pickled_indexes`."""
    if index.kind == "not_null":
        return NotNullIndex(index.name, index.column, index.ordinals)
    return SingleFieldIndex(
        index.name, index.column, {_plain_value(value): ordinals for value, ordinals in index.row_groups.items()}
    )
