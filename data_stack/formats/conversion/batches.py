"""Divides the samples of a conversion into batches."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.formats.column_source import ColumnSource
from data_stack.formats.column_types import positions_to_infer_from, size_of_column
from data_stack.io.progress import new_bar, shows_progress

_Positions = npt.NDArray[np.intp]

#: The approximate size of a batch in memory.
_BATCH_BYTES: Final = 8 << 20

#: The maximum number of samples in a batch.
_MAX_IN_BATCH: Final = 4096


def new_bar_for(description: str, source: ColumnSource, progress: bool | None) -> Any:
    """Return a progress bar over all samples of a source.

    Args:
        description: what is done with the samples.
        source: the samples.
        progress: whether to show it; None to show it on a terminal and in a notebook.
    """
    return new_bar(
        desc=description,
        total=len(source),
        unit=" samples",
        disable=not shows_progress(progress),
    )


def batches_of_positions(
    source: ColumnSource, stored: Collection[str] = ()
) -> Iterator[_Positions]:
    """Return all positions of a source, in batches of a few MiB.

    The number of samples in a batch is estimated from the size of some samples.

    Args:
        source: the samples.
        stored: the columns that will be read as the bytes of their files.
    """
    n_samples = len(source)
    if n_samples == 0:
        return
    positions = positions_to_infer_from(n_samples)
    columns = source.read(positions, source.schema, stored)
    n_bytes = sum(size_of_column(column) for column in columns.values())
    bytes_per_sample = max(1, n_bytes / len(positions))
    n_in_batch = int(_BATCH_BYTES / bytes_per_sample)
    n_in_batch = max(1, min(n_in_batch, _MAX_IN_BATCH))
    for start in range(0, n_samples, n_in_batch):
        stop = min(start + n_in_batch, n_samples)
        yield np.arange(start, stop, dtype=np.intp)
