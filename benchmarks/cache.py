"""Reading a second time through CachedStorageConnector, against FileStorageConnector over the same bytes.

Run: python benchmarks/cache.py. Both connectors read in turn, in one process, from one disk. The remote is a folder, so that
asking it for a digest costs what a file connector's opening costs; behind a network, ``fresh_seconds`` saves the asking.
Every read of the cache verifies the pages that it touches, which the file connector does not.
Targets: at least 0.95 × the file connector from the second epoch on; peak memory of 1 GiB read or stored under 64 MiB above
the start.
"""

from __future__ import annotations

import hashlib
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

from harness import MIB, Results, compare, grown_mib, machine, parser_of

from data_stack.io.storage_connectors import FileStorageConnector, StorageConnector
from data_stack.io.storage_connectors.cached import CachedStorageConnector

SETUP = """
from data_stack.io.storage_connectors import FileStorageConnector
from data_stack.io.storage_connectors.cached import CachedStorageConnector
connector = CachedStorageConnector(FileStorageConnector({remote!r}), {cache!r})
"""
STORE = 'connector.set_resource("bench/gib", (bytes(1 << 20) for _ in range({mb})))'
READ = """
with connector.get_resource("bench/gib") as resource:
    while resource.read(1 << 20): pass
"""


def read_through(connector: StorageConnector) -> None:
    """The large resource from start to end in pieces of 1 MiB."""
    with connector.get_resource("bench/large") as resource:
        while resource.read(MIB):
            pass


def main() -> None:
    """Compare both, and print the figures."""
    given, results = parser_of(__doc__, rounds=7).parse_args(), Results()
    n_mib, n_files = (16, 200) if given.small else (256, 2000)
    print(machine())
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        file = FileStorageConnector(folder / "remote")
        cached = CachedStorageConnector(FileStorageConnector(folder / "remote"), folder / "cache")
        file.set_resource(
            "bench/large", (hashlib.shake_128(b"%d" % i).digest(MIB) for i in range(n_mib))
        )
        for i in range(n_files):
            file.set_resource(f"bench/small/{i}", hashlib.shake_128(b"%d" % i).digest(10_000))
        offsets = [random.randrange(n_mib * MIB - 4096) for _ in range(20_000)]

        def read_samples(connector: StorageConnector) -> None:
            with connector.get_resource("bench/large") as resource:
                for offset in offsets:
                    resource.read_at(offset, 4096)

        def read_small(connector: StorageConnector) -> None:
            for i in range(n_files):
                with connector.get_resource(f"bench/small/{i}") as resource:
                    resource.read()

        cases: dict[str, Callable[[StorageConnector], None]] = {
            f"{n_mib} MiB in pieces of 1 MiB": read_through,
            "20,000 random reads of 4 KiB": read_samples,
            f"{n_files:,} resources of 10 kB": read_small,
        }
        for case, work in cases.items():
            ways = {
                "ours, cached": lambda work=work: work(cached),
                "file": lambda work=work: work(file),
            }  # type: ignore[misc]
            compare(case, ways, results, rounds=given.rounds, at_least={"file": 0.95})
        setup = SETUP.format(remote=str(folder / "remote"), cache=str(folder / "cache"))
        for action, work in (
            ("store", STORE.format(mb=n_mib * 4)),
            ("read", READ),
            ("read again", READ),
        ):
            results.keep("memory", action, [grown_mib(setup, work) * MIB], "MiB")
            results.at_most(f"memory of {n_mib * 4} MiB", "memory", action, 64 * MIB)
    results.save(given.json)


if __name__ == "__main__":
    main()
