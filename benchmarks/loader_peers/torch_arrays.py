"""torch's DataLoader over a memory map for each column: as users write it, and the best that it can
do.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from record_peers.system import decoded
from record_peers.workload import Schema

from loader_peers.loading import LoaderSystem
from loader_peers.mapped import MappedBlobs, mapped_columns
from loader_peers.torch_loading import TorchLoading, as_it_is, tensors


class Mapped:
    """Samples one by one: dicts of rows, for torch's own collate function.

    Args:
        schema: of the samples.
        folder: where they lie.
        work: a function of each sample.
    """

    def __init__(
        self, schema: Schema, folder: Path, work: Callable[[Any], Any] | None = None
    ) -> None:
        self._work = work
        self._n, self._name = schema.n, schema.fields[0].name
        self._decode = schema.fields[0].kind == "jpeg"
        self._columns = {} if schema.packed is None else mapped_columns(schema, folder)
        self._blobs = MappedBlobs(folder)

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, index: int) -> Any:
        if self._columns:
            # A copy, or torch warns that the memory map is read-only.
            sample = {
                name: column[index].copy() if column.ndim > 1 else column[index]
                for name, column in self._columns.items()
            }
            return sample if self._work is None else self._work(sample)
        blob = self._blobs[index]
        return {self._name: decoded(blob).copy() if self._decode else blob}


class MappedInBatches(Mapped):
    """Finished batches: a ``take`` of each column."""

    def __getitems__(self, indices: list[int]) -> Any:
        if self._columns:
            return tensors(
                {name: column.take(indices, 0) for name, column in self._columns.items()}
            )
        blobs = self._blobs.values(np.asarray(indices))
        return tensors(
            {self._name: np.stack([decoded(blob) for blob in blobs]) if self._decode else blobs}
        )


SYSTEMS = {  # the data set is opened before the workers are forked, which a memory map permits
    "torch, memmap": LoaderSystem(lambda schema, folder: TorchLoading(Mapped(schema, folder))),
    "torch, memmap, batched": LoaderSystem(
        lambda schema, folder: TorchLoading(MappedInBatches(schema, folder), as_it_is)
    ),
}
