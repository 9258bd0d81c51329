"""Our loader against the bare loop and against every peer's loader that is installed: shuffled batches of 256, two workers.

Run: python benchmarks/loader.py [--case N …] [--only WORK …] [--loaders NAME …] [--rounds N] [--small] [--json FILE]

Cases:
  1  W1, W4, W2: samples/s            5  a state in the middle of 10⁹ samples
  2  W3: JPEGs decoded on both cores  6  orders: nanoseconds an index; how well block-wise shuffles mix
  3  50 µs of Python for each sample  7  a small CNN: share of the time that it waits
  4  the first batch of a cold loader 8  memory over 20 epochs

Each loader of cases 1 to 3 runs in processes of its own, is checked against the truth in its first epoch, and then stands
still (SIGSTOP) but for its turns; turns rotate from round to round, a turn begins behind the batches that were made ahead.
Figures are medians over the rounds, ratios those of medians of this one run. The other cases run each measurement in a fresh
process, in turn. Workloads and files are those of ``records.py``; the modules in ``loader_peers`` say how each peer is used.
What is not installed is left out, and said so. Targets: issue 6.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import importlib.metadata
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import record_peers
from loader_peers import MODULES, loader_system
from loader_peers.checking import DECODED
from loader_peers.loading import LoaderSystem
from loader_peers.turns import Child
from record_peers.system import remove
from record_peers.workload import WORKLOADS, Workload
from records import machine

CASES = {
    1: ("W1", "W4", "W2"),
    2: ("W3",),
    3: ("python",),
}
#: The fields are W4's.
PYTHON_WORK = "python"


@dataclass(frozen=True)
class Options:
    """What the command line asked for."""

    cases: Sequence[int]
    works: Sequence[str]
    loaders: Sequence[str]
    small: bool
    rounds: int
    seconds: float
    check_seconds: float
    folder: Path


@dataclass
class Results:
    """Figures of rounds by case, measure and who was measured."""

    rounds: dict[tuple[str, str, str], list[float]] = field(default_factory=lambda: collections.defaultdict(list))
    kinds: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    targets: list[dict[str, Any]] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)

    def median(self, case: str, measure: str, name: str | None) -> float | None:
        """Median over the rounds; None if it was not measured."""
        kept = self.rounds.get((case, measure, name or ""))
        return statistics.median(kept) if kept else None

    def names(self, case: str, measure: str, kind: str | None = None) -> list[str]:
        """Who was measured (of one kind), the largest figure first."""
        found = [key[2] for key in self.rounds if key[:2] == (case, measure) and kind in (None, self.kinds.get(key[2]))]
        return sorted(found, key=lambda name: -(self.median(case, measure, name) or 0.0))

    def best(self, case: str, measure: str, kind: str) -> str | None:
        """Whose figure is the largest."""
        return next(iter(self.names(case, measure, kind)), None)


# ---------------------------------------------------------------------- samples a second, in turn


def measure_work(name: str, options: Options, results: Results) -> None:
    """All loaders of one workload, in turn."""
    work = workload(name, options)
    print(f"\n{name}: {work.title}; samples/s of shuffled batches of 256, two workers", flush=True)
    folder = options.folder / name
    folder.mkdir()
    truth = folder / "memmap"
    record_peers.system("memmap").write(work, truth)
    if name == "W3":
        np.save(truth / DECODED, work.truth["image"])
    with contextlib.ExitStack() as stack:
        stored = [
            (loader, system)
            for loader in options.loaders
            if (system := imported(loader, results)) is not None and name in system.works
            if written(loader, system, work, folder, results)
        ]
        with ThreadPoolExecutor(2) as pool:  # opening and checking is not measured, and takes most of the time
            found = pool.map(lambda pair: opened(pair[0], pair[1], work, folder, options, results), stored)
            children = [child for child in found if child is not None]
        for child in children:
            stack.callback(child.close)
        take_turns(name, children, options, results)
    print_throughput(name, results)
    remove(folder)


def workload(name: str, options: Options) -> Workload:
    """One of W1 to W4, or W4 by the name of what is done with it."""
    if name != PYTHON_WORK:
        return WORKLOADS[name](options.small)
    work = WORKLOADS["W4"](options.small)
    return replace(work, schema=replace(work.schema, name=PYTHON_WORK), title=f"{work.title}, 50 µs of Python for each")


def imported(loader: str, results: Results) -> LoaderSystem | None:
    """A loader, or None, said once, if it cannot be imported."""
    if loader in results.left_out:
        return None
    try:
        system = loader_system(loader)
    except Exception as error:  # a package may be there and broken, in its own way
        leave_out(loader, error, results)
        return None
    results.kinds[loader] = system.kind
    return system


def written(loader: str, system: LoaderSystem, work: Workload, folder: Path, results: Results) -> bool:
    """Whether the files that a loader reads are there; they are written once for all that share them."""
    try:
        if not (folder / system.stored).exists():
            system.write(work, folder / system.stored)
    except Exception as error:
        leave_out(f"{work.name}: {loader}", error, results)
        return False
    return True


def opened(loader: str, system: LoaderSystem, work: Workload, folder: Path, options: Options, results: Results) -> Child | None:
    """A loader that has been checked and stands still; None if it cannot."""
    child = Child(loader, folder / f"{loader}.log")
    try:
        n_checked = child.open(work.schema, folder / system.stored, folder / "memmap", options.check_seconds)
    except Exception as error:
        leave_out(f"{work.name}: {loader}", error, results)
        child.close()
        return None
    results.facts[f"{work.name}: {loader}, samples checked"] = n_checked
    return child


def leave_out(what: str, error: Exception, results: Results) -> None:
    """Say why something is not measured."""
    results.left_out[what] = f"{type(error).__name__}: {str(error)[-300:]}"
    print(f"  {what} is left out: {results.left_out[what]}", flush=True)


def take_turns(name: str, children: list[Child], options: Options, results: Results) -> None:
    """Every loader once in each round; one that fails is left out from then on."""
    failed: set[str] = set()
    for number in range(options.rounds):
        turn = number % max(1, len(children))
        for child in children[turn:] + children[:turn]:
            if child.name in failed:
                continue
            try:
                done = child.turn(options.seconds)
            except RuntimeError as error:
                failed.add(child.name)
                leave_out(f"{name}: {child.name}", error, results)
                continue
            results.rounds[name, "samples/s", child.name].append(done["samples"] / done["seconds"])
            results.rounds[name, "bytes", child.name].append(done["bytes"])
            if "kind" in done:
                results.facts[f"{name}: {child.name}, workers"] = done["kind"]


def print_throughput(name: str, results: Results) -> None:
    """One line a loader, the fastest first."""
    peer, ours = results.best(name, "samples/s", "peer"), results.best(name, "samples/s", "ours")
    against = [results.median(name, "samples/s", each) for each in (peer, "take")]
    for loader in results.names(name, "samples/s"):
        kept = results.rounds[name, "samples/s", loader]
        middle, checked = statistics.median(kept), results.facts.get(f"{name}: {loader}, samples checked", 0)
        megabytes = (results.median(name, "bytes", loader) or 0.0) / 2**20
        ratios = " ".join(f"{middle / other:8.2f} x" if other else f"{'':10}" for other in against)
        mark = {"limit": "limit", "peer": "best peer" if loader == peer else ""}.get(results.kinds[loader], "*")
        chosen = results.facts.get(f"{name}: {loader}, workers", "")
        print(
            f"  {loader:28} {middle:12,.0f} {ratios} {mark:9} {min(kept):12,.0f} to {max(kept):12,.0f}  "
            f"{megabytes:6,.0f} MiB  {checked:,} checked {chosen.partition(chr(10))[0]:.120}"
        )
    print(
        f"  (ratios: to the best peer, {peer}; to take.  MiB: it and its workers, mapped files included.  Best of ours: {ours})",
        flush=True,
    )


# ---------------------------------------------------------------------- alone, in fresh processes


def alone(*arguments: str) -> dict[str, Any]:
    """What ``loader_peers.alone`` says.

    Raises:
        RuntimeError: it failed.
    """
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here), *filter(None, [os.environ.get("PYTHONPATH")])])}
    done = subprocess.run(
        [sys.executable, "-m", "loader_peers.alone", *arguments],
        capture_output=True, text=True, env=environment, timeout=180,
        cwd=here,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-300:])
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def in_fresh_processes(
    case: str, ways: Iterable[str], rounds: int, results: Results, *arguments: str
) -> dict[str, list[dict[str, Any]]]:
    """Each way once in each round; one that fails is left out, and said so."""
    names, answers = list(ways), collections.defaultdict(list)
    for number in range(rounds):
        turn = number % len(names)
        for way in names[turn:] + names[:turn]:
            if f"{case}: {way}" in results.left_out:
                continue
            try:
                answers[way].append(alone(case, way, *arguments))
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                leave_out(f"{case}: {way}", error, results)
    for way in names:
        results.kinds[way] = way.partition(",")[0].replace("torch", "peer")
    return answers


def w4_folder(options: Options) -> Path:
    """W4 as a memory map."""
    folder = options.folder / "alone"
    if not folder.exists():
        record_peers.system("memmap").write(WORKLOADS["W4"](options.small), folder)
    return folder


OUR_KINDS = ("ours, inline", "ours, threads", "ours, processes", "ours, auto")


def measure_first_batch(options: Options, results: Results) -> None:
    """Case 4."""
    print("\nfirst batch of a cold loader of W4, two workers: ms; a new process each time, imports done before", flush=True)
    ways = [*OUR_KINDS, "torch, no workers", "torch, fork", "torch, forkserver", "torch, spawn"]
    answers = in_fresh_processes("first", ways, max(3, options.rounds), results, "--folder", str(w4_folder(options)))
    for way, found in answers.items():
        results.rounds["first", "seconds", way] = [each["seconds"] for each in found]
    for way in reversed(results.names("first", "seconds")):
        kept = results.rounds["first", "seconds", way]
        print(f"  {way:28} {statistics.median(kept) * 1e3:9.2f}    {min(kept) * 1e3:9.2f} to {max(kept) * 1e3:9.2f}", flush=True)


def measure_state(options: Options, results: Results) -> None:
    """Case 5."""
    print("\nload_state_dict at step 10⁶ of 10⁹ samples", flush=True)
    found = in_fresh_processes("state", ["ours, inline"], 1, results)
    for name, value in (found["ours, inline"][0] if found["ours, inline"] else {}).items():
        results.rounds["state", name, "ours"] = [value]
        shown = f"{value / 2**20:10.3f} MiB" if name.startswith("bytes") else f"{value * 1e3:10.3f} ms"
        print(f"  {name:44} {shown}", flush=True)


def measure_orders(options: Options, results: Results) -> None:
    """Case 6."""
    print("\norders", flush=True)
    n_samples = 10**7 if options.small else 10**9
    found = in_fresh_processes("order", ["ours, inline"], 1, results, "--n-samples", str(n_samples))["ours, inline"]
    if not found:
        return
    for order, figures in found[0]["speeds"].items():
        shown = []
        for name, value in figures.items():
            results.rounds["order", name, order] = [value]
            unit = "MiB" if name.startswith("bytes") else "ms" if name.startswith("seconds") else ""
            value = value / 2**20 if unit == "MiB" else value * 1e3 if unit == "ms" else value
            shown.append(f"{name.removeprefix('seconds ').removeprefix('bytes ')} {value:,.2f} {unit}".strip())
        print(f"  {order:56} {'; '.join(shown)}", flush=True)
    results.facts["quality"] = found[0]["quality"]
    print(f"  {'window':14}{'same block':>12}{'near':>10}{'distance':>10}{'batch labels':>14}{'blocks read':>13}")
    for row in found[0]["quality"]:
        read = "" if row["blocks read"] is None else f"{row['blocks read']:.2f} x"
        print(
            f"  {row['window']!s:14}{row['same block']:12.2%}{row['near']:10.2%}{row['distance']:10.3f}"
            f"{row['batch labels']:14.2f}{read:>13}",
            flush=True,
        )


def measure_training(options: Options, results: Results) -> None:
    """Case 7."""
    print("\na small CNN on W4 (torch, CPU), batch 256: share of the time that it waits", flush=True)
    ways = [*OUR_KINDS, "torch, samples", "torch, batched"]
    seconds = "2" if options.small else "4"
    answers = in_fresh_processes(
        "training", ways, min(2, options.rounds), results, "--folder", str(w4_folder(options)), "--seconds", seconds
    )
    for way, found in answers.items():
        results.rounds["training", "waiting share", way] = [each["waiting share"] for each in found]
        middle = {name: statistics.median(each[name] for each in found) for name in found[0] if name != "kind"}
        print(
            f"  {way:28} {middle['waiting share']:8.3%}  {middle['seconds a step'] * 1e3:7.2f} ms a step (alone "
            f"{middle['seconds a step without loading'] * 1e3:.2f}), first batch "
            f"{middle['seconds to the first batch'] * 1e3:.1f} ms",
            flush=True,
        )


def measure_memory(options: Options, results: Results) -> None:
    """Case 8."""
    print("\nmemory over 20 epochs of W4: it and its workers, MiB (private), descriptors, names in /dev/shm", flush=True)
    for kept in (True, False):
        arguments = ["--folder", str(w4_folder(options)), "--epochs", "20", *(["--kept"] if kept else [])]
        for way, found in in_fresh_processes("memory", OUR_KINDS, 1, results, *arguments).items():
            if not found:
                continue
            figures = found[0]
            sizes = {int(epoch): n_bytes for epoch, n_bytes in figures["proportional"].items()}
            name = f"{way}, workers {'kept' if kept else 'new each epoch'}"
            results.rounds["memory", "growth, MiB", name] = [(sizes[20] - sizes[2]) / 2**20]
            shown = "; ".join(
                f"epoch {epoch}: {n_bytes / 2**20:,.1f} ({figures['private'][str(epoch)] / 2**20:,.1f}), "
                f"{figures['descriptors'][str(epoch)]}, {figures['segments'][str(epoch)]}"
                for epoch, n_bytes in sizes.items()
            )
            print(f"  {name:40} {shown}", flush=True)


# ---------------------------------------------------------------------- what comes out of it


def print_targets(results: Results) -> None:
    """Every line of the issue's table that was measured, and whether it is met."""
    print(f"\n{'target':44} {'ours':28} {'against':32} {'figure':>12}  wanted")
    for work, factor in (("W1", 25), ("W4", 25), ("W2", 3), ("W3", 1.5)):
        ours, auto = throughput_of_ours(work, results)
        peer = results.best(work, "samples/s", "peer")
        for name in dict.fromkeys([ours, *auto]):
            at_least(f"{work} shuffled batches", work, name, peer, factor, results, named="best peer, ")
            if work in ("W1", "W4"):
                at_least(f"{work} shuffled batches", work, name, "take", 0.5, results)
            if work == "W3":
                at_least("W3 decoded on both cores", work, name, "decoder, 2 threads", 0.9, results)
    for name in ("ours, python, processes", "ours, python, auto"):
        at_least("50 µs of Python a sample", PYTHON_WORK, name, "ours, python, inline", 1.9, results)
        at_least("50 µs of Python a sample", PYTHON_WORK, name, "torch, python, 2 workers", 1.2, results)
    for kind in ("inline", "threads", "auto"):
        at_most("first batch, cold", "first", "seconds", f"ours, {kind}", 0.020, results, "ms")
    for start in ("fork", "forkserver", "spawn"):
        ours_seconds, torchs = (results.median("first", "seconds", name) for name in ("ours, processes", f"torch, {start}"))
        if ours_seconds and torchs:
            judged(
                "first batch, cold",
                "ours, processes",
                f"torch, {start}",
                f"{ours_seconds / torchs:.2f} x",
                "<= 1 x",
                ours_seconds <= torchs,
                results,
            )
    at_most("load_state_dict, step 10⁶ of 10⁹", "state", "seconds, new loader", "ours", 1e-3, results, "ms")
    for order in [name for name in results.names("order", "ns, 16384 at once") if name.startswith("shuffled")]:
        at_most("order of 10⁹ samples", "order", "ns, 16384 at once", order, 100, results, "ns")
    for way in results.names("training", "waiting share", "ours"):
        at_most("CNN on W4: waiting", "training", "waiting share", way, 0.01, results, "%")
    for way in results.names("memory", "growth, MiB"):
        at_most("memory, epoch 2 to 20", "memory", "growth, MiB", way, 2, results, "MiB")


def throughput_of_ours(work: str, results: Results) -> tuple[str | None, list[str]]:
    """The fastest of ours, and those that chose their workers by themselves."""
    names = results.names(work, "samples/s", "ours")
    return (names[0] if names else None), [name for name in names if name.endswith("auto")]


def at_least(what: str, case: str, ours: str | None, other: str | None, factor: float, results: Results, named: str = "") -> None:
    """Ours does at least ``factor`` times as many samples a second."""
    figures = [results.median(case, "samples/s", name) for name in (ours, other)]
    if figures[0] and figures[1]:
        ratio = figures[0] / figures[1]
        judged(what, str(ours), f"{named}{other}", f"{ratio:.2f} x", f">= {factor:g} x", ratio >= factor, results)


def at_most(what: str, case: str, measure: str, ours: str, limit: float, results: Results, unit: str) -> None:
    """Ours takes at most so much."""
    figure = results.median(case, measure, ours)
    if figure is not None:
        scale = {"ms": 1e3, "%": 100}.get(unit, 1)
        judged(what, ours, "", f"{figure * scale:.2f} {unit}", f"<= {limit * scale:g} {unit}", figure <= limit, results)


def judged(what: str, ours: str, other: str, figure: str, wanted: str, met: bool, results: Results) -> None:
    """Print a line of the table, and keep it."""
    print(f"{what:44} {ours:28} {other:32} {figure:>12}  {wanted:10} {'met' if met else 'NOT MET'}", flush=True)
    results.targets.append({"what": what, "ours": ours, "against": other, "figure": figure, "wanted": wanted, "met": met})


def as_markdown(results: Results) -> str:
    """The tables of ``benchmarks/README.md``."""
    works = [work for works in CASES.values() for work in works if results.names(work, "samples/s")]
    lines = ["| samples/s | " + " | ".join(works) + " |", "|---|" + "---:|" * len(works)]
    for loader in [name for name in MODULES if any(results.median(work, "samples/s", name) for work in works)]:
        figures = []
        for work in works:
            figure, best = results.median(work, "samples/s", loader), results.best(work, "samples/s", "peer") == loader
            figures.append("" if figure is None else f"**{_short(figure)}**" if best else _short(figure))
        lines.append(f"| {loader} | " + " | ".join(figures) + " |")
    lines += ["", "| target | ours | against | figure | wanted | |", "|---|---|---|---:|---|---|"]
    for each in results.targets:
        wanted = each["wanted"].replace("<=", "≤").replace(">=", "≥")
        met = "met" if each["met"] else "not met"
        lines.append(f"| {each['what']} | {each['ours']} | {each['against']} | {each['figure']} | {wanted} | {met} |")
    if "quality" in results.facts:
        lines += ["", "| window | same block | near | distance | labels | blocks read |", "|---|---:|---:|---:|---:|---:|"]
        for row in results.facts["quality"]:
            read = "" if row["blocks read"] is None else f"{row['blocks read']:.2f} ×"
            lines.append(
                f"| {row['window']} | {row['same block']:.2%} | {row['near']:.2%} | {row['distance']:.3f} | "
                f"{row['batch labels']:.2f} | {read} |"
            )
    return "\n".join(lines) + "\n"


def _short(figure: float) -> str:
    """1234567 as "1.23 M"."""
    for scale, unit in ((1e6, " M"), (1e3, " k")):
        if figure >= scale:
            return f"{figure / scale:.3g}{unit}"
    return f"{figure:.3g}"


def as_json(results: Results, options: Options) -> dict[str, Any]:
    """All rounds and targets."""
    cases: dict[str, Any] = {}
    for (case, measure, name), kept in results.rounds.items():
        cases.setdefault(case, {}).setdefault(measure, {})[name] = {"median": statistics.median(kept), "rounds": kept}
    rest = {"targets": results.targets, "facts": results.facts, "left out": results.left_out}
    return {"machine": machine(), "small": options.small, "cases": cases, **rest}


def main() -> None:
    """Run what was asked for."""
    more = {4: measure_first_batch, 5: measure_state, 6: measure_orders, 7: measure_training, 8: measure_memory}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", nargs="+", type=int, choices=[*CASES, *more], default=[*CASES, *more])
    parser.add_argument("--only", nargs="+", choices=[work for works in CASES.values() for work in works], default=None)
    parser.add_argument("--loaders", nargs="+", choices=list(MODULES), default=list(MODULES), metavar="NAME")
    parser.add_argument("--small", action="store_true", help="a tenth of the samples, short turns: does it run at all?")
    parser.add_argument("--rounds", type=int, default=None, help="5, or 2 with --small")
    parser.add_argument("--seconds", type=float, default=None, help="of one turn of one loader; 0.3, or 0.1 with --small")
    parser.add_argument("--folder", type=Path, default=None, help="on which disk the files lie")
    parser.add_argument("--json", type=Path, default=None, help="where the figures are written")
    parser.add_argument("--markdown", type=Path, default=None, help="where the tables of the README are written")
    given = parser.parse_args()
    rounds, seconds, check_seconds = (2, 0.1, 0.5) if given.small else (5, 0.3, 1.0)
    results = Results()
    with tempfile.TemporaryDirectory(dir=given.folder, prefix="data_stack-benchmark-loader-") as folder:
        options = Options(
            given.case,
            given.only or [work for works in CASES.values() for work in works],
            given.loaders,
            given.small,
            given.rounds or rounds,
            given.seconds or seconds,
            check_seconds,
            Path(folder),
        )
        print(machine())
        systems = [system for name in options.loaders if (system := imported(name, results)) is not None]
        print(
            ", ".join(
                f"{package} {importlib.metadata.version(package)}" for package in sorted({p for s in systems for p in s.packages})
            )
        )
        for case in options.cases:
            for work in CASES.get(case, ()):
                if work in options.works:
                    measure_work(work, options, results)
            if case in more:
                more[case](options, results)
        print_targets(results)
        if given.json is not None:
            given.json.write_text(json.dumps(as_json(results, options), indent=1))
        if given.markdown is not None:
            given.markdown.write_text(as_markdown(results))


if __name__ == "__main__":
    main()
