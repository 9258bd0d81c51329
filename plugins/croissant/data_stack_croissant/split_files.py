"""Finds the prepared files of a split."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any, Final

from data_stack import Resources

#: Suffixes of files whose columns a document can name.
_SUFFIXES_OF_TABLES: Final = (".parquet", ".csv", ".tsv", ".jsonl")


def files_of_split(split: str, splits: Sequence[str], resources: Resources) -> list[str]:
    """Return the files of a split, sorted.

    They are the files whose paths contain the name of the split. If there are none, they are the
    files whose paths contain the name of no split, which belong to all splits.

    Args:
        split: name of the split.
        splits: names of all splits.
        resources: the prepared resources of the dataset.
    """
    named_files = []
    common_files = []
    for file in sorted(resources):
        splits_in_name = _splits_in(file, splits)
        if split in splits_in_name:
            named_files.append(file)
        if not splits_in_name:
            common_files.append(file)
    return named_files or common_files


def _splits_in(file: str, splits: Sequence[str]) -> set[str]:
    """Return the splits whose names are whole words of a path.

    For ``dev_2/a.npy``, that is ``dev_2`` alone, even if ``dev`` is a split, too.
    """
    longest_first = sorted(splits, key=len, reverse=True)
    any_split = "|".join(re.escape(split) for split in longest_first)
    # A word begins and ends at the ends of the path, and at any of / . _ -
    begins_word = r"(?<![^/._-])"
    ends_word = r"(?![^/._-])"
    return set(re.findall(f"{begins_word}(?:{any_split}){ends_word}", file))


def columns_of_file(file: str, resources: Resources) -> dict[str, bool]:
    """Return for each column of a file whether its values are pictures.

    Returns:
        An empty dict if the file is no table, or has no first line.
    """
    suffix = PurePosixPath(file).suffix
    if suffix not in _SUFFIXES_OF_TABLES:
        return {}
    with resources[file] as resource:
        if suffix == ".parquet":
            return _columns_of_parquet(resource)
        lines = io.TextIOWrapper(resource, encoding="utf-8-sig", errors="replace")
        first_line = lines.readline().strip()
    if not first_line:
        return {}
    if suffix == ".jsonl":
        return dict.fromkeys(json.loads(first_line), False)
    delimiter = "\t" if suffix == ".tsv" else ","
    names = next(csv.reader([first_line], delimiter=delimiter), [])
    return dict.fromkeys(names, False)


def _columns_of_parquet(resource: Any) -> dict[str, bool]:
    # Imported only here, as other datasets are described without pyarrow.
    from data_stack.formats.parquet import JpegCodec, ParquetDataset, PngCodec

    are_pictures = {}
    for column in ParquetDataset(resource).schema:
        are_pictures[column.name] = isinstance(column.codec, (JpegCodec, PngCodec))
    return are_pictures
