"""litdata's own loader over its own chunks."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import litdata
import torch
from record_peers.workload import Schema

from loader_peers.loading import BATCH, N_WORKERS, LoaderSystem, Loading
from loader_peers.torch_loading import Stacked


class LitdataLoading(Loading):
    """Shuffled among the samples of a chunk. ``batch_decode`` would decode 256 for each random sample of W4."""

    ahead = 2 * N_WORKERS

    def __init__(self, schema: Schema, folder: Path) -> None:
        torch.set_num_threads(1)
        self._cache = tempfile.TemporaryDirectory()
        dataset = litdata.StreamingDataset(str(folder), cache_dir=self._cache.name, shuffle=True, drop_last=False, batch_decode=0)
        self._loader = litdata.StreamingDataLoader(
            dataset, batch_size=BATCH, num_workers=N_WORKERS, collate_fn=Stacked(schema), persistent_workers=True
        )

    def epoch(self) -> Iterator[Any]:
        return iter(self._loader)

    def close(self) -> None:
        self._cache.cleanup()


SYSTEMS = {"litdata": LoaderSystem(LitdataLoading, stored="litdata")}
