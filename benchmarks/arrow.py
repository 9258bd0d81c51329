"""Random batches of a mapped Arrow file: ours, the limits in pyarrow, and Hugging Face's datasets.

    python benchmarks/arrow.py [--only CASE ...]

A file in the stream format, in record batches of 1,000 rows as ``datasets`` writes them. *numbers*
has an int64, a float32 and a list of 16 float32; *text* has a text of 200 letters and a label.
Everything is in the page cache. Opening includes finding all record batches, and is measured in
processor time. About a minute.
"""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from harness import Results, compare, in_turn, machine, parser_of

from data_stack.formats.arrow_ipc import ArrowDataset

#: The number of samples in a batch.
BATCH = 256

#: The number of rows in a record batch, as of ``datasets``.
ROWS_OF_RECORD_BATCH = 1000


def numbers(n_rows: int) -> pa.Table:
    """Return rows of numbers of one size."""
    rng = np.random.default_rng(0)
    vectors = pa.array(rng.standard_normal(16 * n_rows, np.float32))
    return pa.table(
        {
            "id": np.arange(n_rows),
            "weight": rng.standard_normal(n_rows, np.float32),
            "vector": pa.FixedSizeListArray.from_arrays(vectors, 16),
        }
    )


def text(n_rows: int) -> pa.Table:
    """Return rows of text, and of labels."""
    letters = np.random.default_rng(0).integers(97, 123, (n_rows, 200), np.uint8)
    return pa.table(
        {"text": [row.tobytes().decode() for row in letters], "label": np.arange(n_rows)}
    )


def measure(name: str, table: pa.Table, folder: Path, rounds: int, results: Results) -> None:
    """Compare batches, single samples and opening."""
    path = folder / f"{name}.arrow"
    with pa.ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=ROWS_OF_RECORD_BATCH)
    rng = np.random.default_rng(1)
    ours = ArrowDataset(path)
    mapped = pa.ipc.open_stream(pa.memory_map(str(path))).read_all()

    def positions() -> Any:
        return rng.integers(0, len(table), BATCH)

    def take_as_numpy() -> dict[str, Any]:
        rows = mapped.take(pa.array(positions()))
        return {key: column.to_numpy() for key, column in zip(rows.column_names, rows, strict=True)}

    ways: dict[str, Callable[[], object]] = {
        "ours": lambda: ours.read_batch(positions()),
        "pyarrow, take": take_as_numpy,
    }
    single_ways: dict[str, Callable[[], object]] = {
        "ours": lambda: ours[int(positions()[0])],
        "pyarrow, slice": lambda: mapped.slice(int(positions()[0]), 1).to_pylist(),
    }
    opening_ways: dict[str, Callable[[], object]] = {
        "ours": lambda: len(ArrowDataset(path)),
        "pyarrow, read_all": lambda: pa.ipc.open_stream(pa.memory_map(str(path))).read_all(),
    }
    try:
        import datasets
    except ImportError as error:
        results.leave_out("datasets", error)
    else:
        theirs = datasets.Dataset.from_file(str(path)).with_format("numpy")
        ways["datasets"] = lambda: theirs[positions().tolist()]
        single_ways["datasets"] = lambda: theirs[int(positions()[0])]
        opening_ways["datasets"] = lambda: datasets.Dataset.from_file(str(path))
        results.kinds["datasets"] = "peer"

    expected = table.take(pa.array(range(0, len(table), 997)))
    actual = ours.read_batch(range(0, len(table), 997))
    for key in table.column_names:
        assert actual[key].tolist() == expected[key].to_pylist()
    compare(
        f"{name}, a batch of {BATCH}",
        ways,
        results,
        rounds=rounds * 10,
        unit="us",
        at_least={way: 1.0 for way in ways if way != "ours"},
    )
    compare(f"{name}, one sample", single_ways, results, rounds=rounds * 20, unit="us")
    compare_processor_time(f"{name}, opening", opening_ways, results, rounds=rounds * 3)


def compare_processor_time(
    case: str, ways: dict[str, Callable[[], object]], results: Results, *, rounds: int
) -> None:
    """Compare ways by their processor time, which other programs disturb less."""

    def once(work: Callable[[], object]) -> float:
        start = time.process_time()
        work()
        return time.process_time() - start

    timed_ways = {way: functools.partial(once, work) for way, work in ways.items()}
    for way, seconds in in_turn(case, timed_ways, rounds + 2, results).items():
        results.keep(case, way, seconds[2:], "ms")
    results.print(case, "ours")
    if "datasets" in ways:
        results.at_least(case, case, "ours", "datasets", 1.0)


CASES = {"numbers": numbers, "text": text}


def main() -> None:
    """Run what was asked for."""
    given = parser_of(__doc__, list(CASES)).parse_args()
    results = Results()
    print(machine())
    n_rows = 20_000 if given.small else 500_000
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        for name in given.only:
            measure(name, CASES[name](n_rows), Path(folder), given.rounds, results)
    results.save(given.json)


if __name__ == "__main__":
    main()
