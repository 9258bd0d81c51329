"""Reads the metadata files of a Parquet dataset: the manifest and ``_common_metadata``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from data_stack.exception import DatasetFileCorruptError, UnsupportedStorageOperationError
from data_stack.formats.parquet.arrow_errors import reading_parquet
from data_stack.io.folder import Folder

#: A Parquet footer without rows that describes all files, as Spark and Petastorm write it.
COMMON_METADATA: Final = "_common_metadata"

#: A Parquet file without rows, with the manifest in the metadata of its footer; written last. It is
#: Parquet because Polars and Hugging Face's datasets read all files of a folder as Parquet.
PARQUET_MANIFEST: Final = "_data_stack_manifest.parquet"

#: The folder with the list of the files that an unfinished writer has completed. While it exists,
#: readers ignore files that the manifest does not list.
PROGRESS_FOLDER: Final = "_data_stack_progress"

#: The key of the row-group indexes in the key-value metadata of the manifest's file.
INDEXES_KEY: Final = b"data_stack.row_group_indexes"
#: The key of the manifest in the same metadata.
MANIFEST_KEY: Final = b"data_stack.manifest"

#: The advice after other tools changed files.
RECREATE: Final = "To list the files as they are now, run `data-stack parquet generate-metadata`"

#: The key under which Arrow stores its schema in the key-value metadata of a footer.
_ARROW_SCHEMA_KEY: Final = b"ARROW:schema"

#: Matches the path of a manifest: in the folder of the dataset or of one of its partitions.
_MANIFEST_PATH: Final = re.compile(rf"(?:[^/=]*=[^/]*/)*{re.escape(PARQUET_MANIFEST)}")


def find_metadata(folder: Folder, names: Iterable[str] | None = None) -> tuple[str, ...]:
    """Find the metadata files of a dataset: ``_common_metadata`` and the manifest.

    The manifest of a dataset with partitions is in the folder of a partition. In the folder of the
    dataset, DuckDB and Polars would read it as a file that has no value of the partition columns.

    Args:
        folder: the folder of the dataset.
        names: the paths of all files in ``folder``; None to list them. If the store cannot list
            files, the metadata files are looked for in ``folder`` itself, not in partitions.

    Returns:
        The paths of those that exist, the manifest last. Of several manifests, it is the one in the
        deepest folder, and of several of these the last one in the order of ``names``.
    """
    if names is None:
        try:
            names = folder.list_files()
        except UnsupportedStorageOperationError:
            names = filter(folder.has_file, (COMMON_METADATA, PARQUET_MANIFEST))
    paths: list[str] = []
    manifests: list[str] = []
    for name in names:
        if name == COMMON_METADATA:
            paths.append(name)
        elif _MANIFEST_PATH.fullmatch(name):
            manifests.append(name)
    if manifests:
        manifests.sort(key=_depth)
        paths.append(manifests[-1])
    return tuple(paths)


def _depth(path: str) -> int:
    return path.count("/")


def read_metadata(folder: Folder, paths: Sequence[str] | None = None) -> pa.Schema | None:
    """Read the schema and all key-value metadata in the metadata files.

    Args:
        folder: the folder of the dataset.
        paths: the metadata files, as :func:`find_metadata` returns them; None to find them.

    Returns:
        The schema in the last of these files, with the key-value metadata of all of them. If a key
        is in several files, the last file takes precedence. None without metadata files.

    Raises:
        DatasetFileCorruptError: a file is damaged.
    """
    if paths is None:
        paths = find_metadata(folder)
    schema = None
    metadata: dict[bytes, bytes] = {}
    for path in paths:
        try:
            with reading_parquet(folder.full_name(path)), folder.open(path) as resource:
                footer = pq.read_metadata(resource)
                schema = footer.schema.to_arrow_schema()
        except DatasetFileCorruptError as error:
            raise DatasetFileCorruptError(f"{error}. Remove it. {RECREATE}") from error
        metadata.update(footer.metadata or {})
    if schema is None:
        return None
    # Arrow serializes the schema of a file under this key, also when it writes the metadata again.
    metadata.pop(_ARROW_SCHEMA_KEY, None)
    return schema.with_metadata(metadata)
