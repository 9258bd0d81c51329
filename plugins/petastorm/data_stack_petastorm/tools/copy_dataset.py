"""Copies a dataset: some fields, rows without nulls."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, cast

from data_stack.exception import ConfigError
from data_stack.formats.parquet import copy_dataset as copy
from data_stack.io.folder import folder_of
from data_stack_petastorm.etl.dataset_metadata import footers_of, get_schema_from_dataset_url
from data_stack_petastorm.fs_utils import readable_source
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
    """Copy a dataset, with its cells as they are; row-group indexes of fields that are copied are built anew.

    Args:
        spark: not needed; None will do.
        source_url: of the dataset, or its path.
        target_url: of the copy.
        field_regex: regular expressions of whole names of fields; None for all.
        not_null_fields: rows with a null in one of them are left out.
        overwrite_output: remove what is at the target first.
        partitions_count: files of the copy, about; None: files of at most 512 MB.
        row_group_size_mb: MB of each row group; None: 32.
        hdfs_driver: has no effect.

    Raises:
        ConfigError: no field matches, or there is something at the target already (in programs with Spark, this is an
            ``AnalysisException``, too).
        ResourceNotFoundError: there is no dataset at the source.
    """
    schema, source = get_schema_from_dataset_url(source_url), readable_source(source_url)
    fields = [field.name for field in match_unischema_fields(schema, field_regex or [])]
    if field_regex and not fields:
        raise ConfigError(f"Regular expressions ({field_regex}) do not match any fields ({', '.join(schema.fields)})")
    target = readable_source(target_url)
    if not overwrite_output and folder_of(target).list_files():
        raise _target_error(f"{target_url!r} already exists: take overwrite_output, or another folder")
    footers = footers_of(source)
    n_bytes = sum(footers.size(number) for number in range(len(footers.files.paths)))
    copy(
        source,
        target,
        fields=fields or None,
        not_null=tuple(not_null_fields or ()),
        row_group_mb=row_group_size_mb or 32.0,
        file_mb=512.0 if not partitions_count else 1e9 if partitions_count == 1 else n_bytes / 1e6 / partitions_count,
        overwrite=overwrite_output,
    )


def _target_error(message: str) -> ConfigError:
    """An error that programs which catch Spark's catch: these have imported it."""
    errors: Any = sys.modules.get("pyspark.errors")
    bases = (ConfigError,) if errors is None else (ConfigError, errors.AnalysisException)
    return cast(ConfigError, type("TargetExistsError", bases, {})(message))


def _main(sys_argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Copy a Petastorm dataset. `data-stack parquet copy` has more options.")
    parser.add_argument("source_url")
    parser.add_argument("target_url")
    parser.add_argument("--overwrite-output", action="store_true")
    parser.add_argument("--partition-count", type=int)
    parser.add_argument("--row-group-size-mb", type=float)
    parser.add_argument("--field-regex", nargs="+")
    parser.add_argument("--not-null-fields", nargs="+")
    given = parser.parse_args(sys_argv)
    copy_dataset(
        None,
        given.source_url,
        given.target_url,
        given.field_regex,
        given.not_null_fields,
        given.overwrite_output,
        given.partition_count,
        given.row_group_size_mb,
    )


if __name__ == "__main__":
    _main()
