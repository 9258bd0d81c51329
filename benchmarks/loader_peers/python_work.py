"""A function of pure Python that takes 50 µs a sample, on W4: ours and torch's loader, with and
without processes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from harness import timed
from record_peers.workload import Schema

from loader_peers.limits import Taken
from loader_peers.loading import LoaderSystem, Loading
from loader_peers.mapped import mapped_columns

WORK_SECONDS = 50e-6


class Work:
    """Counts up for about 50 µs without releasing the GIL, and returns the sample."""

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
        best = min(timed(lambda: work(None)) for _ in range(20))
        kept.write_text(json.dumps(max(1, round(n_turns * WORK_SECONDS / best))))
    return Work(json.loads(kept.read_text()))


class BareLoop(Loading):
    """The function on every sample, the samples stacked: what no single thread can do faster."""

    ahead = 0

    def __init__(self, schema: Schema, folder: Path) -> None:
        self._work, self._taken = calibrated_work(folder), Taken(schema, folder)

    def epoch(self) -> Iterator[Any]:
        work = self._work
        for batch in self._taken.epoch():
            for image in batch["image"]:
                work(image)
            yield batch


def ours(schema: Schema, folder: Path, kind: str) -> Loading:
    """Our loader over a mapped iterator."""
    from data_stack.dataset.iterator import SequenceDatasetIterator
    from loader_peers.ours import OurLoading

    columns = mapped_columns(schema, folder)
    return OurLoading(
        SequenceDatasetIterator(list(columns.values())).map(calibrated_work(folder)),
        kind,
        tuple(columns),
    )


def torchs(schema: Schema, folder: Path, n_workers: int) -> Loading:
    """Torch's loader over samples one by one."""
    from loader_peers.torch_arrays import Mapped
    from loader_peers.torch_loading import TorchLoading

    return TorchLoading(Mapped(schema, folder, calibrated_work(folder)), n_workers=n_workers)


_WORKS = ("python",)
SYSTEMS: dict[str, LoaderSystem] = {
    "bare loop, python": LoaderSystem(BareLoop, "limit", works=_WORKS)
}
for _kind in ("inline", "auto", "processes"):
    SYSTEMS[f"ours, python, {_kind}"] = LoaderSystem(
        partial(ours, kind=_kind), "ours", works=_WORKS
    )
for _n in (0, 2):
    SYSTEMS[f"torch, python, {_n} workers"] = LoaderSystem(
        partial(torchs, n_workers=_n), works=_WORKS
    )
