"""What a download costs against the plain loop that verifies nothing else: requests, sha256, write, fsync.

Run: python benchmarks/retrieve.py [MB]. The server is a process of its own on loopback; `pooch` takes part if installed.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import platform
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import requests

from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.retriever import retrieve
from data_stack.io.storage_connectors import FileStorageConnector

N_ROUNDS = 5


def serve(path: str, tell: Connection) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        tell.send(server.getsockname()[1])
        while True:
            connection, _ = server.accept()
            with connection, open(path, "rb") as file:
                connection.recv(65536)
                head = f"HTTP/1.1 200 OK\r\nContent-Length: {os.path.getsize(path)}\r\nConnection: close\r\n\r\n"
                connection.sendall(head.encode())
                connection.sendfile(file)


def plain(url: str, sha256: str, folder: str) -> None:
    digest = hashlib.sha256()
    with requests.get(url, stream=True, timeout=30) as response, open(f"{folder}/data", "wb") as file:
        for chunk in response.iter_content(1 << 20):
            digest.update(chunk)
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    assert digest.hexdigest() == sha256


def ours(url: str, sha256: str, folder: str) -> None:
    retrieve([ResourceDefinition("data", url, sha256=sha256)], FileStorageConnector(folder))


def by_pooch(url: str, sha256: str, folder: str) -> None:
    import pooch

    pooch.get_logger().setLevel("ERROR")
    pooch.retrieve(url, known_hash=f"sha256:{sha256}", fname="data", path=folder)


def seconds(download: Callable[[str, str, str], None], url: str, sha256: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        download(url, sha256, folder)
        return time.perf_counter() - started


def main() -> None:
    n_bytes = int(sys.argv[1] if len(sys.argv) > 1 else 128) << 20
    contenders: dict[str, Callable[[str, str, str], None]] = {"plain loop": plain, "data_stack": ours}
    try:
        import pooch  # noqa: F401
    except ImportError:
        pass
    else:
        contenders["pooch"] = by_pooch
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/data"
        body = os.urandom(n_bytes)
        Path(path).write_bytes(body)
        sha256 = hashlib.sha256(body).hexdigest()
        del body
        here, there = multiprocessing.Pipe()
        server = multiprocessing.get_context("spawn").Process(target=serve, args=(path, there), daemon=True)
        server.start()
        url = f"http://127.0.0.1:{here.recv()}/data"
        times: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(N_ROUNDS):  # in turns, so that a noisy moment hits all
            for name, download in contenders.items():
                times[name].append(seconds(download, url, sha256))
        server.terminate()
        server.join()
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(f"{machine}; {n_bytes >> 20} MiB, best of {N_ROUNDS}")
    base = min(times["plain loop"])
    for name, taken in times.items():
        best, median = min(taken), statistics.median(taken)
        print(f"{name:12} {best:6.3f} s (median {median:.3f})  {n_bytes / best / 2**20:7.0f} MiB/s  {best / base:5.2f} × plain")


if __name__ == "__main__":
    main()
