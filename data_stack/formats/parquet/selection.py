"""Chooses the files, row groups and rows of a dataset, without reading more than a filter needs."""

from __future__ import annotations

import bisect
import functools
import operator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.exception import ConfigError
from data_stack.formats.parquet import selecting
from data_stack.formats.parquet.columns import CellError
from data_stack.formats.parquet.files import ParquetFiles, partition_names
from data_stack.formats.parquet.row_groups import (
    GroupReading,
    RowGroups,
    partition_column,
    partition_guarantee,
)
from data_stack.formats.parquet.schema import Schema
from data_stack.formats.parquet.selecting import Predicate, PredicateError
from data_stack.io.job_threads import JobThreads
from data_stack.util.executor import n_threads
from data_stack.util.intervals import Intervals

_Integers = npt.NDArray[np.int64]
Places = npt.NDArray[np.intp]


class Selection:
    """The selected rows, in the order of their row groups. It is immutable.

    Args:
        groups: the row groups with selected rows, ascending, shape ``(n_blocks,)``.
        rows: the selected rows of each row group, ascending; None for all.
        lengths: the number of selected rows of each row group.
    """

    def __init__(
        self, groups: _Integers, rows: tuple[npt.NDArray[np.int32] | None, ...], lengths: _Integers
    ) -> None:
        self.groups, self.rows, self.lengths = groups, rows, lengths
        self.n_rows = int(lengths.sum())
        self._blocks = Intervals(lengths)
        # a list is five times as fast to look up one position
        self._end_list: list[int] = self._blocks.ends.tolist()
        self._group_list: list[int] = groups.tolist()

    def __reduce__(self) -> tuple[Any, ...]:
        return Selection, (self.groups, self.rows, self.lengths)

    def rows_of(self, group: int) -> npt.NDArray[np.int32] | None:
        """The selected rows of a row group, ascending; None for all."""
        block = bisect.bisect_left(self._group_list, group)
        return self.rows[block] if self._group_list[block : block + 1] == [group] else None

    def locate(self, position: int) -> tuple[int, int]:
        """The row group of a sample, and its position there."""
        block = bisect.bisect_right(self._end_list, position)
        return self._group_list[block], position - (self._end_list[block - 1] if block else 0)

    def groups_of(self, positions: npt.NDArray[Any]) -> list[int]:
        """The row groups of samples, those of the first samples first."""
        return list(dict.fromkeys(self.groups[self._blocks.find(positions)].tolist()))

    def places_of_groups(self) -> list[tuple[int, Places]]:
        """For each row group with samples, ascending: its number, and the places of its samples among all."""
        places = np.arange(self.n_rows, dtype=np.intp)
        return list(zip(self._group_list, np.split(places, self._end_list[:-1]), strict=True))

    def locate_all(self, positions: npt.NDArray[Any]) -> list[tuple[int, _Integers, Places]]:
        """For each row group of samples, ascending: its number, the positions of the samples in it, and their places."""
        blocks = self._blocks.find(positions)
        rows = positions - self._blocks.starts[blocks]
        few = (
            blocks.astype(np.uint16) if len(self._blocks) <= 1 << 16 else blocks
        )  # sorted without comparisons
        order = np.argsort(few, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(blocks[order])) + 1)
        return [(self._group_list[blocks[places[0]]], rows[places], places) for places in parts]

    def joined(
        self, positions: npt.NDArray[Any], most_for_one: int
    ) -> tuple[list[int], _Integers] | None:
        """The row groups of samples, ascending, and the place of each sample among their rows together.

        None for one row group, or if they have more than ``most_for_one`` rows for each of the samples.
        """
        blocks = self._blocks.find(positions)
        touched = np.flatnonzero(np.bincount(blocks))
        lengths = self.lengths[touched]
        if len(touched) == 1 or lengths.sum() > most_for_one * len(positions):
            return None
        shifts = np.zeros(len(self._blocks), np.int64)
        shifts[touched] = np.cumsum(lengths) - lengths - self._blocks.starts[touched]
        return self.groups[touched].tolist(), positions + shifts[blocks]


# ---------------------------------------------------------------------- what a filter selects


def files_that_could_match(
    files: ParquetFiles, schema: Schema, predicate: Predicate
) -> ParquetFiles:
    """The files that may have rows that a predicate selects, by the names of their folders; at least one file.

    Raises:
        DatasetFileCorruptError: the name of a folder is not a value of its field.
    """
    fields = [
        schema[name]
        for name in partition_names(files.partitions)
        if name in predicate.fields and name in schema
    ]
    if not fields:
        return files
    columns = {field.name: partition_column(field, files) for field in fields}
    if len(fields) == len(predicate.fields):  # it needs partition columns only
        dtypes = {name: schema[name].dtype for name in columns}
        mask = predicate.mask(
            selecting.TypedColumns(columns, _types_to_tell(schema, predicate), dtypes=dtypes)
        )
    elif predicate.bound is not None:
        types = _types_of(schema, predicate)
        guarantees = [
            functools.reduce(
                operator.and_,
                [
                    partition_guarantee(name, values[file], types)
                    for name, values in columns.items()
                ],
            )
            for file in range(len(files.paths))
        ]
        mask = selecting.could_match(predicate.bound, types, guarantees)
    else:
        return files
    kept = np.flatnonzero(mask).tolist() or [0]
    paths, partitions = (
        tuple(each[number] for number in kept) for each in (files.paths, files.partitions)
    )
    return (
        files
        if len(kept) == len(files.paths)
        else replace(files, paths=paths, partitions=partitions)
    )


def _types_of(schema: Schema, predicate: Predicate) -> pa.Schema:
    """The types by which the bound of a predicate sees its columns."""
    return selecting.types_seen(
        predicate.bound, pa.schema([(name, schema[name].arrow_type()) for name in predicate.fields])
    )


def _types_to_tell(schema: Schema, predicate: Predicate) -> dict[str, pa.DataType]:
    """The types of the columns of a predicate whose values do not tell them."""
    return {
        name: type_
        for name in predicate.fields
        if selecting.is_seen_otherwise(type_ := schema[name].arrow_type())
    }


def _read_for_predicate(
    groups: RowGroups, group: int, predicate: Predicate
) -> dict[str, npt.NDArray[Any] | pa.Array]:
    """The columns that a predicate needs of a row group: cells of Arrow where it takes them, values otherwise.

    Raises:
        DatasetFileCorruptError, StorageError: the row group cannot be read.
    """
    reading = GroupReading(groups, group, predicate.fields)
    columns: dict[str, npt.NDArray[Any] | pa.Array] = {}
    if predicate.takes_cells:
        for name in predicate.fields:
            cells = reading.comparable_cells(name)
            if cells is not None:
                columns[name] = cells
    every_row = np.arange(groups.footers.n_rows[group], dtype=np.int64)
    others = [name for name in predicate.fields if name not in columns]
    for name, column in reading.columns(others).items():
        try:
            columns[name] = column.take(every_row)
        except CellError as error:
            raise groups.damage_error(group, name, error) from error
    return columns


def select(groups: RowGroups, chosen: _Integers, predicate: Predicate | None) -> Selection:
    """The rows of the chosen row groups that a predicate selects; None selects all.

    Row groups that partitions and statistics exclude are not read. Of the others, only the columns of the predicate are read.

    Raises:
        DatasetFileCorruptError, StorageError: a row group cannot be read.
        ConfigError: the predicate failed.
    """
    n_rows = groups.footers.n_rows[chosen]
    chosen, n_rows = chosen[n_rows > 0], n_rows[n_rows > 0]
    if predicate is None:
        return Selection(chosen, (None,) * len(chosen), n_rows)
    if predicate.bound is not None:
        with_floats = selecting.suits_bounds_of_floats(predicate.bound)
        types = _types_of(groups.schema, predicate)
        guarantees = [
            groups.guarantee(group, types, with_floats=with_floats) for group in chosen.tolist()
        ]
        chosen = chosen[selecting.could_match(predicate.bound, types, guarantees)]
    found: dict[int, tuple[npt.NDArray[np.int32] | None, int]] = {}
    dtypes = {name: groups.schema[name].dtype for name in predicate.fields}
    zones: dict[str, str] = {}
    if any(selecting.is_instant(groups.schema[name].arrow_type()) for name in predicate.fields):
        stored = groups.footers.time_zones
        zones = {name: stored[name] for name in predicate.fields if name in stored}

    def look_at(group: int) -> None:
        values = _read_for_predicate(groups, group, predicate)
        try:
            types = _types_to_tell(groups.schema, predicate)
            mask = predicate.mask(selecting.TypedColumns(values, types, dtypes=dtypes, zones=zones))
        except PredicateError as error:
            where = groups.footers.name_of(group) + (
                "" if error.row is None else f", row {error.row}"
            )
            raise ConfigError(f"{where}: {error.reason}") from error
        if mask.any():
            found[group] = (
                None if mask.all() else np.flatnonzero(mask).astype(np.int32),
                int(mask.sum()),
            )

    JobThreads(chosen.tolist(), look_at, n_threads()).run()
    hits = [group for group in chosen.tolist() if group in found]
    lengths = [found[group][1] for group in hits]
    return Selection(
        np.array(hits, np.int64),
        tuple(found[group][0] for group in hits),
        np.array(lengths, np.int64),
    )
