"""Reading a second time through CachedStorageConnector.

Run: python benchmarks/cache.py. The remote is a folder, so that asking it for a digest costs what a
file connector's opening costs; behind a network, ``fresh_seconds`` saves the asking. All ways read
in turn, in one process, from one disk; the files are in the page cache.

The cache promises to notice a flipped bit on every read, which FileStorageConnector does not. So
its limit is the least that keeps the promise, ``file, verified``: the file connector and the
digests.
Targets: at least 0.8 × this limit from the second epoch on; peak memory of 1 GiB read or stored
under 64 MiB above the start.
"""

from __future__ import annotations

import hashlib
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

from harness import MIB, Results, compare, grown_mib, machine, parser_of

from data_stack.io.integrity import DIGEST_BYTES, digests_of_blocks
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
PAGE_BYTES = 4096
SMALL_BYTES = 10_000


class Workload:
    """A large resource and many small ones in a file store, and the ways to read them."""

    def __init__(self, folder: Path, n_mib: int, n_files: int) -> None:
        self.folder = folder
        self.n_mib = n_mib
        self.n_files = n_files
        self.file = FileStorageConnector(folder / "remote")
        self.cached = CachedStorageConnector(
            FileStorageConnector(folder / "remote"), folder / "cache"
        )
        self.offsets = [random.randrange(n_mib * MIB - PAGE_BYTES) for _ in range(20_000)]
        self.file.set_resource(
            "bench/large", (hashlib.shake_128(b"%d" % i).digest(MIB) for i in range(n_mib))
        )
        for i in range(n_files):
            data = hashlib.shake_128(b"%d" % i).digest(SMALL_BYTES)
            self.file.set_resource(f"bench/small/{i}", data)
        large = (folder / "remote/bench/large").read_bytes()
        self.page_digests = digests_of_blocks(large, PAGE_BYTES)
        self.small_digests = [
            hashlib.sha256(self.small_path(i).read_bytes()).digest() for i in range(n_files)
        ]

    def small_path(self, number: int) -> Path:
        """Return the path of a small resource."""
        return self.folder / f"remote/bench/small/{number}"

    def read_through(self, connector: StorageConnector) -> None:
        """Read the large resource from start to end in pieces of 1 MiB."""
        with connector.get_resource("bench/large") as resource:
            while resource.read(MIB):
                pass

    def read_samples(self, connector: StorageConnector) -> None:
        """Read 4 KiB of the large resource at each offset."""
        with connector.get_resource("bench/large") as resource:
            for offset in self.offsets:
                resource.read_at(offset, PAGE_BYTES)

    def read_small(self, connector: StorageConnector) -> None:
        """Open and read each small resource."""
        for i in range(self.n_files):
            with connector.get_resource(f"bench/small/{i}") as resource:
                resource.read()

    # ------------------------------------------------------------------ the limits

    def verify_through(self) -> None:
        """Read the large resource in pieces of 1 MiB from the file store, and verify its pages."""
        with self.file.get_resource("bench/large") as resource:
            for number in range(self.n_mib):
                self._verify(resource.read(MIB), number * MIB // PAGE_BYTES)

    def verify_samples(self) -> None:
        """Read the pages of each sample from the file store, verify them, and cut it out."""
        with self.file.get_resource("bench/large") as resource:
            for offset in self.offsets:
                first_page = offset // PAGE_BYTES
                end_page = -(-(offset + PAGE_BYTES) // PAGE_BYTES)
                start = first_page * PAGE_BYTES
                pages = resource.read_at(start, end_page * PAGE_BYTES - start)
                self._verify(pages, first_page)
                pages[offset - start : offset - start + PAGE_BYTES]

    def verify_small(self) -> None:
        """Open each small resource in the file store, then read and verify a file of its bytes."""
        for i in range(self.n_files):
            with self.file.get_resource(f"bench/small/{i}") as resource:
                resource.sha256  # noqa: B018  # opens it
                with open(self.small_path(i), "rb", buffering=0) as file:
                    assert hashlib.sha256(file.read()).digest() == self.small_digests[i]

    def _verify(self, pages: bytes, first_page: int) -> None:
        start = first_page * DIGEST_BYTES
        stop = start + len(pages) // PAGE_BYTES * DIGEST_BYTES
        assert digests_of_blocks(pages, PAGE_BYTES) == self.page_digests[start:stop]


def main() -> None:
    """Compare the ways, and print the figures."""
    given = parser_of(__doc__, rounds=7).parse_args()
    results = Results()
    n_mib, n_files = (16, 200) if given.small else (256, 2000)
    print(machine())
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        workload = Workload(folder, n_mib, n_files)
        cases: dict[str, tuple[Callable[[StorageConnector], None], Callable[[], None]]] = {
            f"{n_mib} MiB in pieces of 1 MiB": (workload.read_through, workload.verify_through),
            "20,000 random reads of 4 KiB": (workload.read_samples, workload.verify_samples),
            f"{n_files:,} resources of 10 kB": (workload.read_small, workload.verify_small),
        }
        for case, (read, verify) in cases.items():
            ways: dict[str, Callable[[], None]] = {
                "ours, cached": lambda read=read: read(workload.cached),  # type: ignore[misc]
                "file, verified": verify,
                "file": lambda read=read: read(workload.file),  # type: ignore[misc]
            }
            compare(case, ways, results, rounds=given.rounds, at_least={"file, verified": 0.8})
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
