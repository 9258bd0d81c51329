"""Parsers of the arguments that readers and writers share: paths, slices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from data_stack.exception import ConfigError


def local_path(path: Any) -> Path:
    """Convert to a local path.

    Raises:
        ConfigError: the path is a URL.
    """
    if "://" in str(path):
        raise ConfigError(
            f"{path!s:.80} is a URL: read it with DatasetReader, "
            "or write to it with data_stack's RecordWriter"
        )
    return Path(path)


def slice_positions(index: slice | range, length: int) -> range:
    """Return the positions of a slice or range that exist in a sequence of ``length``.

    Raises:
        ConfigError: the step is not 1, or a position is negative.
    """
    is_step_one = index.step is None or index.step == 1
    start = index.start or 0
    stop = index.stop or 0
    if not is_step_one or start < 0 or stop < 0:
        raise ConfigError(
            f"slices of records must have step 1 and no negative positions, got {index!r}"
        )
    return range(length)[index.start : index.stop]
