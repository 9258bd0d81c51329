"""Reading and writing an object store through FsspecStorageConnector, against fsspec itself.

Run: python benchmarks/object_stores.py [--memory] [--only-requests]. The first figures are what one
request costs by each client, in time and in processor time of the client alone, against obstore
itself and s3fs itself; the server is a few lines that keep connections open. Target: by obstore, at
least 4 × less processor time at 64 KiB than by fsspec. For the other figures the server is moto's, on loopback, in a process
of its own. Random reads are measured on loopback and, from two processes with the same objects,
through a proxy that answers 20 ms later, as a server elsewhere does: on loopback, requests at once
only share moto's one core, and what counts there is that a part of 4 MiB is cheaper to serve from
than an object of 256 MiB. Targets: sequential at least as fast as fsspec's default reader; 64
random reads of 4 KiB at least 5 × as fast as one request after the other; memory of reading or
writing 1 GiB less than 64 MiB above the start (``--memory``).
"""

from __future__ import annotations

import contextlib
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from harness import MIB, SUPPORT, Results, compare, grown_mib, in_turn, machine, parser_of

sys.path.insert(0, str(SUPPORT))

import obstore
import s3fs
from obstore.store import S3Store
from s3_server import LOGIN, REGION, S3Server

from data_stack.io.storage_connectors.object_store import FsspecStorageConnector
from data_stack.io.storage_connectors.object_store.object_client import FileRange

#: Answers every request for a range with as many bytes, on connections that stay open.
RANGE_SERVER = """
import socket, threading
SIZE = 64 << 20
CONTENT = memoryview(bytes(8 << 20))
HEAD = ("HTTP/1.1 206 Partial Content\\r\\nContent-Length: {}\\r\\n"
        "Content-Range: bytes {}-{}/{}\\r\\nETag: \\"1\\"\\r\\n"
        "Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT\\r\\n\\r\\n")
def answer(client):
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    received = b""
    while data := client.recv(1 << 16):
        received += data
        while b"\\r\\n\\r\\n" in received:
            head, _, received = received.partition(b"\\r\\n\\r\\n")
            place = head.lower().partition(b"range: bytes=")[2].partition(b"\\r\\n")[0]
            first, last = map(int, place.split(b"-"))
            n = last + 1 - first
            client.sendall(HEAD.format(n, first, last, SIZE).encode())
            client.sendall(CONTENT[:n])
listener = socket.create_server(("127.0.0.1", 0), backlog=128)
print(listener.getsockname()[1], flush=True)
while True:
    threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()
"""

#: Answers ``seconds`` later than the servers behind it, to which connections go in turn.
PROXY = """
import itertools, socket, sys, threading, time
def hand_on(source, target, seconds):
    try:
        while data := source.recv(1 << 18):
            time.sleep(seconds)
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        target.close()
listener = socket.create_server(("127.0.0.1", 0), backlog=128)
print(listener.getsockname()[1], flush=True)
for port in itertools.cycle(map(int, sys.argv[2:])):
    client, _ = listener.accept()
    server = socket.create_connection(("127.0.0.1", port))
    threading.Thread(target=hand_on, args=(client, server, float(sys.argv[1])), daemon=True).start()
    threading.Thread(target=hand_on, args=(server, client, 0.0), daemon=True).start()
"""


@contextlib.contextmanager
def far_away(ports: Sequence[int]) -> Iterator[int]:
    """The port of a proxy in a process of its own, 20 ms away."""
    command = [sys.executable, "-c", PROXY, "0.02", *map(str, ports)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as proxy:
        assert proxy.stdout is not None
        yield int(proxy.stdout.readline())
        proxy.kill()


@contextlib.contextmanager
def range_server() -> Iterator[int]:
    """The port of a server of ranges in a process of its own."""
    command = [sys.executable, "-c", RANGE_SERVER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield int(server.stdout.readline())
        server.kill()


def processor_seconds() -> float:
    """The processor time of this process, in all its threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def compare_processor_time(
    case: str,
    ways: Mapping[str, Callable[[], object]],
    results: Results,
    *,
    rounds: int,
    n_requests: int,
) -> None:
    """Measure the processor time of a request in turn, the first two rounds dropped."""

    def measured(work: Callable[[], object]) -> float:
        started = processor_seconds()
        work()
        return (processor_seconds() - started) / n_requests

    measures = {way: lambda work=work: measured(work) for way, work in ways.items()}
    seconds = in_turn(case, measures, rounds + 2, results)  # type: ignore[arg-type]
    for way, figures in seconds.items():
        results.keep(case, way, figures[2:], "us")
    results.print(case, "ours, by obstore")


def measure_requests(results: Results, rounds: int, *, small: bool) -> None:
    """Measure what a request costs by each client, for ranges of three sizes."""
    with range_server() as port:
        options: Any = {
            "endpoint_url": f"http://127.0.0.1:{port}",
            "key": LOGIN["AWS_ACCESS_KEY_ID"],
            "secret": LOGIN["AWS_SECRET_ACCESS_KEY"],
            "client_kwargs": {"region_name": REGION},
        }
        by_obstore = FsspecStorageConnector("s3://bucket/folder", client="obstore", **options)
        by_fsspec = FsspecStorageConnector("s3://bucket/folder", client="fsspec", **options)
        files = s3fs.S3FileSystem(**options, skip_instance_cache=True)
        store = S3Store(
            "bucket",
            endpoint=options["endpoint_url"],
            access_key_id=options["key"],
            secret_access_key=options["secret"],
            region=REGION,
            client_options={"allow_http": True},
        )
        for n_bytes, name in ((4096, "4 KiB"), (65_536, "64 KiB"), (4 * MIB, "4 MiB")):
            n_requests = 16 if small or n_bytes > MIB else 400

            def read_each(read: Callable[[int], object], n_requests: int = n_requests) -> None:
                for number in range(n_requests):
                    read(number * 4096)

            def read_bare(start: int, n_bytes: int = n_bytes) -> object:
                return bytes(obstore.get_range(store, "folder/p", start=start, end=start + n_bytes))

            def read_by_s3fs(start: int, n_bytes: int = n_bytes) -> object:
                return files.cat_file("bucket/folder/p", start=start, end=start + n_bytes)

            def read_ours(
                connector: FsspecStorageConnector, start: int, n_bytes: int = n_bytes
            ) -> object:
                return connector._files.read_ranges([FileRange("p", start, start + n_bytes)])

            ways: dict[str, Callable[[], object]] = {
                "ours, by obstore": lambda: read_each(lambda start: read_ours(by_obstore, start)),
                "ours, by fsspec": lambda: read_each(lambda start: read_ours(by_fsspec, start)),
                "obstore": lambda: read_each(read_bare),
                "s3fs": lambda: read_each(read_by_s3fs),
            }
            results.kinds |= {"obstore": "limit", "s3fs": "peer"}
            compare(f"requests of {name}", ways, results, rounds=rounds, n=n_requests, unit="/s")
            case = f"processor time of a request of {name}"
            compare_processor_time(case, ways, results, rounds=rounds, n_requests=n_requests)
            if n_bytes == 65_536:
                results.at_least(case, case, "ours, by obstore", "ours, by fsspec", 4)


SETUP = """
from data_stack.io.storage_connectors.object_store import FsspecStorageConnector
class Zeros:
    left = {size}
    def read(self, n):
        n = min(n, self.left); self.left -= n
        return self.left.to_bytes(8, "big") * (n // 8)
connector = FsspecStorageConnector("s3://{bucket}/memory", **{options!r})
connector.set_resource("small", b"x" * 100_000)
connector.get_resource("small").read()
"""
WRITE = 'connector.set_resource("big", Zeros())'
READ = """
with connector.get_resource("big") as resource:
    while resource.read(1 << 20): pass
"""


def copy_objects(server: S3Server, other: S3Server, bucket: str) -> None:
    """Give another server the same objects."""
    other.client.create_bucket(Bucket=bucket)
    for page in server.client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        for found in page["Contents"]:
            content = server.client.get_object(Bucket=bucket, Key=found["Key"])
            other.client.put_object(
                Bucket=bucket,
                Key=found["Key"],
                Body=content["Body"].read(),
                Metadata=content["Metadata"],
            )


def drain(file: Any) -> None:
    """Read to the end in pieces of 1 MiB."""
    with file:
        while file.read(MIB):
            pass


def main() -> None:
    """Compare, and print the figures."""
    parser = parser_of(__doc__, rounds=3)
    parser.add_argument("--memory", action="store_true", help="measure the memory of 1 GiB too")
    parser.add_argument("--only-requests", action="store_true", help="measure single requests")
    given, results = parser.parse_args(), Results()
    n_mib, rounds = 16 if given.small else 256, given.rounds
    print(machine())
    measure_requests(results, rounds, small=given.small)
    if given.only_requests:
        results.save(given.json)
        return
    with contextlib.ExitStack() as stack, tempfile.TemporaryFile(dir=given.folder) as source:
        server, other = stack.enter_context(S3Server()), stack.enter_context(S3Server())
        for _ in range(n_mib):
            source.write(random.randbytes(MIB))
        bucket = server.new_bucket()
        connector = FsspecStorageConnector(f"s3://{bucket}/ours", **server.options())
        plain = s3fs.S3FileSystem(**server.options(), skip_instance_cache=True)

        def write_plain() -> None:
            source.seek(0)
            with plain.open(f"{bucket}/plain/big", "wb") as file:
                while piece := source.read(MIB):
                    file.write(piece)

        ways = {"ours": lambda: connector.set_resource("big", source), "fsspec": write_plain}
        compare(f"write of {n_mib} MiB", ways, results, rounds=rounds)
        ways = {
            "ours": lambda: drain(connector.get_resource("big")),
            "fsspec": lambda: drain(plain.open(f"{bucket}/plain/big", "rb")),
        }
        compare(
            f"sequential read of {n_mib} MiB", ways, results, rounds=rounds, at_least={"fsspec": 1}
        )
        ranges = [(random.randrange(n_mib * MIB - 4096), 4096) for _ in range(64)]
        copy_objects(server, other, bucket)
        away = server.options(stack.enter_context(far_away([server.port, other.port])))
        far = FsspecStorageConnector(f"s3://{bucket}/ours", **away)
        plain_far = s3fs.S3FileSystem(**away, skip_instance_cache=True)
        for where, store, files in (("loopback", connector, plain), ("20 ms away", far, plain_far)):
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

            ways = {
                "ours, at once": at_once,
                "fsspec, one by one": one_by_one,
                "ours, one by one": ours_one_by_one,
            }
            compare(
                f"64 random 4 KiB, {where}",
                ways,
                results,
                rounds=rounds,
                at_least={"fsspec, one by one": 5},
            )
            if store is far:
                results.at_least(
                    "64 requests at once",
                    f"64 random 4 KiB, {where}",
                    "ours, at once",
                    "ours, one by one",
                    20,
                )
        if given.memory:
            setup = SETUP.format(size=n_mib * 4 * MIB, bucket=bucket, options=server.options())
            for action, work in (("write", WRITE), ("read", READ)):
                results.keep("memory", action, [grown_mib(setup, work) * MIB], "MiB")
                results.at_most(f"memory of {n_mib * 4} MiB", "memory", action, 64 * MIB)
    results.save(given.json)


if __name__ == "__main__":
    main()
