"""What a stack of iterators costs: ours, the limit by hand in numpy, and the peer, in turn in one
process.

Run: python benchmarks/iterators.py [--only CASE ...]. Memory is counted, not timed.
"""

from __future__ import annotations

import multiprocessing
import resource
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from harness import MIB, Results, compare, in_turn, machine, parser_of, timed

from data_stack import (
    CombinedDatasetIterator,
    DatasetIteratorView,
    InformedDatasetIterator,
    MetaFactory,
    SequenceDatasetIterator,
)
from data_stack.dataset.reporting import DatasetIteratorReportGenerator
from data_stack.dataset.splitter import SplitterFactory

BATCH = 256


def each(iterator: Any, indices: Sequence[int]) -> Callable[[], None]:
    """Reading single samples."""

    def read() -> None:
        for index in indices:
            iterator[index]

    return read


def parts_of(columns: Sequence[Any], n_parts: int) -> list[list[Any]]:
    """Equal parts of the columns."""
    size = len(columns[0]) // n_parts
    return [
        [column[start : start + size] for column in columns]
        for start in range(0, len(columns[0]), size)
    ]


def images(n_samples: int, shape: tuple[int, ...] = (28, 28)) -> np.ndarray:
    """Noise of uint8."""
    return np.random.default_rng(0).integers(0, 256, (n_samples, *shape), dtype=np.uint8)


# ---------------------------------------------------------------------- single samples and batches


def single(rounds: int, small: bool, results: Results) -> None:
    """``it[i]`` through views and combinations."""
    n_samples = 100_000
    indices = np.random.default_rng(1).integers(0, n_samples, 1000).tolist()
    order = np.random.default_rng(2).permutation(n_samples)
    sources: dict[str, list[Any]] = {
        "lists": [list(range(n_samples)) for _ in range(3)],
        "arrays": [images(n_samples), np.arange(n_samples), np.arange(n_samples)],
    }
    for name, columns in sources.items():
        bare = SequenceDatasetIterator(columns)
        view = DatasetIteratorView(bare, order)
        view3 = DatasetIteratorView(DatasetIteratorView(view, order), order)
        of_two, of_many = (
            CombinedDatasetIterator(
                [SequenceDatasetIterator(part) for part in parts_of(columns, k)]
            )
            for k in (2, 1000)
        )
        iterators = {
            "ours, one view": view, "ours, bare": bare, "ours, three views": view3,
            "ours, combined of 2": of_two, "ours, combined of 1,000": of_many,
        }  # fmt: skip
        ways = {way: each(iterator, indices) for way, iterator in iterators.items()}
        case = f"it[i], {name}"
        compare(
            case,
            ways,
            results,
            rounds=rounds * 5,
            n=len(indices),
            unit="us",
            at_least={"ours, bare": 1 / 1.5},
        )
        results.at_least(case, case, "ours, three views", "ours, one view", 1 / 1.2)
        results.at_least(case, case, "ours, combined of 1,000", "ours, combined of 2", 1 / 1.2)
        results.at_least(case, case, "ours, combined of 1,000", "ours, bare", 1 / 2)


def gather(rounds: int, small: bool, results: Results) -> None:
    """256 random samples of a view of a shuffled combination of 1,000 parts."""
    n_parts, n_in_part = 1000, 100
    pictures = [images(n_in_part) for _ in range(n_parts)]
    labels = [np.full(n_in_part, number) for number in range(n_parts)]
    combined = CombinedDatasetIterator(
        [SequenceDatasetIterator(list(part)) for part in zip(pictures, labels, strict=True)]
    )
    chosen = np.random.default_rng(1).permutation(n_parts * n_in_part)[: n_parts * n_in_part // 2]
    stack = combined.shuffle(7)[chosen]
    wanted = np.random.default_rng(2).integers(0, len(stack), BATCH)
    order = np.asarray(
        [
            position
            for (position,) in SequenceDatasetIterator([range(n_parts * n_in_part)]).shuffle(7)
        ]
    )[chosen]

    def one_by_one() -> tuple[np.ndarray, np.ndarray]:
        parts, places = np.divmod(order[wanted], n_in_part)
        found = [
            (pictures[part][place], labels[part][place])
            for part, place in zip(parts.tolist(), places.tolist(), strict=True)
        ]
        return np.stack([picture for picture, _ in found]), np.array([label for _, label in found])

    def part_by_part() -> tuple[np.ndarray, np.ndarray]:
        parts, places = np.divmod(order[wanted], n_in_part)
        batch = np.empty((BATCH, 28, 28), np.uint8), np.empty(BATCH, np.int64)
        for part in np.unique(parts):
            rows = parts == part
            batch[0][rows], batch[1][rows] = (
                pictures[part][places[rows]],
                labels[part][places[rows]],
            )
        return batch

    for mine, by_hand in zip(stack.read_batch(wanted), one_by_one(), strict=True):
        np.testing.assert_array_equal(mine, by_hand)
    ways = {
        "ours": lambda: stack.read_batch(wanted),
        "one by one": one_by_one,
        "part by part": part_by_part,
    }
    targets = dict.fromkeys(("one by one", "part by part"), 1 / 2)
    compare(
        "gather, a batch of 256", ways, results, rounds=rounds * 20, unit="us", at_least=targets
    )


def take(rounds: int, small: bool, results: Results) -> None:
    """256 samples of one array, through three views."""
    for shape in ((28, 28), (32, 32, 3), (64, 64, 3)):
        pictures, labels = images(20_000, shape), np.arange(20_000)
        order = np.random.default_rng(3).permutation(20_000)
        view = DatasetIteratorView(SequenceDatasetIterator([pictures, labels]), order)
        view3 = DatasetIteratorView(DatasetIteratorView(view, order), order)
        wanted = np.random.default_rng(4).integers(0, 20_000, BATCH)
        places = order[order][order][wanted]
        ways = {
            "ours, three views": lambda view3=view3, wanted=wanted: view3.read_batch(wanted),
            "numpy.take": lambda p=pictures, c=labels, at=places: (
                np.take(p, at, axis=0),
                np.take(c, at),
            ),
        }
        case = f"take, {int(np.prod(shape))} B a sample"
        compare(
            case, ways, results, rounds=rounds * 100, unit="us", at_least={"numpy.take": 1 / 1.3}
        )


def dataloader(rounds: int, small: bool, results: Results) -> None:
    """Batches of tensors through torch's DataLoader."""
    import torch
    from torch.utils.data import ConcatDataset, DataLoader, Subset, TensorDataset

    from data_stack.loader.torch import TorchDataset, collate

    n_parts, n_in_part = 10, 2000
    pictures = [images(n_in_part) for _ in range(n_parts)]
    labels = [np.full(n_in_part, number) for number in range(n_parts)]
    half = np.random.default_rng(5).permutation(n_in_part)[: n_in_part // 2]
    order = np.random.default_rng(6).permutation(n_parts * len(half))
    parts = [
        SequenceDatasetIterator(list(part))[half] for part in zip(pictures, labels, strict=True)
    ]
    ours = CombinedDatasetIterator(parts)[order]
    tensors = [
        TensorDataset(torch.from_numpy(p), torch.from_numpy(c))
        for p, c in zip(pictures, labels, strict=True)
    ]
    theirs = Subset(
        ConcatDataset([Subset(part, half.tolist()) for part in tensors]), order.tolist()
    )
    mine = DataLoader(TorchDataset(ours), batch_size=BATCH, collate_fn=collate)
    torchs = DataLoader(theirs, batch_size=BATCH)
    for (p1, c1), (p2, c2) in zip(mine, torchs, strict=True):
        assert torch.equal(p1, p2)
        assert torch.equal(c1, c2)
    ways = {
        "ours": lambda: sum(1 for _ in mine),
        "torch's own stack": lambda: sum(1 for _ in torchs),
    }
    targets = {"torch's own stack": 5}
    compare(
        "DataLoader, batch of 256",
        ways,
        results,
        rounds=rounds,
        n=len(torchs),
        unit="us",
        at_least=targets,
    )


def encoding(rounds: int, small: bool, results: Results) -> None:
    """20 mixed features in batches of 256."""
    warnings.simplefilter("ignore")
    from sklearn.compose import ColumnTransformer
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    from data_stack.dataset.encoders import CategoricalEncoder, ContinuousEncoder

    n_samples, n_each, n_categories = 10_000, 10, 8
    draw = np.random.default_rng(7)
    numbers, labels = (
        draw.normal(5, 3, (n_samples, n_each)),
        draw.integers(0, n_categories, (n_samples, n_each)),
    )
    rows = np.concatenate([numbers, labels], axis=1)
    iterator = SequenceDatasetIterator([numbers, labels])
    encoded = iterator.encode(
        {0: ContinuousEncoder("standard"), 1: CategoricalEncoder("one_hot")}, fit_on=iterator
    )
    means, deviations, categories = numbers.mean(axis=0), numbers.std(axis=0), np.unique(labels)
    wanted = draw.integers(0, n_samples, BATCH)

    def by_hand() -> tuple[np.ndarray, np.ndarray]:
        scaled = (numbers.take(wanted, axis=0) - means) / deviations
        codes = np.searchsorted(categories, labels.take(wanted, axis=0))
        return scaled.astype(np.float32), np.eye(len(categories), dtype=np.float32)[codes]

    for ours, expected in zip(encoded.read_batch(wanted), by_hand(), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)
    peer = ColumnTransformer(
        [
            ("continuous", StandardScaler(), list(range(n_each))),
            ("categorical", OneHotEncoder(), list(range(n_each, 2 * n_each))),
        ]
    ).fit(rows)
    one_each = [StandardScaler().fit(rows[:, [n]]) for n in range(n_each)]
    one_each += [
        OneHotEncoder(sparse_output=False).fit(rows[:, [n]]) for n in range(n_each, 2 * n_each)
    ]
    row = rows[:1]
    ways = {
        "ours": lambda: encoded.read_batch(wanted),
        "by hand in numpy": by_hand,
        "scikit-learn, one call": lambda: peer.transform(row),
        "scikit-learn, a call a feature": lambda: np.concatenate(
            [e.transform(row[:, [n]]) for n, e in enumerate(one_each)], axis=1
        ),
    }
    n = {
        "ours": BATCH,
        "by hand in numpy": BATCH,
        "scikit-learn, one call": 1,
        "scikit-learn, a call a feature": 1,
    }
    targets = {"by hand in numpy": 1 / 3, "scikit-learn, a call a feature": 1000}
    compare(
        "encoding 20 features of a sample",
        ways,
        results,
        rounds=rounds * 20,
        n=n,
        unit="us",
        at_least=targets,
    )


# ---------------------------------------------------------------------- splits


def split(rounds: int, small: bool, results: Results) -> None:
    """Stratified split of 10 million integer labels, each in a process of its own."""
    from sklearn.model_selection import train_test_split

    labels = np.random.default_rng(8).integers(0, 10, 100_000 if small else 10_000_000)
    iterator = SequenceDatasetIterator([labels, labels])
    positions = np.arange(len(labels))
    splitter = SplitterFactory.get_stratified_splitter([0.8, 0.2], seed=1)
    functions: dict[str, Callable[[], Any]] = {
        "ours, the original's splitter": lambda: splitter.split(iterator),
        "ours, iterator.split(stratify=True)": lambda: iterator.split(
            [0.8, 0.2], seed=1, stratify=True
        ),
        "scikit-learn": lambda: train_test_split(
            positions, train_size=0.8, stratify=labels, random_state=1
        ),
    }

    def in_child(function: Callable[[], Any]) -> tuple[float, int]:
        parent, child = multiprocessing.Pipe()

        def run() -> None:
            child.send((timed(function), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10))

        process = multiprocessing.get_context("fork").Process(target=run)
        process.start()
        found: tuple[float, int] = parent.recv()
        process.join()
        return found

    ways = {
        way: lambda function=function: in_child(function) for way, function in functions.items()
    }
    for way, kept in in_turn("split", ways, max(2, rounds // 5), results).items():
        results.keep("stratified split", way, [seconds for seconds, _ in kept], "s")
        results.keep("stratified split, memory", way, [n_bytes for _, n_bytes in kept], "MiB")
    for case in ("stratified split", "stratified split, memory"):
        results.print(case, "scikit-learn")
    peers_bytes = results.median("stratified split, memory", "scikit-learn") or 0.0
    for way in list(functions)[:2]:
        results.at_least("stratified split", "stratified split", way, "scikit-learn", 1 / 1.5)
        results.at_most(
            "stratified split, memory", "stratified split, memory", way, peers_bytes + 200 * MIB
        )


# ---------------------------------------------------------------------- memory


def indices(rounds: int, small: bool, results: Results) -> None:
    """What views of 100 million samples keep."""
    n_samples = 1_000_000 if small else 100_000_000
    bare = SequenceDatasetIterator([range(n_samples)])
    order = np.random.default_rng(9).permutation(n_samples)
    by_array = DatasetIteratorView(bare, order)
    makers: dict[str, Callable[[], Any]] = {
        "ours, a view by an array": lambda: DatasetIteratorView(bare, order),
        "ours, a slice of it": lambda: by_array[10:-10:3],
        "ours, a slice of a slice": lambda: bare[10:][::2],
        "ours, shuffled": lambda: bare.shuffle(1),
    }
    for way, make in makers.items():
        before = _resident()
        view = make()
        results.keep("bytes an index", way, [max(0.0, _resident() - before) / len(view)], "B")
        del view
    results.print("bytes an index")
    results.at_most("a view by an array", "bytes an index", "ours, a view by an array", 8.5)
    for way in list(makers)[1:]:
        results.at_most("other views", "bytes an index", way, 0.5)


def _resident(pid: int | str = "self") -> float:
    """Bytes of memory that a process alone holds."""
    fields = dict(
        line.split(":") for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    )
    return sum(int(fields[name].split()[0]) * 1024 for name in ("Private_Clean", "Private_Dirty"))


def workers(rounds: int, small: bool, results: Results) -> None:
    """Memory of 4 DataLoader workers over 20 epochs."""
    import torch
    from torch.utils.data import DataLoader, Subset, TensorDataset

    from data_stack.loader.torch import TorchDataset, collate

    n_samples, n_epochs = (20_000, 3) if small else (500_000, 20)
    order = np.random.default_rng(10).permutation(n_samples)
    columns = [np.arange(n_samples), np.arange(n_samples)]
    ours = SequenceDatasetIterator(columns)[order][order]
    theirs = Subset(
        Subset(TensorDataset(*map(torch.from_numpy, columns)), order.tolist()), order.tolist()
    )
    for name, dataset, function in (
        ("ours", TorchDataset(ours), collate),
        ("torch's Subset of lists", theirs, None),
    ):
        loader: Any = DataLoader(
            dataset,
            batch_size=4096,
            shuffle=True,
            num_workers=4,
            persistent_workers=True,
            collate_fn=function,
        )
        for epoch in range(1, n_epochs + 1):
            iterator = iter(loader)
            for _ in iterator:
                pass
            if epoch in (1, 5, 10, n_epochs):
                held = sum(_resident(worker.pid) for worker in iterator._workers)
                results.keep(f"4 DataLoader workers, epoch {epoch}", name, [held], "MiB")
        del iterator, loader
    for epoch in (1, 5, 10, n_epochs):
        results.print(f"4 DataLoader workers, epoch {epoch}")
    first = results.median("4 DataLoader workers, epoch 1", "ours") or 0.0
    results.at_most(
        "workers, flat", f"4 DataLoader workers, epoch {n_epochs}", "ours", first + 10 * MIB
    )


def report(rounds: int, small: bool, results: Results) -> None:
    """A report of 60,000 images with labels."""
    columns = [images(60_000), np.random.default_rng(11).integers(0, 10, 60_000)]
    meta = MetaFactory.get_dataset_meta(
        "mnist/train", "mnist", "train", MetaFactory.get_iterator_meta(0, 1, 1)
    )
    bare = SequenceDatasetIterator(columns)
    order = np.random.default_rng(12).permutation(60_000)
    for name, iterator in (
        ("informed", InformedDatasetIterator(bare, meta)),
        ("informed view", InformedDatasetIterator(DatasetIteratorView(bare, order), meta)),
    ):
        ways: dict[str, Callable[[], Any]] = {
            "ours": lambda iterator=iterator: DatasetIteratorReportGenerator.generate_report(
                iterator
            ),
            "numpy.unique": lambda iterator=iterator: np.unique(
                iterator.read_column(1), return_counts=True
            ),
        }
        compare(
            f"report, {name}", ways, results, rounds=rounds * 10, at_least={"numpy.unique": 1 / 3}
        )


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
    """Run what was asked for."""
    given, results = parser_of(__doc__, list(CASES), rounds=15).parse_args(), Results()
    print(machine())
    for name in given.only:
        CASES[name](given.rounds, given.small, results)
    results.save(given.json)


if __name__ == "__main__":
    main()
