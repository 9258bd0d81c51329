"""Batches by budget of a million samples: padding, the time to plan and to draw an epoch.

    python benchmarks/budget.py [--only CASE ...]

Lengths are those of speech (log-normal, 1 to 35 s in units of 10 ms, budget 600 s) and of text (half
short messages, half articles, up to 8,192 tokens, budget 16,384). *padding* is the share of places
without a value if each batch is padded to its longest sample; and how much longer a step of 8 ranks
takes than its batches on average, if the time grows as the number of places, or as the square of
the length. *epoch* is the time of planning an epoch, and of naming the samples of all its batches,
of a tenth of the samples. The limit sorts the whole epoch by length, which no shuffle then mixes. Peers are lhotse's
DynamicBucketingSampler with 10 and 30 buckets and DynamicCutSampler (DynamicBatchSampler), over
objects that have just an id and a duration. Four minutes; 15 seconds with ``--small``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from harness import Results, compare, machine, parser_of

from data_stack.loader import Budget, Shuffled
from data_stack.loader.budgets.epoch_batches import EpochBatches

#: The ranks of a step.
N_RANKS = 8

#: What a batch may cost, by the name of the lengths.
BUDGETS = {"speech": 60_000, "text": 16_384}

Lengths = npt.NDArray[np.unsignedinteger[Any]]

Batches = Iterator[npt.NDArray[Any]]


def draw_lengths(name: str, n_samples: int) -> Lengths:
    """Return lengths of samples."""
    rng = np.random.default_rng(0)
    if name == "speech":
        lengths = rng.lognormal(np.log(1200), 0.6, n_samples).clip(100, 3500)
    else:
        is_message = rng.random(n_samples) < 0.5
        messages = rng.lognormal(4.5, 0.5, n_samples)
        articles = rng.lognormal(7.0, 0.5, n_samples)
        lengths = np.where(is_message, messages, articles).clip(1, 8192)
    return lengths.astype(np.uint16)


# ---------------------------------------------------------------------- ways to make batches


def draw_ours(lengths: Lengths, max_cost: int, **options: Any) -> Batches:
    """Yield the samples of our batches."""
    budget = Budget(max_cost, lengths, **options)
    batches = EpochBatches(budget, lengths, Shuffled(), seed=1, epoch=0)
    for batch in range(batches.n_batches):
        yield batches.samples_of(batch)


def draw_sorted(lengths: Lengths, max_cost: int) -> Batches:
    """Yield the batches of the whole epoch sorted by length, as one does by hand."""
    samples = np.argsort(-lengths.astype(np.int64), kind="stable")
    sorted_lengths = lengths[samples].tolist()
    start = 0
    while start < len(samples):
        stop = start + max_cost // sorted_lengths[start]
        yield samples[start:stop]
        start = stop


class _Cut:
    """What lhotse needs to know of a sample."""

    def __init__(self, number: int, duration: int) -> None:
        self.id = number
        self.duration = duration


class _Cuts:
    """Samples of these lengths, for lhotse."""

    def __init__(self, lengths: Lengths) -> None:
        self._lengths = lengths.tolist()

    def __iter__(self) -> Iterator[_Cut]:
        for number, duration in enumerate(self._lengths):
            yield _Cut(number, duration)


def draw_lhotse(lengths: Lengths, max_cost: int, n_buckets: int | None) -> Batches:
    """Yield the batches of lhotse; those of the sampler without buckets for None."""
    from lhotse.dataset.sampling import DynamicBucketingSampler, DynamicCutSampler

    options = {"max_duration": max_cost, "shuffle": True, "world_size": 1, "rank": 0}
    if n_buckets is None:
        sampler = DynamicCutSampler(_Cuts(lengths), **options)
    else:
        sampler = DynamicBucketingSampler(_Cuts(lengths), num_buckets=n_buckets, **options)
    for batch in sampler:
        yield np.array([cut.id for cut in batch])


def has_lhotse(results: Results) -> bool:
    """Return whether lhotse is installed; otherwise note that it is left out."""
    try:
        import lhotse.dataset.sampling  # noqa: F401
    except ImportError as error:
        results.leave_out("lhotse", error)
        return False
    return True


def list_ways(
    lengths: Lengths, max_cost: int, results: Results
) -> dict[str, Callable[[], Batches]]:
    """Return all ways to make batches, ours first."""
    ways: dict[str, Callable[[], Batches]] = {
        "ours": lambda: draw_ours(lengths, max_cost),
        "ours, groups of 8": lambda: draw_ours(lengths, max_cost, group=8),
        "ours, windows of 50,000": lambda: draw_ours(lengths, max_cost, window=50_000),
        "all sorted": lambda: draw_sorted(lengths, max_cost),
    }
    if has_lhotse(results):
        for n_buckets in (10, 30):
            ways[f"lhotse, {n_buckets} buckets"] = lambda n_buckets=n_buckets: draw_lhotse(
                lengths, max_cost, n_buckets
            )
        ways["lhotse, no buckets"] = lambda: draw_lhotse(lengths, max_cost, None)
    for way in ways:
        if way.startswith("lhotse"):
            results.kinds[way] = "peer"
    return ways


# ---------------------------------------------------------------------- measurements


def measure_padding(n_samples: int, results: Results) -> None:
    """Compare padding, and how evenly the ranks of a step are loaded."""
    for name, max_cost in BUDGETS.items():
        lengths = draw_lengths(name, n_samples)
        case = f"padding, {name}"
        results.units[case] = "%"
        for way, draw in list_ways(lengths, max_cost, results).items():
            batches = list(draw())
            longest = np.array([int(lengths[batch].max()) for batch in batches])
            n_places = longest * np.array([len(batch) for batch in batches])
            padding = 1 - int(lengths.sum(dtype=np.int64)) / int(n_places.sum())
            results.figures[case][way] = [padding]
            fact = (
                f"{100 * padding:.2f} % padding, {len(batches):,} batches, "
                f"{int((n_places > max_cost).sum()):,} above the budget; a step takes "
                f"{_slowest_share(n_places):.3f} × its mean, "
                f"{_slowest_share(n_places * longest):.3f} × if time is quadratic"
            )
            results.facts[f"{case}, {way}"] = fact
            print(f"{case}: {way}: {fact}", flush=True)


def _slowest_share(costs: npt.NDArray[np.int64]) -> float:
    """Return the cost of the largest batch of each step over the mean of its batches."""
    n_steps = len(costs) // N_RANKS
    steps = costs[: n_steps * N_RANKS].reshape(n_steps, N_RANKS)
    return float(steps.max(axis=1).sum() / steps.mean(axis=1).sum())


def measure_plan(lengths: Lengths, max_cost: int, rounds: int) -> list[float]:
    """Return the processor time of planning an epoch, the first round dropped."""
    budget = Budget(max_cost, lengths)
    seconds = []
    for _ in range(rounds + 1):
        start = time.process_time()
        EpochBatches(budget, lengths, Shuffled(), seed=1, epoch=0)
        seconds.append(time.process_time() - start)
    return seconds[1:]


def measure_epoch(n_samples: int, rounds: int, results: Results) -> None:
    """Measure a plan, and compare the time of an epoch of a tenth of the samples, without reading."""
    for name, max_cost in BUDGETS.items():
        lengths = draw_lengths(name, n_samples)
        plan_case = f"plan of {n_samples:,} samples, {name}, processor time"
        results.keep(plan_case, "ours", measure_plan(lengths, max_cost, rounds), "s")
        results.print(plan_case)
        results.at_most("plan, processor time", plan_case, "ours", n_samples / 10_000_000)

        n_compared = n_samples // 10
        compared = lengths[:n_compared]
        ways = list_ways(compared, max_cost, results)
        case = f"a sample of an epoch of {n_compared:,}, {name}"
        compare(
            case,
            {way: lambda draw=draw: sum(1 for _ in draw()) for way, draw in ways.items()},
            results,
            rounds=rounds,
            n=n_compared,
            unit="ns",
            at_least={way: 1.0 for way in ways if way.startswith("lhotse")},
        )


CASES = ("padding", "epoch")


def main() -> None:
    """Run what was asked for."""
    given = parser_of(__doc__, list(CASES), rounds=3).parse_args()
    results = Results()
    print(machine())
    n_samples = 100_000 if given.small else 1_000_000
    if "padding" in given.only:
        measure_padding(n_samples, results)
    if "epoch" in given.only:
        measure_epoch(n_samples, given.rounds, results)
    results.save(given.json)


if __name__ == "__main__":
    main()
