"""Copies datasets, with a selection of fields and rows."""

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
    """Copy a dataset without decoding its cells; rebuild the row-group indexes of the copied fields.

    Args:
        spark: ignored; may be None.
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
    schema, source = get_schema_from_dataset_url(source_url), readable_source(source_url)
    fields = [field.name for field in match_unischema_fields(schema, field_regex or [])]
    if field_regex and not fields:
        raise ConfigError(f"Regular expressions ({field_regex}) do not match any fields ({', '.join(schema.fields)})")
    target = readable_source(target_url)
    if not overwrite_output and folder_of(target).list_files():
        raise _target_error(f"{target_url!r} already exists: pass overwrite_output=True, or another target")
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
    """Return an error that is also Spark's in programs that have imported Spark."""
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
