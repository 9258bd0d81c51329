"""Runs one training program in this process; benchmarks/training.py starts it, and reads the lines
that it prints.

Run, in benchmarks/: python -m training_peers.alone CASE PROGRAM DATA FOLDER
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any


def n_samples_of(batch: Any) -> int:
    """The number of samples of a batch: the length of its first tensor."""
    parts = (
        batch.values()
        if isinstance(batch, dict)
        else batch
        if isinstance(batch, (tuple, list))
        else [batch]
    )
    return int(next(part.shape[0] for part in parts if hasattr(part, "shape")))


def main(case: str, name: str, data: str, folder: str) -> None:
    """Print a line at the first batch, and one after the second epoch with its seconds and
    samples.
    """
    program = importlib.import_module(f"training_peers.{case.split()[0]}").PROGRAMS[name]
    begin = program.epochs(Path(data), Path(folder))
    for number, batch in enumerate(begin()):
        if number == 0:
            print(json.dumps({"first": n_samples_of(batch)}), flush=True)
    started, n_samples = time.perf_counter(), 0
    for batch in begin():
        n_samples += n_samples_of(batch)
    print(json.dumps({"seconds": time.perf_counter() - started, "samples": n_samples}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
