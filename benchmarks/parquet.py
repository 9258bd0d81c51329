"""Parquet: ours against Petastorm 0.13.1, and against the limits, on the same files in the same run.

Run: python benchmarks/parquet.py [--petastorm PYTHON] [--only CASE …] [--rounds N] [--large GIB] [--json FILE] [--markdown FILE]

Cases:
  plain      columns of numbers and lists to batches of numpy and torch, shuffled; limit: pyarrow reading the same columns
  mnist      28 x 28 PNGs, decoded; limit: bare cv2.imdecode in two threads
  frames     arrays of 16 x 64 float32, as batches and as rows
  ngram      sequences of three frames
  predicate  1 % of the rows, scattered or together: time, and how much of the files is read
  first      time to the first row
  converter  a DataFrame of a million rows to batches of torch, with Spark
  quality    how many neighbours of a shuffle are of one row group
  memory     over epochs of a dataset of ``--large`` GiB

Petastorm runs with the interpreter of an environment of its own (``--petastorm``; it needs Java, and old versions of pyarrow,
pandas and pyspark), which also writes the files that both read, unless they lie in ``--folder`` already. Without it ours writes
them, and is held against the limits alone. Every figure comes from a fresh process, in turn. Figures of ours and of the limits
are medians over the rounds, of the middle one of up to three epochs; those of Petastorm are its best: of the rounds, of up to
three epochs, and of 2 and 10 threads. A dataset is opened anew for each epoch, before its clock starts (for predicates, and for
the time to the first row, after); the system has the files in memory. Targets: issue 7.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from records import machine

HERE = Path(__file__).parent
PEER = HERE / "parquet_peers" / "petastorm_peer.py"
N_ROWS = {"plain": 200_000, "mnist": 60_000, "frames": 20_000}
N_CONVERTED = 1_000_000
OURS = {
    "plain": (
        "loader, auto", "loader, inline", "loader, threads", "loader, torch, auto", "loader, auto, window 1",
        "loader, auto, window 16",
        "make_batch_reader", "BatchedDataLoader", "make_reader",
    ),
    "mnist": (
        "loader, auto", "loader, inline", "loader, threads", "loader, processes", "make_reader", "DataLoader",
        "BatchedDataLoader",
    ),
    "frames": ("loader, auto", "loader, inline", "loader, threads", "make_reader"),
    "ngram": ("loader, auto", "loader, inline", "loader, threads", "make_reader"),
}  # fmt: skip
LIMITS = {
    "plain": ("pyarrow, row groups", "pyarrow, whole table"),
    "mnist": ("cv2, 2 threads",),
    "frames": ("pyarrow, row groups",),
}
PEERS = {"plain": ("plain",), "mnist": ("mnist", "mnist_batched", "mnist_rows"), "frames": ("frames",), "ngram": ("ngram",)}
PEER_NAMES = {
    "plain": "make_batch_reader + BatchedDataLoader",
    "mnist": "make_reader + DataLoader",
    "mnist_batched": "make_reader + BatchedDataLoader",
    "mnist_rows": "make_reader",
    "frames": "make_reader",
    "ngram": "make_reader(NGram)",
}
FIRST = (
    "mnist, loader", "mnist, make_reader", "plain, loader", "plain, loader, torch", "plain, make_batch_reader", "frames, loader",
    "frames, make_reader",
)  # fmt: skip
MEMORY = ("loader, inline", "loader, threads", "loader, processes", "loader, inline, window 4", "make_reader, threads")
PREDICATES = ("scattered", "range")
THREADS = (2, 10)
MEBI, GIBI = 1 << 20, 1 << 30
_TIMEOUT_SECONDS = 1800


@dataclass(frozen=True)
class Options:
    """What the command line asked for."""

    cases: Sequence[str]
    folder: Path
    petastorm: str | None
    rounds: int
    large_gib: float
    large_folder: Path
    epochs: int


@dataclass
class Results:
    """Answers of processes by case and way, in the order of the rounds."""

    answers: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=lambda: collections.defaultdict(list))
    quality: list[dict[str, Any]] = field(default_factory=list)
    targets: list[dict[str, Any]] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)

    def rate(self, case: str, way: str) -> float | None:
        """Rows a second: the median of ours and of limits, the best of Petastorm."""
        kept = [each["rows"] / each["seconds"] for each in self.answers.get((case, way), ()) if each.get("seconds")]
        if not kept:
            return None
        return max(kept) if is_petastorms(way) else statistics.median(kept)

    def figure(self, case: str, way: str, name: str) -> float | None:
        """Another figure: the median, for Petastorm the least."""
        kept = [each[name] for each in self.answers.get((case, way), ()) if each.get(name)]
        if not kept:
            return None
        return float(min(kept) if is_petastorms(way) else statistics.median(kept))

    def ways(self, case: str) -> list[str]:
        """Those of a case that answered, the fastest first."""
        return sorted({way for at, way in self.answers if at == case}, key=lambda way: -(self.rate(case, way) or 0.0))

    def best(self, case: str, start: str) -> str | None:
        """The fastest of those whose names begin so."""
        return next((way for way in self.ways(case) if way.startswith(start)), None)


def is_petastorms(way: str) -> bool:
    """Whether it is a way of Petastorm."""
    return way.startswith("Petastorm")


# ---------------------------------------------------------------------- processes


def ours(case: str, way: str, folder: Path, *arguments: str) -> Any:
    """What ``parquet_peers.alone`` answers."""
    path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "parquet_peers.alone", case, way, "--folder", str(folder), *arguments]
    return answer_of(command, {**os.environ, "PYTHONPATH": path})


def petastorms(options: Options, case: str, folder: Path, n_threads: int) -> Any:
    """What Petastorm answers, in its environment."""
    command = [str(options.petastorm), str(PEER), "measure", case, str(folder), str(n_threads)]
    return answer_of(command, petastorms_environment())


def petastorms_environment() -> dict[str, str]:
    """Without our packages, and with Java where it can be found."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    java = shutil.which("java")
    if java is not None:
        environment.setdefault("JAVA_HOME", str(Path(java).resolve().parents[1]))
    return {**environment, "PYTHONWARNINGS": "ignore"}


def answer_of(command: list[str], environment: dict[str, str]) -> Any:
    """The last line that a process prints, as JSON.

    Raises:
        RuntimeError: it failed.
    """
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=_TIMEOUT_SECONDS, cwd=HERE)
    lines = [line for line in done.stdout.splitlines() if line.startswith(("{", "["))]
    if done.returncode or not lines:
        raise RuntimeError((done.stderr.strip() or done.stdout.strip())[-400:])
    return json.loads(lines[-1])


def in_turn(case: str, ways: dict[str, Callable[[], Any]], options: Options, results: Results, rounds: int | None = None) -> None:
    """Each way once in each round; one that fails is left out, and said so."""
    names = list(ways)
    for number in range(rounds or options.rounds):
        turn = number % max(1, len(names))
        for way in names[turn:] + names[:turn]:
            if f"{case}: {way}" in results.left_out:
                continue
            try:
                results.answers[case, way].append(ways[way]())
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                results.left_out[f"{case}: {way}"] = f"{type(error).__name__}: {error!s:.400}"
                print(f"  {case}: {way} is left out: {error!s:.400}", flush=True)


# ---------------------------------------------------------------------- cases


def measure_rates(case: str, options: Options, results: Results) -> None:
    """Rows a second, in turn."""
    print(f"\n{case}: rows/s", flush=True)
    ways: dict[str, Callable[[], Any]] = {}
    for way in (*OURS[case], *LIMITS.get(case, ())):
        ways[way] = lambda way=way: ours(case, way, options.folder)  # type: ignore[misc]
    for peer in PEERS[case] if options.petastorm else ():
        for n_threads in THREADS:
            ways[f"Petastorm, {PEER_NAMES[peer]}, {n_threads} threads"] = (
                lambda peer=peer, n_threads=n_threads: petastorms(options, peer, options.folder, n_threads)  # type: ignore[misc]
            )
    in_turn(case, ways, options, results)
    limit = results.best(case, "pyarrow, row") or results.best(case, "cv2")
    peers = {name: best_peer(case, name, results) for name in dict.fromkeys(PEER_NAMES[peer] for peer in PEERS[case])}
    for way in results.ways(case):
        rate = results.rate(case, way) or 0.0
        against = [other for other in (limit, *peers.values()) if other is not None and other != way]
        ratios = "; ".join(f"{rate / (results.rate(case, other) or rate):.2f} x {other}" for other in against)
        print(f"  {way:58} {rate:12,.0f}   {ratios}{lost_rows(case, way, results)}", flush=True)


def best_peer(case: str, name: str, results: Results) -> str | None:
    """Petastorm's way of that name with the number of threads that suits it best."""
    return results.best(case, f"Petastorm, {name}, ")


def lost_rows(case: str, way: str, results: Results) -> str:
    """What is said of epochs that lacked rows, as some of Petastorm's do."""
    every = [answer for (at, _), answers in results.answers.items() if at == case for answer in answers]
    # n-grams do not cross row groups there, so each is held against its own
    ways = [answer for answer in every if answer in results.answers[case, way]] if case == "ngram" else every
    n_rows = max([N_CONVERTED if case == "converter" else 0, *(answer["rows"] for answer in ways)])
    epochs = [n for each in results.answers[case, way] for n in each.get("rows_of_each_epoch", ())]
    short = [n for n in epochs if n < n_rows]
    return f"   ({len(short)} of {len(epochs)} epochs lost rows)" if short else ""


def measure_predicate(options: Options, results: Results) -> None:
    """1 % of the rows of frames."""
    print(
        "\npredicate: 200 of 20,000 rows of frames, by a column that is no partition; ms, opening included; MB read", flush=True
    )
    ways: dict[str, Callable[[], Any]] = {}
    for kind in PREDICATES:
        for name in ("loader", "make_reader"):
            ways[f"{kind}, {name}"] = lambda kind=kind, name=name: ours("predicate", f"{kind}, {name}", options.folder)  # type: ignore[misc]
        for n_threads in THREADS if options.petastorm else ():
            ways[f"Petastorm, {kind}, {n_threads} threads"] = (
                lambda kind=kind, n_threads=n_threads: petastorms(options, f"predicate_{kind}", options.folder, n_threads)  # type: ignore[misc]
            )
    in_turn("predicate", ways, options, results)
    for way in results.ways("predicate"):
        last = results.answers["predicate", way][-1]
        read = ""
        if "bytes_read" in last:
            read = (
                f"read {last['bytes_read'] / 1e6:,.2f} MB of {last['bytes_of_all'] / 1e6:,.2f}; the column and "
                f"{last['row_groups_that_hit']} of {last['row_groups']} row groups are {last['bytes_allowed'] / 1e6:,.2f}"
            )
        seconds = results.figure("predicate", way, "seconds") or 0.0
        print(
            f"  {way:44} {seconds * 1e3:10,.1f} ms {last['rows']:6,} rows   {read}{lost_rows('predicate', way, results)}",
            flush=True,
        )


def measure_first(options: Options, results: Results) -> None:
    """Time to the first row; Petastorm's are of the cases that were measured, or measured now."""
    print("\nfirst: ms from opening to the first row, or the first batch of 256 shuffled rows", flush=True)
    ways: dict[str, Callable[[], Any]] = {way: lambda way=way: ours("first", way, options.folder) for way in FIRST}  # type: ignore[misc]
    for peer in ("plain", "mnist_rows", "frames") if options.petastorm else ():
        for n_threads in THREADS:
            ways[f"Petastorm, {peer.partition('_')[0]}, {n_threads} threads"] = (
                lambda peer=peer, n_threads=n_threads: petastorms(options, peer, options.folder, n_threads)  # type: ignore[misc]
            )
    in_turn("first", ways, options, results)
    for way in sorted(results.ways("first"), key=lambda way: way.removeprefix("Petastorm, ")):
        print(f"  {way:44} {(results.figure('first', way, 'seconds_to_first') or 0.0) * 1e3:10,.1f} ms", flush=True)


def measure_converter(options: Options, results: Results) -> None:
    """With Spark 4 in our environment, with Petastorm's Spark in its own."""
    print("\nconverter: 1,000,000 rows of a DataFrame to batches of 256 of torch; rows/s, writing included", flush=True)
    ways: dict[str, Callable[[], Any]] = {"auto": lambda: ours("converter", "auto", options.folder)}
    for n_threads in THREADS if options.petastorm else ():
        ways[f"Petastorm, {n_threads} threads"] = lambda n_threads=n_threads: petastorms(  # type: ignore[misc]
            options, "converter", options.folder, n_threads
        )
    in_turn("converter", ways, options, results)
    for way in results.ways("converter"):
        converted = results.figure("converter", way, "seconds_to_convert")
        told = (
            ""
            if converted is None
            else f"   {converted:.2f} s of {results.figure('converter', way, 'seconds'):.2f} s is Spark's writing"
        )
        print(
            f"  {way:44} {results.rate('converter', way) or 0.0:12,.0f}{told}{lost_rows('converter', way, results)}", flush=True
        )


def measure_quality(options: Options, results: Results) -> None:
    """Of the block-wise shuffle."""
    print("\nquality: plain, 20 row groups of 10,000 rows; batches of 256", flush=True)
    try:
        results.quality = ours("quality", "", options.folder)
    except RuntimeError as error:
        results.left_out["quality"] = str(error)
        print(f"  left out: {error!s:.400}", flush=True)
    for row in results.quality:
        print(
            f"  window {row['window']!s:14} neighbours of the same row group {row['same row group']:8.2%}, "
            f"row groups in a batch {row['row groups in a batch']:6.2f} of {row['row groups']}",
            flush=True,
        )


def measure_memory(options: Options, results: Results) -> None:
    """Proportional set size over epochs of a dataset that is written now."""
    folder = options.large_folder
    folder.mkdir(parents=True, exist_ok=True)
    needed, free = int(options.large_gib * GIBI), shutil.disk_usage(folder).free
    if needed * 1.1 > free:
        results.left_out["memory"] = f"{options.large_gib} GiB do not fit on the disk, {free / GIBI:.1f} GiB of which are free"
        print(f"\nmemory is left out: {results.left_out['memory']}", flush=True)
        return
    print(
        f"\nmemory: {options.large_gib:g} GiB, {options.epochs} epochs; MiB more than before opening, at most in each epoch",
        flush=True,
    )
    written = ours("write-large", "", folder, "--bytes", str(needed))
    print(f"  written: {written['rows']:,} rows in {written['seconds']:.1f} s", flush=True)
    ways: dict[str, Callable[[], Any]] = {
        way: lambda way=way: ours("memory", way, folder, "--epochs", str(options.epochs))  # type: ignore[misc]
        for way in MEMORY
    }
    in_turn("memory", ways, options, results, rounds=1)
    if options.petastorm:
        peers = {
            f"Petastorm, {n} threads": lambda n=n: petastorms(options, "frames", folder, n)  # type: ignore[misc]
            for n in THREADS
        }
        in_turn("memory", peers, options, results, rounds=1)
    for way, (answer,) in ((way, answers) for (case, way), answers in results.answers.items() if case == "memory" and answers):
        if "peaks" not in answer:
            print(f"  {way:34} {answer['peak_mib']:,.0f} MiB resident at most, all of its process", flush=True)
            continue
        peaks = " ".join(f"{(peak - answer['before']) / MEBI:7,.0f}" for peak in answer["peaks"])
        print(
            f"  {way:34} {peaks}   wanted < {memory_limit(answer) / MEBI:,.0f} ({answer['workers']} workers, row groups of "
            f"{answer['row_group_bytes'] / MEBI:.1f}); {answer['dataset_bytes'] / answer['seconds'] / MEBI:,.0f} MiB/s",
            flush=True,
        )


def memory_limit(answer: dict[str, Any]) -> float:
    """Three row groups for each worker, and 100 MiB."""
    return float(3 * answer["row_group_bytes"] * answer["workers"] + 100 * MEBI)


# ---------------------------------------------------------------------- what comes out of it


def judge(results: Results) -> None:
    """Every line of the issue's table that was measured, and whether it is met."""
    for way in ("loader, auto", "loader, torch, auto"):
        at_least("plain columns, shuffled", "plain", way, "pyarrow, row groups", 0.7, results)
        at_least("plain columns, shuffled", "plain", way, best_peer("plain", PEER_NAMES["plain"], results), 2.5, results)
    at_least("PNGs, decoded", "mnist", "loader, auto", "cv2, 2 threads", 0.8, results)
    at_least("PNGs, decoded", "mnist", "loader, auto", best_peer("mnist", PEER_NAMES["mnist"], results), 2.5, results)
    at_least("PNGs, decoded", "mnist", "loader, auto", best_peer("mnist", PEER_NAMES["mnist_batched"], results), 15, results)
    for way in ("loader, auto", "make_reader"):
        at_least("arrays", "frames", way, best_peer("frames", PEER_NAMES["frames"], results), 10, results)
        at_least("n-grams of 3", "ngram", way, best_peer("ngram", PEER_NAMES["ngram"], results), 10, results)
    at_least("PNGs, row by row", "mnist", "make_reader", best_peer("mnist", PEER_NAMES["mnist_rows"], results), 3, results)
    for kind in PREDICATES:
        way = f"{kind}, loader"
        at_least(f"predicate, 1 %, {kind}", "predicate", way, results.best("predicate", f"Petastorm, {kind}"), 3, results)
        read, allowed = results.figure("predicate", way, "bytes_read"), results.figure("predicate", way, "bytes_allowed")
        if read and allowed:
            told = f"{read / 1e6:.2f} MB"
            judged(f"predicate, 1 %, {kind}: read", way, "", told, f"≤ {allowed / 1e6:.2f} MB", read <= allowed, results)
    for way in FIRST:
        peers = [name for name in results.ways("first") if name.startswith(f"Petastorm, {way.partition(',')[0]},")]
        figures = [figure for name in peers if (figure := results.figure("first", name, "seconds_to_first"))]
        own = results.figure("first", way, "seconds_to_first")
        if own and figures:
            ratio = own / min(figures)
            judged("time to the first row", way, "Petastorm", f"{ratio:.2f} ×", "≤ 0.5 ×", ratio <= 0.5, results)
    at_least("DataFrame to torch", "converter", "auto", results.best("converter", "Petastorm"), 2, results)
    for (case, way), answers in results.answers.items():
        if case != "memory" or not answers or "peaks" not in answers[0]:
            continue
        answer = answers[0]
        most, limit = max(answer["peaks"]) - answer["before"], memory_limit(answer)
        judged("memory", way, "", f"{most / MEBI:,.0f} MiB", f"< {limit / MEBI:,.0f} MiB", most < limit, results)
        growth = answer["peaks"][-1] - answer["peaks"][0]
        flat = growth <= answer["row_group_bytes"] * answer["workers"]
        judged(
            "memory, first to last epoch", way, "", f"{growth / MEBI:+,.0f} MiB", "flat: ≤ a row group a worker", flat, results
        )


def at_least(what: str, case: str, way: str, other: str | None, factor: float, results: Results) -> None:
    """Ours does at least ``factor`` times as many rows a second."""
    figures = [None if name is None else results.rate(case, name) for name in (way, other)]
    if figures[0] and figures[1]:
        ratio = figures[0] / figures[1]
        judged(what, way, str(other), f"{ratio:.2f} ×", f"≥ {factor:g} ×", ratio >= factor, results)


def judged(what: str, way: str, other: str, figure: str, wanted: str, met: bool, results: Results) -> None:
    """Keep a line of the table."""
    results.targets.append({"what": what, "ours": way, "against": other, "figure": figure, "wanted": wanted, "met": met})


def as_markdown(results: Results) -> str:
    """The tables of ``benchmarks/README.md``."""
    lines = []
    for case in OURS:
        if not results.ways(case):
            continue
        lines += ["", f"| {case} | rows/s | |", "|---|---:|---|"]
        for way in results.ways(case):
            is_limit = way.startswith(("pyarrow", "cv2"))
            name = way if is_limit or is_petastorms(way) else f"ours, {way}"
            mark = "limit" if is_limit else lost_rows(case, way, results).strip(" ()")
            lines.append(f"| {name} | {short(results.rate(case, way))} | {mark} |")
    if results.targets:
        lines += ["", "| target | ours | against | figure | wanted | |", "|---|---|---|---:|---|---|"]
        lines += [
            f"| {each['what']} | {each['ours']} | {each['against']} | {each['figure']} | {each['wanted']} | "
            f"{'met' if each['met'] else 'not met'} |"
            for each in results.targets
        ]
    if results.quality:
        lines += ["", "| window | neighbours of the same row group | row groups in a batch |", "|---|---:|---:|"]
        lines += [
            f"| {row['window']} | {row['same row group']:.2%} | {row['row groups in a batch']:.2f} |" for row in results.quality
        ]
    return "\n".join(lines).lstrip("\n") + "\n"


def short(figure: float | None) -> str:
    """1234567 as "1.23 M"."""
    for scale, unit in ((1e6, " M"), (1e3, " k")):
        if figure is not None and figure >= scale:
            return f"{figure / scale:.3g}{unit}"
    return "" if figure is None else f"{figure:.3g}"


def as_json(results: Results, options: Options) -> dict[str, Any]:
    """All answers and targets."""
    cases: dict[str, Any] = {}
    for (case, way), answers in results.answers.items():
        cases.setdefault(case, {})[way] = {"rows/s": results.rate(case, way), "answers": answers}
    rest = {"quality": results.quality, "targets": results.targets, "left out": results.left_out}
    return {"machine": machine(), "rounds": options.rounds, "cases": cases, **rest}


def write_files(options: Options) -> None:
    """What both read, unless it is there.

    Raises:
        RuntimeError, SystemExit: it could not be written.
    """
    if all(any((options.folder / name).glob("*.parquet")) for name in N_ROWS):
        return
    if options.petastorm is None:
        print("ours writes the files", flush=True)
        ours("write-files", "", options.folder)
        return
    print("Petastorm writes the files", flush=True)
    command = [options.petastorm, str(PEER), "write", str(options.folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=petastorms_environment(), cwd=HERE)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])


def main() -> None:
    """Run what was asked for."""
    rest: dict[str, Callable[[Options, Results], None]] = {
        "predicate": measure_predicate,
        "first": measure_first,
        "converter": measure_converter,
        "quality": measure_quality,
        "memory": measure_memory,
    }
    cases = [*OURS, *rest]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--petastorm", metavar="PYTHON", help="interpreter of an environment with Petastorm 0.13.1")
    parser.add_argument("--only", nargs="+", choices=cases, default=cases)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--folder", type=Path, default=None, help="where the files lie, or are written; a temporary one by default"
    )
    parser.add_argument("--large", type=float, default=4.0, metavar="GIB", help="of the dataset of the case memory")
    parser.add_argument("--large-folder", type=Path, default=None, help="where it lies, or is written; it stays there")
    parser.add_argument("--epochs", type=int, default=4, help="of the case memory")
    parser.add_argument("--json", type=Path, default=None, help="where the figures are written")
    parser.add_argument("--markdown", type=Path, default=None, help="where the tables of the README are written")
    given = parser.parse_args()
    results = Results()
    with tempfile.TemporaryDirectory(prefix="data_stack-benchmark-parquet-") as temporary:
        options = Options(
            given.only,
            (given.folder or Path(temporary) / "files").absolute(),
            given.petastorm,
            given.rounds,
            given.large,
            (given.large_folder or Path(temporary) / "large").absolute(),
            given.epochs,
        )
        print(machine(), flush=True)
        options.folder.mkdir(parents=True, exist_ok=True)
        if set(options.cases) - {"memory", "converter"}:
            write_files(options)
        for case in options.cases:
            if case in OURS:
                measure_rates(case, options, results)
            else:
                rest[case](options, results)
        judge(results)
        print()
        print(as_markdown(results), end="")
        if given.json is not None:
            given.json.write_text(json.dumps(as_json(results, options), indent=1))
        if given.markdown is not None:
            given.markdown.write_text(as_markdown(results))


if __name__ == "__main__":
    main()
