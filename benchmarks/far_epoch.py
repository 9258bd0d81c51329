"""What an epoch of 1 GiB from a far store costs in processor time, and on what it is spent.

    python benchmarks/far_epoch.py [--rounds 3] [--small]

The data and the line are those of slow_line.py: records of 51 to 154 KB behind 20 ms a request and
1 Gbit/s. A round is a process of its own for each way. ``ours`` is the first ``BlockShuffled()``
epoch with an empty cache on this disk. The parts are what any program must do with the same bytes,
each alone and without a cache of ours: receive them by ranges of 1.5 MiB in 16 threads, hash their
blocks, write them to a file, copy the records out of what was received. What the parts leave of an
epoch is the work of Python: requests, threads, batches. Two parts of that work are measured too:
the same ranges received by the web client of ours, and the second epoch, which reads the files of
the cache, and makes the same batches. The system's time is a part of each figure, and shown by
itself. It takes about five minutes.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.client
import importlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness import HERE, Results, answer_of, in_turn, machine, parser_of

GIB = 1 << 30
CASE = "processor time of a far epoch of 1 GiB"
CASE_OF_SYSTEM = "... of which in the system"
MAX_SECONDS = 3.0
N_THREADS = 16
RANGE_BYTES = 1536 << 10
BLOCK_BYTES = 64 << 10
RECORD_BYTES = 100_000
N_RECORDS_IF_SMALL = 640
#: The epochs of ours, by their names in slow_line.py.
EPOCHS = ("ours, http", "ours, S3")


def files_of(folder: Path) -> list[Path]:
    """Return the files of the published dataset."""
    return [path for path in sorted((folder / "www" / "published").rglob("*")) if path.is_file()]


# ---------------------------------------------------------------------- the parts


def receive(port: str, folder: Path) -> None:
    """Receive all files by ranges into one buffer for each thread, by http.client."""
    of_thread = threading.local()

    def receive_range(file: Path, start: int, stop: int) -> None:
        if not hasattr(of_thread, "connection"):
            of_thread.connection = http.client.HTTPConnection("127.0.0.1", int(port))
            of_thread.buffer = memoryview(bytearray(RANGE_BYTES))
        target = f"/{file.relative_to(folder / 'www').as_posix()}"
        headers = {"Range": f"bytes={start}-{stop - 1}"}
        of_thread.connection.request("GET", target, headers=headers)
        answer = of_thread.connection.getresponse()
        n_left = stop - start
        while n_left > 0:
            n_left -= answer.readinto(of_thread.buffer[:n_left])
        answer.read()

    _call_for_ranges(receive_range, folder)


def receive_by_ours(port: str, folder: Path) -> None:
    """Receive the same ranges by the web client of ours."""
    from data_stack.io.web.files import WebFiles

    published = folder / "www" / "published"
    web_files = WebFiles(f"http://127.0.0.1:{port}/published")
    opened_files = {}
    for file in files_of(folder):
        opened_files[file] = web_files.open(file.relative_to(published).as_posix())

    def receive_range(file: Path, start: int, stop: int) -> None:
        part = opened_files[file].read_view(start, stop)
        if len(part) != stop - start:
            raise RuntimeError(f"received {len(part)} bytes of {stop - start}")

    _call_for_ranges(receive_range, folder)


def _call_for_ranges(function: Callable[[Path, int, int], None], folder: Path) -> None:
    """Call a function for each range of each file in threads: file, first byte, end."""
    with ThreadPoolExecutor(N_THREADS) as threads:
        futures = []
        for file in files_of(folder):
            size = file.stat().st_size
            for start in range(0, size, RANGE_BYTES):
                stop = min(start + RANGE_BYTES, size)
                futures.append(threads.submit(function, file, start, stop))
        for future in futures:
            future.result()


def hash_sha256(port: str, folder: Path) -> None:
    """Hash each block as those of a published dataset are."""
    _hash_blocks(folder, lambda block: hashlib.sha256(block).digest())


def hash_xxh3(port: str, folder: Path) -> None:
    """Hash each block as those of stores and caches are."""
    xxhash = importlib.import_module("xxhash")
    _hash_blocks(folder, xxhash.xxh3_64_digest)


def _hash_blocks(folder: Path, digest_of: Callable[[memoryview], bytes]) -> None:
    piece = memoryview(os.urandom(RANGE_BYTES))
    for _ in range(_n_pieces(folder)):
        for start in range(0, RANGE_BYTES, BLOCK_BYTES):
            digest_of(piece[start : start + BLOCK_BYTES])


def write(port: str, folder: Path) -> None:
    """Write all bytes to a new file, as a cache does."""
    piece = os.urandom(RANGE_BYTES)
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        for number in range(_n_pieces(folder)):
            os.pwrite(file.fileno(), piece, number * RANGE_BYTES)


def copy_records(port: str, folder: Path) -> None:
    """Copy records out of received pieces, a batch of 64 at a time."""
    # The allocator then keeps what a batch frees. Otherwise each batch gets new pages of the system,
    # which takes five times as long as copying; an epoch frees long pieces all the time.
    bytes(16 << 20)
    n_pieces = 16
    pieces = [memoryview(os.urandom(RANGE_BYTES)) for _ in range(n_pieces)]
    n_records = _n_pieces(folder) * RANGE_BYTES // RECORD_BYTES
    batch: list[bytes] = []
    for number in range(n_records):
        if len(batch) == 64:
            batch = []
        start = number % 7 * RECORD_BYTES
        batch.append(bytes(pieces[number % n_pieces][start : start + RECORD_BYTES]))


def _n_pieces(folder: Path) -> int:
    n_bytes = sum(file.stat().st_size for file in files_of(folder))
    return n_bytes // RANGE_BYTES


#: What any program must do.
PARTS: dict[str, Callable[[str, Path], None]] = {
    "receive": receive,
    "SHA-256 of each block (https)": hash_sha256,
    "XXH3 of each block": hash_xxh3,
    "write": write,
    "copy records": copy_records,
}
#: Parts of the work of Python, which include some of PARTS: receiving, and copying records.
RECEIVED_BY_OURS = "receive, by the web client of ours"
SECOND_EPOCH = "the second epoch of ours, from the cache"


# ---------------------------------------------------------------------- one process


def run_way(way: str, port: str, folder: Path) -> None:
    """Do one thing in this process, and print its processor time a GiB."""
    work: Callable[[], None]
    if way in PARTS:
        work = functools.partial(PARTS[way], port, folder)
    else:
        _prepare_epoch(folder)
        if way == RECEIVED_BY_OURS:
            work = functools.partial(receive_by_ours, port, folder)
        elif way == SECOND_EPOCH:
            work = _begin_second_epoch(port, folder)
        else:
            work = functools.partial(_read_epoch, way, port, folder)
    usage_before = resource.getrusage(resource.RUSAGE_SELF)
    work()
    usage = resource.getrusage(resource.RUSAGE_SELF)

    n_bytes = sum(file.stat().st_size for file in files_of(folder))
    user_seconds = usage.ru_utime - usage_before.ru_utime
    system_seconds = usage.ru_stime - usage_before.ru_stime
    figures = {
        "all": (user_seconds + system_seconds) * GIB / n_bytes,
        "system": system_seconds * GIB / n_bytes,
    }
    print(json.dumps(figures))


def _prepare_epoch(folder: Path) -> None:
    """Import what an epoch of ours imports, which is not counted, and empty the cache."""
    import slow_line

    for name in slow_line._IMPORTS["ours"].split():
        importlib.import_module(name)
    slow_line.ours(str(folder / "www" / "published"))
    os.environ.update(slow_line._KEYS)
    shutil.rmtree(folder / "cache", ignore_errors=True)


def _begin_second_epoch(port: str, folder: Path) -> Callable[[], None]:
    """Read an epoch by https, and return what reads the second one."""
    import slow_line

    begin = slow_line.WAYS["ours, http"](port, str(folder / "cache"))
    read_all = functools.partial(_read_all, begin)
    read_all()
    return read_all


def _read_epoch(way: str, port: str, folder: Path) -> None:
    """Open the data, and read a first epoch."""
    import slow_line

    _read_all(slow_line.WAYS[way](port, str(folder / "cache")))


def _read_all(begin: Callable[[], Iterator[int]]) -> None:
    """Read an epoch, and check that it has all records."""
    import slow_line

    n_records = sum(1 for _ in begin())
    if n_records != slow_line.N_RECORDS:
        raise RuntimeError(f"read {n_records} records of {slow_line.N_RECORDS}")


# ---------------------------------------------------------------------- the comparison


@contextlib.contextmanager
def running_server(folder: Path) -> Iterator[str]:
    """Yield the port of slow_server.py."""
    command = [sys.executable, str(HERE / "slow_server.py"), str(folder / "www")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.kill()


def measure(results: Results, rounds: int, port: str, folder: Path) -> None:
    """Measure each way in turn, and print what the parts leave of an epoch."""

    def measure_way(way: str) -> dict[str, float]:
        program = [sys.executable, "-W", "ignore", __file__]
        figures: dict[str, float] = answer_of([*program, "--run", way, port, str(folder)])
        return figures

    ways = {}
    for way in (*EPOCHS, *PARTS, RECEIVED_BY_OURS, SECOND_EPOCH):
        ways[way] = functools.partial(measure_way, way)
    for way, figures in in_turn(CASE, ways, rounds, results).items():
        results.keep(CASE, way, [figure["all"] for figure in figures], "s")
        results.keep(CASE_OF_SYSTEM, way, [figure["system"] for figure in figures], "s")
    results.print(CASE)
    results.print(CASE_OF_SYSTEM)
    for way in EPOCHS:
        _print_rest(results, way)
        results.at_most(f"{way}: processor time", CASE, way, MAX_SECONDS)


def _print_rest(results: Results, way: str) -> None:
    """Print what the parts leave of an epoch."""
    seconds = results.median(CASE, way)
    if seconds is None:
        return
    for part in PARTS:
        is_left_out = part.startswith("SHA-256") and way != "ours, http"
        if not is_left_out:
            seconds -= results.median(CASE, part) or 0.0
    print(f"{way}: the parts leave {seconds:.2f} s")


def main() -> None:
    """Measure, and print the figures."""
    if sys.argv[1:2] == ["--run"]:
        way, port, folder_name = sys.argv[2:]
        run_way(way, port, Path(folder_name))
        return
    given = parser_of(__doc__, rounds=3).parse_args()
    if given.small:
        os.environ["SLOW_LINE_RECORDS"] = str(N_RECORDS_IF_SMALL)
    import slow_line

    results = Results()
    print(machine())
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        (folder / "www").mkdir()
        slow_line.write_ours(folder / "www")
        with running_server(folder) as port:
            measure(results, given.rounds, port, folder)
    results.save(given.json)


if __name__ == "__main__":
    main()
