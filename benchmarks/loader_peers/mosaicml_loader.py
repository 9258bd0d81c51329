"""MosaicML Streaming's dataset under torch's DataLoader, as its documentation has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import streaming
from record_peers.system import decoded
from record_peers.workload import Schema

from loader_peers.loading import BATCH, LoaderSystem
from loader_peers.torch_loading import TorchLoading, tensors


class Collate:
    """Stacks samples, whose arrays are read-only, and decodes their JPEGs."""

    def __init__(self, schema: Schema) -> None:
        self._fields = schema.fields

    def __call__(self, samples: list[dict[str, Any]]) -> Any:
        columns: dict[str, Any] = {}
        for field in self._fields:
            values = [
                decoded(sample[field.name]) if field.kind == "jpeg" else sample[field.name]
                for sample in samples
            ]
            columns[field.name] = (
                values if field.kind == "blob" else np.array(values, field.dtype or np.uint8)
            )
        return tensors(columns)


class StreamingLoading(TorchLoading):
    """Shuffled by its default algorithm, among the samples of some shards."""

    def __init__(self, schema: Schema, folder: Path) -> None:
        super().__init__(
            streaming.StreamingDataset(local=str(folder), shuffle=True, batch_size=BATCH),
            Collate(schema),
        )

    def close(self) -> None:
        super().close()
        streaming.base.util.clean_stale_shared_memory()


SYSTEMS = {"streaming": LoaderSystem(StreamingLoading, stored="streaming")}
