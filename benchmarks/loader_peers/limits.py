"""The limits: ``numpy.take`` over a permutation in a bare loop, and a bare decoder in two
threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from record_peers.workload import Schema

from loader_peers.loading import BATCH, N_WORKERS, LoaderSystem, Loading
from loader_peers.mapped import MappedBlobs, mapped_columns


class Taken(Loading):
    """A permutation of an epoch, and a ``take`` of each column for each part of it; blobs are
    slices of the map.
    """

    ahead = 0

    def __init__(self, schema: Schema, folder: Path) -> None:
        self._n, self._rng = schema.n, np.random.default_rng(1)
        self._columns: dict[str, Any] = {}
        if schema.packed is None:
            self._blobs = MappedBlobs(folder)
        else:
            self._columns = mapped_columns(schema, folder)

    def epoch(self) -> Iterator[Any]:
        order, columns = self._rng.permutation(self._n), self._columns
        for start in range(0, self._n, BATCH):
            part = order[start : start + BATCH]
            if columns:
                yield {name: column.take(part, 0) for name, column in columns.items()}
            else:
                yield {"blob": self._blobs.values(part)}


class Decoded(Loading):
    """The fastest decoder there is on JPEGs in memory, half of each batch in each of two
    threads.
    """

    ahead = 0

    def __init__(self, schema: Schema, folder: Path) -> None:
        import simplejpeg

        self._decode = simplejpeg.decode_jpeg
        self._jpegs = list(MappedBlobs(folder))
        self._rng = np.random.default_rng(1)
        self._pool = ThreadPoolExecutor(N_WORKERS)

    def epoch(self) -> Iterator[Any]:
        order = self._rng.permutation(len(self._jpegs))
        for start in range(0, len(order), BATCH):
            indices = order[start : start + BATCH].tolist()
            pictures = np.empty((len(indices), 96, 96, 3), np.uint8)

            def some(first: int, indices: list[int] = indices, pictures: Any = pictures) -> None:
                for place in range(first, len(indices), N_WORKERS):
                    self._decode(self._jpegs[indices[place]], buffer=pictures[place])

            list(self._pool.map(some, range(N_WORKERS)))
            yield {"image": pictures}

    def close(self) -> None:
        self._pool.shutdown()


SYSTEMS = {
    "take": LoaderSystem(Taken, kind="limit", works=("W1", "W2", "W4")),
    "decoder, 2 threads": LoaderSystem(Decoded, kind="limit", works=("W3",)),
}
