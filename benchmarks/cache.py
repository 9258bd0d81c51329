"""Reading a second time through CachedStorageConnector, against FileStorageConnector over the same bytes.

Run: python benchmarks/cache.py [--mb 256] [--files 2000] [--rounds 7] [--folder DIR]. Both connectors read in turn, in
one process, from one disk; the ratio is of the median speeds. The remote is a folder, so that asking it for a digest costs
what a file connector's opening costs; behind a network, ``fresh_seconds`` saves the asking. Targets (issue 4): at least
0.95 × the file connector from the second epoch on; peak memory of 1 GiB read or stored under 64 MiB above the start.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from data_stack.io.storage_connectors import FileStorageConnector, StorageConnector
from data_stack.io.storage_connectors.cached import CachedStorageConnector

PIECE = 1 << 20
SAMPLE = 4096


def read_through(connector: StorageConnector) -> None:
    """The large resource from start to end in pieces of 1 MiB."""
    with connector.get_resource("bench/large") as resource:
        while resource.read(PIECE):
            pass


def read_samples(connector: StorageConnector, offsets: list[int]) -> None:
    """Samples of 4 KiB at random places of the large resource."""
    with connector.get_resource("bench/large") as resource:
        for offset in offsets:
            resource.read_at(offset, SAMPLE)


def read_small(connector: StorageConnector, n_files: int) -> None:
    """Resources of 10 KB, each opened, read whole and closed."""
    for i in range(n_files):
        with connector.get_resource(f"bench/small/{i}") as resource:
            resource.read()


def seconds(work: Callable[[], object]) -> float:
    """How long ``work`` takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compared(
    name: str, work: Callable[[StorageConnector], None], file: StorageConnector, cached: StorageConnector, n: int
) -> None:
    """Print what both connectors take for ``work``, in turn, and the first reading that fills the cache."""
    first = seconds(lambda: work(cached))
    times: list[tuple[float, float]] = []
    for i in range(n):
        pair = (file, cached) if i % 2 else (cached, file)
        taken = {connector: seconds(lambda connector=connector: work(connector)) for connector in pair}  # type: ignore[misc]
        times.append((taken[file], taken[cached]))
    of_file, of_cached = (statistics.median(column) for column in zip(*times, strict=True))
    print(
        f"{name:38} file {of_file * 1e3:8.1f} ms   cached {of_cached * 1e3:8.1f} ms   {of_file / of_cached:5.2f} × (target 0.95)"
        f"   first epoch {first * 1e3:8.1f} ms"
    )


def peak_growth_mib(remote: Path, cache: Path, action: str) -> float:
    """Peak resident memory of reading 1 GiB, or storing it, in a fresh process, above what it had before."""
    program = f"""
import re
from data_stack.io.storage_connectors import FileStorageConnector
from data_stack.io.storage_connectors.cached import CachedStorageConnector
def peak(key): return int(re.search(key + r":\\s+(\\d+)", open("/proc/self/status").read()).group(1)) / 1024
connector = CachedStorageConnector(FileStorageConnector({str(remote)!r}), {str(cache)!r})
before = peak("VmRSS")
if {action!r} == "store":
    connector.set_resource("bench/gib", (bytes(1 << 20) for _ in range(1024)))
else:
    with connector.get_resource("bench/gib") as resource:
        while resource.read(1 << 20): pass
print(peak("VmHWM") - before)
"""
    return float(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout)


def main() -> None:
    """Compare both, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=256, help="size of the large resource in MiB")
    parser.add_argument("--files", type=int, default=2000, help="number of small resources")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", default=None, help="where to work; its disk is what is measured")
    arguments = parser.parse_args()
    print(f"{platform.node()}: {os.cpu_count()} cores, Python {platform.python_version()}, large resource {arguments.mb} MiB")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        file = FileStorageConnector(folder / "remote")
        cached = CachedStorageConnector(FileStorageConnector(folder / "remote"), folder / "cache")
        file.set_resource("bench/large", (hashlib.shake_128(b"%d" % i).digest(PIECE) for i in range(arguments.mb)))
        for i in range(arguments.files):
            file.set_resource(f"bench/small/{i}", hashlib.shake_128(b"%d" % i).digest(10_000))
        chance = random.Random(1)
        offsets = [chance.randrange(arguments.mb * PIECE - SAMPLE) for _ in range(20_000)]
        compared(f"{arguments.mb} MiB in pieces of 1 MiB", read_through, file, cached, arguments.rounds)
        compared("20,000 random reads of 4 KiB", lambda c: read_samples(c, offsets), file, cached, arguments.rounds)
        compared(
            f"{arguments.files:,} resources of 10 kB", lambda c: read_small(c, arguments.files), file, cached, arguments.rounds
        )
        for action in ("store", "read", "read"):
            growth = peak_growth_mib(folder / "remote", folder / "cache", action)
            print(f"{action} 1 GiB: peak memory {growth:.1f} MiB above the start (target < 64)")
        info = cached.cache_info()
        print(
            f"cache: {info.hits:,} hits, {info.misses:,} misses, {info.fetched_bytes:,} bytes fetched, {info.held_bytes:,} held"
        )


if __name__ == "__main__":
    main()
