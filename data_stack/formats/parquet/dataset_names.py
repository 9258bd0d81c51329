"""The names of the files of a Parquet dataset."""

from __future__ import annotations

from typing import Final

#: A Parquet footer without rows that describes all files, as Spark and Petastorm write it.
COMMON_METADATA: Final = "_common_metadata"
#: Lists the files, in the metadata of a Parquet footer without rows; written last. It is Parquet because Polars and Hugging
#: Face's datasets read all files of a folder.
PARQUET_MANIFEST: Final = "_data_stack_manifest.parquet"
#: Lists the files that an unfinished writer has completed. While it exists, readers ignore files that no manifest lists.
PROGRESS_FOLDER: Final = "_data_stack_progress"
PROGRESS_NOTE: Final = f"{PROGRESS_FOLDER}/manifest.json"
#: Suffixes of files of rows; Hive writes none.
SUFFIXES: Final = (".parquet", ".parq", ".pq")


def is_hidden(path: str) -> bool:
    """Whether tools ignore a file: its name, or the name of a folder, begins with ``_`` or ``.`` and has no ``=``."""
    return any(part.startswith(("_", ".")) and "=" not in part for part in path.split("/"))


def is_data_file(path: str) -> bool:
    """Whether tools read a file as rows of the dataset, by its path."""
    return not is_hidden(path) and (path.endswith(SUFFIXES) or "." not in path.rpartition("/")[2])
