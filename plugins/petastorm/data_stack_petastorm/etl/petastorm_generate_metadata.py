"""Writes the metadata of existing Parquet files."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pydoc import locate
from typing import Any

import pyarrow as pa

from data_stack.exception import ConfigError
from data_stack.formats.parquet import Schema, generate_metadata
from data_stack_petastorm.etl.dataset_metadata import footers_of
from data_stack_petastorm.schemas import as_schema
from data_stack_petastorm.unischema import Unischema


def generate_petastorm_metadata(
    spark: Any,
    dataset_url: str,
    unischema_class: str | None = None,
    use_summary_metadata: bool = False,
    hdfs_driver: str = "libhdfs3",
) -> None:
    """Write the manifest and ``_common_metadata`` of a dataset from the footers of its files.

    Stored row-group indexes are kept if they are up to date.

    Args:
        spark: ignored; may be None.
        dataset_url: URL or path of the dataset.
        unischema_class: module and name of the schema, ``"frames.schemas.Frames"``; the module is
            imported. None: the schema in the metadata, or else one inferred from the columns.
        use_summary_metadata: whether to also write all footers to ``_metadata``.
        hdfs_driver: ignored.

    Raises:
        ConfigError: the schema does not exist, does not fit the files, or has codecs of users,
            which Petastorm does not read.
        ResourceNotFoundError: there are no Parquet files.
    """
    schema = None if unischema_class is None else _import_schema(unischema_class)
    generate_metadata(dataset_url, schema=schema, petastorm=True)
    if use_summary_metadata:
        _write_summary(dataset_url)


def _import_schema(name: str) -> Schema:
    """Return the schema that a module of the user's program defines.

    Raises:
        ConfigError: there is no schema of this name.
    """
    schema = locate(name)
    if not isinstance(schema, (Unischema, Schema)):
        raise ConfigError(
            f"The specified class {name!r} is not an instance of a Unischema object: {schema!r:.80}"
        )
    return as_schema(schema)


def _write_summary(dataset_url: Any) -> None:
    """Write the footers of all files to ``_metadata``."""
    footers = footers_of(dataset_url)
    paths = footers.files.paths
    file_metadata = [footers.of(number) for number in range(len(paths))]
    for path, metadata in zip(paths, file_metadata, strict=True):
        metadata.set_file_path(path)

    summary = file_metadata[0]
    for metadata in file_metadata[1:]:
        summary.append_row_groups(metadata)

    buffer = pa.BufferOutputStream()
    summary.write_metadata_file(buffer)
    with footers.files.folder.create("_metadata") as target:
        target.write(buffer.getvalue().to_pybytes())


def _main(args: Sequence[str] | None = None) -> None:
    """Run the command line program ``petastorm-generate-metadata.py``."""
    parser = argparse.ArgumentParser(description="Write the metadata of a Parquet dataset.")
    parser.add_argument("--dataset_url", required=True)
    parser.add_argument(
        "--unischema_class", help="module and name of the schema; default: that of the dataset"
    )
    parser.add_argument("--use-summary-metadata", action="store_true", help="also write _metadata")
    options = parser.parse_args(args)
    generate_petastorm_metadata(
        None, options.dataset_url, options.unischema_class, options.use_summary_metadata
    )


if __name__ == "__main__":
    _main()
