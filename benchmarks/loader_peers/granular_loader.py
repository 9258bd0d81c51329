"""Granular's own loader over its own bags."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import granular
import numpy as np
from record_peers.granular_bags import TYPES
from record_peers.workload import Schema

from loader_peers.loading import BATCH, N_WORKERS, LoaderSystem, Loading

#: Its loader gives every blob the length of the first one, so blobs are filled up.
_MAX_BYTES = 40_000


def filled(sample: dict[str, Any], seed: Any) -> dict[str, Any]:
    """A blob of constant length, and its own."""
    blob = sample["blob"]
    array = np.zeros(_MAX_BYTES, np.uint8)
    array[: len(blob)] = np.frombuffer(blob, np.uint8)
    return {"blob": array, "length": len(blob)}


def as_it_is(value: bytes) -> bytes:
    """Decodes nothing."""
    return value


class GranularLoading(Loading):
    """Two workers; it never ends, so an epoch is as many batches as the samples fill."""

    ahead = 9  # its prefetch, and the one that is asked for

    def __init__(self, schema: Schema, folder: Path) -> None:
        self._n, self._fields = schema.n, schema.fields
        # Only those that are needed, and none of its lambdas: they do not pickle to its own
        # workers.
        decoders = {
            TYPES[field.kind]: granular.decoders[TYPES[field.kind]] for field in schema.fields
        }
        reader = granular.DatasetReader(
            str(folder), {**decoders, "bytes": as_it_is} if "bytes" in decoders else decoders
        )
        source = granular.sources.Epochs(reader, shuffle=True)
        if schema.fields[0].kind == "blob":
            source = granular.sources.Transform(source, filled)
        self._loader = granular.Loader(source, BATCH, workers=N_WORKERS)
        self._batches = iter(self._loader)

    def epoch(self) -> Iterator[Any]:
        for _ in range(
            self._n // BATCH
        ):  # not islice: a second iter() of its loader starts its workers again, and fails
            yield next(self._batches)

    def columns(self, batch: Any) -> Any:
        if "length" in batch:
            pairs = zip(batch["blob"], batch["length"].tolist(), strict=True)
            return {"blob": [array[:length].tobytes() for array, length in pairs]}
        # It returns integers of Python for all integer dtypes.
        return {
            field.name: batch[field.name].astype(field.dtype or np.uint8, copy=False)
            for field in self._fields
        }

    def close(self) -> None:
        self._loader.close()


SYSTEMS = {"granular": LoaderSystem(GranularLoading, stored="granular")}
