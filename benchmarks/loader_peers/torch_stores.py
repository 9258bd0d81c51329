"""torch's DataLoader over stores of others, which read whole batches in the worker: the fastest
form for each of them.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import record_peers
from record_peers.workload import Schema

from loader_peers.loading import LoaderSystem, Loading
from loader_peers.torch_loading import TorchLoading, as_it_is, tensors


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


def on_store(schema: Schema, folder: Path, store: str) -> Loading:
    """Workers by fork; nothing is open in the main process."""
    if store == "lmdb" and schema.packed is not None:
        store = "lmdb, joined"
    record_peers.system(store)  # imported before the workers are forked
    return TorchLoading(Stored(store, schema, folder), as_it_is)


SYSTEMS = {
    f"torch, {store}": LoaderSystem(partial(on_store, store=store), stored=store)
    for store in ("lmdb", "hf_datasets", "granular")
}
