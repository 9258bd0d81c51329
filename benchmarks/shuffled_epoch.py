"""What a shuffled epoch over a published dataset moves over HTTP, in how many requests: of all
samples, and block by block.

    apt-get install nginx-light
    python benchmarks/shuffled_epoch.py

20,000 rows of 3 KiB (61.4 MB), as an array and as Parquet, are published to a folder that nginx
serves on loopback; its log tells requests and bytes. Each round reads one epoch in batches of 256
in a fresh process, by the workers that "auto" chooses.
Target: block by block at most 1.2 times the bytes of the files.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from harness import Results, answer_of, machine, parser_of

import data_stack
from data_stack import DatasetCard, DatasetFactory
from data_stack.formats import NumpyDatasetIterator, write_npy
from data_stack.formats.parquet import ParquetDataset, ParquetWriter

MEASURED = """
import json, sys, time, warnings
sys.path.insert(0, sys.argv[3])
import shuffled_epoch, data_stack
from data_stack.loader import BlockShuffled, Loader
warnings.simplefilter("ignore")
for factory in shuffled_epoch.FACTORIES:
    data_stack.default_repository().register(factory.card.name, factory)
started = time.perf_counter()
train = data_stack.load(sys.argv[1], split="train")
order = {"all samples": True, "block by block": BlockShuffled(), "in order": False}[sys.argv[2]]
seen = []
with Loader(train, 256, shuffle=order, seed=1) as loader:
    for batch in loader:
        seen += (batch["number"] if isinstance(batch, dict) else batch[1]).tolist()
assert sorted(seen) == list(range(len(train)))
print(json.dumps(time.perf_counter() - started))
"""


class Rows(DatasetFactory):
    """Rows of 3 KiB, as arrays."""

    card = DatasetCard("rows", "1.0.0", license="CC0-1.0")
    splits = ("train",)
    n_rows = 20_000

    def preprocess(self, raw: Any, prepared: Any) -> None:
        """Write them."""
        rng = np.random.default_rng(0)
        arrays: dict[str, Any] = {
            "image": rng.integers(0, 255, (self.n_rows, 32, 32, 3), dtype="u1"),
            "number": np.arange(self.n_rows),
        }
        for name, array in arrays.items():
            with prepared.create(f"{name}.npy") as file:
                write_npy(file, array)

    def open(self, split: str, prepared: Any) -> Any:
        """Image, number, number."""
        return NumpyDatasetIterator(
            [prepared["image.npy"], prepared["number.npy"], prepared["number.npy"]]
        )


class Table(Rows):
    """The same as Parquet, in row groups of 1.5 MB."""

    card = DatasetCard("table", "1.0.0", license="CC0-1.0")

    def preprocess(self, raw: Any, prepared: Any) -> None:
        """Write them."""
        rng = np.random.default_rng(0)
        with ParquetWriter(prepared, row_group_rows=500) as writer:
            image = rng.integers(0, 255, (self.n_rows, 3072), dtype="u1")
            writer.append_columns({"image": image, "number": np.arange(self.n_rows)})

    def open(self, split: str, prepared: Any) -> Any:
        """Dicts."""
        return ParquetDataset(prepared)


FACTORIES = [Rows, Table]


@contextlib.contextmanager
def nginx(folder: Path) -> Iterator[tuple[str, Path]]:
    """Serve ``folder / "www"``; the URL, and the access log with the bytes of each answer."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    log = folder / "access.log"
    (folder / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;\n"
        f"events {{}}\n"
        f"http {{ log_format told '$uri $status $body_bytes_sent'; access_log {log} told; keepalive_requests 100000;\n"
        f"  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;\n"
        f"  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;\n"
        f"  server {{ listen 127.0.0.1:{port}; root {folder}/www; }} }}\n"
    )
    with subprocess.Popen(
        ["nginx", "-c", str(folder / "nginx.conf"), "-e", str(folder / "error.log")]
    ) as server:
        try:
            for _ in range(100):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}", log
        finally:
            server.terminate()


def main() -> None:
    """Publish, serve and read."""
    orders = ["in order", "all samples", "block by block"]
    given, results = (
        parser_of(
            __doc__, [f"{each.card.name}, {order}" for each in FACTORIES for order in orders], 3
        ).parse_args(),
        Results(),
    )
    if shutil.which("nginx") is None:
        sys.exit("nginx is needed, of any version: apt-get install nginx-light")
    if given.small:
        Rows.n_rows = 2_000
    print(machine())
    with tempfile.TemporaryDirectory(dir=given.folder) as name, nginx(Path(name)) as (url, log):
        for factory in FACTORIES:
            data_stack.default_repository().register(factory.card.name, factory)
            www = Path(name) / "www" / factory.card.name
            data_stack.publish(factory.card.name, www, Path(name) / "store")
            n_stored = sum(
                file.stat().st_size
                for file in www.rglob("*")
                if file.is_file() and file.name != "croissant.json"
            )
            for order in orders:
                case = f"{factory.card.name}, {order}"
                if case not in given.only:
                    continue
                seconds, shares, requests = [], [], []
                for _ in range(given.rounds):
                    n_before = len(log.read_text().splitlines())
                    program = [
                        sys.executable,
                        "-c",
                        MEASURED,
                        f"{url}/{factory.card.name}",
                        order,
                        str(Path(__file__).parent),
                    ]
                    seconds.append(answer_of(program))
                    time.sleep(0.2)  # the log
                    lines = log.read_text().splitlines()[n_before:]
                    requests.append(float(len(lines)))
                    shares.append(sum(int(line.rsplit(" ", 1)[1]) for line in lines) / n_stored)
                results.keep(f"{case}: bytes moved by bytes stored", "ours", shares, "")
                results.keep(f"{case}: requests", "ours", requests, "")
                results.keep(f"{case}: time of the epoch", "ours", seconds, "s")
                for what in ("bytes moved by bytes stored", "requests", "time of the epoch"):
                    results.print(f"{case}: {what}")
                if order == "block by block":
                    results.at_most(case, f"{case}: bytes moved by bytes stored", "ours", 1.2)
    results.save(given.json)


if __name__ == "__main__":
    main()
