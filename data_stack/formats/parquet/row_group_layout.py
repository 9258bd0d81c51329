"""Describes the columns of all row groups of a dataset before any of them is read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from data_stack.exception import DatasetFileCorruptError, DataStackError, RequestLimitError
from data_stack.formats.parquet.codecs import ListCodec, ScalarCodec, TensorCodec
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

#: Numbers of rows in a row group.
Rows = npt.NDArray[np.int32]

#: The dtypes that have NaN.
_FLOATS: Final = (np.float16, np.float32, np.float64)


class RowGroupLayout:
    """The columns of all row groups of a dataset, and the form of their values.

    It is known from the footers, or from the manifest, which has the facts of the footers. Threads
    may share it. Footers that were read are not pickled with it.

    A *group* is the number of a row group in the dataset, an *index* its number in its file, and a
    *leaf* the number of a Parquet column in its file: a struct has several.

    Attributes:
        footers: footers of the files.
        schema: schema of the rows, partition columns included.
        masks: for each field that is a mask, the name of the field whose nulls it marks. Files do
            not have masks.
        partitions: for each partition column the value of each file, shape ``(n_files,)``.
        absent: for each file the fields that it does not have, whose values are null.
        list_lengths: for each field of lists or tensors the number of elements of each; None if
            they differ.
        with_nulls: for each field whether a value may be null.
        page_checks: the checks of page headers.

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
        self.list_lengths = {}
        self.with_nulls = {}
        for name, field in schema.fields.items():
            if isinstance(field.codec, (ListCodec, TensorCodec)):
                self.list_lengths[name] = _common_list_length(values_per_row[name])
            if name in self.partitions:
                self.with_nulls[name] = any(value is None for value in self.partitions[name])
            else:
                may_be_null_in_a_file = None in values_per_row[name]
                self.with_nulls[name] = field.nullable and may_be_null_in_a_file
        self.page_checks = PageChecks(footers)

    def _find_absent_fields(self) -> list[set[str]]:
        """Find the fields that each file lacks.

        Raises:
            DatasetFileCorruptError: a file lacks a required field.
        """
        stored = self.schema.fields.keys() - self.partitions.keys() - self.masks.keys()
        required = {field.name for field in self.schema if not field.nullable}
        absent_of_files = []
        for file in range(self.footers.files.n_files):
            absent = stored.difference(self.footers.columns(file))
            absent_and_required = absent & required
            if absent_and_required:
                name = min(absent_and_required)
                raise DatasetFileCorruptError(
                    f"{self.footers.files.name(file)} has no column {name!r}, unlike other files: "
                    "exclude it with columns=…, or make the field nullable with schema=…"
                )
            absent_of_files.append(absent)
        return absent_of_files

    def _collect_values_per_row(self) -> dict[str, set[int | None]]:
        """Collect the numbers of values per row that the files with rows have.

        Returns:
            The different numbers by field, as :meth:`Footers.columns` has them for each file. None
            stands for a column that may have nulls, or that a file does not have.
        """
        footers = self.footers
        files_with_rows = np.unique(footers.file_of[footers.n_rows > 0]).tolist()
        # There may be many files, but most share one mapping. Each mapping is looked at once; its
        # id() identifies it, as the footers hold it.
        mappings: dict[int, Mapping[str, int | None]] = {}
        for file in files_with_rows:
            columns = footers.columns(file)
            mappings[id(columns)] = columns
        values_per_row: dict[str, set[int | None]] = {}
        for name in self.schema.fields:
            values_per_row[name] = {columns.get(name) for columns in mappings.values()}
        return values_per_row

    def damage_error(
        self, group: int, name: str, error: CellError, rows: Rows | None = None
    ) -> DataStackError:
        """Return the error for a cell that cannot be decoded; it names file, row and field.

        Args:
            group: number of the row group.
            name: name of the column.
            error: the error of the codec, with the index of the cell in the column.
            rows: the rows of the column, ascending; None if the column has all rows.

        Returns:
            A RequestLimitError if the value is too large for a request, else a
            DatasetFileCorruptError.
        """
        row = error.row
        if rows is not None:
            row = int(rows[row])
        place = f"{self.footers.name_of(group)}, row {row}, field {name!r}"
        cause = error.__cause__
        if isinstance(cause, RequestLimitError):
            return cause.at(place)  # the same error, with the place
        return DatasetFileCorruptError(f"{place}: {error.why}")

    # ------------------------------------------------------------------ the form of columns

    def are_gathered(self, names: Sequence[str]) -> bool:
        """Return whether each of these columns has one dtype and shape in all row groups.

        Their rows can then be gathered into an array: they are copied without decoding. The footers
        state only the average length of lists. So lists count as equally long if the averages are
        equal, until a list of another length is read.
        """
        return all(self._is_gathered(self.schema[name]) for name in names)

    def _is_gathered(self, field: Field) -> bool:
        if isinstance(field.codec, ScalarCodec):
            return True
        if self.list_lengths.get(field.name) is not None:
            return True
        return field.cells.is_fixed and not self.with_nulls[field.name]

    def note_list_length(self, name: str, column: GroupColumn) -> None:
        """Compare the lists of a column with the length that the footers state.

        If they differ, the lists of the field count as lists of different lengths from now on.

        Args:
            name: name of the column; nothing is noted for columns without lists.
            column: the column of one row group.
        """
        if name not in self.list_lengths:
            return
        length = None
        if isinstance(column, ArrayColumn):
            length = math.prod(column.array.shape[1:])
        if length != self.list_lengths[name]:
            self.list_lengths[name] = None

    def estimate_bytes(self, names: Sequence[str]) -> float:
        """Estimate the bytes of columns in all row groups, before compression.

        The rows of all files count as large as those of the first file that has rows.
        """
        footers = self.footers
        groups_with_rows = np.flatnonzero(footers.n_rows)
        if not len(groups_with_rows):
            return 0.0
        file = int(footers.file_of[groups_with_rows[0]])
        n_rows_of_file = int(footers.n_rows[footers.file_of == file].sum())
        facts = footers.facts(file)
        leaves: list[int] = []
        for name in names:
            leaves.extend(facts.columns.get(name, []))
        n_bytes_of_file = float(facts.chunks["n_raw_bytes"][:, leaves].sum())
        return n_bytes_of_file / n_rows_of_file * float(footers.n_rows.sum())

    def empty(self, name: str) -> npt.NDArray[Any]:
        """Return an array for a column without rows, of the dtype and shape that rows would have.

        Its shape is ``(0, ...)`` if the values are numbers, bools or times of one shape and have a
        value for null. Otherwise, the values are objects and the shape is ``(0,)``.

        Raises:
            DatasetFileCorruptError: the shape is too large for numpy.
        """
        field = self.schema[name]
        has_none = self.with_nulls[name] and field.cells.fill(field) is None
        is_ragged = None in field.shape
        has_fixed_size = isinstance(field.dtype, np.dtype) and field.dtype.kind not in "USO"
        if has_none or is_ragged or not has_fixed_size:
            return np.empty(0, object)
        try:
            return np.empty((0, *field.shape), field.dtype)  # type: ignore[arg-type]  # see above
        except ValueError as error:
            raise DatasetFileCorruptError(
                f"field {name!r} cannot have the shape {field.shape}: {error}"
            ) from error

    # ------------------------------------------------------------------ what filters may exclude

    def guarantee(self, group: int, types: pa.Schema, *, with_floats: bool) -> pc.Expression:
        """Return an expression that is true for all rows of a row group.

        The expression follows from the partition of the file and the statistics in the footer.

        Args:
            group: number of the row group.
            types: the columns that the expression may use, with the types that filters compare.
            with_floats: whether to use the bounds of floats. NaN is outside of them: then the
                expression is not true for rows with NaN.
        """
        exact, bounds_of_floats = self._guarantees_of_columns(group, types)
        if with_floats:
            return conjunction([*exact, *bounds_of_floats.values()])
        return conjunction(exact)

    def guarantee_alternatives(self, group: int, types: pa.Schema) -> list[pc.Expression]:
        """Return expressions of which at least one is true for each row of a row group.

        Unlike :meth:`guarantee`, they use the bounds of floats and are right for rows with NaN.

        Args:
            group: number of the row group.
            types: the columns that expressions may use, with the types that filters compare.
        """
        exact, bounds_of_floats = self._guarantees_of_columns(group, types)
        return alternatives_with_nan(exact, bounds_of_floats, types)

    def _guarantees_of_columns(
        self, group: int, types: pa.Schema
    ) -> tuple[list[pc.Expression], dict[str, pc.Expression]]:
        """Return what is certain of the columns of a row group.

        Args:
            group: number of the row group.
            types: the columns, with the types that filters compare.

        Returns:
            Expressions that are true for all rows, and, by column, expressions that are true for
            all rows without NaN in the column.
        """
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
                # All values of the column are null.
                exact.append(partition_guarantee(name, None, types))
                continue
            if name in self.partitions:
                # All rows of the file have one value.
                exact.append(partition_guarantee(name, self.partitions[name][file], types))
                continue
            # Only scalars have statistics of their values; a struct has several columns of Parquet.
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
    """Return the average length of lists if it is the same in all files; None if it is not.

    Lists of different lengths may have this average, too.

    Args:
        values_per_row: the different averages; None stands for lists that may be null, and a
            negative number for rows without an average that is an integer.
    """
    if len(values_per_row) != 1:
        return None
    (length,) = values_per_row
    if length is None or length < 0:
        return None
    return length
