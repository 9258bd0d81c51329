"""What a download costs against the plain loop that verifies nothing else: requests, sha256, write,
fsync.

Run: python benchmarks/retrieve.py. The server is a process of its own on loopback; `pooch` takes
    part if installed.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import socket
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path

import requests
from harness import MIB, Results, compare, machine, parser_of

from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.retriever import retrieve
from data_stack.io.storage_connectors import FileStorageConnector


def serve(path: str, tell: Connection) -> None:
    """Answer everything with one file."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        tell.send(server.getsockname()[1])
        while True:
            connection, _ = server.accept()
            with connection, open(path, "rb") as file:
                connection.recv(65536)
                head = f"HTTP/1.1 200 OK\r\nContent-Length: {os.path.getsize(path)}\r\nConnection: close\r\n\r\n"
                connection.sendall(head.encode())
                connection.sendfile(file)


def main() -> None:
    """Download in turn."""
    given, results = parser_of(__doc__).parse_args(), Results()
    n_mib = 8 if given.small else 128
    print(machine())
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        path = f"{folder}/data"
        body = os.urandom(n_mib * MIB)
        Path(path).write_bytes(body)
        sha256 = hashlib.sha256(body).hexdigest()
        here, there = multiprocessing.Pipe()
        server = multiprocessing.get_context("spawn").Process(
            target=serve, args=(path, there), daemon=True
        )
        server.start()
        url = f"http://127.0.0.1:{here.recv()}/data"

        def ours() -> None:
            with tempfile.TemporaryDirectory(dir=folder) as target:
                retrieve(
                    [ResourceDefinition("data", url, sha256=sha256)], FileStorageConnector(target)
                )

        def plain() -> None:
            digest = hashlib.sha256()
            with (
                requests.get(url, stream=True, timeout=30) as response,
                tempfile.NamedTemporaryFile(dir=folder) as file,
            ):
                for chunk in response.iter_content(MIB):
                    digest.update(chunk)
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
            assert digest.hexdigest() == sha256

        def by_pooch() -> None:
            import pooch

            pooch.get_logger().setLevel("ERROR")
            with tempfile.TemporaryDirectory(dir=folder) as target:
                pooch.retrieve(url, known_hash=f"sha256:{sha256}", fname="data", path=target)

        ways = {"ours": ours, "plain loop": plain, "pooch": by_pooch}
        compare(f"downloading {n_mib} MiB from loopback", ways, results, rounds=given.rounds)
        server.terminate()
        server.join()
    results.save(given.json)


if __name__ == "__main__":
    main()
