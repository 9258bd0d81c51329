"""Finds the files, row groups and rows that a predicate selects, reading as little as it can."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.exception import ConfigError
from data_stack.formats.parquet.arrow_predicate import could_match, is_seen_otherwise, types_seen
from data_stack.formats.parquet.codecs.times import is_instant
from data_stack.formats.parquet.columns import CellError
from data_stack.formats.parquet.files import ParquetFiles, partition_names
from data_stack.formats.parquet.guarantees import conjunction, partition_guarantee
from data_stack.formats.parquet.partitions import partition_column
from data_stack.formats.parquet.predicates import Bools, Predicate, PredicateError, TypedColumns
from data_stack.formats.parquet.row_groups import RowGroups
from data_stack.formats.parquet.schema import Schema
from data_stack.formats.parquet.selection import Selection
from data_stack.io.job_threads import JobThreads
from data_stack.util.executor import n_threads

_Integers = npt.NDArray[np.int64]


class _SelectedRows(NamedTuple):
    """The selected rows of a row group, ascending, None for all; and their number."""

    rows: npt.NDArray[np.int32] | None
    n_rows: int


def files_that_could_match(
    files: ParquetFiles, schema: Schema, predicate: Predicate
) -> ParquetFiles:
    """Return the files that may have selected rows, by the names of their folders.

    At least one file stays.

    Args:
        files: of the dataset.
        schema: of the dataset.
        predicate: selects rows.

    Raises:
        DatasetFileCorruptError: the name of a folder is not a value of its field.
    """
    partitions: dict[str, npt.NDArray[Any]] = {}
    for name in partition_names(files.partitions):
        if name in predicate.fields and name in schema:
            partitions[name] = partition_column(schema[name], files)
    if not partitions:
        return files

    if len(partitions) == len(predicate.fields):  # it needs no other columns
        types = _types_not_told_by_values(schema, predicate)
        dtypes = {name: schema[name].dtype for name in partitions}
        is_match = predicate.mask(TypedColumns(partitions, types, dtypes=dtypes))
    elif predicate.bound is not None:
        is_match = _partitions_that_could_match(partitions, len(files.paths), schema, predicate)
    else:
        return files

    numbers = np.flatnonzero(is_match).tolist() or [0]
    if len(numbers) == len(files.paths):
        return files
    return replace(
        files,
        paths=tuple(files.paths[number] for number in numbers),
        partitions=tuple(files.partitions[number] for number in numbers),
    )


def _partitions_that_could_match(
    partitions: Mapping[str, npt.NDArray[Any]], n_files: int, schema: Schema, predicate: Predicate
) -> Bools:
    types = _types_seen_by(predicate, schema)
    alternatives = []
    for file in range(n_files):
        guarantee = conjunction(
            partition_guarantee(name, values[file], types) for name, values in partitions.items()
        )
        alternatives.append([guarantee])
    return could_match(predicate.bound, types, alternatives)


class RowSelector:
    """Selects rows of a dataset when they are first asked for. Threads may share it.

    Its pickle has the rows that a predicate selects; without a predicate they are found again.

    Args:
        groups: all row groups.
        chosen: the numbers of some of them, ascending.
        predicate: None selects all rows.

    Attributes:
        chosen: as given.
        predicate: as given.
    """

    def __init__(self, groups: RowGroups, chosen: _Integers, predicate: Predicate | None) -> None:
        self._groups = groups
        self.chosen = chosen
        self.predicate = predicate

    @functools.cached_property
    def selection(self) -> Selection:
        """The selected rows; raises as :func:`select_rows`."""
        return select_rows(self._groups, self.chosen, self.predicate)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        if self.predicate is None:
            state.pop("selection", None)
        return state


def select_rows(groups: RowGroups, chosen: _Integers, predicate: Predicate | None) -> Selection:
    """Select the rows of the chosen row groups for which a predicate is true.

    Row groups that partitions and statistics exclude are not read. Of the others, only the columns
    of the predicate are read.

    Args:
        groups: all row groups.
        chosen: the numbers of some of them, ascending.
        predicate: None selects all rows.

    Raises:
        DatasetFileCorruptError, StorageError: a row group cannot be read.
        ConfigError: the predicate failed.
    """
    n_rows = groups.footers.n_rows[chosen]
    chosen = chosen[n_rows > 0]
    n_rows = n_rows[n_rows > 0]
    if predicate is None:
        return Selection(chosen, (None,) * len(chosen), n_rows)
    if predicate.bound is not None:
        types = _types_seen_by(predicate, groups.schema)
        alternatives = [groups.guarantee_alternatives(group, types) for group in chosen.tolist()]
        chosen = chosen[could_match(predicate.bound, types, alternatives)]

    zones = _time_zones_of(groups, predicate)
    selected: dict[int, _SelectedRows] = {}

    def find_rows(group: int) -> None:
        mask = _mask_of_group(groups, group, predicate, zones)
        if mask.all():
            selected[group] = _SelectedRows(None, len(mask))
        elif mask.any():
            rows = np.flatnonzero(mask).astype(np.int32)
            selected[group] = _SelectedRows(rows, len(rows))

    JobThreads(chosen.tolist(), find_rows, n_threads()).run()

    groups_with_rows = sorted(selected)
    return Selection(
        np.array(groups_with_rows, np.int64),
        tuple(selected[group].rows for group in groups_with_rows),
        np.array([selected[group].n_rows for group in groups_with_rows], np.int64),
    )


def _mask_of_group(
    groups: RowGroups, group: int, predicate: Predicate, zones: Mapping[str, str]
) -> Bools:
    """Return which rows of a row group are selected, shape ``(n_rows,)``.

    Raises:
        ConfigError: the predicate failed; the message names the row.
    """
    columns = TypedColumns(
        _read_columns(groups, group, predicate),
        _types_not_told_by_values(groups.schema, predicate),
        dtypes={name: groups.schema[name].dtype for name in predicate.fields},
        zones=zones,
    )
    try:
        return predicate.mask(columns)
    except PredicateError as error:
        place = groups.footers.name_of(group)
        if error.row is not None:
            place = f"{place}, row {error.row}"
        raise ConfigError(f"{place}: {error.reason}") from error


def _read_columns(
    groups: RowGroups, group: int, predicate: Predicate
) -> dict[str, npt.NDArray[Any] | pa.Array]:
    """Read the columns that a predicate needs: cells of Arrow where it takes them, else values.

    Raises:
        DatasetFileCorruptError, StorageError: the row group cannot be read.
    """
    reader = groups.open(group, predicate.fields)
    columns: dict[str, npt.NDArray[Any] | pa.Array] = {}
    if predicate.takes_cells:
        for name in predicate.fields:
            cells = reader.comparable_cells(name)
            if cells is not None:
                columns[name] = cells
    all_rows = np.arange(groups.footers.n_rows[group], dtype=np.int64)
    names_of_values = [name for name in predicate.fields if name not in columns]
    for name, column in reader.columns(names_of_values).items():
        try:
            columns[name] = column.take(all_rows)
        except CellError as error:
            raise groups.damage_error(group, name, error) from error
    return columns


def _types_seen_by(predicate: Predicate, schema: Schema) -> pa.Schema:
    """The types by which the bound of a predicate sees its columns."""
    types = pa.schema([(name, schema[name].arrow_type()) for name in predicate.fields])
    return types_seen(predicate.bound, types)


def _types_not_told_by_values(schema: Schema, predicate: Predicate) -> dict[str, pa.DataType]:
    """The types of the columns of a predicate whose values do not tell them."""
    types = {name: schema[name].arrow_type() for name in predicate.fields}
    return {name: type_ for name, type_ in types.items() if is_seen_otherwise(type_)}


def _time_zones_of(groups: RowGroups, predicate: Predicate) -> dict[str, str]:
    """The time zones of the instants that a predicate needs, by name, as far as they are known."""
    instants = [name for name in predicate.fields if is_instant(groups.schema[name].arrow_type())]
    if not instants:
        return {}
    known_zones = groups.footers.time_zones
    return {name: known_zones[name] for name in instants if name in known_zones}
