"""A function of pure Python that takes 50 µs a sample, on W4: ours and torch's loader, with and without processes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from record_peers.workload import Schema

from loader_peers.loading import BATCH, LoaderSystem, Loading
from loader_peers.mapped import mapped_columns

WORK_SECONDS = 50e-6


class Work:
    """Counts up for about 50 µs, and gives the sample as it was: no part of it leaves Python's lock."""

    def __init__(self, n_turns: int) -> None:
        self._n_turns = n_turns

    def __call__(self, sample: Any) -> Any:
        total = 0
        for number in range(self._n_turns):
            total += number & 3
        return sample


def calibrated_work(folder: Path) -> Work:
    """The function; how far it counts is found out once for all that are compared."""
    kept = folder / "turns.json"
    if not kept.exists():
        n_turns, work = 20_000, Work(20_000)
        best = min(_seconds_of(work) for _ in range(20))
        kept.write_text(json.dumps(max(1, round(n_turns * WORK_SECONDS / best))))
    return Work(json.loads(kept.read_text()))


def _seconds_of(work: Work) -> float:
    start = time.perf_counter()
    work(None)
    return time.perf_counter() - start


class BareLoop(Loading):
    """The function on every sample, the samples stacked: what no single thread can do faster."""

    ahead = 0

    def __init__(self, schema: Schema, folder: Path) -> None:
        self._work, self._n = calibrated_work(folder), schema.n
        self._columns, self._rng = mapped_columns(schema, folder), np.random.default_rng(1)

    def epoch(self) -> Iterator[Any]:
        order, work = self._rng.permutation(self._n), self._work
        for start in range(0, self._n, BATCH):
            part = order[start : start + BATCH]
            batch = {name: column.take(part, 0) for name, column in self._columns.items()}
            for image in batch["image"]:
                work(image)
            yield batch


class PythonWork(LoaderSystem):
    """One way to apply the function."""

    works = ("python",)

    def __init__(self, way: str) -> None:
        self._way = way

    def open(self, schema: Schema, folder: Path) -> Loading:
        if self._way == "bare":
            return BareLoop(schema, folder)
        if self._way.startswith("torch"):
            from loader_peers.torch_arrays import Mapped
            from loader_peers.torch_loading import TorchLoading

            n_workers = int(self._way.split()[1])
            return TorchLoading(Mapped(schema, folder, calibrated_work(folder)), is_batched=False, n_workers=n_workers)
        from data_stack.dataset.iterator import SequenceDatasetIterator
        from loader_peers.ours import OurLoading

        columns = mapped_columns(schema, folder)
        iterator = SequenceDatasetIterator(list(columns.values())).map(calibrated_work(folder))
        return OurLoading(iterator, self._way, tuple(columns))


class OurPythonWork(PythonWork):
    """Ours."""

    kind: ClassVar[str] = "ours"


class BarePythonWork(PythonWork):
    """The limit of one thread."""

    kind: ClassVar[str] = "limit"


SYSTEMS: dict[str, LoaderSystem] = {
    **{f"ours, python, {kind}": OurPythonWork(kind) for kind in ("inline", "auto", "processes")},
    "torch, python, 0 workers": PythonWork("torch 0"),
    "torch, python, 2 workers": PythonWork("torch 2"),
    "bare loop, python": BarePythonWork("bare"),
}
