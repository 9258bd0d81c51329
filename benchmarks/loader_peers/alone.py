"""What is measured of a loader in a process of its own; benchmarks/loader.py starts it, and prints
what it answers.

Run, in benchmarks/: python -m loader_peers.alone {first,state,order,training,memory} '{"way": …}'
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from harness import timed
from record_peers.workload import WORKLOADS, Schema

from data_stack.dataset.iterator import DatasetIterator, DatasetIteratorIF, SequenceDatasetIterator
from data_stack.loader import BlockShuffled, Loader, Order, Shuffled
from data_stack.loader.orders import Bucketed
from data_stack.loader.state import add_digest
from loader_peers.loading import BATCH, N_WORKERS
from loader_peers.mapped import mapped_columns
from loader_peers.memory import proportional_bytes


def our_loader(iterator: Any, kind: Any, **options: Any) -> Loader:
    """Shuffled batches from two workers, or from none."""
    return Loader(
        iterator,
        BATCH,
        shuffle=True,
        seed=1,
        workers=None if kind == "inline" else N_WORKERS,
        worker_kind=kind,
        **options,
    )


def w4_iterator(folder: str) -> DatasetIteratorIF:
    """W4 out of the memory map."""
    return SequenceDatasetIterator(
        list(mapped_columns(WORKLOADS["W4"](small=True).schema, Path(folder)).values())
    )


def w4_schema(folder: str) -> Schema:
    """Its fields and its length."""
    return Schema("W4", WORKLOADS["W4"](small=True).schema.fields, len(w4_iterator(folder)))


def first(way: str, folder: str) -> float:
    """Seconds from making a loader to its first batch; everything that this process imports is
    imported before.

    "again" is another loader in the same process, "kept" another epoch with the same workers.
    """
    kind, _, when = way.partition(", ")[2].partition(", ")
    if way.startswith("ours"):
        iterator, seconds = w4_iterator(folder), 0.0
        for _ in range(2 if when == "again" else 1):
            start = time.perf_counter()
            with (
                our_loader(iterator, kind)
                if when == "kept"
                else contextlib.nullcontext(our_loader(iterator, kind)) as ours
            ):
                next(iter(ours))
                if when == "kept":
                    start = time.perf_counter()
                    next(iter(ours))
                seconds = time.perf_counter() - start
            ours.close()
        return seconds
    from torch.utils.data import DataLoader

    from loader_peers.torch_arrays import MappedInBatches
    from loader_peers.torch_loading import as_it_is

    dataset: Any = MappedInBatches(w4_schema(folder), Path(folder))
    workers: dict[str, Any] = (
        {"num_workers": N_WORKERS, "multiprocessing_context": kind} if kind != "no workers" else {}
    )
    start = time.perf_counter()
    batches = iter(DataLoader(dataset, BATCH, shuffle=True, collate_fn=as_it_is, **workers))
    next(batches)
    return time.perf_counter() - start


class Computed(DatasetIterator):
    """As many samples as one likes, ``(index, index * 7 % 1000)``."""

    def __init__(self, n_samples: int) -> None:
        self._n_samples = n_samples

    def __len__(self) -> int:
        return self._n_samples

    def __getitem__(self, index: int) -> tuple[int, int]:
        return index, index * 7 % 1000

    def read_batch(self, indices: Any) -> tuple[npt.NDArray[np.int64], ...]:
        given = np.asarray(indices, dtype=np.int64)
        return given.copy(), given * 7 % 1000


def state(way: str, n_samples: int, step: int) -> dict[str, float]:
    """Seconds that ``load_state_dict`` takes in the middle of an epoch, and the first batch behind
    it.
    """
    saved = Loader(
        Computed(n_samples), BATCH, shuffle=True, seed=5, worker_kind="inline"
    ).state_dict()
    fields = {name: value for name, value in saved.items() if name != "digest"}
    state = add_digest({**fields, "position": step * BATCH})
    cold, again, behind = [], [], []
    for _ in range(20):
        loader = Loader(Computed(n_samples), BATCH, shuffle=True, seed=5, worker_kind="inline")
        cold.append(timed(partial(loader.load_state_dict, state)))
        again.append(timed(partial(loader.load_state_dict, state)))
        behind.append(timed(lambda loader=loader: next(iter(loader))))  # type: ignore[misc]
    loader.load_state_dict(state)
    expected = Shuffled().indices(np.arange(step * BATCH, (step + 1) * BATCH), n_samples, 5, 0)
    if not np.array_equal(next(iter(loader))[0], expected):
        raise ValueError("the batch behind the state is another one")
    names = {"new loader": cold, "again": again, "first batch behind it": behind}
    return {name: statistics.median(seconds) for name, seconds in names.items()}


def order(way: str, n_samples: int) -> dict[str, Any]:
    """Seconds an index, and how well block-wise orders mix."""
    speeds: dict[str, float] = {}
    n_lengths = min(n_samples, 10**6)
    orders: dict[str, tuple[Order, int]] = {
        "shuffled": (Shuffled(), n_samples),
        "block-wise, window 16": (BlockShuffled(block_lengths=10_000, window=16), n_samples),
        "bucketed": (
            Bucketed(np.random.default_rng(2).integers(1, 500, n_lengths), chunk=BATCH),
            n_lengths,
        ),
    }
    for name, (each, n) in orders.items():
        starts = np.random.default_rng(1).integers(0, n - (1 << 14), 40).tolist()
        each.indices(np.arange(10), n, 1, 0)  # what is drawn once an epoch
        speeds[f"{name}, first batch of an epoch"] = timed(
            partial(each.indices, np.arange(BATCH), n, 1, 1)
        )
        for n_at_once in (1 << 14, BATCH):
            seconds = [
                timed(partial(each.indices, np.arange(start, start + n_at_once), n, 1, 0))
                for start in starts
            ]
            speeds[f"{name}, {n_at_once} at once"] = statistics.median(seconds) / n_at_once
    n_known = min(n_samples, 10**7)
    speeds["numpy's permutation"] = (
        timed(lambda: np.random.default_rng(1).permutation(n_known)) / n_known
    )
    return {"speeds": speeds, "quality": [quality(window) for window in (1, 4, 16, 64, None)]}


def quality(window: int | None, n_blocks: int = 1000, block_length: int = 200) -> dict[str, Any]:
    """How a block-wise order (None: a full shuffle) differs from a full one, of 1,000 blocks of 200
    samples.

    - ``same block``: share of neighbours in the order that are of the same block (a full shuffle:
      0.1 %).
    - ``batch labels``: the chi-square of ten sorted labels in batches of 256, by what chance gives
      (a full shuffle: 1).
    - ``blocks read``: how often a reader that keeps ``window + 1`` blocks opens one, by the number
      of blocks.
    """
    n = n_blocks * block_length
    order: Order = (
        Shuffled() if window is None else BlockShuffled(block_lengths=block_length, window=window)
    )
    indices = order.indices(np.arange(n), n, 7, 0)
    if not np.array_equal(np.sort(indices), np.arange(n)):
        raise ValueError("the order is no permutation")
    blocks = indices // block_length
    batches = indices[: n // BATCH * BATCH].reshape(-1, BATCH) * 10 // n
    counts = np.stack([(batches == label).sum(1) for label in range(10)], 1)
    chi_square = ((counts - BATCH / 10) ** 2 / (BATCH / 10)).sum(1).mean() / 9
    kept: dict[int, None] = {}
    n_openings = 0
    for block in blocks.tolist():
        if block not in kept:
            n_openings += 1
            if window is not None and len(kept) == window + 1:
                del kept[next(iter(kept))]
        kept.pop(block, None)
        kept[block] = None
    return {
        "window": "full shuffle" if window is None else window,
        "same block": round(float((np.diff(blocks) == 0).mean()), 4),
        "batch labels": round(float(chi_square), 2),
        "blocks read": None if window is None else round(n_openings / n_blocks, 2),
    }


def training(way: str, folder: str, seconds: float) -> float:
    """Share of the time that a small CNN on W4 waits for its batches."""
    import torch
    from torch import nn

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 49, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(images: Any, labels: Any) -> None:
        loss = nn.functional.cross_entropy(model(images[:, None].float().div_(255)), labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch does not say
        optimizer.step()

    for _ in range(10):
        step(torch.zeros((BATCH, 28, 28), dtype=torch.uint8), torch.arange(BATCH) % 10)
    loading: Any
    if way.startswith("ours"):
        loading = our_loader(w4_iterator(folder), way.partition(", ")[2], epochs=None)
    else:
        from loader_peers.torch_arrays import Mapped, MappedInBatches
        from loader_peers.torch_loading import TorchLoading, as_it_is

        args = w4_schema(folder), Path(folder)
        batched = way == "torch, batched"
        loading = (
            TorchLoading(MappedInBatches(*args), as_it_is)
            if batched
            else TorchLoading(Mapped(*args))
        ).loader
        torch.set_num_threads(len(os.sched_getaffinity(0)))
    waited, batches = 0.0, iter(loading)
    next(batches)  # starting is another figure
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        asked = time.perf_counter()
        batch = next(batches)
        waited += time.perf_counter() - asked
        images, labels = batch.values() if isinstance(batch, dict) else batch
        step(torch.as_tensor(images), torch.as_tensor(labels))
    elapsed = time.perf_counter() - began
    if way.startswith("ours"):
        loading.close()
    return waited / elapsed


def memory(way: str, folder: str, n_epochs: int) -> tuple[int, int]:
    """Memory of this process and all workers, in the last batch but one of epochs 2 and
    ``n_epochs``.
    """
    _, kind, kept = way.split(", ")
    loader = our_loader(w4_iterator(folder), kind)
    found = []
    if kept == "workers kept":
        loader.__enter__()
    for epoch in range(1, n_epochs + 1):
        last = len(loader) - 2
        for number, _batch in enumerate(loader):
            if number == last and epoch in (2, n_epochs):
                found.append(proportional_bytes(os.getpid()))
    loader.close()
    return found[0], found[1]


if __name__ == "__main__":
    measures: dict[str, Any] = {
        "first": first,
        "state": state,
        "order": order,
        "training": training,
        "memory": memory,
    }
    print(json.dumps(measures[sys.argv[1]](**json.loads(sys.argv[2]))))
