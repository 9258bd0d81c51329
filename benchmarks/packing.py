"""Documents packed into sequences: padding, the time of a plan, tokens a second, beside Grain and TRL.

    python benchmarks/packing.py [--only CASE ...]

*padding* packs documents of log-normal, uniform and short lengths into sequences of 8,192 tokens,
with and without a limit of 8 documents in a sequence. Grain packs a stream with a number of open
sequences (``num_packing_bins``), here 64 and 1,024; TRL packs each thousand documents by themselves
(``map_kwargs={"batch_size": …}`` for more); ours knows all lengths. *plan* is the processor
time of packing a million lengths, and the memory that it adds. *tokens* iterates over all sequences
of documents in memory, processor time a token. About two minutes; a tenth of that with ``--small``.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from harness import Results, compare, machine, parser_of

from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.dataset.iterator.layers.sequence_plan import FittedPlan

#: The number of tokens in a sequence.
LENGTH = 8192

#: Sequences that Grain keeps open.
N_BINS = (64, 1024)

#: Limits of documents in a sequence.
LIMITS = (None, 8)

Lengths = npt.NDArray[np.int32]


def draw_lengths(name: str, n_documents: int) -> Lengths:
    """Return lengths of documents, at least 1 and at most that of a sequence."""
    rng = np.random.default_rng(0)
    if name == "log-normal":
        lengths = rng.lognormal(6, 1.2, n_documents)
    elif name == "uniform":
        lengths = rng.uniform(1, LENGTH, n_documents)
    else:
        lengths = rng.uniform(1, 100, n_documents)
    return np.clip(lengths, 1, LENGTH).astype(np.int32)


def plan(lengths: Lengths, strategy: str, max_documents: int | None) -> FittedPlan:
    """Return our plan."""
    return FittedPlan(lengths, LENGTH, strategy=strategy, max_documents=max_documents, key=1)


def padding_of(n_sequences: int, lengths: Lengths) -> float:
    """Return the share of places without a token."""
    return 1 - int(lengths.sum(dtype=np.int64)) / (n_sequences * LENGTH)


def pack_with_grain(
    lengths: Lengths, n_bins: int, max_documents: int | None
) -> Iterator[dict[str, Any]]:
    """Yield the sequences of Grain's best fit."""
    import grain
    import grain.experimental

    documents = grain.MapDataset.source(_Documents(lengths)).to_iter_dataset()
    packed = grain.experimental.BestFitPackIterDataset(
        documents,
        length_struct={"tokens": LENGTH},
        num_packing_bins=n_bins,
        max_sequences_per_bin=max_documents,
    )
    return iter(packed)


class _Documents:
    """Documents of these lengths, for Grain."""

    def __init__(self, lengths: Lengths) -> None:
        self._lengths = lengths.tolist()

    def __len__(self) -> int:
        return len(self._lengths)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"tokens": np.ones(self._lengths[index], np.int32)}


def pack_with_trl(lengths: Lengths, batch_size: int) -> Any:
    """Return the sequences of TRL's best fit, as a dataset of Hugging Face."""
    import pyarrow as pa
    from datasets import Dataset
    from trl.data_utils import pack_dataset

    ends = np.cumsum(lengths, dtype=np.int64)
    offsets = pa.array(np.concatenate(([0], ends)))
    tokens = pa.array(np.ones(int(ends[-1]), np.int32))
    documents = pa.LargeListArray.from_arrays(offsets, tokens)
    dataset = Dataset(pa.table({"input_ids": documents}))
    options = {"batch_size": batch_size, "keep_in_memory": True}
    return pack_dataset(dataset, LENGTH, strategy="bfd", map_kwargs=options)


def has_trl(results: Results) -> bool:
    """Return whether TRL is installed; otherwise note that it is left out."""
    try:
        import datasets
        import trl.data_utils  # noqa: F401
    except ImportError as error:
        results.leave_out("trl", error)
        return False
    datasets.disable_caching()
    datasets.disable_progress_bars()
    return True


def has_grain(results: Results) -> bool:
    """Return whether Grain is installed; otherwise note that it is left out."""
    try:
        import grain.experimental  # noqa: F401
    except ImportError as error:
        results.leave_out("grain", error)
        return False
    return True


def measure_padding(n_documents: int, results: Results) -> None:
    """Compare the padding on the same lengths."""
    for name in ("log-normal", "uniform", "short"):
        lengths = draw_lengths(name, n_documents)
        for limit in LIMITS:
            case = f"padding, {name}" + (f", at most {limit} documents" if limit else "")
            results.units[case] = "%"
            for strategy in ("best_fit", "first_fit"):
                n_sequences = plan(lengths, strategy, limit).n_sequences
                results.figures[case][f"ours, {strategy}"] = [padding_of(n_sequences, lengths)]
            if has_grain(results):
                for n_bins in N_BINS:
                    n_sequences = sum(1 for _ in pack_with_grain(lengths, n_bins, limit))
                    way = f"grain, best fit, {n_bins} bins"
                    results.kinds[way] = "peer"
                    results.figures[case][way] = [padding_of(n_sequences, lengths)]
            if limit is None and has_trl(results):
                for batch_size in (1_000, n_documents):
                    way = f"trl, bfd, {batch_size:,} at once"
                    results.kinds[way] = "peer"
                    n_sequences = len(pack_with_trl(lengths, batch_size))
                    results.figures[case][way] = [padding_of(n_sequences, lengths)]
            for way, figures in results.figures[case].items():
                print(f"{case}: {way}: {100 * figures[0]:.3f} %", flush=True)


def measure_plan(n_documents: int, rounds: int, results: Results) -> None:
    """Measure the time of a plan, and the memory that it takes while it is made and afterwards."""
    lengths = draw_lengths("log-normal", n_documents)
    for limit in LIMITS:
        case = f"plan of {n_documents:,} lengths" + (f", at most {limit}" if limit else "")
        ways: dict[str, Callable[[], object]] = {
            f"ours, {strategy}": lambda strategy=strategy, limit=limit: plan(
                lengths, strategy, limit
            )
            for strategy in ("best_fit", "first_fit")
        }
        compare(case, ways, results, rounds=rounds, unit="s")
        for way, make in ways.items():
            tracemalloc.start()
            kept = make()
            n_kept, n_most = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            del kept
            fact = f"{way}: {n_most / 2**20:.0f} MiB while it is made, {n_kept / 2**20:.0f} kept"
            results.facts[f"{case}, memory, {way}"] = fact
            print(f"{case}: {fact}", flush=True)


def measure_tokens(n_documents: int, rounds: int, results: Results) -> None:
    """Compare iterating over all sequences."""
    lengths = draw_lengths("log-normal", n_documents)
    documents = [np.ones(length, np.int32) for length in lengths.tolist()]
    source = SequenceDatasetIterator([documents])
    ways: dict[str, Callable[[], object]] = {}
    for strategy in ("best_fit", "first_fit", "concat"):
        packed = source.pack(LENGTH, strategy=strategy, seed=1)  # type: ignore[arg-type]
        ways[f"ours, {strategy}"] = lambda packed=packed: sum(1 for _ in packed)
    if has_grain(results):
        way = f"grain, best fit, {N_BINS[0]} bins"
        results.kinds[way] = "peer"
        ways[way] = lambda: sum(1 for _ in pack_with_grain(lengths, N_BINS[0], None))
    if has_trl(results):
        way = "trl, bfd, 1,000 at once"
        results.kinds[way] = "peer"
        ways[way] = lambda: sum(1 for _ in pack_with_trl(lengths, 1_000).with_format("numpy"))
    at_least = {way: 1.0 for way in ways if not way.startswith("ours")}
    case = f"all sequences of {int(lengths.sum()):,} tokens"
    compare(case, ways, results, rounds=rounds, unit="s", at_least=at_least)


CASES = ("padding", "plan", "tokens")


def main() -> None:
    """Run what was asked for."""
    given = parser_of(__doc__, list(CASES)).parse_args()
    results = Results()
    print(machine())
    n_documents = 10_000 if given.small else 100_000
    if "padding" in given.only:
        measure_padding(n_documents, results)
    if "plan" in given.only:
        measure_plan(10 * n_documents, given.rounds, results)
    if "tokens" in given.only:
        measure_tokens(n_documents // 5, given.rounds, results)
    results.save(given.json)


if __name__ == "__main__":
    main()
