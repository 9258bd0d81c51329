"""What ``Loader(trace=…)`` costs: loops with a trace beside the same loops without one.

    python benchmarks/trace_cost.py [--only CASE ...]

*arrays* reads batches of 256 rows of 784 bytes, which come every few microseconds, so that most are
left out of the trace; *transform* takes some 0.2 ms for each batch; *pictures* decodes JPEGs of
64 x 64 pixels in threads. Processor time, as the machine has other work, too. A minute.
"""

from __future__ import annotations

import io
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from harness import Results, in_turn, machine, parser_of
from PIL import Image

import data_stack
from data_stack.dataset.iterator import DatasetIteratorIF, SequenceDatasetIterator

#: The part of the speed without a trace that is wanted with one.
WANTED = 0.99


def invert(batch: Any) -> Any:
    """Take some time in numpy."""
    return tuple(1 - np.sort(column, axis=-1) for column in batch)


def write_pictures(folder: Path, n_pictures: int) -> None:
    """Write JPEGs of noise."""
    rng = np.random.default_rng(0)
    for number in range(n_pictures):
        pixels = rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "JPEG")
        path = folder / "noise" / f"{number}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(buffer.getvalue())


def measure(
    case: str,
    iterator: DatasetIteratorIF,
    arguments: dict[str, Any],
    trace: Path,
    rounds: int,
    results: Results,
) -> None:
    """Iterate over a loader with and without a trace in turn."""
    n_samples = len(iterator)

    def iterate(**more: Any) -> float:
        with data_stack.Loader(iterator, shuffle=True, **arguments, **more) as loader:
            started_at = time.process_time()
            for _ in loader:
                pass
            return (time.process_time() - started_at) / n_samples

    ways: dict[str, Callable[[], float]] = {
        "ours, trace": lambda: iterate(trace=trace),
        "without": iterate,
    }
    for way, figures in in_turn(case, ways, rounds + 1, results).items():
        results.keep(case, way, figures[1:], "us")
    results.print(case, "without")
    results.at_least(case, case, "ours, trace", "without", WANTED)


CASES = ("arrays", "transform", "pictures")


def main() -> None:
    """Run what was asked for."""
    given = parser_of(__doc__, list(CASES), rounds=15).parse_args()
    results = Results()
    print(machine())
    factor = 1 if given.small else 10
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        trace = folder / "trace.json"
        rows = rng.integers(0, 256, (20_000 * factor, 784), dtype=np.uint8)
        arrays = SequenceDatasetIterator([rows])
        if "arrays" in given.only:
            measure("arrays", arrays, {"batch_size": 256}, trace, given.rounds, results)
        if "transform" in given.only:
            few = arrays[: 2_000 * factor]
            arguments = {"batch_size": 64, "transform": invert, "worker_kind": "inline"}
            measure("transform", few, arguments, trace, given.rounds, results)
        if "pictures" in given.only:
            pictures = folder / "pictures"
            pictures.mkdir()
            write_pictures(pictures, 300 * factor)
            arguments = {"batch_size": 32, "worker_kind": "threads"}
            iterator = data_stack.load(str(pictures))
            measure("pictures", iterator, arguments, trace, given.rounds, results)
    results.save(given.json)


if __name__ == "__main__":
    main()
