"""MosaicML Streaming's dataset under torch's DataLoader, as its documentation has it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from record_peers.mosaicml import streaming
from record_peers.workload import Schema
from torch.utils.data import DataLoader

from loader_peers.loading import BATCH, N_WORKERS, LoaderSystem, Loading
from loader_peers.torch_loading import Stacked


class StreamingLoading(Loading):
    """Shuffled by its default algorithm, among the samples of some shards."""

    ahead = 2 * N_WORKERS

    def __init__(self, schema: Schema, folder: Path) -> None:
        streaming.base.util.clean_stale_shared_memory()
        torch.set_num_threads(1)
        dataset = streaming.StreamingDataset(local=str(folder), shuffle=True, batch_size=BATCH)
        self._loader: DataLoader[Any] = DataLoader(
            dataset, BATCH, num_workers=N_WORKERS, collate_fn=Stacked(schema), persistent_workers=True
        )

    def epoch(self) -> Iterator[Any]:
        return iter(self._loader)

    def close(self) -> None:
        if self._loader._iterator is not None:
            self._loader._iterator._shutdown_workers()  # type: ignore[attr-defined]


SYSTEMS = {"streaming": LoaderSystem(StreamingLoading, stored="streaming")}
