"""The prepared files of a split, and the columns of those that are tables."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any, Final

from data_stack import Resources

#: Files whose columns Croissant can name.
_SUFFIXES_OF_TABLES: Final = (".parquet", ".csv", ".tsv", ".jsonl")


def files_of_split(split: str, splits: Sequence[str], resources: Resources) -> list[str]:
    """Return the files whose names have the split; without such, those whose names have none.

    Args:
        split: its name.
        splits: the names of all.
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

    Of ``dev_2/a.npy`` it is ``dev_2`` alone, though ``dev`` is a split, too.
    """
    longest_first = sorted(splits, key=len, reverse=True)
    any_split = "|".join(re.escape(split) for split in longest_first)
    return set(re.findall(rf"(?<![^/._-])(?:{any_split})(?![^/._-])", file))


def columns_of_file(file: str, resources: Resources) -> dict[str, bool]:
    """Return by column of a table whether its values are pictures; ``{}`` of other files."""
    suffix = PurePosixPath(file).suffix
    if suffix not in _SUFFIXES_OF_TABLES:
        return {}
    with resources[file] as resource:
        if suffix == ".parquet":
            return _columns_of_parquet(resource)
        first_line = io.TextIOWrapper(resource, encoding="utf-8", errors="replace").readline()
    if suffix == ".jsonl":
        return dict.fromkeys(json.loads(first_line), False)
    delimiter = "\t" if suffix == ".tsv" else ","
    names = next(csv.reader([first_line], delimiter=delimiter), [])
    return dict.fromkeys(names, False)


def _columns_of_parquet(resource: Any) -> dict[str, bool]:
    # Only here, as other datasets are described without pyarrow.
    from data_stack.formats.parquet import JpegCodec, ParquetDataset, PngCodec

    return {
        column.name: isinstance(column.codec, (JpegCodec, PngCodec))
        for column in ParquetDataset(resource).schema
    }
