"""Finds and reads the metadata files of a Parquet dataset.

They are the manifest that lists its files, and ``_common_metadata`` of other tools.
"""

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

#: Lists the files, in the metadata of a Parquet footer without rows; written last. It is Parquet

#: because Polars and Hugging Face's datasets read all files of a folder.
PARQUET_MANIFEST: Final = "_data_stack_manifest.parquet"

#: Lists the files that an unfinished writer has completed. While it exists, readers ignore files

#: that no manifest lists.
PROGRESS_FOLDER: Final = "_data_stack_progress"

#: Where row-group indexes and manifest stand in the key-value metadata of the manifest's file.
INDEXES_KEY: Final = b"data_stack.row_group_indexes"
MANIFEST_KEY: Final = b"data_stack.manifest"

#: What to do after other tools changed files.
RECREATE: Final = "To list the files as they are now, run `data-stack parquet generate-metadata`"

#: Matches the paths of metadata files; that of a manifest may be in the folder of a partition.
_METADATA_FILE: Final = re.compile(
    rf"{COMMON_METADATA}|(?:[^/=]*=[^/]*/)*{re.escape(PARQUET_MANIFEST)}"
)


def find_metadata(folder: Folder, names: Iterable[str] | None = None) -> tuple[str, ...]:
    """Find ``_common_metadata`` and the manifest, as far as they exist.

    The manifest of a dataset with partitions is in the folder of one of them: elsewhere, DuckDB and
    Polars would read it as a file without a partition.

    Args:
        folder: of the dataset.
        names: names of all its files; None to list them.

    Returns:
        Their paths, the manifest last. Of several manifests it is the one in the deepest folder.
    """
    if names is None:
        try:
            names = folder.list_files()
        except UnsupportedStorageOperationError:
            names = filter(folder.has_file, (COMMON_METADATA, PARQUET_MANIFEST))
    common_metadata: list[str] = []
    manifests: list[str] = []
    for name in names:
        if name == COMMON_METADATA:
            common_metadata.append(name)
        elif _METADATA_FILE.fullmatch(name):
            manifests.append(name)
    manifests.sort(key=_depth)
    return tuple(common_metadata + manifests[-1:])


def _depth(path: str) -> int:
    return path.count("/")


def read_metadata(folder: Folder, paths: Sequence[str] | None = None) -> pa.Schema | None:
    """Read the schema and all key-value metadata in the metadata files.

    Args:
        folder: of the dataset.
        paths: as :func:`find_metadata` returns them; None to find them.

    Returns:
        The schema of the last file, with the metadata of all; None without such files.

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
    metadata.pop(b"ARROW:schema", None)
    return schema.with_metadata(metadata)
