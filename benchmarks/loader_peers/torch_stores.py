"""torch's DataLoader over stores of others, which read whole batches in the worker: the fastest form for each of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import record_peers
from record_peers.workload import Schema

from loader_peers.loading import LoaderSystem, Loading
from loader_peers.torch_loading import TorchLoading, tensors


class Stored:
    """Batches of a reader of :mod:`record_peers`, which each worker opens for itself."""

    def __init__(self, store: str, schema: Schema, folder: Path) -> None:
        self._store, self._schema, self._folder = store, schema, folder
        self._reader: Any = None

    def __len__(self) -> int:
        return self._schema.n

    def __getitems__(self, indices: list[int]) -> Any:
        if self._reader is None:
            self._reader = record_peers.system(self._store).open(self._schema, self._folder)
        return tensors(self._reader.batch(np.asarray(indices)))


class TorchOnStore(LoaderSystem):
    """Workers by fork; nothing is open in the main process."""

    def __init__(self, stored: str, in_batches: str | None = None) -> None:
        self.stored, self._in_batches = stored, in_batches or stored

    def open(self, schema: Schema, folder: Path) -> Loading:
        store = self.stored if schema.packed is None else self._in_batches
        record_peers.system(store)  # imported before the workers are forked
        return TorchLoading(Stored(store, schema, folder), is_batched=True)


SYSTEMS: dict[str, LoaderSystem] = {
    "torch, lmdb": TorchOnStore("lmdb", "lmdb, joined"),
    "torch, hf_datasets": TorchOnStore("hf_datasets"),
    "torch, granular": TorchOnStore("granular"),
}
