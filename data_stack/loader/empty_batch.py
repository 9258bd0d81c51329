"""A batch without samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from data_stack.exception import ConfigError
from data_stack.loader.collation.ragged import Ragged


def without_rows(batch: Any) -> Any:
    """Return the columns of a batch without its samples, with their dtypes and shapes.

    Args:
        batch: an array, tensor or :class:`~data_stack.loader.collation.Ragged` of samples, or a
            tuple or dict of these, nested or not.

    Raises:
        ConfigError: a part of the batch is something else.
    """
    if isinstance(batch, dict):
        return {key: without_rows(column) for key, column in batch.items()}
    if isinstance(batch, tuple):
        return tuple([without_rows(column) for column in batch])
    if isinstance(batch, Ragged):
        return Ragged(batch.values[:0], batch.offsets[:1])
    has_rows = len(getattr(batch, "shape", ())) > 0
    if isinstance(batch, np.ndarray) or has_rows:
        return batch[:0]
    raise ConfigError(
        f"all samples of a batch are damaged, and what collate= returns, {type(batch).__name__}, "
        "has no rows that can be left out; use on_error='replace'"
    )
