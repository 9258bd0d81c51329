"""Compares what a loader gives with the truth, and looks for samples that come twice in an
epoch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from record_peers.system import Batch
from record_peers.workload import Schema, check_values

from loader_peers.loading import Loading
from loader_peers.mapped import MappedBlobs, mapped_columns

#: Where the decoded pictures of W3 lie, beside the files of the memory map.
DECODED = "decoded.npy"


def check_epoch(
    loading: Loading, schema: Schema, truth_folder: Path, seconds: float
) -> tuple[int, Iterator[Any]]:
    """Check the batches of an epoch, for so many seconds of it; returns how many samples were, and
    the rest of the epoch.

    Raises:
        ValueError: a value, dtype or shape differs, a sample came twice, or one did not come.
    """
    truth = _Truth(schema, truth_folder)
    seen = np.zeros(schema.n, bool)
    start, batches = time.perf_counter(), iter(loading.epoch())
    for batch in batches:
        columns = loading.columns(batch)
        indices = truth.indices(columns)
        truth.check(columns, indices)
        if seen[indices].any() or len(np.unique(indices)) != len(indices):
            raise ValueError("a sample came twice in an epoch")
        seen[indices] = True
        if time.perf_counter() - start > seconds:
            return int(seen.sum()), batches
    n_seen = int(seen.sum())
    if n_seen < schema.n - 255:  # some leave out an incomplete batch
        raise ValueError(f"an epoch had {n_seen} of {schema.n} samples")
    return n_seen, iter(())


class _Truth:
    """Which sample is it, and what must it be?"""

    def __init__(self, schema: Schema, folder: Path) -> None:
        self._schema = schema
        self._columns: dict[str, Any] = {}
        if schema.packed is not None:
            self._columns = mapped_columns(schema, folder)
            self._names = [field.name for field in schema.fields if field.kind == "array"]
            # enough random bytes of each sample to tell it from all others
            keys = self._columns[self._names[0]].reshape(schema.n, -1)[:, :8].copy()
            self._places = {key.tobytes(): index for index, key in enumerate(keys)}
        elif schema.fields[0].kind == "blob":
            self._blobs = MappedBlobs(folder)
            self._places = {
                blob[:16]: index
                for index, blob in enumerate(self._blobs.values(np.arange(schema.n)))
            }
        else:
            self._pictures = np.load(folder / DECODED, mmap_mode="r")
            self._thumbnails = _thumbnails(np.asarray(self._pictures))

    def indices(self, batch: Batch) -> np.ndarray[Any, Any]:
        """The positions of a batch's samples, told by their values."""
        if self._columns:
            keys = np.asarray(batch[self._names[0]]).reshape(len(batch[self._names[0]]), -1)[:, :8]
            found = [self._places[key.tobytes()] for key in np.ascontiguousarray(keys)]
        elif self._schema.fields[0].kind == "blob":
            found = [self._places[blob[:16]] for blob in batch["blob"]]
        else:
            near = _thumbnails(np.asarray(batch["image"]))
            squares = (self._thumbnails**2).sum(1)
            return np.asarray((squares - 2 * near @ self._thumbnails.T).argmin(1))
        return np.array(found)

    def check(self, batch: Batch, indices: np.ndarray[Any, Any]) -> None:
        """Hold values, dtypes and shapes against the truth."""
        for field in self._schema.fields:
            if field.kind == "blob":
                check_values(field, batch[field.name], self._blobs.values(indices))
            else:
                truth = self._pictures if field.kind == "jpeg" else self._columns[field.name]
                check_values(field, batch[field.name], truth[indices])


def _thumbnails(pictures: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    n, size = len(pictures), pictures.shape[1] // 12
    means = pictures.reshape(n, 12, size, 12, size, 3).mean((2, 4))
    return np.asarray(means.reshape(n, -1), np.float32)
