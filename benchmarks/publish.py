"""What one sample of a published dataset of 1 GiB moves over HTTP, and how soon it is there.

    python benchmarks/publish.py

The dataset is an array of rows of 4 KiB, published to a folder and served by range on loopback;
each round reads one sample of another place in a fresh process. Target: at most 2 MiB, of which the
description has most.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from harness import MIB, SUPPORT, Results, answer_of, machine, parser_of

import data_stack
from data_stack import DatasetCard, DatasetFactory
from data_stack.formats import NumpyDatasetIterator, write_npy

sys.path.insert(0, str(SUPPORT))
from web_server import ScriptedServer

MEASURED = """
import json, sys, time
sys.path.insert(0, sys.argv[3])
import publish, data_stack
data_stack.default_repository().register("rows", publish.Rows)
started = time.perf_counter()
rows = data_stack.load(sys.argv[1], split="train")
row = rows[int(sys.argv[2])]
print(json.dumps([time.perf_counter() - started, float(row[0][0])]))
"""


class Rows(DatasetFactory):
    """Rows of 4 KiB."""

    card = DatasetCard("rows", "1.0.0", license="CC0-1.0")
    splits = ("train",)
    n_rows = 1 << 18

    def preprocess(self, raw: Any, prepared: Any) -> None:
        """Write them."""
        rows = np.zeros((self.n_rows, 512))
        rows[:, 0] = np.arange(self.n_rows)
        with prepared.create("rows.npy") as file:
            write_npy(file, rows)

    def open(self, split: str, prepared: Any) -> Any:
        """Each row thrice."""
        return NumpyDatasetIterator([prepared["rows.npy"]] * 3)


def main() -> None:
    """Publish, serve and read."""
    given, results = parser_of(__doc__, ["one sample"]).parse_args(), Results()
    Rows.n_rows = 1 << (12 if given.small else 18)
    print(machine())
    data_stack.default_repository().register("rows", Rows)
    server = ScriptedServer()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        pin = data_stack.publish("rows", Path(folder) / "www", Path(folder) / "store")
        files = {file.name: file.read_bytes() for file in (Path(folder) / "www").iterdir()}
    for name, data in files.items():
        server.serve(f"/{name}", data, ranges=True)
    moved, seconds = [], []
    for number in range(given.rounds):
        at, n_before = (number * 99_991) % Rows.n_rows, len(server.requests)
        program = [
            sys.executable,
            "-c",
            MEASURED,
            f"{server.origin}#{pin}",
            str(at),
            str(Path(__file__).parent),
        ]
        took, value = answer_of(program)
        assert value == at
        ranges = [
            seen.headers["range"][6:].split("-")
            for seen in server.requests[n_before:]
            if seen.path == "/rows.npy"
        ]
        moved.append(
            len(files["data_stack.json"])
            + sum(int(stop) - int(start) + 1 for start, stop in ranges)
        )
        seconds.append(took)
    server.close()
    results.keep("moved", "ours", moved, "MiB")
    results.keep("opening and one sample", "ours", seconds, "ms")
    for case in ("moved", "opening and one sample"):
        results.print(case)
    results.at_most("one sample of 1 GiB", "moved", "ours", 2 * MIB)
    results.save(given.json)


if __name__ == "__main__":
    main()
