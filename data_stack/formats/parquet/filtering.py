"""Finds the rows that a predicate selects, and reads as little as possible for it."""

from __future__ import annotations

import functools
import threading
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
from data_stack.util.forks import fork_lock

#: Numbers of row groups, or of rows.
_Integers = npt.NDArray[np.int64]


class _SelectedRows(NamedTuple):
    """The selected rows of a row group.

    Attributes:
        rows: positions in the row group, ascending; None if all rows are selected.
        n_rows: the number of selected rows.
    """

    rows: npt.NDArray[np.int32] | None
    n_rows: int


def files_that_could_match(
    files: ParquetFiles, schema: Schema, predicate: Predicate
) -> ParquetFiles:
    """Return the files that may have selected rows, judged by their partitions.

    No file is opened. The first file remains if no other does, as a dataset needs a file.

    Args:
        files: the files of the dataset.
        schema: the schema of the dataset.
        predicate: selects rows.

    Returns:
        The files that remain; ``files`` itself if all do.

    Raises:
        DatasetFileCorruptError: the name of a folder is not a value of its field.
        ConfigError: the predicate failed for the partitions.
    """
    partitions: dict[str, npt.NDArray[Any]] = {}
    for name in partition_names(files.partitions):
        if name in predicate.fields and name in schema:
            partitions[name] = partition_column(schema[name], files)
    if not partitions:
        return files

    needs_only_partitions = len(partitions) == len(predicate.fields)
    if needs_only_partitions:
        is_match = _files_that_match(files, partitions, schema, predicate)
    elif predicate.bound is not None:
        is_match = _files_not_excluded(files, partitions, schema, predicate)
    else:
        return files

    numbers = np.flatnonzero(is_match).tolist()
    if not numbers:
        numbers = [0]
    if len(numbers) == files.n_files:
        return files
    return replace(
        files,
        paths=tuple(files.paths[number] for number in numbers),
        partitions=tuple(files.partitions[number] for number in numbers),
    )


def _files_that_match(
    files: ParquetFiles,
    partitions: Mapping[str, npt.NDArray[Any]],
    schema: Schema,
    predicate: Predicate,
) -> Bools:
    """Return the files whose rows a predicate on partition columns alone selects.

    Args:
        files: the files of the dataset.
        partitions: the partition columns by name, with a value for each file.
        schema: the schema of the dataset.
        predicate: selects rows.

    Returns:
        Bools, shape ``(n_files,)``.

    Raises:
        ConfigError: the predicate failed; the message names the file.
    """
    columns = TypedColumns(
        partitions,
        _types_not_inferred(schema, predicate),
        dtypes={name: schema[name].dtype for name in partitions},
    )
    try:
        return predicate.mask(columns)
    except PredicateError as error:
        if error.row is None:  # The message concerns all values.
            raise
        raise ConfigError(f"partition of {files.name(error.row)}: {error.reason}") from error


def _files_not_excluded(
    files: ParquetFiles,
    partitions: Mapping[str, npt.NDArray[Any]],
    schema: Schema,
    predicate: Predicate,
) -> Bools:
    """Return the files that the partitions do not exclude, although other columns decide, too.

    The arguments and the result are those of :func:`_files_that_match`.
    """
    types = _types_seen_by(predicate, schema)
    alternatives = []
    for file in range(files.n_files):
        guarantees = []
        for name, values in partitions.items():
            guarantees.append(partition_guarantee(name, values[file], types))
        alternatives.append([conjunction(guarantees)])
    return could_match(predicate.bound, types, alternatives)


class RowSelector:
    """Selects the rows of a dataset at the first access to :attr:`selection`.

    Threads may share it. If there is a predicate, its pickle contains the selected rows, so that
    another process need not read the columns of the predicate again.

    Args:
        groups: all row groups.
        chosen: the numbers of the row groups to select rows from, ascending.
        predicate: selects rows; None selects all.

    Attributes:
        chosen: the numbers of these row groups, ascending.
        predicate: selects rows; None selects all.
    """

    chosen: _Integers
    predicate: Predicate | None

    _groups: RowGroups
    #: The selected rows; None before they are first asked for.
    _selection: Selection | None
    #: Held by the thread that selects the rows.
    _selecting: threading.Lock

    def __init__(self, groups: RowGroups, chosen: _Integers, predicate: Predicate | None) -> None:
        self._groups = groups
        self.chosen = chosen
        self.predicate = predicate
        self._selection = None
        self._selecting = fork_lock()

    # A cached property, because it is asked for each sample.
    @functools.cached_property
    def selection(self) -> Selection:
        """The selected rows.

        The first access finds them. It raises what :func:`select_rows` raises.
        """
        # One thread reads the columns of the predicate, while the others wait.
        with self._selecting:
            if self._selection is None:
                self._selection = select_rows(self._groups, self.chosen, self.predicate)
            return self._selection

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        state.pop("selection", None)
        del state["_selecting"]
        if self.predicate is None:
            # All rows are quickly found again, and the numbers of the row groups may be many.
            state["_selection"] = None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._selecting = fork_lock()


def select_rows(groups: RowGroups, chosen: _Integers, predicate: Predicate | None) -> Selection:
    """Select the rows of the chosen row groups for which a predicate is true.

    A row group that its partition or its statistics exclude is not read. Of the others, only the
    columns of the predicate are read, by several threads.

    Args:
        groups: all row groups.
        chosen: the numbers of the row groups to select rows from, ascending.
        predicate: selects rows; None selects all.

    Returns:
        The selected rows. Row groups without selected rows are left out.

    Raises:
        DatasetFileCorruptError: a row group is damaged.
        StorageError: a row group cannot be read.
        ConfigError: the predicate failed; the message names the file.
    """
    n_rows_of_chosen = groups.footers.n_rows[chosen]
    with_rows = chosen[n_rows_of_chosen > 0]
    if predicate is None:
        all_rows = (None,) * len(with_rows)
        return Selection(with_rows, all_rows, groups.footers.n_rows[with_rows])

    candidates = with_rows
    if predicate.bound is not None:
        types = _types_seen_by(predicate, groups.schema)
        alternatives = [groups.guarantee_alternatives(group, types) for group in with_rows.tolist()]
        candidates = with_rows[could_match(predicate.bound, types, alternatives)]

    zones = _time_zones_of(groups, predicate)
    selected: dict[int, _SelectedRows] = {}  # by the number of the row group; threads add to it

    def find_rows(group: int) -> None:
        mask = _mask_of_group(groups, group, predicate, zones)
        if mask.all():
            selected[group] = _SelectedRows(None, len(mask))
        elif mask.any():
            rows = np.flatnonzero(mask).astype(np.int32)
            selected[group] = _SelectedRows(rows, len(rows))

    JobThreads(candidates.tolist(), find_rows, n_threads()).run()

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

    Args:
        groups: all row groups.
        group: the number of the row group.
        predicate: selects rows.
        zones: the time zones of the columns of the predicate, see :func:`_time_zones_of`.

    Raises:
        DatasetFileCorruptError: the row group is damaged.
        StorageError: the row group cannot be read.
        ConfigError: the predicate failed; the message names file, row group and row.
    """
    columns = TypedColumns(
        _read_columns(groups, group, predicate),
        _types_not_inferred(groups.schema, predicate),
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
    """Read the columns of a row group that a predicate needs.

    Returns:
        The columns by name, with all rows. A column whose cells Arrow compares as Python compares
        the values has cells, if the predicate takes them. Others have values, shape ``(n, ...)``.

    Raises:
        DatasetFileCorruptError: the row group is damaged.
        StorageError: the row group cannot be read.
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
    """Return the columns of a predicate with the types as which its expression sees them.

    The predicate has an expression, ``predicate.bound``.
    """
    stored_types = [(name, schema[name].arrow_type()) for name in predicate.fields]
    return types_seen(predicate.bound, pa.schema(stored_types))


def _types_not_inferred(schema: Schema, predicate: Predicate) -> dict[str, pa.DataType]:
    """Return the stored types that pyarrow would not infer from the values, by column name.

    Only columns of the predicate are returned.
    """
    types = {}
    for name in predicate.fields:
        type_ = schema[name].arrow_type()
        if is_seen_otherwise(type_):
            types[name] = type_
    return types


def _time_zones_of(groups: RowGroups, predicate: Predicate) -> dict[str, str]:
    """Return the time zones of the instants that a predicate needs, by column name.

    The first file states them. Columns without a zone are left out.
    """
    instants = [name for name in predicate.fields if is_instant(groups.schema[name].arrow_type())]
    if not instants:  # The schema of the file need not be read.
        return {}
    known_zones = groups.footers.time_zones
    return {name: known_zones[name] for name in instants if name in known_zones}
