"""Copies datasets, with a selection of fields and rows."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.parquet import ParquetWriter
from data_stack.formats.parquet.files import partition_names
from data_stack.formats.parquet.footers import Footers
from data_stack.formats.parquet.inference import read_schema
from data_stack.formats.parquet.metadata import reading_parquet
from data_stack.formats.parquet.row_groups import RowGroups
from data_stack.io.folder import folder_of
from data_stack_petastorm.etl.dataset_metadata import footers_of, get_schema_from_dataset_url
from data_stack_petastorm.etl.rowgroup_indexers import Indexer
from data_stack_petastorm.etl.rowgroup_indexing import build_rowgroup_index, read_indexes
from data_stack_petastorm.parquet_metadata import UNISCHEMA_KEY
from data_stack_petastorm.unischema import match_unischema_fields

_DEFAULT_ROW_GROUP_MB = 32.0

#: Size of a file where the number of files is not given.
_DEFAULT_FILE_MB = 512.0

#: A size that no file reaches, for a copy with one file.
_ENDLESS_FILE_MB = 1e9


def copy_dataset(
    spark: Any,
    source_url: str,
    target_url: str,
    field_regex: Sequence[str] | None,
    not_null_fields: Sequence[str] | None,
    overwrite_output: bool,
    partitions_count: int | None,
    row_group_size_mb: float | None,
    hdfs_driver: str = "libhdfs3",
) -> None:
    """Copy a dataset without decoding its cells; rebuild the row-group indexes of its fields.

    Args:
        spark: ignored.
        source_url: URL or path of the dataset.
        target_url: URL or path of the copy.
        field_regex: regular expressions of whole names of fields; None: all fields.
        not_null_fields: fields that must not be null; other rows are omitted.
        overwrite_output: whether to replace an existing target.
        partitions_count: approximate number of files; None: files of at most 512 MB.
        row_group_size_mb: MB of each row group; None: 32.
        hdfs_driver: ignored.

    Raises:
        ConfigError: no field matches, or the target exists (in programs with Spark, this is also an
            ``AnalysisException``).
        ResourceNotFoundError: the source does not exist.
    """
    # Refuse a wrong selection or target before anything is written.
    names = _match_names(source_url, field_regex)
    if not overwrite_output and folder_of(target_url).list_files():
        raise _target_exists_error(
            f"{target_url!r} already exists: pass overwrite_output=True, or another target"
        )
    footers = footers_of(source_url)
    footers.read_all()
    target_path = folder_of(target_url).path
    if target_path is not None and target_path == footers.files.folder.path:
        raise ConfigError(f"source and target are both {target_url!r}")

    row_groups = RowGroups(footers, read_schema(footers))
    schema = row_groups.schema
    if names:
        schema = schema.view(names)
    required_names = list(not_null_fields or ())
    for name in required_names:
        row_groups.schema[name]  # raises if the field does not exist
    needed_names = list(dict.fromkeys(list(schema.fields) + required_names))

    # Copy the rows, one row group after the other.
    names_of_partitions = partition_names(footers.files.partitions)
    partition_by = [name for name in names_of_partitions if name in schema]
    with ParquetWriter(
        target_url,
        schema,
        partition_by=partition_by,
        row_group_mb=row_group_size_mb or _DEFAULT_ROW_GROUP_MB,
        file_mb=_choose_file_mb(footers, partitions_count),
        petastorm=UNISCHEMA_KEY in footers.metadata,
        overwrite=overwrite_output,
    ) as writer:
        for group in range(len(footers)):
            table = _read_table(row_groups, group, needed_names, names_of_partitions)
            table = _drop_nulls(table, required_names)
            copied_names = [name for name in schema.fields if name in table.column_names]
            writer.append_arrow(table.select(copied_names))

    # Build the indexes of the copied fields again, as the copy has other row groups. Indexes that
    # are out of date or damaged are not copied; the dataset is read without them.
    indexes: list[Indexer] = []
    with contextlib.suppress(ConfigError, DatasetFileCorruptError):
        indexes = [index for index in read_indexes(footers).values() if index.field in schema]
    if indexes:
        build_rowgroup_index(target_url, None, indexes)


def _match_names(source_url: str, field_regex: Sequence[str] | None) -> list[str]:
    """Return the names of the fields to copy; an empty list stands for all fields.

    Raises:
        ConfigError: no field matches, or the dataset has no schema.
        ResourceNotFoundError: the source does not exist.
    """
    unischema = get_schema_from_dataset_url(source_url)
    if not field_regex:
        return []
    names = [field.name for field in match_unischema_fields(unischema, field_regex)]
    if not names:
        raise ConfigError(
            f"Regular expressions ({field_regex}) do not match any fields "
            f"({', '.join(unischema.fields)})"
        )
    return names


def _choose_file_mb(footers: Footers, partitions_count: int | None) -> float:
    """Return the size of each file, in MB, that makes about ``partitions_count`` files."""
    if not partitions_count:
        return _DEFAULT_FILE_MB
    if partitions_count == 1:
        return _ENDLESS_FILE_MB
    n_files = len(footers.files.paths)
    n_bytes = sum(footers.size(number) for number in range(n_files))
    return n_bytes / 1e6 / partitions_count


def _read_table(
    row_groups: RowGroups, group: int, names: Sequence[str], names_of_partitions: Sequence[str]
) -> pa.Table:
    """Return fields of a row group as they are stored, without decoding their cells.

    Args:
        row_groups: the row groups of the dataset.
        group: number of the row group.
        names: the fields to read, as far as the file has them.
        names_of_partitions: the fields whose values are in the names of folders.
    """
    footers = row_groups.footers
    file_number = int(footers.file_of[group])
    with reading_parquet(footers.name_of(group)), footers.files.open(file_number) as file:
        reader = pq.ParquetFile(
            file,
            metadata=footers.of(file_number),
            pre_buffer=True,
            page_checksum_verification=True,
        )
        stored_names = [name for name in reader.schema_arrow.names if name in names]
        table = reader.read_row_group(int(footers.index_of[group]), columns=stored_names)
    n_rows = int(footers.n_rows[group])
    if n_rows == 0:
        return table
    for name in names:
        if name in names_of_partitions:
            # All rows of a file have one value, which is in the names of its folders.
            value = row_groups.read(group, [name])[name].value(0)
            table = table.append_column(name, pa.array([value] * n_rows))
    return table


def _drop_nulls(table: pa.Table, required_names: Sequence[str]) -> pa.Table:
    """Return the rows in which none of these fields is null.

    All rows of a file that lacks a field are null there.
    """
    for name in required_names:
        if name in table.column_names:
            has_value = pc.is_valid(table.column(name))
        else:
            # The type is given, as an empty list has none.
            has_value = pa.array([False] * len(table), pa.bool_())
        table = table.filter(has_value)
    return table


def _target_exists_error(message: str) -> ConfigError:
    """Return an error that is also Spark's in programs that have imported Spark.

    Petastorm's copies are Spark's, so its programs catch an ``AnalysisException``. Importing Spark
    for its class of errors would take seconds, and needs Java.
    """
    spark_errors: Any = sys.modules.get("pyspark.errors")
    if spark_errors is None:
        return ConfigError(message)

    class TargetExistsError(ConfigError, spark_errors.AnalysisException):  # type: ignore[misc]  # Any
        """The target of a copy exists."""

    return TargetExistsError(message)


def _main(sys_argv: Sequence[str] | None = None) -> None:
    """Copy a dataset by the arguments of a command line."""
    parser = argparse.ArgumentParser(description="Copy a Petastorm dataset.")
    parser.add_argument("source_url")
    parser.add_argument("target_url")
    parser.add_argument("--overwrite-output", action="store_true")
    parser.add_argument("--partition-count", type=int)
    parser.add_argument("--row-group-size-mb", type=float)
    parser.add_argument("--field-regex", nargs="+")
    parser.add_argument("--not-null-fields", nargs="+")
    arguments = parser.parse_args(sys_argv)
    copy_dataset(
        None,
        arguments.source_url,
        arguments.target_url,
        field_regex=arguments.field_regex,
        not_null_fields=arguments.not_null_fields,
        overwrite_output=arguments.overwrite_output,
        partitions_count=arguments.partition_count,
        row_group_size_mb=arguments.row_group_size_mb,
    )


if __name__ == "__main__":
    _main()
