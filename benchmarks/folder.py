"""Storing and reading a file through FileStorageConnector, against the plain loop that does the same work.

Run: python benchmarks/folder.py [--mb 512] [--rounds 5] [--folder DIR]. Ours and the limit run in turn, in one
process, on one disk; the ratio is of the medians. Both write a file that was not there before: overwriting one
in place reuses its pages of the page cache, which neither a new file nor an atomic write can. Targets (issue 2):
storing at most 1.15 × the plain loop's time, reading at least 0.9 × the plain file's speed, peak memory under
20 MiB above the start.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from data_stack.io.storage_connectors import FileStorageConnector

PIECE = 1 << 20


def plain_store(source: Path, target: Path) -> str:
    """The limit of storing: read, SHA-256, write, fsync."""
    digest = hashlib.sha256()
    with open(source, "rb") as reading, open(target, "wb") as writing:
        while piece := reading.read(PIECE):
            digest.update(piece)
            writing.write(piece)
        writing.flush()
        os.fsync(writing.fileno())
    return digest.hexdigest()


def our_store(source: Path, connector: FileStorageConnector) -> None:
    """What an operator calls."""
    with open(source, "rb") as reading:
        connector.set_resource("bench/ours.bin", reading)


def drain(file: object) -> None:
    """Read to the end in pieces of 1 MiB."""
    with file:  # type: ignore[attr-defined]
        while file.read(PIECE):  # type: ignore[attr-defined]
            pass


def peak_growth_mib(source: Path, folder: Path, action: str) -> float:
    """Peak resident memory of storing or reading in a fresh process, above what it had before."""
    program = f"""
import re
from data_stack.io.storage_connectors import FileStorageConnector
def peak(key): return int(re.search(key + r":\\s+(\\d+)", open("/proc/self/status").read()).group(1)) / 1024
connector = FileStorageConnector({str(folder)!r})
before = peak("VmRSS")
if {action!r} == "store":
    connector.set_resource("bench/memory.bin", open({str(source)!r}, "rb"))
else:
    with connector.get_resource("bench/ours.bin") as resource:
        while resource.read(1 << 20): pass
print(peak("VmHWM") - before)
"""
    return float(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout)


def timed(work: Callable[[], object]) -> float:
    """Seconds that ``work`` takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    """Run both in turn and print seconds, ratios and memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        source = folder / "source.bin"
        with open(source, "wb") as file:
            for _ in range(options.mb):
                file.write(os.urandom(PIECE))
            os.fsync(file.fileno())
        connector = FileStorageConnector(folder / "store")
        cases: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "store": (lambda: our_store(source, connector), lambda: plain_store(source, folder / "plain.bin")),
            "read 1 MiB pieces": (
                lambda: drain(connector.get_resource("bench/ours.bin")),
                lambda: drain(open(folder / "store/bench/ours.bin", "rb")),
            ),
        }
        print(f"{options.mb} MiB, {options.rounds} rounds in turn, {os.cpu_count()} cores, Python {sys.version.split()[0]}")
        for case, (ours, plain) in cases.items():
            seconds: list[tuple[float, float]] = []
            for number in range(options.rounds + 2):
                ours_first = number % 2 == 0
                pair = [0.0, 0.0]
                for which in (0, 1) if ours_first else (1, 0):
                    if case == "store":
                        # Only one copy at a time: fresh pages of the page cache cost more than the whole comparison.
                        for made in (folder / "plain.bin", folder / "store/bench/ours.bin"):
                            made.unlink(missing_ok=True)
                    pair[which] = timed((ours, plain)[which])
                seconds.append((pair[0], pair[1]))
            del seconds[:2]  # cold
            ours_best, plain_best = (min(pair[which] for pair in seconds) for which in (0, 1))
            ours_median, plain_median = (statistics.median(pair[which] for pair in seconds) for which in (0, 1))
            print(
                f"{case:20} ours {ours_best:.3f} s (median {ours_median:.3f})  "
                f"plain {plain_best:.3f} s (median {plain_median:.3f})  "
                f"time ratio {ours_best / plain_best:.2f} (medians {ours_median / plain_median:.2f})  "
                f"speed ratio {plain_best / ours_best:.2f}"
            )
            if case == "store":
                our_store(source, connector)
        for action in ("store", "read"):
            print(f"peak memory above start, {action}: {peak_growth_mib(source, folder / 'store', action):.1f} MiB")


if __name__ == "__main__":
    main()
