"""Row-group indexes, which record the row groups that hold a value, and selectors that use them.

They have the names and meaning of Petastorm's, but are stored as JSON instead of pickles. The number of a row group counts from 0
through all files of the dataset, sorted by path. A selector selects whole row groups; a predicate selects rows.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.codecs.plain_data import canonical_json, from_plain, shorten, to_plain
from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.parquet.files import find_files
from data_stack.formats.parquet.footers import Footers
from data_stack.formats.parquet.inference import read_schema
from data_stack.formats.parquet.metadata import INDEXES_KEY, write_metadata
from data_stack.formats.parquet.petastorm_metadata import PICKLED_INDEXES_KEY, UNISCHEMA_KEY
from data_stack.formats.parquet.pickled import read_pickled_indexes, write_pickled_indexes
from data_stack.formats.parquet.pickled.values import PickledIndex
from data_stack.formats.parquet.plain_times import plain_time
from data_stack.formats.parquet.row_groups import RowGroups
from data_stack.formats.parquet.schema import Schema
from data_stack.util.suggestions import did_you_mean
from data_stack.util.untrusted_text import parse_json

#: One object, so that a dict finds it.
_NAN: Final = math.nan


@dataclass(frozen=True)
class RowGroupIndex(ABC):
    """The row groups that hold each value of a field. With only a name and a field, the index is not built yet.

    Attributes:
        name: of the index.
        field: name of the indexed field.
        row_groups: by plain Python value: str, bytes, bool, int, float, Decimal, datetime, time, timedelta; a numpy.datetime64 or
            numpy.timedelta64 if these cannot hold it exactly. A day is its midnight. Nulls are not indexed.
    """

    name: str
    field: str
    row_groups: Mapping[Any, frozenset[int]] = dataclass_field(default_factory=dict)

    def row_groups_with(self, value: Any) -> Set[int]:
        """The numbers of the row groups that contain ``value``, which may be a numpy scalar.

        A field of float32 has other values than a field of float64: ask for ``numpy.float32(0.1)`` there.
        """
        return self.row_groups.get(_plain_value(value), frozenset())

    def build(self, columns: Iterable[tuple[int, npt.NDArray[Any]]]) -> RowGroupIndex:
        """Build the index from the decoded values of its field.

        Args:
            columns: for each row group its number and its column, shape ``(n_rows, ...)``; an object array has None where a cell
                is null, and may hold an array in each cell.

        Raises:
            ConfigError: the field has values that cannot be looked up, e.g. dicts.
        """
        try:
            found = _by_value((value, [group]) for group, column in columns for value in self._values_in(column))
        except TypeError as error:
            raise ConfigError(f"the row-group index {self.name!r} cannot hold the field {self.field!r}: {error}") from error
        return replace(self, row_groups=found)

    @abstractmethod
    def _values_in(self, column: npt.NDArray[Any]) -> Iterator[Any]:
        """The values of a column to index."""

    def to_json(self) -> dict[str, Any]:
        """The plain data that :func:`index_of_json` reads; its values are sorted."""
        pairs = [[to_plain(value, _as_text), sorted(groups)] for value, groups in self.row_groups.items()]
        values = sorted(pairs, key=canonical_json)
        return {"kind": type(self).__name__, "name": self.name, "field": self.field, "values": values}


class SingleFieldIndex(RowGroupIndex):
    """The row groups that hold each value. Of an array, each element is a value."""

    def _values_in(self, column: npt.NDArray[Any]) -> Iterator[Any]:
        for cell in column.flat if column.dtype == object else np.unique(column):
            if isinstance(cell, (np.ndarray, list, tuple)):
                yield from self._values_in(np.array(cell, dtype=object) if not isinstance(cell, np.ndarray) else cell)
            elif cell is not None and not (isinstance(cell, (np.datetime64, np.timedelta64)) and np.isnat(cell)):
                yield cell


class NotNullIndex(RowGroupIndex):
    """The row groups with at least one cell that is not null, stored under the value True."""

    def row_groups_with(self, value: Any = None) -> Set[int]:
        """The numbers of the row groups with any value; ``value`` is ignored, as in Petastorm."""
        return super().row_groups_with(True)

    def _values_in(self, column: npt.NDArray[Any]) -> Iterator[Any]:
        if any(cell is not None for cell in column.flat):
            yield True


def _plain_value(value: Any) -> Any:
    if isinstance(value, (np.datetime64, np.timedelta64)):
        value = plain_time(value)
    elif isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime.combine(value, time())
    return _NAN if isinstance(value, float) and math.isnan(value) else value


def _by_value(pairs: Iterable[tuple[Any, Iterable[int]]]) -> dict[Any, frozenset[int]]:
    found: dict[Any, set[int]] = {}
    for value, groups in pairs:
        found.setdefault(_plain_value(value), set()).update(groups)
    sets: dict[frozenset[int], frozenset[int]] = {}  # a million values share few different sets
    frozen = ((value, frozenset(groups)) for value, groups in found.items())
    return {value: sets.setdefault(groups, groups) for value, groups in frozen}


# Selectors


class SingleIndexSelector:
    """The row groups that hold any of ``values``, by the index ``index_name``.

    Args:
        index_name: a single-field index, or a not-null index, which ignores the values.
        values: a list, also for a single value.
    """

    def __init__(self, index_name: str, values: Collection[Any] = ()) -> None:
        if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
            raise ConfigError(f"SingleIndexSelector({index_name!r}, {values!r}): pass the values as a list, [{values!r}]")
        self._index_name, self._values = index_name, tuple(values)

    def select(self, indexes: Mapping[str, RowGroupIndex]) -> set[int]:
        """The numbers of the row groups that hold any of the values.

        Raises:
            ConfigError: the dataset has no index with this name.
        """
        name = self._index_name
        index = indexes.get(name)
        if index is None:
            existing = ", ".join(map(repr, sorted(indexes))) or "no indexes: build one, or use a predicate"
            raise ConfigError(f"the dataset has no row-group index {name!r}{did_you_mean(name, indexes)}; it has {existing}")
        values = self._values or (None,) * isinstance(index, NotNullIndex)
        return {group for value in values for group in index.row_groups_with(value)}


class _CombinedSelector:
    _combined: Callable[..., set[int]]

    def __init__(self, selectors: Iterable[Any]) -> None:
        self._selectors = tuple(selectors)
        if not self._selectors:
            raise ConfigError(f"{type(self).__name__} needs at least one selector")

    def select(self, indexes: Mapping[str, RowGroupIndex]) -> set[int]:
        """The numbers of the row groups to read."""
        return type(self)._combined(*(selector.select(indexes) for selector in self._selectors))


class IntersectIndexSelector(_CombinedSelector):
    """The row groups that all of several selectors select."""

    _combined = set.intersection


class UnionIndexSelector(_CombinedSelector):
    """The row groups that at least one of several selectors selects."""

    _combined = set.union


# As JSON, and as Petastorm's


def index_of_json(data: Any) -> RowGroupIndex:
    """The index that :meth:`RowGroupIndex.to_json` described.

    Raises:
        ValueError, TypeError, KeyError, ArithmeticError: the data is invalid.
    """
    kind, name, field = data["kind"], data["name"], data["field"]
    if kind not in ("SingleFieldIndex", "NotNullIndex") or not isinstance(name, str) or not isinstance(field, str):
        raise TypeError(f"an index without a kind, name or field: {shorten(kind)}")
    pairs = [(from_plain(value, _OF_TEXT), groups) for value, groups in data["values"]]
    if any(type(group) is not int or group < 0 for _, groups in pairs for group in groups):
        raise TypeError("row groups must be a list of numbers")
    return (NotNullIndex if kind == "NotNullIndex" else SingleFieldIndex)(name, field, _by_value(pairs))


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


def index_of_pickled(index: PickledIndex) -> RowGroupIndex:
    """The index that Petastorm stored, as read by :func:`~data_stack.formats.parquet.pickled.read_pickled_indexes`."""
    if index.kind == "not_null":
        return NotNullIndex(index.name, index.column, {True: index.ordinals})
    return SingleFieldIndex(index.name, index.column, _by_value(index.row_groups.items()))


def build_indexes(
    source: Any, indexes: Iterable[RowGroupIndex], *, prefix: str = "", filesystem: Any = None
) -> dict[str, RowGroupIndex]:
    """Build row-group indexes of a dataset, and store them in its metadata, where selectors find them.

    ::

        build_indexes("frames", [SingleFieldIndex("vehicle", "vehicle"), NotNullIndex("with_events", "events")])
        ParquetDataset("frames", row_groups=SingleIndexSelector("vehicle", ["car 7"]))

    Only the indexed columns are read. Existing indexes with other names are kept if they are up to date. Where Petastorm can read
    the dataset, it finds the indexes, too, except those of times, which it does not unpickle.

    Args:
        source: as for :class:`ParquetDataset`.
        indexes: names and fields.
        prefix: folder below ``source``.
        filesystem: of pyarrow or fsspec, in which ``source`` is a path.

    Returns:
        All indexes of the dataset, by name.

    Raises:
        ConfigError: the dataset has no such field, or one whose values cannot be looked up.
        DatasetFileCorruptError, StorageError: the dataset cannot be read, or its metadata cannot be written.
    """
    indexes = list(indexes)
    footers = Footers(find_files(source, prefix, filesystem=filesystem))
    if footers.files.given:
        raise ConfigError("indexes belong to a whole dataset: pass its folder, not a file or a list of files")
    schema = read_schema(footers)
    built = make_indexes(footers, schema, indexes)
    kept: dict[str, RowGroupIndex] = {}
    with contextlib.suppress(ConfigError, DatasetFileCorruptError):  # of other row groups, or damaged
        kept = read_indexes(footers)
    kept.update(built)
    metadata = {**footers.metadata, **index_metadata(kept, footers, for_petastorm=UNISCHEMA_KEY in footers.metadata)}
    arrow_schema = footers.arrow_schema.with_metadata(metadata)
    write_metadata(footers.files.folder, arrow_schema, footers.files.paths, footers.manifest)
    return kept


def make_indexes(footers: Footers, schema: Schema, indexes: Sequence[RowGroupIndex]) -> dict[str, RowGroupIndex]:
    """Indexes of a dataset, by name.

    Raises:
        ConfigError: the dataset lacks a field, or two indexes have the same name.
    """
    names = [index.name for index in indexes]
    if len(set(names)) != len(names):
        raise ConfigError(f"two indexes have the same name: {', '.join(map(repr, names))}")
    for index in indexes:
        schema[index.field]
    row_groups = RowGroups(footers, schema)
    return {index.name: index.build(_columns(row_groups, index.field)) for index in indexes}


def _columns(row_groups: RowGroups, name: str) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    for group in range(len(row_groups)):
        column = row_groups.read(group, [name])[name]
        yield group, column.take(np.arange(len(column), dtype=np.int64))


def read_indexes(footers: Footers) -> dict[str, RowGroupIndex]:
    """The indexes of a dataset, by name: ours, or else Petastorm's.

    Raises:
        ConfigError: the indexes are out of date: the row groups have changed.
        DatasetFileCorruptError: the indexes are damaged, or hostile.
    """
    metadata: Mapping[bytes, bytes] = footers.beside.metadata if footers.beside is not None else {}
    if INDEXES_KEY in metadata:
        return _parse(metadata[INDEXES_KEY], footers)
    if PICKLED_INDEXES_KEY not in metadata:
        return {}
    pickled = read_pickled_indexes(metadata[PICKLED_INDEXES_KEY])
    found: dict[str, RowGroupIndex] = {name: index_of_pickled(index) for name, index in pickled.items()}
    # Petastorm's do not record their row groups; a number out of range shows that they are out of date.
    last = max((max(groups, default=-1) for index in found.values() for groups in index.row_groups.values()), default=-1)
    if last >= len(footers):
        raise ConfigError(
            f"Petastorm's row-group indexes of {footers.files.folder.name} name row group {last}, but the dataset has "
            f"{len(footers)}: {_ADVICE}"
        )
    return found


def indexes_json(indexes: Mapping[str, RowGroupIndex], footers: Footers) -> bytes:
    """Indexes as they are stored, with the layout of the dataset.

    ``{"version": 3, "layout": …, "indexes": [{"kind": …, "name": …, "field": …, "values": [["car_1", [0, 3]], …]}]}``.
    """
    stored = [index.to_json() for index in indexes.values()]
    return json.dumps({"version": _VERSION, "layout": _layout(footers), "indexes": stored}).encode()


#: Types of values that Petastorm unpickles; it does not unpickle times.
_UNPICKLED: Final = (str, bytes, int, float, Decimal)


def index_metadata(indexes: Mapping[str, RowGroupIndex], footers: Footers, *, for_petastorm: bool) -> dict[bytes, bytes]:
    """Key-value metadata by which selectors, and Petastorm if wanted, find indexes."""
    metadata = {INDEXES_KEY: indexes_json(indexes, footers)}
    if for_petastorm:
        found = {}
        for name, index in indexes.items():
            pickled = (
                PickledIndex(name, "not_null", index.field, ordinals=frozenset(index.row_groups_with(True)))
                if isinstance(index, NotNullIndex)
                else PickledIndex(name, "single_field", index.field, row_groups=index.row_groups)
            )
            if all(isinstance(value, _UNPICKLED) for value in index.row_groups):
                found[name] = pickled
        metadata[PICKLED_INDEXES_KEY] = write_pickled_indexes(found)
    return metadata


_VERSION: Final = 3
_ADVICE: Final = "the dataset has changed. Rebuild them: build_indexes(source, indexes)"


def _parse(data: bytes, footers: Footers) -> dict[str, RowGroupIndex]:
    try:
        content = parse_json(data)
        if content.get("version") != _VERSION:
            raise ValueError(f"of version {content.get('version')!r:.20}, not {_VERSION}")
        layout, indexes = content["layout"], [index_of_json(each) for each in content["indexes"]]
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError) as error:
        raise DatasetFileCorruptError(
            f"the row-group indexes of {footers.files.folder.name} are damaged, or of another version of data_stack: "
            f"{error!s:.200}. Rebuild them: build_indexes(source, indexes)"
        ) from error
    if layout != _layout(footers):
        raise ConfigError(
            f"the row-group indexes of {footers.files.folder.name} do not match its files and row groups: {_ADVICE}"
        )
    return {index.name: index for index in indexes}


def _layout(footers: Footers) -> str:
    """A digest of the row groups of all files, with the statistics and offsets in their footers."""
    digest = hashlib.sha256()
    for number, path in enumerate(footers.files.paths):
        rows = footers.n_rows[footers.file_of == number].tolist()
        digest.update(json.dumps([path, rows, footers.digest(number)]).encode())
    return digest.hexdigest()
