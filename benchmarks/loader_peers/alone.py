"""What is measured of a loader in a process of its own; benchmarks/loader.py starts it, and prints what it answers.

Run, in benchmarks/: python -m loader_peers.alone {first,state,order,training,memory} …
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from record_peers.workload import WORKLOADS, Schema

from data_stack.dataset.iterator import DatasetIterator, DatasetIteratorIF, SequenceDatasetIterator
from data_stack.loader import BlockShuffled, Loader, Order, Shuffled
from data_stack.loader.workers.kinds import WorkerKind
from loader_peers.loading import BATCH, N_WORKERS
from loader_peers.mapped import mapped_columns
from loader_peers.memory import proportional_bytes


def our_loader(iterator: Any, kind: WorkerKind, **options: Any) -> Loader:
    """Shuffled batches from two workers, or from none."""
    return Loader(
        iterator, BATCH, shuffle=True, seed=1, workers=None if kind == "inline" else N_WORKERS, worker_kind=kind, **options
    )


def w4_iterator(folder: Path) -> DatasetIteratorIF:
    """W4 out of the memory map."""
    return SequenceDatasetIterator(list(mapped_columns(w4_schema(), folder).values()))


def w4_schema() -> Schema:
    """Its fields."""
    return WORKLOADS["W4"](small=True).schema


# ---------------------------------------------------------------------- the first batch


def first_batch(way: str, folder: Path) -> dict[str, Any]:
    """Seconds from making a loader to its first batch; everything that this process imports is imported before."""
    if way.startswith("torch"):
        from torch.utils.data import DataLoader

        from loader_peers.torch_arrays import MappedInBatches
        from loader_peers.torch_loading import as_it_is

        columns = mapped_columns(w4_schema(), folder)
        dataset: Any = MappedInBatches(Schema("W4", w4_schema().fields, len(columns["label"])), folder)
        start_method = way.partition(", ")[2]
        n_workers = 0 if start_method == "no workers" else N_WORKERS
        start = time.perf_counter()
        loader = DataLoader(
            dataset,
            BATCH,
            shuffle=True,
            num_workers=n_workers,
            collate_fn=as_it_is,
            multiprocessing_context=start_method if n_workers else None,
        )
        batches = iter(loader)
        batch = next(batches)
        return {"seconds": time.perf_counter() - start, "samples": len(batch["label"])}
    iterator = w4_iterator(folder)
    kind: Any = way.partition(", ")[2]
    start = time.perf_counter()
    ours = our_loader(iterator, kind)
    our_batches = iter(ours)
    first = next(our_batches)
    seconds = time.perf_counter() - start
    ours.close()
    return {"seconds": seconds, "samples": len(first[0])}


# ---------------------------------------------------------------------- the state of a large dataset


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


def loading_a_state(n_samples: int, step: int) -> dict[str, Any]:
    """What ``load_state_dict`` takes in the middle of an epoch, and the first batch behind it."""
    iterator = Computed(n_samples)
    saved = Loader(iterator, BATCH, shuffle=True, seed=5, worker_kind="inline").state_dict()
    state = {**saved, "position": step * BATCH}
    cold, seconds, first_seconds = [], [], []
    for _ in range(20):
        loader = Loader(Computed(n_samples), BATCH, shuffle=True, seed=5, worker_kind="inline")
        cold.append(timed(partial(loader.load_state_dict, state)))
        seconds.append(timed(partial(loader.load_state_dict, state)))
        start = time.perf_counter()
        batch = next(iter(loader))
        first_seconds.append(time.perf_counter() - start)
    expected = Shuffled().indices(np.arange(step * BATCH, (step + 1) * BATCH), n_samples, 5, 0)
    if not np.array_equal(batch[0], expected):
        raise ValueError("the batch behind the state is another one")
    tracemalloc.start()
    before, resident = tracemalloc.get_traced_memory()[0], peak_bytes()
    loader = Loader(Computed(n_samples), BATCH, shuffle=True, seed=5, worker_kind="inline")
    loader.load_state_dict(state)
    next(iter(loader))
    traced = tracemalloc.get_traced_memory()[1] - before
    return {
        "seconds, new loader": statistics.median(cold),
        "seconds, again": statistics.median(seconds),
        "seconds to the first batch behind it": statistics.median(first_seconds),
        "bytes traced at most, with that batch": traced,
        "bytes resident more": peak_bytes() - resident,
    }


def timed(act: Callable[[], Any]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def peak_bytes() -> int:
    """The most memory that this process had in RAM."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


# ---------------------------------------------------------------------- orders


def orders(n_samples: int) -> dict[str, Any]:
    """Nanoseconds an index, memory, and how well block-wise orders mix."""
    speeds: dict[str, dict[str, float]] = {}
    for name, order, n in every_order(n_samples):
        starts = np.random.default_rng(1).integers(0, n - (1 << 14), 40).tolist()
        order.indices(np.arange(10), n, 1, 0)  # what is drawn once an epoch
        first = timed(partial(order.indices, np.arange(BATCH), n, 1, 1))
        before = peak_bytes()
        found = {"seconds for the first batch of an epoch": first}
        for n_at_once in (1 << 14, BATCH):
            seconds = [timed(partial(order.indices, np.arange(start, start + n_at_once), n, 1, 0)) for start in starts]
            found[f"ns, {n_at_once} at once"] = statistics.median(seconds) / n_at_once * 1e9
        found["bytes resident more"] = peak_bytes() - before
        speeds[f"{name}, {n:,}"] = found
    n_known = min(n_samples, 10**7)
    speeds[f"numpy's permutation, {n_known:,}"] = {
        "ns, whole": timed(lambda: np.random.default_rng(1).permutation(n_known)) / n_known * 1e9,
        "bytes resident more": n_known * 8,
    }
    if not np.array_equal(np.sort(Shuffled().indices(np.arange(200_001), 200_001, 1, 0)), np.arange(200_001)):
        raise ValueError("the order is no permutation")
    return {"speeds": speeds, "quality": [quality(window) for window in (1, 4, 16, 64, None)]}


def every_order(n_samples: int) -> Iterator[tuple[str, Order, int]]:
    """Those that there are, and of how many samples they are asked."""
    yield "shuffled", Shuffled(), n_samples
    yield "block-wise, blocks of 10,000, window 16", BlockShuffled(block_lengths=10_000, window=16), n_samples
    n_lengths = min(n_samples, 10**6)
    lengths = np.random.default_rng(2).integers(1, 500, n_lengths)
    try:
        from data_stack.loader.buckets import Bucketed
    except ImportError:
        return
    yield "bucketed by length", Bucketed(lengths, chunk=BATCH), n_lengths


def quality(window: int | None, n_blocks: int = 1000, block_length: int = 200) -> dict[str, Any]:
    """How a block-wise order (None: a full shuffle) differs from a full one, of 1,000 blocks of 200 samples.

    - ``same block``: share of neighbours in the order that are of the same block (a full shuffle: 0.1 %).
    - ``near``: share of neighbours at most 200 samples apart in the dataset (a full shuffle: 0.2 %).
    - ``distance``: mean distance of neighbours in the dataset, by that of a full shuffle (n / 3).
    - ``batch labels``: the chi-square of ten sorted labels in batches of 256, by what chance gives (a full shuffle: 1).
    - ``blocks read``: how often a reader that keeps ``window + 1`` blocks opens one, by the number of blocks.
    """
    n = n_blocks * block_length
    order: Order = Shuffled() if window is None else BlockShuffled(block_lengths=block_length, window=window)
    indices = order.indices(np.arange(n), n, 7, 0)
    if not np.array_equal(np.sort(indices), np.arange(n)):
        raise ValueError("the order is no permutation")
    blocks, distances = indices // block_length, np.abs(np.diff(indices))
    batches = indices[: n // BATCH * BATCH].reshape(-1, BATCH) * 10 // n
    counts = np.stack([(batches == label).sum(1) for label in range(10)], 1)
    chi_square = ((counts - BATCH / 10) ** 2 / (BATCH / 10)).sum(1).mean() / 9
    return {
        "window": "full shuffle" if window is None else window,
        "same block": float((np.diff(blocks) == 0).mean()),
        "near": float((distances <= block_length).mean()),
        "distance": float(distances.mean() / (n / 3)),
        "batch labels": float(chi_square),
        "blocks read": None if window is None else _n_openings(blocks.tolist(), window + 1) / n_blocks,
    }


def _n_openings(blocks: list[int], n_kept: int) -> int:
    kept: dict[int, None] = {}
    n_openings = 0
    for block in blocks:
        if block in kept:
            del kept[block]
        else:
            n_openings += 1
            if len(kept) == n_kept:
                del kept[next(iter(kept))]
        kept[block] = None
    return n_openings


# ---------------------------------------------------------------------- training


def training(way: str, folder: Path, seconds: float) -> dict[str, Any]:
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

    rng = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (BATCH, 28, 28), generator=rng, dtype=torch.uint8)
    for _ in range(10):
        step(images, torch.arange(BATCH) % 10)
    steps_alone = 20
    began = time.perf_counter()
    for _ in range(steps_alone):
        step(images, torch.arange(BATCH) % 10)
    alone = (time.perf_counter() - began) / steps_alone
    loading: Any
    if way.startswith("ours"):
        kind: Any = way.partition(", ")[2]
        loader = our_loader(w4_iterator(folder), kind, epochs=None)
        loading = loader
    else:
        from loader_peers.torch_arrays import Mapped, MappedInBatches
        from loader_peers.torch_loading import TorchLoading

        schema = Schema("W4", w4_schema().fields, len(mapped_columns(w4_schema(), folder)["label"]))
        batched = way == "torch, batched"
        loading = TorchLoading((MappedInBatches if batched else Mapped)(schema, folder), is_batched=batched).loader
        torch.set_num_threads(len(os.sched_getaffinity(0)))
    waited, n_steps, first_wait = 0.0, 0, None
    began = time.perf_counter()
    batches = iter(loading)
    while True:
        asked = time.perf_counter()
        batch = next(batches)
        got = time.perf_counter()
        if first_wait is None:  # starting is another figure
            first_wait, began = got - asked, got
        else:
            waited += got - asked
        if got - began > seconds:
            break
        images, labels = batch.values() if isinstance(batch, dict) else batch
        step(torch.as_tensor(images), torch.as_tensor(labels))
        n_steps += 1
    elapsed = time.perf_counter() - began
    found: dict[str, Any] = {
        "waiting share": waited / elapsed,
        "seconds a step": elapsed / n_steps,
        "seconds a step without loading": alone,
        "seconds to the first batch": first_wait,
    }
    if way.startswith("ours"):
        statistics_of_it = loader.stats()
        found["waiting share by stats(), with the first batch"] = statistics_of_it.waiting_share
        found["kind"] = statistics_of_it.worker_kind
        loader.close()
    return found


# ---------------------------------------------------------------------- memory


def memory(kind: WorkerKind, folder: Path, n_epochs: int, *, kept: bool) -> dict[str, Any]:
    """Memory of this process and all workers, in the last batch but one of epochs 2 to ``n_epochs``.

    Args:
        kind: of the workers.
        folder: of W4.
        n_epochs: at least 2.
        kept: whether workers stay from one epoch to the next.
    """
    loader = our_loader(w4_iterator(folder), kind)
    found: dict[str, Any] = {"proportional": {}, "private": {}, "descriptors": {}, "segments": {}}
    if kept:
        loader.__enter__()
    for epoch in range(1, n_epochs + 1):
        last = len(loader) - 2
        for number, _batch in enumerate(loader):
            if number == last and epoch in {2, n_epochs // 2, n_epochs}:
                found["proportional"][epoch] = proportional_bytes(os.getpid())
                found["private"][epoch] = proportional_bytes(os.getpid(), "Private_Dirty")
                found["descriptors"][epoch] = len(os.listdir("/proc/self/fd"))
                found["segments"][epoch] = len(os.listdir("/dev/shm"))
    loader.close()
    return found


def main() -> None:
    """Measure one thing, print it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["first", "state", "order", "training", "memory"])
    parser.add_argument("way", nargs="?", default="ours, inline")
    parser.add_argument(
        "--folder", type=Path, default=Path("."), help="where W4 lies, as the memory map of record_peers writes it"
    )
    parser.add_argument("--n-samples", type=int, default=10**9)
    parser.add_argument("--step", type=int, default=10**6)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--kept", action="store_true")
    given = parser.parse_args()
    kind: Any = given.way.partition(", ")[2]
    measures: dict[str, Callable[[], dict[str, Any]]] = {
        "first": lambda: first_batch(given.way, given.folder),
        "state": lambda: loading_a_state(given.n_samples, given.step),
        "order": lambda: orders(given.n_samples),
        "training": lambda: training(given.way, given.folder, given.seconds),
        "memory": lambda: memory(kind, given.folder, given.epochs, kept=given.kept),
    }
    print(json.dumps(measures[given.what]()))


if __name__ == "__main__":
    main()
