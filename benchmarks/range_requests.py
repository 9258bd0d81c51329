"""Processor time of reading 1 GiB by range requests: by https and S3, without a cache.

    python benchmarks/range_requests.py [--rounds 3] [--small]

Ranges of 768 KiB and of 4 MiB are read by 16 threads from a loopback server (slow_server.py without
latency) in a process of its own, so only the client counts. The limits are ``http.client`` that
receives into a buffer per thread, and obstore itself. Targets at 768 KiB: at most 1.0 s a GiB
by http, at most 0.8 s from S3. It takes about a minute.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import resource
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from harness import HERE, MIB, Results, in_turn, machine, parser_of

import data_stack.io.storage_connectors.object_store as object_store
from data_stack.io.storage_connectors.object_store.object_client import FileRange
from data_stack.io.web.files import WebFiles

GIB = 1 << 30
#: The ranges lie in a file of this size. Its bytes stay in the page cache of the server.
FILE_BYTES = 96 * MIB
N_THREADS = 16
KIB_PER_RANGE = (768, 4096)
BUCKET, KEY = "bucket", "folder/file"
MAX_SECONDS = {"ours, http": 1.0, "ours, S3": 0.8}

#: Reads the bytes from the first to the second number.
Read = Callable[[int, int], object]


@contextlib.contextmanager
def running_server(folder: Path) -> Iterator[int]:
    """Yield the port of a quick server of the files in a folder."""
    command = [sys.executable, str(HERE / "slow_server.py"), str(folder), "0", "1e9"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield int(server.stdout.readline())
        finally:
            server.kill()


class BareConnections:
    """Reads ranges by ``http.client``: a connection and a buffer for each thread."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._of_thread = threading.local()

    def read(self, start: int, stop: int) -> object:
        connection = getattr(self._of_thread, "connection", None)
        if connection is None:
            connection = http.client.HTTPConnection("127.0.0.1", self._port)
            self._of_thread.connection = connection
            self._of_thread.buffer = memoryview(bytearray(max(KIB_PER_RANGE) << 10))
        connection.request(
            "GET", f"/{BUCKET}/{KEY}", headers={"Range": f"bytes={start}-{stop - 1}"}
        )
        answer = connection.getresponse()
        n_left = stop - start
        while n_left > 0:
            n_left -= answer.readinto(self._of_thread.buffer[:n_left])
        answer.read()
        return None


def ways_to_read(port: int) -> dict[str, Read]:
    """Return the ways to read a range, by name."""
    endpoint_url = f"http://127.0.0.1:{port}"
    file = WebFiles(f"{endpoint_url}/{BUCKET}").open(KEY)
    options: Any = {
        "endpoint_url": endpoint_url,
        "key": "key",
        "secret": "secret",
        "client_kwargs": {"region_name": "us-east-1"},
    }
    folder, _, name = KEY.rpartition("/")
    store = object_store.FsspecStorageConnector(f"s3://{BUCKET}/{folder}", **options)
    ways: dict[str, Read] = {
        "ours, http": file.read,
        "ours, S3": lambda start, stop: store._files.read_ranges([FileRange(name, start, stop)]),
        "http.client": BareConnections(port).read,
    }
    try:
        import obstore
        from obstore.store import S3Store
    except ImportError as error:
        print(f"  obstore is left out: {error}")
        return ways
    bare_store = S3Store(
        BUCKET,
        endpoint=endpoint_url,
        access_key_id="key",
        secret_access_key="secret",
        region="us-east-1",
        client_options={"allow_http": True},
    )
    ways["obstore"] = lambda start, stop: obstore.get_range(bare_store, KEY, start=start, end=stop)
    return ways


def processor_seconds(
    read: Read, n_bytes: int, range_bytes: int, threads: ThreadPoolExecutor
) -> float:
    """Return the processor time that reading takes in this process, per GiB."""
    starts = []
    for number in range(n_bytes // range_bytes):
        starts.append(number * range_bytes % (FILE_BYTES - range_bytes))
    usage_before = resource.getrusage(resource.RUSAGE_SELF)
    for _ in threads.map(lambda start: read(start, start + range_bytes), starts):
        pass
    usage = resource.getrusage(resource.RUSAGE_SELF)
    user_seconds = usage.ru_utime - usage_before.ru_utime
    system_seconds = usage.ru_stime - usage_before.ru_stime
    return (user_seconds + system_seconds) * GIB / (len(starts) * range_bytes)


def measure(results: Results, rounds: int, n_bytes: int, port: int) -> None:
    """Measure each way for each size of ranges, in turn."""
    for kib in KIB_PER_RANGE:
        case = f"processor time of 1 GiB by ranges of {kib} KiB"
        with ThreadPoolExecutor(N_THREADS) as threads:
            measures = {}
            for way, read in ways_to_read(port).items():
                read(0, 1)  # what is done once is not counted
                measures[way] = functools.partial(
                    processor_seconds, read, n_bytes, kib << 10, threads
                )
            for way, figures in in_turn(case, measures, rounds, results).items():
                results.keep(case, way, figures, "s")
        results.print(case, "http.client", "obstore")
        if kib == KIB_PER_RANGE[0]:
            for way, seconds in MAX_SECONDS.items():
                results.at_most(case, case, way, seconds)


def main() -> None:
    """Measure, and print the figures."""
    parser = parser_of(__doc__, rounds=3)
    given = parser.parse_args()
    results = Results()
    print(machine())
    n_bytes = GIB // 8 if given.small else GIB
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        path = Path(folder, BUCKET, KEY)
        path.parent.mkdir(parents=True)
        path.write_bytes(bytes(FILE_BYTES))
        with running_server(Path(folder)) as port:
            measure(results, given.rounds, n_bytes, port)
    results.save(given.json)


if __name__ == "__main__":
    main()
