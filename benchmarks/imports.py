"""What `import data_stack` costs, against `import numpy` and against an interpreter that imports nothing.

Run: python benchmarks/imports.py [--rounds 15]. Each import runs in a fresh interpreter, in turn; medians.
Target (issue 2): less than numpy.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

CASES = {
    "nothing": "pass",
    "data_stack": "import data_stack",
    "numpy": "import numpy",
    "data_stack.load": "import data_stack; data_stack.load",
    "names of all datasets": "import data_stack; data_stack.datasets()",
}


def seconds(statement: str) -> float:
    """Wall time of an interpreter that runs ``statement``."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True)
    return time.perf_counter() - start


def main() -> None:
    """Print a line a case, and the ratio to numpy with the interpreter's own time taken off."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    for statement in CASES.values():
        seconds(statement)  # compiled and cached
    times: dict[str, list[float]] = {case: [] for case in CASES}
    for _ in range(rounds):
        for case, statement in CASES.items():
            times[case].append(seconds(statement))
    medians = {case: statistics.median(values) for case, values in times.items()}
    numpy_cost = medians["numpy"] - medians["nothing"]
    for case, median in medians.items():
        cost = median - medians["nothing"]
        print(f"{case:24} {median * 1000:7.1f} ms   above nothing {cost * 1000:7.1f} ms   of numpy's {cost / numpy_cost:5.2f}")


if __name__ == "__main__":
    main()
