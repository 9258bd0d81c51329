"""Which columns each row group of a dataset has, and in which form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from data_stack.exception import DatasetFileCorruptError, DataStackError, RequestLimitError
from data_stack.formats.parquet.codecs import ListCodec, ScalarCodec
from data_stack.formats.parquet.columns import ArrayColumn, CellError, GroupColumn
from data_stack.formats.parquet.files import partition_names
from data_stack.formats.parquet.footers import Footers
from data_stack.formats.parquet.guarantees import (
    alternatives_with_nan,
    column_guarantee,
    conjunction,
    partition_guarantee,
)
from data_stack.formats.parquet.page_checks import PageChecks
from data_stack.formats.parquet.partitions import partition_column
from data_stack.formats.parquet.schema import Field, Schema

Rows = npt.NDArray[np.int32]

_FLOATS: Final = (np.float16, np.float32, np.float64)


class RowGroupLayout:
    """The columns of all row groups of a dataset, before any of them is read.

    Threads may share it. It pickles without the footers.

    Args:
        footers: footers of the files.
        schema: of all fields, partition columns included.
        masks: the fields that the files lack, which say where another field is null: its name
            for each.

    Attributes:
        footers: as given.
        schema: as given.
        masks: as given.
        partitions: the partition columns, with a value for each file.
        absent: the fields that each file lacks.
        list_lengths: for each field of lists the length of all of them; None if they differ.
        with_nulls: for each field whether any value may be null.
        page_checks: compares page headers with the footers.

    Raises:
        DatasetFileCorruptError: a file lacks a required field, or the name of a folder is not a
            value of its field.
    """

    footers: Footers
    schema: Schema
    masks: dict[str, str]
    partitions: dict[str, npt.NDArray[Any]]
    absent: list[set[str]]
    list_lengths: dict[str, int | None]
    with_nulls: dict[str, bool]
    page_checks: PageChecks

    def __init__(
        self, footers: Footers, schema: Schema, masks: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self.footers = footers
        self.schema = schema
        self.masks = dict(masks)
        self.partitions = _read_partitions(footers, schema)
        self.absent = self._find_absent_fields()
        values_per_row = self._collect_values_per_row()
        self.list_lengths = {
            field.name: _common_list_length(values_per_row[field.name])
            for field in schema
            if isinstance(field.codec, ListCodec)
        }
        self.with_nulls = {}
        for name, field in schema.fields.items():
            if name in self.partitions:
                self.with_nulls[name] = any(value is None for value in self.partitions[name])
            else:
                self.with_nulls[name] = field.nullable and None in values_per_row[name]
        self.page_checks = PageChecks(footers)

    def _find_absent_fields(self) -> list[set[str]]:
        """Find the fields that each file lacks.

        Raises:
            DatasetFileCorruptError: a file lacks a required field.
        """
        stored = self.schema.fields.keys() - self.partitions.keys() - self.masks.keys()
        required = {field.name for field in self.schema if not field.nullable}
        absent_of_files = []
        for file in range(len(self.footers.files.paths)):
            absent = stored.difference(self.footers.columns(file))
            if absent & required:
                name = min(absent & required)
                raise DatasetFileCorruptError(
                    f"{self.footers.files.name(file)} has no column {name!r}, unlike other files: "
                    "exclude it with columns=…, or make the field nullable with schema=…"
                )
            absent_of_files.append(absent)
        return absent_of_files

    def _collect_values_per_row(self) -> dict[str, set[int | None]]:
        """For each field the values per row (see :meth:`Footers.columns`) in files with rows."""
        footers = self.footers
        files_with_rows = np.unique(footers.file_of[footers.n_rows > 0]).tolist()
        # most files share one mapping: look at each mapping once
        distinct = {}
        for file in files_with_rows:
            columns = footers.columns(file)
            distinct[id(columns)] = columns
        values_per_row: dict[str, set[int | None]] = {}
        for name in self.schema.fields:
            values_per_row[name] = {columns.get(name) for columns in distinct.values()}
        return values_per_row

    def damage_error(
        self, group: int, name: str, error: CellError, rows: Rows | None = None
    ) -> DataStackError:
        """Return the error for a damaged cell; it names file, row group, row and field.

        Args:
            group: the row group.
            name: name of the column.
            error: has the position in the column and the reason.
            rows: the rows of the column, ascending; None for all.
        """
        row = error.row if rows is None else int(rows[error.row])
        place = f"{self.footers.name_of(group)}, row {row}, field {name!r}"
        cause = error.__cause__
        if isinstance(cause, RequestLimitError):
            return cause.at(place)
        return DatasetFileCorruptError(f"{place}: {error.why}")

    # ------------------------------------------------------------------ the form of columns

    def are_gathered(self, names: Sequence[str]) -> bool:
        """Whether these columns have one dtype and shape in all row groups.

        Their rows can then be copied without decoding. Lists count as equally long where the
        footers allow it, until a list of another length is read.
        """
        return all(self._is_gathered(self.schema[name]) for name in names)

    def _is_gathered(self, field: Field) -> bool:
        if isinstance(field.codec, ScalarCodec):
            return True
        if self.list_lengths.get(field.name) is not None:
            return True
        return field.cells.is_fixed and not self.with_nulls[field.name]

    def note_list_length(self, name: str, column: GroupColumn) -> None:
        """Note that lists differ in length, if those of a column do."""
        if name not in self.list_lengths:
            return
        is_alike = isinstance(column, ArrayColumn) and column.array.shape[1:] == (
            self.list_lengths[name],
        )
        if not is_alike:
            self.list_lengths[name] = None

    def estimate_bytes(self, names: Sequence[str]) -> float:
        """Estimate the bytes of columns in all row groups, before compression.

        The bytes per row are those of the first file.
        """
        footers = self.footers
        n_rows_of_first = int(footers.n_rows[footers.file_of == 0].sum())
        if not n_rows_of_first:
            return 0.0
        facts = footers.facts(0)
        leaves = [leaf for name in names for leaf in facts.columns.get(name, [])]
        n_bytes_of_first = float(facts.chunks["n_raw_bytes"][:, leaves].sum())
        return n_bytes_of_first / n_rows_of_first * float(footers.n_rows.sum())

    def empty(self, name: str) -> npt.NDArray[Any]:
        """Return a column without rows.

        Raises:
            DatasetFileCorruptError: the shape is too large for numpy.
        """
        field = self.schema[name]
        has_none = self.with_nulls[name] and field.cells.fill(field) is None
        is_ragged = None in field.shape
        is_of_numbers = isinstance(field.dtype, np.dtype) and field.dtype.kind not in "USO"
        if has_none or is_ragged or not is_of_numbers:
            return np.empty(0, object)
        try:
            return np.empty((0, *field.shape), field.dtype)  # type: ignore[arg-type]  # see above
        except ValueError as error:
            raise DatasetFileCorruptError(
                f"field {name!r} cannot have the shape {field.shape}: {error}"
            ) from error

    # ------------------------------------------------------------------ what filters may exclude

    def guarantee(self, group: int, types: pa.Schema, *, with_floats: bool) -> pc.Expression:
        """Return an expression that is true of all rows of a row group.

        It comes from the partitions and the footer.

        Args:
            group: the row group.
            types: the columns, with the types by which an expression sees them.
            with_floats: use bounds of floats, although NaN lies outside of them.
        """
        exact, bounds_of_floats = self._guarantees_of_columns(group, types)
        if with_floats:
            return conjunction([*exact, *bounds_of_floats.values()])
        return conjunction(exact)

    def guarantee_alternatives(self, group: int, types: pa.Schema) -> list[pc.Expression]:
        """Return expressions of which at least one is true of each row of a row group.

        Args:
            group: the row group.
            types: the columns, with the types by which an expression sees them.
        """
        exact, bounds_of_floats = self._guarantees_of_columns(group, types)
        return alternatives_with_nan(exact, bounds_of_floats, types)

    def _guarantees_of_columns(
        self, group: int, types: pa.Schema
    ) -> tuple[list[pc.Expression], dict[str, pc.Expression]]:
        """Return expressions that are true of all rows, and others that are so except for NaN."""
        footers = self.footers
        file = int(footers.file_of[group])
        index = int(footers.index_of[group])
        n_rows = int(footers.n_rows[group])
        facts = footers.facts(file)
        stored = footers.of(file).row_group(index)
        exact: list[pc.Expression] = []
        bounds_of_floats: dict[str, pc.Expression] = {}
        for name in types.names:
            field = self.schema[name]
            if name in self.absent[file]:
                exact.append(partition_guarantee(name, None, types))
                continue
            if name in self.partitions:
                exact.append(partition_guarantee(name, self.partitions[name][file], types))
                continue
            leaves = facts.columns.get(name, [])
            if len(leaves) != 1 or not isinstance(field.codec, ScalarCodec):
                continue
            (leaf,) = leaves
            n_nulls = int(facts.chunks["n_nulls"][index, leaf])
            statistics = stored.column(leaf).statistics
            bounds = column_guarantee(types.field(name), statistics, n_rows, n_nulls)
            may_have_nan = field.dtype in _FLOATS and n_nulls != n_rows
            if may_have_nan:
                bounds_of_floats[name] = bounds
            else:
                exact.append(bounds)
        return exact, bounds_of_floats


def _read_partitions(footers: Footers, schema: Schema) -> dict[str, npt.NDArray[Any]]:
    """Read the values of the partition columns of a schema, one for each file."""
    files = footers.files
    partitions = {}
    for name in partition_names(files.partitions):
        if name in schema:
            partitions[name] = partition_column(schema[name], files)
    return partitions


def _common_list_length(values_per_row: set[int | None]) -> int | None:
    """Return the average length of lists if all files agree, else None. Lists may differ."""
    if len(values_per_row) != 1:
        return None
    (length,) = values_per_row
    if length is None or length < 0:
        return None
    return length
