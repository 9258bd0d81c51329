"""Storing and reading a file through FileStorageConnector, against the plain loop that does the
same work.

Run: python benchmarks/folder.py. Both write a file that was not there before: overwriting one in
place reuses its pages of the page cache, which neither a new file nor an atomic write can. Targets:
storing at most 1.15 × the plain loop's time, reading at least 0.9 × the plain file's speed, peak
memory under 20 MiB above the start.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

from harness import MIB, Results, compare, grown_mib, machine, parser_of

from data_stack.io.storage_connectors import FileStorageConnector

SETUP = """
from data_stack.io.storage_connectors import FileStorageConnector
connector = FileStorageConnector({folder!r})
"""
STORE = 'connector.set_resource("bench/memory.bin", open({source!r}, "rb"))'
READ = """
with connector.get_resource("bench/ours.bin") as resource:
    while resource.read(1 << 20): pass
"""


def plain_store(source: Path, target: Path) -> None:
    """The limit of storing: read, SHA-256, write, fsync."""
    digest = hashlib.sha256()
    with open(source, "rb") as reading, open(target, "wb") as writing:
        while piece := reading.read(MIB):
            digest.update(piece)
            writing.write(piece)
        writing.flush()
        os.fsync(writing.fileno())


def drain(file: Any) -> None:
    """Read to the end in pieces of 1 MiB."""
    with file:
        while file.read(MIB):
            pass


def main() -> None:
    """Run both in turn and print seconds, ratios and memory."""
    given, results = parser_of(__doc__).parse_args(), Results()
    n_mib = 32 if given.small else 512
    print(machine())
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        source, plain, stored = (
            folder / "source.bin",
            folder / "plain.bin",
            folder / "store/bench/ours.bin",
        )
        with open(source, "wb") as file:
            for _ in range(n_mib):
                file.write(os.urandom(MIB))
            os.fsync(file.fileno())
        connector = FileStorageConnector(folder / "store")

        def our_store() -> None:
            with open(source, "rb") as reading:
                connector.set_resource("bench/ours.bin", reading)

        def clear() -> None:
            # Only one copy at a time: fresh pages of the page cache cost more than the whole
            # comparison.
            for made in (plain, stored):
                made.unlink(missing_ok=True)

        ways = {"ours": our_store, "plain loop": lambda: plain_store(source, plain)}
        case = f"storing {n_mib} MiB from a file"
        compare(
            case,
            ways,
            results,
            rounds=given.rounds,
            prepare=clear,
            at_least={"plain loop": 1 / 1.15},
        )
        our_store()
        ways = {
            "ours": lambda: drain(connector.get_resource("bench/ours.bin")),
            "plain file": lambda: drain(open(stored, "rb")),
        }
        compare(
            f"reading {n_mib} MiB in pieces of 1 MiB",
            ways,
            results,
            rounds=given.rounds,
            at_least={"plain file": 0.9},
        )
        for action, work in (("store", STORE.format(source=str(source))), ("read", READ)):
            results.keep(
                "memory",
                action,
                [grown_mib(SETUP.format(folder=str(folder / "store")), work) * MIB],
                "MiB",
            )
            results.at_most("peak memory above the start", "memory", action, 20 * MIB)
    results.save(given.json)


if __name__ == "__main__":
    main()
