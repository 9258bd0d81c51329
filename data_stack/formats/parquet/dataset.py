"""Presents the rows of Parquet files as samples."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from data_stack.codecs.plain_data import canonical_json
from data_stack.dataset.iterator import AccessedDatasetIterator, IndexArray, SampleAccess
from data_stack.dataset.positions import check_indices, check_integer
from data_stack.dataset.recipes.recipe_values import PartialContent
from data_stack.exception import ConfigError, DatasetOutOfBoundsError
from data_stack.formats.parquet.absent_columns import warn_of_absent_columns
from data_stack.formats.parquet.access import ParquetAccess
from data_stack.formats.parquet.adapted_schema import adapt_schema, add_masks
from data_stack.formats.parquet.codecs.native import Nulls
from data_stack.formats.parquet.files import find_files
from data_stack.formats.parquet.filtering import RowSelector, files_that_could_match
from data_stack.formats.parquet.filters import as_predicate
from data_stack.formats.parquet.footers import Footers
from data_stack.formats.parquet.inference import read_schema
from data_stack.formats.parquet.predicates import Predicate
from data_stack.formats.parquet.replaced_columns import replaced_columns
from data_stack.formats.parquet.row_groups import RowGroups
from data_stack.formats.parquet.schema import Field, Schema
from data_stack.formats.split_names import warn_of_missing_parts
from data_stack.io.account import PlaceAccount

#: Begins the JSON of a function without a name, see
#: :mod:`data_stack.dataset.recipes.recipe_values`. JSON escapes the quotes of a text, so no text of
#: a filter contains it.
_UNNAMED = '{"unnamed":'


class ParquetDataset(AccessedDatasetIterator):
    """The rows of Parquet files: dicts with a value for each field.

    ::

        train = ParquetDataset(
            "s3://bucket/frames", columns=["id", "image"], filters=col("speed") > 3
        )
        len(train)                              # exact, from the footers
        train[17]["image"]                      # reads a row group, keeps it for its neighbours
        train.read_batch([3, 1, 4])["image"]    # columns, stacked
        train.read_column("id")                 # this column of all rows; no image is touched
        Loader(train, 256, shuffle=BlockShuffled(window=8))

    It reads what :class:`ParquetWriter` wrote, what Petastorm wrote (with the package
    ``lazy-data-stack-petastorm``, which runs nothing of the pickled schema), and any other Parquet,
    whose schema is inferred.

    A missing value is None. The column of a field is an array of objects, for all rows, if any
    footer counts a null; otherwise it has the field's dtype. Lists and arrays of different shapes
    become arrays of objects.

    Row groups are read whole, but only the columns in use. The most recently used row groups are
    cached, or the rows that the filter selects. Images and other cells that take long to decode are
    cached encoded, and decoded on access. To read many rows in random order, a block-wise shuffle
    reads each row group once, and prefetches the next ones.

    The constructor reads the footers; it does not open files in folders that the filter excludes.
    If the manifest lists a file, its footer is read for a filter or with the first row of the file,
    and checked against the manifest.

    Rows of two versions of a file are never mixed. If a file was replaced or touched after it was
    first seen, reading its rows raises :class:`~data_stack.exception.ResourceChangedError`, even if
    the rows are cached. Computing the fingerprint raises it, too. The version of a local file is
    its size, times and inode; that of a file in a store is its SHA-256 or ETag. The footers are
    compared as well.

    Threads and forked processes may share a dataset. Its pickle is small and includes the rows that
    the filter selects; another process reads the footers that it needs.

    Args:
        source: a folder (with Hive's partitions, too), a file (its path, a resource or open binary
            file), a list of files, a storage connector, a URL (``mongodb://``, ``s3://``,
            ``hdfs://`` …) or resources of a dataset.
        columns: names, regular expressions or fields; None for all, in the order of the schema.
        filters: which rows: an expression of pyarrow (``col("speed") > 3``), filters
            (``[("speed", ">", 3)]``), or an object with ``get_fields()`` and
            ``do_include(values)``. A filter may use columns that ``columns`` omits. None for all.
        prefix: folder below ``source``.
        schema: the schema of the columns; it replaces the schema in the files.
        row_groups: the numbers of the row groups, counted through all files; None for all.
        filesystem: a file system of pyarrow or fsspec; ``source`` is then a path in it.
        nulls: how nulls are read. "none": as None. "nan": as NaN in floats and NaT in times, also
            in lists; integers and bools become float64, if any file has a null in their column.
            "mask": as 0, and a column of bools ``<name>_is_null`` follows each column of numbers or
            times in which any file has a null; ``columns`` names columns of the files only. Nulls
            of text, bytes, decimals, structs and lists, and with "mask" those inside of lists, are
            None.
        timestamp_unit: unit of all timestamps: "s", "ms", "us" or "ns"; a timestamp that does not
            fit raises. None: the unit of each column; of INT96, which has none, that of the writer,
            else the one that holds the times of the first row group. Filters compare stored values;
            ``nulls`` and ``timestamp_unit`` do not affect them.
        max_cached_bytes: limit of the cache of row groups, in bytes, at least 0.

    Attributes:
        schema: the fields of the samples.
        with_nulls: for each field of the files whether a value may be null, as far as the footers
            tell.
        account: what else is in the folder, and which columns of files are not read
            (:class:`~data_stack.io.account.PlaceAccount`). LeftOutWarning names what may be data,
            and a column ``day`` of a file in ``day=2024-01-01`` that may have other values.

    Raises:
        ResourceNotFoundError: ``source`` has no Parquet files.
        DatasetFileCorruptError: a footer is damaged, or files differ in their columns.
        ConfigError: a field does not exist, or the filter is invalid.

    Warns:
        UserWarning: a file lacks a column of the others, unless ``schema`` is given.
        LeftOutWarning: something beside the files that are read may be data; or the names of the
            files count more parts than there are.
    """

    schema: Schema
    with_nulls: Mapping[str, bool]
    account: PlaceAccount

    #: The footers of the files that the filter does not exclude.
    _footers: Footers

    #: Selects rows; None: all.
    _predicate: Predicate | None

    #: Reads the samples.
    _access: ParquetAccess

    def __init__(
        self,
        source: Any,
        columns: Iterable[str | Field | re.Pattern[str]] | None = None,
        filters: Any = None,
        *,
        prefix: str = "",
        schema: Schema | None = None,
        row_groups: Any = None,
        filesystem: Any = None,
        nulls: Nulls = "none",
        timestamp_unit: str | None = None,
        max_cached_bytes: int = 1 << 30,
    ) -> None:
        max_cached_bytes = check_integer("max_cached_bytes", max_cached_bytes, at_least=0)
        files = find_files(source, prefix, filesystem=filesystem)
        self._predicate = None if filters is None else as_predicate(filters)

        # The footers, and the schema of the files.
        footers = Footers(files, lazily=True)
        stored_schema = schema
        if stored_schema is None:
            stored_schema = read_schema(footers, timestamp_unit)
        if self._predicate is None:
            footers.read_all(trusting=True)  # the numbers of rows suffice: the manifest has them
        else:
            _check_fields(self._predicate, stored_schema)
            if row_groups is None:  # else the numbers of the row groups would change
                footers = _leave_out_files(footers, stored_schema, self._predicate)
            footers.read_all()  # the filter needs the statistics, which the manifest lacks
        self._footers = footers
        stored_groups = RowGroups(footers, stored_schema)
        self.with_nulls = stored_groups.with_nulls

        # The schema of the samples.
        adapted_schema = adapt_schema(stored_schema, self.with_nulls, nulls, timestamp_unit)
        self.schema = adapted_schema
        if columns is not None:
            self.schema = adapted_schema.view(columns)
        groups = stored_groups
        if adapted_schema is not stored_schema:  # nulls= or timestamp_unit= changes it
            self.schema, masks = add_masks(self.schema, self.with_nulls)
            groups = RowGroups(footers, self.schema, masks)

        # What is left out.
        account = files.account
        if schema is None and columns is None:
            columns_left_out = footers.columns_left_out(stored_schema.fields)
            account = account.with_left_out(columns_left_out)
        fields_read = {field.name: field for field in stored_schema if field.name in self.schema}
        account = account.with_left_out(replaced_columns(footers, fields_read))
        account.warn()
        if not files.given:
            warn_of_missing_parts(account.place, files.paths)
        self.account = account

        if schema is None:
            warn_of_absent_columns(footers, stored_groups.absent, fields_read)

        chosen = _choose_groups(row_groups, len(footers))
        selector = RowSelector(stored_groups, chosen, self._predicate)
        self._access = ParquetAccess(groups, self.schema, selector, max_cached_bytes)

    def make_access(self) -> SampleAccess:
        return self._access

    def __len__(self) -> int:
        return self._access.n_samples

    if TYPE_CHECKING:  # samples are dicts

        def read_batch(self, indices: IndexArray) -> dict[str, npt.NDArray[Any]]: ...

    def limit_cache(self, max_cached_bytes: int) -> None:
        """Empty the cache of row groups, and change its limit.

        Args:
            max_cached_bytes: the limit in bytes, at least 0.

        Raises:
            ConfigError: it is another value.
        """
        max_cached_bytes = check_integer("max_cached_bytes", max_cached_bytes, at_least=0)
        self._access.limit_cache(max_cached_bytes)

    @property
    def metadata(self) -> Mapping[bytes, bytes]:
        """The key-value metadata of the dataset."""
        return self._footers.metadata

    @property
    def all_columns(self) -> set[str]:
        """The names of the columns of all files; :attr:`schema` has those of the first file."""
        names: set[str] = set()
        for file in range(self._footers.files.n_files):
            names.update(self._footers.columns(file))
        return names

    @property
    def time_zones(self) -> Mapping[str, str]:
        """The time zones of the columns of instants in the first file, by name.

        Their samples are in UTC.
        """
        return self._footers.time_zones

    @property
    def block_lengths(self) -> npt.NDArray[np.int64]:
        """Number of samples of each row group that has any, shape ``(n_row_groups,)``."""
        return self._access.blocks()

    @property
    def is_local(self) -> bool:
        """Whether the files have paths on this machine; otherwise they are in a store."""
        return self._footers.files.is_local

    def _arguments(self) -> dict[str, Any]:
        content = None if self._predicate is None else self._predicate.content()
        if _UNNAMED in canonical_json(content):
            reason = (
                f"a function in the filter {self._predicate!r:.80} has no name; "
                "define it in a module"
            )
            content = PartialContent(content, reason)
        return {"fields": [field.to_json() for field in self.schema], "filter": content}


def _check_fields(predicate: Predicate, schema: Schema) -> None:
    """Check that the fields of a predicate exist.

    Raises:
        ConfigError: one does not.
    """
    for name in predicate.fields:
        schema[name]  # raises ConfigError if the schema lacks the field


def _leave_out_files(footers: Footers, schema: Schema, predicate: Predicate) -> Footers:
    """Leave out files whose partition folders (``day=2024-01-01``) contradict the predicate.

    Returns:
        The footers of the other files, not read yet; ``footers`` if no file is left out.
    """
    files = files_that_could_match(footers.files, schema, predicate)
    if files is footers.files:
        return footers
    return Footers(files, lazily=True)


def _choose_groups(choice: Any, n_groups: int) -> npt.NDArray[np.int64]:
    """Return the numbers of the chosen row groups, ascending.

    Args:
        choice: numbers, also negative ones; None for all.
        n_groups: number of row groups.

    Raises:
        ConfigError: a row group does not exist, or the choice is invalid.
    """
    if choice is None:
        return np.arange(n_groups, dtype=np.int64)
    try:
        return np.unique(check_indices(list(choice), n_groups)).astype(np.int64)
    except (DatasetOutOfBoundsError, TypeError) as error:
        raise ConfigError(
            f"row_groups must be numbers of the dataset's {n_groups} row groups: {error}"
        ) from error
