"""What a stack of iterators costs: ours, the limit by hand in numpy, and the peer, in turn in one process.

    python benchmarks/iterators.py [CASE ...] [--rounds 15]

Without cases all of them are measured; ``--list`` names them. Ratios are of the best rounds of each; the two take turns, so
that a machine that slows down does so for both. Memory is counted, not timed.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import platform
import resource
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from data_stack import CombinedDatasetIterator, DatasetIteratorView, InformedDatasetIterator, MetaFactory, SequenceDatasetIterator
from data_stack.dataset.reporting import DatasetIteratorReportGenerator
from data_stack.dataset.splitter import SplitterFactory

BATCH = 256


def in_turn(rounds: int, *functions: Callable[[], Any]) -> list[float]:
    """Seconds of the fastest call of each function."""
    best = [float("inf")] * len(functions)
    for _ in range(rounds):
        for number, function in enumerate(functions):
            started = time.perf_counter()
            function()
            best[number] = min(best[number], time.perf_counter() - started)
    return best


def show(case: str, ours: str, against: str, ratio: float, target: str) -> None:
    """One line of the table."""
    print(f"  {case:58} {ours:>12}  {against:>34}  {ratio:7.2f} x   {target}", flush=True)


def micros(seconds: float) -> str:
    """Seconds as microseconds."""
    return f"{seconds * 1e6:.3f} us" if seconds < 1e-5 else f"{seconds * 1e6:.1f} us"


def each(iterator: Any, indices: Sequence[int]) -> Callable[[], None]:
    """Reading single samples."""

    def read() -> None:
        for index in indices:
            iterator[index]

    return read


def images(n_samples: int, shape: tuple[int, ...] = (28, 28)) -> np.ndarray:
    """Noise of uint8."""
    return np.random.default_rng(0).integers(0, 256, (n_samples, *shape), dtype=np.uint8)


# ---------------------------------------------------------------------- single samples


def single(rounds: int) -> None:
    """``it[i]`` through views and combinations."""
    n_samples = 100_000
    indices = np.random.default_rng(1).integers(0, n_samples, 1000).tolist()
    order = np.random.default_rng(2).permutation(n_samples)
    sources = {
        "lists": [list(range(n_samples)) for _ in range(3)],
        "arrays": [images(n_samples), np.arange(n_samples), np.arange(n_samples)],
    }
    for name, columns in sources.items():
        bare = SequenceDatasetIterator(columns)
        view = DatasetIteratorView(bare, order)
        view3 = DatasetIteratorView(DatasetIteratorView(view, order), order)
        of_two, of_many = (
            CombinedDatasetIterator(
                [
                    SequenceDatasetIterator([c[i : i + n_samples // k] for c in columns])
                    for i in range(0, n_samples, n_samples // k)
                ]
            )
            for k in (2, 1000)
        )
        times = in_turn(rounds * 5, *[each(iterator, indices) for iterator in (bare, view, view3, of_two, of_many)])
        t_bare, t_view, t_view3, t_two, t_many = (seconds / len(indices) for seconds in times)
        show(f"it[i], {name}: one view", micros(t_view), f"bare sequence {micros(t_bare)}", t_view / t_bare, "<= 1.5")
        show(f"it[i], {name}: view of view of view", micros(t_view3), f"one view {micros(t_view)}", t_view3 / t_view, "<= 1.2")
        show(f"it[i], {name}: combined of 1,000", micros(t_many), f"combined of 2 {micros(t_two)}", t_many / t_two, "<= 1.2")
        show(f"it[i], {name}: combined of 1,000", micros(t_many), f"bare sequence {micros(t_bare)}", t_many / t_bare, "<= 2")


# ---------------------------------------------------------------------- batches


def gather(rounds: int) -> None:
    """256 random samples of a view of a shuffled combination of 1,000 parts."""
    n_parts, n_in_part = 1000, 100
    pictures = [images(n_in_part) for _ in range(n_parts)]
    labels = [np.full(n_in_part, number) for number in range(n_parts)]
    combined = CombinedDatasetIterator([SequenceDatasetIterator(list(part)) for part in zip(pictures, labels, strict=True)])
    chosen = np.random.default_rng(1).permutation(n_parts * n_in_part)[: n_parts * n_in_part // 2]
    stack = combined.shuffle(7)[chosen]
    wanted = np.random.default_rng(2).integers(0, len(stack), BATCH)
    order = np.asarray([position for (position,) in SequenceDatasetIterator([range(n_parts * n_in_part)]).shuffle(7)])[chosen]
    starts = np.arange(0, n_parts * n_in_part, n_in_part)

    def one_by_one() -> tuple[np.ndarray, np.ndarray]:
        positions = order[wanted]
        parts = np.searchsorted(starts, positions, side="right") - 1
        places = (positions - starts[parts]).tolist()
        found = [(pictures[part][place], labels[part][place]) for part, place in zip(parts.tolist(), places, strict=True)]
        return np.stack([picture for picture, _ in found]), np.array([label for _, label in found])

    def part_by_part() -> tuple[np.ndarray, np.ndarray]:
        positions = order[wanted]
        parts = np.searchsorted(starts, positions, side="right") - 1
        places = positions - starts[parts]
        batch = np.empty((BATCH, 28, 28), np.uint8), np.empty(BATCH, np.int64)
        for part in np.unique(parts):
            rows = parts == part
            batch[0][rows], batch[1][rows] = pictures[part][places[rows]], labels[part][places[rows]]
        return batch

    for mine, by_hand in zip(stack.read_batch(wanted), one_by_one(), strict=True):
        np.testing.assert_array_equal(mine, by_hand)
    ours, singly, grouped = in_turn(rounds * 20, lambda: stack.read_batch(wanted), one_by_one, part_by_part)
    case = "read_batch(256), view of shuffled combination of 1,000"
    show(case, micros(ours), f"by hand, one by one {micros(singly)}", ours / singly, "<= 2 (of the faster)")
    show(case, micros(ours), f"by hand, part by part {micros(grouped)}", ours / grouped, "<= 2 (of the faster)")


def take(rounds: int) -> None:
    """256 samples of one array, through three views."""
    for shape in ((28, 28), (32, 32, 3), (64, 64, 3)):
        _take(rounds, shape)


def _take(rounds: int, shape: tuple[int, ...]) -> None:
    pictures, labels = images(20_000, shape), np.arange(20_000)
    order = np.random.default_rng(3).permutation(20_000)
    view = DatasetIteratorView(SequenceDatasetIterator([pictures, labels]), order)
    view3 = DatasetIteratorView(DatasetIteratorView(view, order), order)
    wanted = np.random.default_rng(4).integers(0, 20_000, BATCH)
    places = order[order][order][wanted]
    ours, limit = in_turn(
        rounds * 100, lambda: view3.read_batch(wanted), lambda: (np.take(pictures, places, axis=0), np.take(labels, places))
    )
    case = f"read_batch(256) of {int(np.prod(shape))} B, view of view of view"
    show(case, micros(ours), f"numpy.take {micros(limit)}", ours / limit, "<= 1.3")


def dataloader(rounds: int) -> None:
    """Batches of tensors through torch's DataLoader."""
    import torch
    from torch.utils.data import ConcatDataset, DataLoader, Subset, TensorDataset

    from data_stack.loader.torch import TorchDataset, collate

    n_parts, n_in_part = 10, 2000
    pictures = [images(n_in_part) for _ in range(n_parts)]
    labels = [np.full(n_in_part, number) for number in range(n_parts)]
    half = np.random.default_rng(5).permutation(n_in_part)[: n_in_part // 2]
    order = np.random.default_rng(6).permutation(n_parts * len(half))
    parts = [SequenceDatasetIterator(list(part))[half] for part in zip(pictures, labels, strict=True)]
    ours = CombinedDatasetIterator(parts)[order]
    tensors = [TensorDataset(torch.from_numpy(p), torch.from_numpy(c)) for p, c in zip(pictures, labels, strict=True)]
    theirs = Subset(ConcatDataset([Subset(each, half.tolist()) for each in tensors]), order.tolist())

    def epoch(loader: DataLoader[Any]) -> Callable[[], None]:
        def run() -> None:
            for _ in loader:
                pass

        return run

    mine = DataLoader(TorchDataset(ours), batch_size=BATCH, collate_fn=collate)
    torchs = DataLoader(theirs, batch_size=BATCH)
    for (p1, c1), (p2, c2) in zip(mine, torchs, strict=True):
        assert torch.equal(p1, p2)
        assert torch.equal(c1, c2)
    a, b = in_turn(rounds, epoch(mine), epoch(torchs))
    n_batches = len(torchs)
    show(
        "DataLoader, batch of 256, no workers",
        micros(a / n_batches),
        f"torch's own stack {micros(b / n_batches)}",
        b / a,
        ">= 5 x",
    )


# ---------------------------------------------------------------------- encoders


def encoding(rounds: int) -> None:
    """20 mixed features in batches of 256."""
    warnings.simplefilter("ignore")
    from sklearn.compose import ColumnTransformer
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    from data_stack.dataset.encoders import CategoricalEncoder, ContinuousEncoder, FeatureEncoder

    n_samples, n_each, n_categories = 10_000, 10, 8
    draw = np.random.default_rng(7)
    rows = np.concatenate([draw.normal(5, 3, (n_samples, n_each)), draw.integers(0, n_categories, (n_samples, n_each))], axis=1)
    iterator = SequenceDatasetIterator([rows, np.zeros(n_samples, dtype=np.int64)])
    encoders: dict[Any, Any] = {number: ContinuousEncoder("standard") for number in range(n_each)}
    encoders |= {number: CategoricalEncoder("one_hot") for number in range(n_each, 2 * n_each)}
    encoded = iterator.encode(FeatureEncoder(encoders), fit_on=iterator)

    means, deviations = rows[:, :n_each].mean(axis=0), rows[:, :n_each].std(axis=0)
    categories = [np.unique(rows[:, number]) for number in range(n_each, 2 * n_each)]
    wanted = draw.integers(0, n_samples, BATCH)
    width = n_each + sum(map(len, categories))

    def by_hand() -> np.ndarray:
        batch = rows.take(wanted, axis=0)
        result = np.zeros((BATCH, width), dtype=np.float32)
        result[:, :n_each] = (batch[:, :n_each] - means) / deviations
        start, lines = n_each, np.arange(BATCH)
        for number, known in enumerate(categories, start=n_each):
            result[lines, start + np.searchsorted(known, batch[:, number])] = 1
            start += len(known)
        return result

    np.testing.assert_allclose(encoded.read_batch(wanted)[0], by_hand(), rtol=1e-5, atol=1e-6)
    peer = ColumnTransformer(
        [("continuous", StandardScaler(), list(range(n_each))), ("categorical", OneHotEncoder(), list(range(n_each, 2 * n_each)))]
    ).fit(rows)
    one_each = [StandardScaler().fit(rows[:, [n]]) for n in range(n_each)]
    one_each += [OneHotEncoder(sparse_output=False).fit(rows[:, [n]]) for n in range(n_each, 2 * n_each)]
    row = rows[:1]
    ours, limit, once, singly = in_turn(
        rounds * 20,
        lambda: encoded.read_batch(wanted),
        by_hand,
        lambda: peer.transform(row),
        lambda: np.concatenate([encoder.transform(row[:, [n]]) for n, encoder in enumerate(one_each)], axis=1),
    )
    show("encoding 20 mixed features, batch of 256", micros(ours), f"by hand in numpy {micros(limit)}", ours / limit, "<= 3")
    per_sample = ours / BATCH
    case = "encoding 20 mixed features, a sample"
    show(case, micros(per_sample), f"scikit-learn, a call a feature {micros(singly)}", singly / per_sample, ">= 1000 x")
    show(case, micros(per_sample), f"scikit-learn, one call {micros(once)}", once / per_sample, "")


# ---------------------------------------------------------------------- splits


def _in_child(function: Callable[[], float]) -> tuple[float, float]:
    """Seconds that a function says, and the peak memory of a new process that runs it, in MB."""
    parent, child = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=lambda: child.send((function(), _peak_mb())))
    process.start()
    seconds, peak = parent.recv()
    process.join()
    return seconds, peak


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def split(rounds: int) -> None:
    """Stratified split of 10 million integer labels."""
    from sklearn.model_selection import train_test_split

    labels = np.random.default_rng(8).integers(0, 10, 10_000_000)

    def timed(function: Callable[[], Any]) -> Callable[[], float]:
        def run() -> float:
            started = time.perf_counter()
            function()
            return time.perf_counter() - started

        return run

    iterator = SequenceDatasetIterator([labels, labels])
    positions = np.arange(len(labels))
    splitter = SplitterFactory.get_stratified_splitter([0.8, 0.2], seed=1)
    functions = {
        "scikit-learn": lambda: train_test_split(positions, train_size=0.8, stratify=labels, random_state=1),
        "the original's splitter, ours": lambda: splitter.split(iterator),
        "iterator.split(stratify=True)": lambda: iterator.split([0.8, 0.2], seed=1, stratify=True),
    }
    best = {name: (float("inf"), float("inf")) for name in functions}
    for _ in range(max(2, rounds // 5)):
        for name, function in functions.items():
            seconds, peak = _in_child(timed(function))
            best[name] = min(best[name][0], seconds), min(best[name][1], peak)
    peer_seconds, peer_peak = best.pop("scikit-learn")
    for name, (seconds, peak) in best.items():
        against = f"scikit-learn {peer_seconds:.2f} s"
        show(f"stratified split of 10 M labels: {name}", f"{seconds:.2f} s", against, seconds / peer_seconds, "<= 1.5")
        show("... peak memory", f"{peak:.0f} MB", f"scikit-learn {peer_peak:.0f} MB", peak / peer_peak, "<= 200 MB above it")


# ---------------------------------------------------------------------- memory


def indices(_: int) -> None:
    """What views of 100 million samples keep."""
    n_samples = 100_000_000
    bare = SequenceDatasetIterator([range(n_samples)])

    def kept(make: Callable[[], Any]) -> float:
        before = _resident()
        view = make()
        after = _resident()
        assert len(view)
        return (after - before) / len(view)

    order = np.random.default_rng(9).permutation(n_samples)
    by_array = DatasetIteratorView(bare, order)
    show("view of 100 M by an array, bytes an index", f"{kept(lambda: DatasetIteratorView(bare, order)):.2f} B", "", 0, "4 or 8")
    show("... a slice of it", f"{kept(lambda: by_array[10:-10:3]):.2f} B", "", 0, "0")
    show("... a slice of a slice of the source", f"{kept(lambda: bare[10:][::2]):.2f} B", "", 0, "0")
    show("... shuffled", f"{kept(lambda: bare.shuffle(1)):.2f} B", "", 0, "0")


def _resident(pid: int | str = "self") -> float:
    """Bytes of memory that a process alone holds."""
    fields = dict(line.split(":") for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    return sum(int(fields[name].split()[0]) * 1024 for name in ("Private_Clean", "Private_Dirty"))


def workers(_: int) -> None:
    """Memory of 4 DataLoader workers over 20 epochs."""
    import torch
    from torch.utils.data import DataLoader, Subset, TensorDataset

    from data_stack.loader.torch import TorchDataset, collate

    n_samples = 500_000
    order = np.random.default_rng(10).permutation(n_samples)
    columns = [np.arange(n_samples), np.arange(n_samples)]
    ours = SequenceDatasetIterator(columns)[order][order]
    theirs = Subset(Subset(TensorDataset(*map(torch.from_numpy, columns)), order.tolist()), order.tolist())
    for name, dataset, function in (("ours", TorchDataset(ours), collate), ("torch's Subset of lists", theirs, None)):
        loader = DataLoader(dataset, batch_size=4096, shuffle=True, num_workers=4, persistent_workers=True, collate_fn=function)
        held = []
        for epoch in range(20):
            iterator = iter(loader)
            for _ in itertools.islice(iterator, None):
                pass
            if epoch in (0, 4, 9, 19):
                held.append(sum(_resident(worker.pid) for worker in iterator._workers) / 1e6)  # type: ignore[attr-defined]
        del iterator, loader
        numbers = " -> ".join(f"{mb:.0f}" for mb in held)
        show(f"4 workers, epochs 1, 5, 10, 20: {name}", "", f"{numbers} MB", held[-1] / held[0], "flat" if name == "ours" else "")


# ---------------------------------------------------------------------- reports


def report(rounds: int) -> None:
    """A report of 60,000 images with labels."""
    columns = [images(60_000), np.random.default_rng(11).integers(0, 10, 60_000)]
    meta = MetaFactory.get_dataset_meta("mnist/train", "mnist", "train", MetaFactory.get_iterator_meta(0, 1, 1))
    bare = SequenceDatasetIterator(columns)
    order = np.random.default_rng(12).permutation(60_000)
    for name, iterator in (
        ("informed", InformedDatasetIterator(bare, meta)),
        ("informed view", InformedDatasetIterator(DatasetIteratorView(bare, order), meta)),
    ):
        ours, limit = in_turn(
            rounds * 10,
            lambda iterator=iterator: DatasetIteratorReportGenerator.generate_report(iterator),
            lambda iterator=iterator: np.unique(iterator.read_column(1), return_counts=True),
        )
        show(f"report of 60,000 samples, {name}", micros(ours), f"numpy.unique {micros(limit)}", ours / limit, "<= 3")


CASES = {
    "single": single,
    "gather": gather,
    "take": take,
    "dataloader": dataloader,
    "encoding": encoding,
    "split": split,
    "indices": indices,
    "workers": workers,
    "report": report,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", help="which to measure")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.cases) - set(CASES))
    if arguments.list or unknown:
        parser.exit(2 if unknown else 0, f"cases: {', '.join(CASES)}\n")
    print(f"{os.cpu_count()} cores of {platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}")
    for name in arguments.cases or CASES:
        print(f"{name}: {CASES[name].__doc__}")
        CASES[name](arguments.rounds)


if __name__ == "__main__":
    main()
