"""What the benchmarks share: turns, processes of their own, figures with ratios and targets, JSON.

Every figure is smaller where it is better: seconds a piece, bytes, shares. Ways of one case take
turns on one machine, the order rotated from round to round; figures are medians over the rounds,
ratios those of medians of this one run.
"""

from __future__ import annotations

import argparse
import collections
import importlib.metadata
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MIB = 1 << 20
HERE = Path(__file__).parent
SUPPORT = HERE.parent / "tests" / "support"
#: How figures are shown: what they are multiplied by; "/s" shows one by the figure.
UNITS = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9, "MiB": 1 / MIB, "B": 1.0, "%": 100.0, "": 1.0}
_PACKAGES = (
    "numpy", "torch", "h5py", "pyarrow", "pymongo", "requests", "moto", "granular", "grain", "array_record",
    "mosaicml-streaming", "datasets", "lmdb", "simplejpeg", "opencv-python-headless", "pooch",
)  # fmt: skip


@dataclass
class Results:
    """Figures of rounds by case and way.

    Attributes:
        figures: by case and way, one for each round.
        units: by case, one of ``UNITS`` or ``"/s"``.
        kinds: ``"ours"``, ``"limit"`` or ``"peer"`` by way; of others as :meth:`kind` has it.
        facts: other findings.
        targets: what was wanted, and whether it is met.
        left_out: what could not be measured, and why.
    """

    figures: dict[str, dict[str, list[float]]] = field(
        default_factory=lambda: collections.defaultdict(dict)
    )
    units: dict[str, str] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    targets: list[dict[str, Any]] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)

    def kind(self, way: str) -> str:
        """What it is said to be, or else ours if its name begins so."""
        return self.kinds.get(way) or ("ours" if way.startswith("ours") else "limit")

    def median(self, case: str, way: str | None) -> float | None:
        """None if it was not measured."""
        kept = self.figures.get(case, {}).get(way or "")
        return statistics.median(kept) if kept else None

    def ways(self, case: str, kind: str | None = None, start: str = "") -> list[str]:
        """Who was measured (of one kind, or with names that begin so), the best first."""
        found = [
            way
            for way in self.figures.get(case, {})
            if kind in (None, self.kind(way)) and way.startswith(start)
        ]
        return sorted(found, key=lambda way: self.median(case, way) or 0.0)

    def best(self, case: str, kind: str | None = None, start: str = "") -> str | None:
        """The first of these."""
        return next(iter(self.ways(case, kind, start)), None)

    def leave_out(self, what: str, error: BaseException) -> None:
        """Say why something is not measured."""
        self.left_out[what] = f"{type(error).__name__}: {str(error)[-300:]}"
        print(f"  {what} is left out: {self.left_out[what]}", flush=True)

    def keep(self, case: str, way: str, figures: Sequence[float], unit: str = "/s") -> None:
        """Take in the figures of the rounds."""
        self.figures[case][way], self.units[case] = list(figures), unit

    def shorten(self, case: str, figure: float) -> str:
        """A figure of a case with its unit."""
        unit = self.units.get(case, "")
        value = 1 / figure if unit == "/s" else figure * UNITS[unit]
        return f"{value:,.{0 if abs(value) >= 1000 else 3}f} {unit}".strip()

    def print(self, case: str, *against: str | None) -> None:
        """A line for each way, the best first, with its ratios to some others; none named: to the
        best of ours.
        """
        ways = self.ways(case)
        if not ways:
            return
        others = [way for way in dict.fromkeys(against or [self.best(case, "ours")]) if way in ways]
        print(f"\n{case}")
        for way in ways:
            kept, middle = self.figures[case][way], self.median(case, way) or 0.0
            ratios = [
                f"{(self.median(case, other) or 0) / middle:.3f} x {other}"
                for other in others
                if middle and other != way
            ]
            spread = f"{self.shorten(case, min(kept))} to {self.shorten(case, max(kept))}"
            fact = self.facts.get(f"{case}: {way}", "")
            print(
                f"  {way:40} {self.shorten(case, middle):>16} {self.kind(way):6} {spread:36} {'; '.join(ratios)} {fact}"
            )
        if others:
            print(
                f"  (ratios: how many times as fast, or as small, as {' and '.join(map(str, others))})",
                flush=True,
            )

    def at_least(
        self, what: str, case: str, ours: str | None, other: str | None, factor: float
    ) -> None:
        """Ours is at least ``factor`` times as fast (or small) as another, or as the best peer."""
        named = f"best peer, {self.best(case, 'peer')}" if other == "best peer" else str(other)
        figures = [
            self.median(case, way)
            for way in (ours, self.best(case, "peer") if other == "best peer" else other)
        ]
        if figures[0] and figures[1]:
            ratio = figures[1] / figures[0]
            self.judge(
                what, str(ours), named, f"{ratio:.3f} x", f">= {factor:.3g} x", ratio >= factor
            )

    def at_most(self, what: str, case: str, way: str | None, limit: float) -> None:
        """A figure is at most so much."""
        figure = self.median(case, way)
        if figure is not None:
            self.judge(
                what,
                str(way),
                "",
                self.shorten(case, figure),
                f"<= {self.shorten(case, limit)}",
                figure <= limit,
            )

    def judge(
        self, what: str, ours: str, against: str, figure: str, wanted: str, met: bool
    ) -> None:
        """Print a target, and keep it."""
        print(
            f"{what:44} {ours:28} {against:36} {figure:>14}  {wanted:14} {'met' if met else 'NOT MET'}",
            flush=True,
        )
        self.targets.append(
            {
                "what": what,
                "ours": ours,
                "against": against,
                "figure": figure,
                "wanted": wanted,
                "met": met,
            }
        )

    def save(self, path: Path | None) -> None:
        """Write all of it as JSON, if a path was given."""
        if path is not None:
            kept = {
                "figures": self.figures,
                "units": self.units,
                "facts": self.facts,
                "targets": self.targets,
            }
            path.write_text(
                json.dumps({"machine": machine(), **kept, "left out": self.left_out}, indent=1)
            )


# ---------------------------------------------------------------------- turns


def in_turn(
    case: str, ways: Mapping[str, Callable[[], Any]], rounds: int, results: Results
) -> dict[str, list[Any]]:
    """What each way gives in each round; one that fails is left out from then on, and said so."""
    names, answers = list(ways), {way: list[Any]() for way in ways}
    for number in range(rounds):
        turn = number % max(1, len(names))
        for way in names[turn:] + names[:turn]:
            if f"{case}: {way}" in results.left_out:
                continue
            try:
                answers[way].append(ways[way]())
            except Exception as error:  # a package may be broken in its own way
                results.leave_out(f"{case}: {way}", error)
    return {way: kept for way, kept in answers.items() if kept}


def timed(work: Callable[[], object]) -> float:
    """Seconds that it takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compare(
    case: str,
    ways: Mapping[str, Callable[[], object]],
    results: Results,
    *,
    rounds: int,
    n: int | Mapping[str, int] = 1,
    unit: str = "ms",
    prepare: Callable[[], object] = lambda: None,
    at_least: Mapping[str, float] | None = None,
) -> None:
    """Time ways of doing the same in turn, the first two rounds dropped, and print them.

    Args:
        case: what is done.
        ways: by name; the first one is ours.
        results: take the figures.
        rounds: that count.
        n: pieces that a call does, of each way or of all.
        unit: of a piece.
        prepare: is called before each, not timed.
        at_least: how many times as fast as these ours is to be.
    """

    def once(work: Callable[[], object]) -> float:
        prepare()
        return timed(work)

    seconds = in_turn(
        case, {way: lambda work=work: once(work) for way, work in ways.items()}, rounds + 2, results
    )  # type: ignore[misc]
    for way, kept in seconds.items():
        n_pieces = n if isinstance(n, int) else n[way]
        results.keep(case, way, [each / n_pieces for each in kept[2:]], unit)
    ours = next(iter(ways))
    results.print(case, ours)
    for other, factor in (at_least or {}).items():
        results.at_least(case[:44], case, ours, other, factor)


# ---------------------------------------------------------------------- processes of their own


def answer_of(
    command: Sequence[str], environment: Mapping[str, str] | None = None, seconds: float = 1800
) -> Any:
    """The last line that a process prints, as JSON; modules of this folder can be imported there.

    Raises:
        RuntimeError: it failed.
    """
    if environment is None:
        paths = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=seconds, cwd=HERE
    )
    if done.returncode or not done.stdout.strip():
        raise RuntimeError((done.stderr.strip() or done.stdout.strip())[-400:])
    return json.loads(done.stdout.strip().splitlines()[-1])


_MEMORY = """
import re, sys
def kept(key): return int(re.search(key + r":\\s+(\\d+)", open("/proc/self/status").read()).group(1)) / 1024
SETUP
open("/proc/self/clear_refs", "w").write("5")  # VmHWM of now, not of the imports
before = kept("VmRSS")
WORK
print(kept("VmHWM") - before)
"""


def grown_mib(setup: str, work: str) -> float:
    """Peak memory of ``work`` in a process of its own, above what it had after ``setup``."""
    program = _MEMORY.replace("SETUP", setup).replace("WORK", work)
    return float(answer_of([sys.executable, "-c", program]))


# ---------------------------------------------------------------------- the command line


def parser_of(
    documentation: str | None, cases: Sequence[str] = (), rounds: int = 5
) -> argparse.ArgumentParser:
    """What every script takes."""
    parser = argparse.ArgumentParser(
        description=documentation, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if cases:
        parser.add_argument(
            "--only",
            nargs="+",
            choices=cases,
            default=list(cases),
            metavar="CASE",
            help=", ".join(cases),
        )
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument(
        "--small", action="store_true", help="a tenth or less of the data: does it run at all?"
    )
    parser.add_argument("--folder", type=Path, default=None, help="on which disk the files lie")
    parser.add_argument("--json", type=Path, default=None, help="where the figures are written")
    return parser


def machine() -> str:
    """What it runs on, and which packages there are."""
    found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    versions = []
    for package in _PACKAGES:
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return (
        f"{found.group(1) if found else 'unknown processor'}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, "
        f"Python {sys.version.split()[0]}; {', '.join(versions)}"
    )
