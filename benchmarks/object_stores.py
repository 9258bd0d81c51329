"""Reading and writing an object store through FsspecStorageConnector, against fsspec itself.

Run: python benchmarks/object_stores.py [--mb 256] [--rounds 3] [--latency-ms 20]. The server is moto's, on loopback, in a
process of its own. Ours and fsspec's way run in turn; ratios are of the medians. Random reads are measured on loopback and
through a proxy that answers later, as a server elsewhere does: on loopback, requests at once only share moto's one core, and
what counts there is that a part of 4 MiB is cheaper to serve from than an object of 256 MiB. Targets (issue 4): sequential at
least as fast as fsspec's default reader; 64 random reads of 4 KiB at least 5 × as fast as one request after the other; memory
of reading or writing 1 GiB less than 64 MiB above the start (``--memory``).
"""

from __future__ import annotations

import argparse
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

import s3fs
from s3_server import S3Server

from data_stack.io.storage_connectors.fsspec import FsspecStorageConnector

PIECE = 1 << 20


class Delay:
    """A proxy that hands on what the server says ``seconds`` later."""

    def __init__(self, port: int, seconds: float) -> None:
        self._target, self._seconds = port, seconds
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            server = socket.create_connection(("127.0.0.1", self._target))
            threading.Thread(target=self._hand_on, args=(client, server, self._seconds), daemon=True).start()
            threading.Thread(target=self._hand_on, args=(server, client, 0.0), daemon=True).start()

    @staticmethod
    def _hand_on(source: socket.socket, target: socket.socket, seconds: float) -> None:
        try:
            while data := source.recv(1 << 18):
                time.sleep(seconds)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            target.close()


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compare(what: str, ours: Callable[[], object], other: Callable[[], object], n_rounds: int, target: str) -> None:
    """Run both in turn and print the medians."""
    times = [(timed(ours), timed(other)) for _ in range(n_rounds)]
    mine, theirs = (statistics.median(column) for column in zip(*times, strict=True))
    print(f"{what:<58} ours {mine:8.3f} s   fsspec {theirs:8.3f} s   {theirs / mine:6.2f} x as fast   target {target}")


def peak_growth_mib(server: S3Server, bucket: str, action: str, size: int) -> float:
    """Peak resident memory of writing or reading in a fresh process, above what it had once connected."""
    program = f"""
import re
from data_stack.io.storage_connectors.fsspec import FsspecStorageConnector
def peak(key): return int(re.search(key + r":\\s+(\\d+)", open("/proc/self/status").read()).group(1)) / 1024
class Zeros:
    left = {size}
    def read(self, n):
        n = min(n, self.left); self.left -= n
        return self.left.to_bytes(8, "big") * (n // 8)
connector = FsspecStorageConnector("s3://{bucket}/memory", **{server.options()!r})
connector.set_resource("small", b"x" * 100_000)
connector.get_resource("small").read()
before = peak("VmRSS")
if {action!r} == "write":
    connector.set_resource("big", Zeros())
else:
    with connector.get_resource("big") as resource:
        while resource.read(1 << 20):
            pass
print(peak("VmHWM") - before)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--latency-ms", type=float, default=20.0)
    parser.add_argument("--memory", action="store_true", help="measure the memory of 1 GiB too")
    arguments = parser.parse_args()
    size = arguments.mb << 20
    with S3Server() as server, tempfile.TemporaryFile() as source:
        for _ in range(arguments.mb):
            source.write(random.randbytes(1 << 20))
        bucket = server.new_bucket()
        connector = FsspecStorageConnector(f"s3://{bucket}/ours", **server.options())
        plain = s3fs.S3FileSystem(**server.options(), skip_instance_cache=True)

        def write_plain() -> None:
            source.seek(0)
            with plain.open(f"{bucket}/plain/big", "wb") as file:
                while piece := source.read(PIECE):
                    file.write(piece)

        def read(file: object) -> None:
            with file:  # type: ignore[attr-defined]
                while file.read(PIECE):  # type: ignore[attr-defined]
                    pass

        compare(f"write of {arguments.mb} MiB", lambda: connector.set_resource("big", source), write_plain, arguments.rounds, "-")
        compare(
            f"sequential read of {arguments.mb} MiB",
            lambda: read(connector.get_resource("big")),
            lambda: read(plain.open(f"{bucket}/plain/big", "rb")),
            arguments.rounds,
            ">= 1",
        )
        ranges = [(random.randrange(size - 4096), 4096) for _ in range(64)]
        away = {"endpoint_url": f"http://127.0.0.1:{Delay(server.port, arguments.latency_ms / 1000).port}"}
        far = FsspecStorageConnector(f"s3://{bucket}/ours", **{**server.options(), **away})
        plain_far = s3fs.S3FileSystem(**{**server.options(), **away}, skip_instance_cache=True)
        cases = [("loopback", connector, plain), (f"{arguments.latency_ms:g} ms away", far, plain_far)]
        for where, store, files in cases:
            store.stat("big")

            def one_by_one(files: s3fs.S3FileSystem = files) -> None:
                for offset, length in ranges:
                    files.cat_file(f"{bucket}/plain/big", start=offset, end=offset + length)

            def ours_one_by_one(store: FsspecStorageConnector = store) -> None:
                with store.get_resource("big") as resource:
                    for offset, length in ranges:
                        resource.read_at(offset, length)

            def at_once(store: FsspecStorageConnector = store) -> None:
                store.read_ranges("big", ranges)

            compare(f"64 random 4 KiB, {where}, one after the other by fsspec", at_once, one_by_one, arguments.rounds, ">= 5")
            compare(f"64 random 4 KiB, {where}, one after the other by ours", at_once, ours_one_by_one, arguments.rounds, "-")
        if arguments.memory:
            for action in ("write", "read"):
                growth = peak_growth_mib(server, bucket, action, 1 << 30)
                print(f"memory of the {action} of 1 GiB: {growth:.0f} MiB above the start   target < 64")


if __name__ == "__main__":
    main()
