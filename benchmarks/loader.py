"""Our loader against the bare loop and against every peer's loader that is installed: shuffled
batches of 256, two workers.

Run: python benchmarks/loader.py [--only CASE …] [--systems NAME …] [--rounds N] [--small] [--json
    FILE]

Cases:
  W1, W4, W2  samples/s                             state     a state in the middle of 10⁹ samples
  W3          JPEGs decoded on both cores           order     time an index; how well block-wise shuffles mix
  python      50 µs of Python for each sample       training  a small CNN: share of the time that it waits
  first       the first batch of a cold loader      memory    over 20 epochs

Each loader of the first five runs in processes of its own, is checked against the truth in its
first epoch, and then stands still (SIGSTOP) but for its turns; a turn begins behind the batches
that were made ahead. The other cases run each measurement in a fresh process. Workloads and files
are those of ``records.py``; the modules in ``loader_peers`` say how each peer is used. What is not
installed is left out, and said so.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import record_peers
from harness import MIB, Results, answer_of, in_turn, machine, parser_of
from loader_peers import MODULES, loader_system
from loader_peers.checking import DECODED
from loader_peers.turns import Child
from record_peers.system import remove
from record_peers.workload import WORKLOADS, Workload

WORKS = ("W1", "W4", "W2", "W3", "python")
OUR_KINDS = ("ours, inline", "ours, threads", "ours, processes", "ours, auto")


def workload(name: str, small: bool) -> Workload:
    """One of W1 to W4, or W4 by the name of what is done with it."""
    if name != "python":
        return WORKLOADS[name](small)
    work = WORKLOADS["W4"](small)
    return replace(
        work,
        schema=replace(work.schema, name=name),
        title=f"{work.title}, 50 µs of Python for each",
    )


def measure_work(name: str, folder: Path, given: Any, results: Results) -> None:
    """All loaders of one workload, in turn."""
    work = workload(name, given.small)
    print(f"\n{name}: {work.title}; samples/s of shuffled batches of 256, two workers", flush=True)
    folder = folder / name
    folder.mkdir()
    record_peers.system("memmap").write(work, folder / "memmap")
    if name == "W3":
        np.save(folder / "memmap" / DECODED, work.truth["image"])
    with contextlib.ExitStack() as stack:
        children = {}
        for loader in given.systems:
            try:
                system = loader_system(loader)
                if name not in system.works:
                    continue
                results.kinds[loader] = system.kind
                if not (folder / system.stored).exists():  # written once for all that share it
                    system.write(work, folder / system.stored)
                child = Child(loader, folder / f"{loader}.log")
                stack.callback(child.close)
                n_checked = child.open(
                    work.schema,
                    folder / system.stored,
                    folder / "memmap",
                    0.5 if given.small else 5.0,
                )
            except Exception as error:  # a package may be there and broken, in its own way
                results.leave_out(f"{name}: {loader}", error)
                continue
            children[loader] = child
            results.facts[f"{name}: {loader}"] = f"{n_checked:,} checked"
        turns = {
            loader: lambda child=child: child.turn(0.1 if given.small else 0.3)
            for loader, child in children.items()
        }  # type: ignore[misc]
        for loader, kept in in_turn(name, turns, given.rounds, results).items():
            results.keep(name, loader, [each["seconds"] / each["samples"] for each in kept])
            results.facts[f"{name}: {loader}"] += (
                f", {kept[-1]['bytes'] / MIB:,.0f} MiB {kept[-1]['kind']:.100}"
            )
    results.print(name, results.best(name, "peer"), "take")
    remove(folder)


def alone(
    case: str, ways: Iterable[str], rounds: int, results: Results, **arguments: Any
) -> dict[str, list[Any]]:
    """What ``loader_peers.alone`` says of each way, in turn."""

    def asked(way: str) -> Callable[[], Any]:
        command = [
            sys.executable,
            "-m",
            "loader_peers.alone",
            case,
            json.dumps({"way": way, **arguments}),
        ]
        return lambda: answer_of(command, seconds=180)

    for way in ways:
        results.kinds[way] = way.partition(",")[0].replace("torch", "peer")
    return in_turn(case, {way: asked(way) for way in ways}, rounds, results)


def measure_alone(case: str, folder: Path, given: Any, results: Results) -> None:
    """The other cases."""
    w4, small = str(folder / "w4"), given.small
    if not Path(w4).exists():
        record_peers.system("memmap").write(WORKLOADS["W4"](small), Path(w4))
    if case == "first":
        again = ["ours, processes, again", "ours, processes, kept"]
        ways = [
            *OUR_KINDS,
            *again,
            "torch, no workers",
            "torch, fork",
            "torch, forkserver",
            "torch, spawn",
        ]
        for way, found in alone(case, ways, given.rounds, results, folder=w4).items():
            results.keep("first", way, found, "ms")
    elif case == "state":
        for found in alone(case, ["ours"], 1, results, n_samples=10**9, step=10**6).get("ours", []):
            for name, seconds in found.items():
                results.keep("state", f"ours, {name}", [seconds], "ms")
    elif case == "order":
        for found in alone(case, ["ours"], 1, results, n_samples=10**7 if small else 10**9).get(
            "ours", []
        ):
            for name, seconds in found["speeds"].items():
                results.keep("order", name, [seconds], "ns")
            results.facts["quality"] = found["quality"]
            for row in found["quality"]:
                print("  " + "; ".join(f"{name} {value}" for name, value in row.items()))
    elif case == "training":
        ways = [*OUR_KINDS, "torch, samples", "torch, batched"]
        for way, found in alone(
            case, ways, min(2, given.rounds), results, folder=w4, seconds=1 if small else 4
        ).items():
            results.keep("training", way, found, "%")
    else:
        ways = [f"{way}, workers {kept}" for way in OUR_KINDS for kept in ("kept", "new")]
        for way, found in alone(
            case, ways, 1, results, folder=w4, n_epochs=4 if small else 20
        ).items():
            results.keep("memory", way, [max(1.0, found[0][1] - found[0][0])], "MiB")
    results.print(case, results.best(case, "ours"))


def judge(results: Results) -> None:
    """What was wanted."""
    print()
    for work, factor in (("W1", 25), ("W4", 25), ("W2", 3), ("W3", 1.5)):
        ours = results.ways(work, "ours")
        for name in dict.fromkeys([*ours[:1], *(each for each in ours if each.endswith("auto"))]):
            results.at_least(f"{work} shuffled batches", work, name, "best peer", factor)
            if work in ("W1", "W4"):
                results.at_least(f"{work} shuffled batches", work, name, "take", 0.7)
            results.at_least("W3 decoded on both cores", work, name, "decoder, 2 threads", 0.9)
    for name in ("ours, python, processes", "ours, python, auto"):
        results.at_least("50 µs of Python a sample", "python", name, "ours, python, inline", 1.9)
        results.at_least(
            "50 µs of Python a sample", "python", name, "torch, python, 2 workers", 1.2
        )
    for kind in ("inline", "threads", "auto"):
        results.at_most("first batch, cold", "first", f"ours, {kind}", 0.020)
    results.at_most("first batch, processes", "first", "ours, processes, again", 0.060)
    results.at_most("first batch, processes", "first", "ours, processes, kept", 0.030)
    for start in ("fork", "forkserver", "spawn"):
        results.at_least("first batch, cold", "first", "ours, processes", f"torch, {start}", 1)
    results.at_most("load_state_dict, step 10⁶ of 10⁹", "state", "ours, new loader", 1e-3)
    results.at_most(
        "order of 10⁹ samples", "order", results.best("order", start="shuffled, 16384"), 100e-9
    )
    for way in results.ways("training", "ours"):
        results.at_most("CNN on W4: waiting", "training", way, 0.01)
    for way in results.ways("memory"):
        results.at_most("memory, epoch 2 to 20", "memory", way, 2 * MIB)


def main() -> None:
    """Run what was asked for."""
    parser = parser_of(__doc__, [*WORKS, "first", "state", "order", "training", "memory"])
    parser.add_argument(
        "--systems", nargs="+", choices=list(MODULES), default=list(MODULES), metavar="NAME"
    )
    given, results = parser.parse_args(), Results()
    print(machine())
    with tempfile.TemporaryDirectory(
        dir=given.folder, prefix="data_stack-benchmark-loader-"
    ) as name:
        for case in given.only:
            (measure_work if case in WORKS else measure_alone)(case, Path(name), given, results)
    judge(results)
    results.save(given.json)


if __name__ == "__main__":
    main()
