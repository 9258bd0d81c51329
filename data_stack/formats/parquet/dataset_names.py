"""The names of the files of a Parquet dataset, and of what lies beside them."""

from __future__ import annotations

from typing import Final

#: A Parquet footer without rows that tells of all files, as Spark and Petastorm write it.
COMMON_METADATA: Final = "_common_metadata"
#: Which files there are, in the metadata of a Parquet footer without rows; written last. It is Parquet because Polars and
#: Hugging Face's datasets read all files of a folder.
PARQUET_MANIFEST: Final = "_data_stack_manifest.parquet"
#: What a writer that has not finished has completed. Files that no manifest lists are its; while it is there they are not rows.
PROGRESS_FOLDER: Final = "_data_stack_progress"
PROGRESS_NOTE: Final = f"{PROGRESS_FOLDER}/manifest.json"
#: Of files of rows; Hive writes them without one.
SUFFIXES: Final = (".parquet", ".parq", ".pq")


def is_hidden(path: str) -> bool:
    """Whether no tool takes a file for rows: its name, or that of a folder of it, begins with ``_`` or ``.`` and has no ``=``."""
    return any(part.startswith(("_", ".")) and "=" not in part for part in path.split("/"))


def is_data_file(path: str) -> bool:
    """Whether tools take a file for rows of the dataset, by its path."""
    return not is_hidden(path) and (path.endswith(SUFFIXES) or "." not in path.rpartition("/")[2])
