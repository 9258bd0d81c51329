"""Batches that share no memory with their source, so that their receiver may write into them."""

from __future__ import annotations

from typing import Any

import numpy as np

from data_stack.values.copies import copy_objects
from data_stack.values.large_arrays import owns_memory


def detach(batch: Any) -> Any:
    """Return a batch that shares no memory with its source, so that its receiver may write into it.

    Accesses return new arrays. Parts of other arrays, such as those of a mapped file or of a
    reader's cache, are copied, and so are the values in columns of objects.
    """
    if isinstance(batch, dict):
        return {key: detach(column) for key, column in batch.items()}
    if isinstance(batch, tuple):
        # The columns of some batches are batches: those of the windows of Petastorm.
        return tuple([detach(column) for column in batch])
    flags = batch.flags
    owner = batch.base
    if owner is None:
        is_new = flags.writeable and flags.owndata
    elif isinstance(owner, np.ndarray):
        # The batch may be the whole of another array, in another shape.
        is_whole = owner.nbytes == batch.nbytes
        is_new = flags.writeable and is_whole and owns_memory(owner)
    else:
        is_new = flags.writeable and owns_memory(batch)
    new_batch = batch
    if not is_new:
        new_batch = batch.copy()
    if new_batch.dtype.hasobject:
        return copy_objects(new_batch)
    return new_batch
