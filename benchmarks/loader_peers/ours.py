"""data_stack's own loader, on its own records and on arrays, with each kind of workers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from record_peers.workload import Schema

from data_stack.dataset.iterator import CombinedDatasetIterator, SequenceDatasetIterator
from data_stack.formats.records import RecordReader
from data_stack.loader import Loader
from loader_peers.loading import BATCH, N_WORKERS, LoaderSystem, Loading
from loader_peers.mapped import mapped_columns


class OurLoading(Loading):
    """A :class:`~data_stack.loader.Loader` in a ``with`` block, an iteration for each epoch."""

    def __init__(self, iterator: Any, kind: str, names: tuple[str, ...] | None = None) -> None:
        self._names = names
        self._iterator = iterator
        self.loader = Loader(
            iterator,
            BATCH,
            shuffle=True,
            seed=1,
            workers=None if kind == "inline" else N_WORKERS,
            worker_kind=kind,  # type: ignore[arg-type]
        )
        self.loader.__enter__()

    def epoch(self) -> Iterator[Any]:
        return iter(self.loader)

    def columns(self, batch: Any) -> Any:
        return super().columns(
            batch if self._names is None else dict(zip(self._names, batch, strict=True))
        )

    def kind_of_workers(self) -> str:
        found = self.loader.stats()
        return f"{found.worker_kind}: {found.choice}" if found.choice else ""

    def close(self) -> None:
        self.loader.close()
        if hasattr(self._iterator, "close"):
            self._iterator.close()


def on_records(schema: Schema, folder: Path, kind: str) -> Loading:
    """A RecordReader of default options."""
    return OurLoading(RecordReader(folder), kind)


def on_arrays(schema: Schema, folder: Path, kind: str) -> Loading:
    """A memory map for each column; samples are tuples."""
    columns = mapped_columns(schema, folder)
    return OurLoading(
        SequenceDatasetIterator([np.asarray(column) for column in columns.values()]),
        kind,
        tuple(columns),
    )


def on_combined_arrays(schema: Schema, folder: Path, kind: str) -> Loading:
    """The same arrays, cut into four iterators that are combined again."""
    columns = mapped_columns(schema, folder)
    bounds = np.linspace(0, schema.n, 5).astype(int).tolist()
    parts = []
    for start, stop in itertools.pairwise(bounds):
        part_of_columns = [np.asarray(column)[start:stop] for column in columns.values()]
        parts.append(SequenceDatasetIterator(part_of_columns))
    return OurLoading(CombinedDatasetIterator(parts), kind, tuple(columns))


SYSTEMS: dict[str, LoaderSystem] = {}
for _kind in ("auto", "inline", "threads", "processes"):
    SYSTEMS[f"ours, records, {_kind}"] = LoaderSystem(
        partial(on_records, kind=_kind), "ours", "ours"
    )
    SYSTEMS[f"ours, arrays, {_kind}"] = LoaderSystem(
        partial(on_arrays, kind=_kind), "ours", works=("W1", "W4")
    )
SYSTEMS["ours, arrays combined of 4, inline"] = LoaderSystem(
    partial(on_combined_arrays, kind="inline"), "ours", works=("W1", "W4")
)
