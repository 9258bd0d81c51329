"""Grain's MapDataset with its own worker processes, over ArrayRecord."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grain
import numpy as np
from grain.sources import ArrayRecordDataSource
from record_peers.system import Batch, unpack
from record_peers.workload import Schema

from loader_peers.loading import BATCH, N_WORKERS, LoaderSystem, Loading

N_THREADS = 2


def batch_of(records: list[bytes], schema: Schema) -> Batch:
    """A batch that goes through shared memory: blobs in one array."""
    batch = unpack(list(records), schema)
    if "blob" in batch:
        whole = np.frombuffer(b"".join(batch["blob"]), np.uint8)
        return {"bytes": whole, "lengths": np.array([len(value) for value in batch["blob"]])}
    return batch


class GrainLoading(Loading):
    """Shuffled, batched, repeated; without the last incomplete batch, as worker processes give
    batches of one size.

    By default 16 threads of each worker read 500 *batches* ahead, which is slower; here it is a few
    of both.
    """

    ahead = N_WORKERS * (2 * N_THREADS + 3)

    def __init__(self, schema: Schema, folder: Path) -> None:
        self._n = schema.n
        samples = (
            grain.MapDataset.source(ArrayRecordDataSource(str(folder / "records")))
            .seed(1)
            .shuffle()
        )
        dataset = samples.batch(
            BATCH, drop_remainder=True, batch_fn=partial(batch_of, schema=schema)
        ).repeat()
        reading = grain.ReadOptions(num_threads=N_THREADS, prefetch_buffer_size=2 * N_THREADS)
        options = grain.MultiprocessingOptions(num_workers=N_WORKERS, per_worker_buffer_size=2)
        self._batches = iter(dataset.to_iter_dataset(reading).mp_prefetch(options))

    def epoch(self) -> Iterator[Any]:
        for _ in range(self._n // BATCH):
            yield next(self._batches)

    def close(self) -> None:
        self._batches.close()


SYSTEMS = {"grain, array_record": LoaderSystem(GrainLoading, stored="array_record")}
