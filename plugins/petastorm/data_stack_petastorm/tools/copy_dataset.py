"""Copies datasets, with a selection of fields and rows."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any, cast

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
    """Copy a dataset without decoding its cells; rebuild the row-group indexes of the copied fields.

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
        ConfigError: no field matches, or the target exists (in programs with Spark, this is also an ``AnalysisException``).
        ResourceNotFoundError: the source does not exist.
    """
    unischema = get_schema_from_dataset_url(source_url)
    names = [field.name for field in match_unischema_fields(unischema, field_regex or [])]
    if field_regex and not names:
        raise ConfigError(
            f"Regular expressions ({field_regex}) do not match any fields ({', '.join(unischema.fields)})"
        )
    if not overwrite_output and folder_of(target_url).list_files():
        raise _target_error(
            f"{target_url!r} already exists: pass overwrite_output=True, or another target"
        )
    footers = footers_of(source_url)
    footers.read_all()
    if (
        folder_of(target_url).path is not None
        and folder_of(target_url).path == footers.files.folder.path
    ):
        raise ConfigError(f"source and target are both {target_url!r}")
    row_groups = RowGroups(footers, read_schema(footers))
    schema = row_groups.schema.view(names) if names else row_groups.schema
    for name in not_null_fields or ():
        row_groups.schema[name]  # raises if the field does not exist
    in_folders = partition_names(footers.files.partitions)
    with ParquetWriter(
        target_url,
        schema,
        partition_by=[name for name in in_folders if name in schema],
        row_group_mb=row_group_size_mb or 32.0,
        file_mb=_file_mb(footers, partitions_count),
        petastorm=UNISCHEMA_KEY in footers.metadata,
        overwrite=overwrite_output,
    ) as writer:
        for table in _tables(row_groups, list(schema.fields), not_null_fields or (), in_folders):
            writer.append_arrow(table)
    indexes: list[Indexer] = []
    with contextlib.suppress(ConfigError, DatasetFileCorruptError):  # out of date, or damaged
        indexes = [index for index in read_indexes(footers).values() if index.field in schema]
    if indexes:
        build_rowgroup_index(target_url, None, indexes)


def _file_mb(footers: Footers, partitions_count: int | None) -> float:
    if not partitions_count or partitions_count == 1:
        return 1e9 if partitions_count else 512.0
    return (
        sum(footers.size(number) for number in range(len(footers.files.paths)))
        / 1e6
        / partitions_count
    )


def _tables(
    row_groups: RowGroups, names: Sequence[str], not_null: Sequence[str], in_folders: Sequence[str]
) -> Iterator[pa.Table]:
    """The selected rows of each row group, with partition columns."""
    footers, wanted = row_groups.footers, list(dict.fromkeys([*names, *not_null]))
    for group in range(len(footers)):
        file, n_rows = int(footers.file_of[group]), int(footers.n_rows[group])
        with reading_parquet(footers.name_of(group)), footers.files.open(file) as opened:
            reader = pq.ParquetFile(
                opened, metadata=footers.of(file), pre_buffer=True, page_checksum_verification=True
            )
            stored = [name for name in reader.schema_arrow.names if name in wanted]
            table = reader.read_row_group(int(footers.index_of[group]), columns=stored)
        for name in wanted if n_rows else ():
            if name in in_folders:
                value = row_groups.read(group, [name])[name].value(0)
                table = table.append_column(name, pa.array([value] * n_rows))
        for name in not_null:
            valid = (
                pc.is_valid(table.column(name))
                if name in table.column_names
                else pa.array([False] * len(table))
            )
            table = table.filter(valid)
        yield table.select([name for name in names if name in table.column_names])


def _target_error(message: str) -> ConfigError:
    """Return an error that is also Spark's in programs that have imported Spark."""
    errors: Any = sys.modules.get("pyspark.errors")
    bases = (ConfigError,) if errors is None else (ConfigError, errors.AnalysisException)
    return cast(ConfigError, type("TargetExistsError", bases, {})(message))


def _main(sys_argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Copy a Petastorm dataset.")
    parser.add_argument("source_url")
    parser.add_argument("target_url")
    parser.add_argument("--overwrite-output", action="store_true")
    parser.add_argument("--partition-count", type=int)
    parser.add_argument("--row-group-size-mb", type=float)
    parser.add_argument("--field-regex", nargs="+")
    parser.add_argument("--not-null-fields", nargs="+")
    given = parser.parse_args(sys_argv)
    options = (
        given.field_regex,
        given.not_null_fields,
        given.overwrite_output,
        given.partition_count,
        given.row_group_size_mb,
    )
    copy_dataset(None, given.source_url, given.target_url, *options)


if __name__ == "__main__":
    _main()
