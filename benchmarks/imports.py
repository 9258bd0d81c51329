"""What `import data_stack` costs, against `import numpy` and against an interpreter that imports
nothing.

Run: python benchmarks/imports.py. Each import runs in a fresh interpreter. Target: less than numpy.
"""

from __future__ import annotations

import subprocess
import sys

from harness import Results, compare, machine, parser_of

CASES = {
    "ours, import": "import data_stack",
    "ours, data_stack.load": "import data_stack; data_stack.load",
    "ours, names of all datasets": "import data_stack; data_stack.datasets()",
    "numpy": "import numpy",
    "nothing": "pass",
}


def main() -> None:
    """Print what each takes, and what is left without the interpreter's own time."""
    given, results = parser_of(__doc__, rounds=15).parse_args(), Results()
    print(machine())
    ways = {
        name: lambda statement=statement: subprocess.run(
            [sys.executable, "-c", statement], check=True
        )  # type: ignore[misc]
        for name, statement in CASES.items()
    }
    compare("a fresh interpreter", ways, results, rounds=given.rounds)
    nothing = results.median("a fresh interpreter", "nothing") or 0.0
    for name in CASES:
        results.keep(
            "above nothing",
            name,
            [(results.median("a fresh interpreter", name) or 0.0) - nothing + 1e-9],
            "ms",
        )
    results.print("above nothing", "numpy")
    results.at_least("import data_stack", "above nothing", "ours, import", "numpy", 1)
    results.save(given.json)


if __name__ == "__main__":
    main()
