"""Grain's MapDataset with its own worker processes, over ArrayRecord and over a memory map."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags
from record_peers.system import Packed
from record_peers.workload import Schema

from loader_peers.loading import BATCH, N_WORKERS, LoaderSystem, Loading
from loader_peers.mapped import mapped_columns

logging.getLogger("absl").setLevel(logging.ERROR)
import grain  # noqa: E402
from grain.sources import ArrayRecordDataSource  # noqa: E402


class Numbers:
    """Positions as samples: what is left to do for a batch function that takes the columns at once."""

    def __init__(self, n: int) -> None:
        self._n = n

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, index: int) -> int:
        return index


class TakenColumns:
    """A batch out of positions."""

    def __init__(self, schema: Schema, folder: Path) -> None:
        self._schema, self._folder = schema, folder
        self._columns: dict[str, Any] | None = None

    def __call__(self, indices: Sequence[int]) -> Any:
        if self._columns is None:
            self._columns = mapped_columns(self._schema, self._folder)
        return {name: column.take(indices, 0) for name, column in self._columns.items()}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_columns": None}


class UnpackedRecords:
    """A batch out of records of bytes."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def __call__(self, records: Sequence[bytes]) -> Any:
        batch = Packed(self._schema).batch(list(records))
        if "blob" in batch:
            whole = np.frombuffer(b"".join(batch["blob"]), np.uint8)
            return {"bytes": whole, "lengths": np.array([len(value) for value in batch["blob"]])}
        return batch


class GrainLoading(Loading):
    """Shuffled, batched, repeated; the last incomplete batch is left out, as batches of worker processes are of one size.

    By default 16 threads of each worker read 500 *batches* ahead, which is slower and hides how fast it is: few of either.
    """

    def __init__(self, source: Any, batch_fn: Any, *, n_threads: int) -> None:
        self.ahead = N_WORKERS * (2 * n_threads + 3)
        if not flags.FLAGS.is_parsed():
            flags.FLAGS.mark_as_parsed()  # Grain looks up its number of threads there
        self._n = len(source)
        dataset = grain.MapDataset.source(source).seed(1).shuffle().batch(BATCH, drop_remainder=True, batch_fn=batch_fn).repeat()
        reading = grain.ReadOptions(num_threads=n_threads, prefetch_buffer_size=2 * n_threads)
        options = grain.MultiprocessingOptions(num_workers=N_WORKERS, per_worker_buffer_size=2)
        self._batches = iter(dataset.to_iter_dataset(reading).mp_prefetch(options))

    def epoch(self) -> Iterator[Any]:
        for _ in range(self._n // BATCH):
            yield next(self._batches)

    def close(self) -> None:
        self._batches.close()


def on_array_record(schema: Schema, folder: Path) -> Loading:
    """As Grain's documentation has it; a batch of records is unpacked at once, not record by record."""
    return GrainLoading(ArrayRecordDataSource(str(folder / "records")), UnpackedRecords(schema), n_threads=2)


def on_map(schema: Schema, folder: Path) -> Loading:
    """The best that Grain's own machinery can do: its samples are positions, its batch function takes the columns."""
    return GrainLoading(Numbers(schema.n), TakenColumns(schema, folder), n_threads=1)


SYSTEMS = {
    "grain, array_record": LoaderSystem(on_array_record, stored="array_record"),
    "grain, memmap": LoaderSystem(on_map, works=("W1", "W4")),
}
