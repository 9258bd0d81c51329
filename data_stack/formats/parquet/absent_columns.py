"""Warns of columns that some files of a dataset lack, so that they are null in their rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import numpy as np

from data_stack.formats.parquet.files import partition_names
from data_stack.formats.parquet.footers import Footers
from data_stack.util.program_lines import warn_program

#: The maximum number of columns that a warning names.
_MAX_SHOWN_COLUMNS: Final = 5


def warn_of_absent_columns(
    footers: Footers, absent: Sequence[Collection[str]], names: Collection[str]
) -> None:
    """Warn if a file with rows lacks a column.

    The value of a partition column is in the name of the folder; a file outside of such a folder
    lacks it.

    Args:
        footers: the footers of the files.
        absent: the columns that each file lacks, apart from partition columns.
        names: the columns that are read.
    """
    partitions = footers.files.partitions
    names_of_partitions = [name for name in partition_names(partitions) if name in names]
    files_by_column: dict[str, list[int]] = {}
    for file in np.unique(footers.file_of[footers.n_rows > 0]).tolist():
        lacking = sorted(name for name in absent[file] if name in names)
        for name in names_of_partitions:
            if name in partitions[file]:
                continue
            # A column of the file itself is not read, so that it is in the account of the dataset.
            if name not in footers.columns(file):
                lacking.append(name)
        for name in lacking:
            files_by_column.setdefault(name, []).append(file)
    if not files_by_column:
        return

    shown = []
    for name, files in list(files_by_column.items())[:_MAX_SHOWN_COLUMNS]:
        n_others = len(files) - 1
        others = f" and {n_others:,} more files" if n_others else ""
        shown.append(f"{name!r:.80} ({footers.files.name(files[0])}{others})")
    n_more = len(files_by_column) - len(shown)
    if n_more:
        shown.append(f"{n_more:,} more")
    warn_program(
        "files lack columns that other files of the dataset have, so that they are null in their "
        f"rows: {', '.join(shown)}. If that is right, say so with ParquetDataset(…, schema=…), or "
        "leave the columns out with columns="
    )
