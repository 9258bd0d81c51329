"""WebDataset tars behind a slow line: ours and webdataset's own loader, 20 ms and 1 Gbit/s away.

Run: python benchmarks/tars_from_the_line.py [--rounds N] [--small] [--folder DIR] [--json FILE]

JPEGs of 500 × 375 lie in 7 tars on slow_server.py (http). Each program reads one epoch with two
workers, and decodes every image; ours block by block (``BlockShuffled``), at random, in order, and
block by block without keeping tars in memory; the peer tar by tar. Each runs in a process of its
own, in turns. Figures: seconds of the epoch and until the first batch, both from the start of the
imports; processor seconds of the program and its workers; the most memory of its main process;
requests, and bytes that came. It takes about three minutes.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from harness import HERE, Results, answer_of, in_turn, machine, parser_of
from training_peers import data as training_data
from training_peers.augment import decode
from training_peers.images import write_webdataset

N_WORKERS = 2
BATCH = 64
N_IMAGES = 1600


def urls_of(port: str, folder: Path) -> list[str]:
    """The address of each tar."""
    return [f"http://127.0.0.1:{port}/{path.name}" for path in sorted(folder.glob("*.tar"))]


def batches_of_ours(urls: list[str], *, order: str, **options: Any) -> Iterator[Any]:
    """The batches of our loader."""
    import data_stack
    from data_stack.formats import WebDatasetIterator
    from data_stack.loader import BlockShuffled

    shuffle: Any = {"blocks": BlockShuffled(), "random": True, "in order": False}[order]
    samples = WebDatasetIterator(urls, **options).select("jpg", "cls")
    return iter(data_stack.Loader(samples, BATCH, shuffle=shuffle, workers=N_WORKERS))


def batches_of_webdataset(urls: list[str]) -> Iterator[Any]:
    """The batches of webdataset's loader."""
    import webdataset

    dataset = (
        webdataset.WebDataset(urls, shardshuffle=len(urls), nodesplitter=None)
        .shuffle(1000)
        .to_tuple("jpg", "cls")
        .map_tuple(decode, int)
        .batched(BATCH)
    )
    return iter(webdataset.WebLoader(dataset, batch_size=None, num_workers=N_WORKERS))


PROGRAMS: dict[str, Callable[[list[str]], Iterator[Any]]] = {
    "ours": partial(batches_of_ours, order="blocks"),
    "ours, at random": partial(batches_of_ours, order="random"),
    "ours, in order": partial(batches_of_ours, order="in order"),
    "ours, nothing kept": partial(batches_of_ours, order="blocks", max_kept_bytes=0),
    "webdataset": batches_of_webdataset,
}


def run_here(name: str, port: str, folder: Path) -> None:
    """Read one epoch in this process, and print its figures."""
    started_at = time.perf_counter()
    first_batch_seconds = 0.0
    n_samples = 0
    for batch in PROGRAMS[name](urls_of(port, folder)):
        if n_samples == 0:
            first_batch_seconds = time.perf_counter() - started_at
        columns = list(batch.values()) if isinstance(batch, dict) else batch
        n_samples += len(columns[-1])
    seconds = time.perf_counter() - started_at
    processor_seconds = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        processor_seconds += usage.ru_utime + usage.ru_stime
    figures = {
        "seconds": seconds,
        "first_batch": first_batch_seconds,
        "processor": processor_seconds,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "samples": n_samples,
    }
    print(json.dumps(figures))


def measure(name: str, port: str, folder: Path) -> dict[str, float]:
    """Run a program in a process of its own; its figures, and what the server saw."""
    log_url = f"http://127.0.0.1:{port}/-/log"
    urllib.request.urlopen(log_url).close()
    command = [sys.executable, __file__, "--run", name, port, str(folder)]
    figures: dict[str, float] = answer_of(command)
    with urllib.request.urlopen(log_url) as answer:
        requests = json.load(answer)
    figures["requests"] = len(requests)
    figures["bytes"] = sum(n_bytes for _, _, n_bytes, _ in requests)
    return figures


def compare(folder: Path, given: argparse.Namespace, results: Results) -> None:
    """All programs in turns."""
    tars = folder / "tars"
    if not tars.exists():
        training_data.N_IMAGES = N_IMAGES
        training_data.make_images(folder / "images", given.small)
        write_webdataset(folder / "images", tars)
    n_images = len(list((folder / "images").glob("*/*.jpg")))
    # An installed package is compiled, as the peer is. Compiling ours took a second of each epoch.
    compileall.compile_dir(HERE.parent / "data_stack", quiet=1)
    command = [sys.executable, str(HERE / "slow_server.py"), str(tars)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            port = server.stdout.readline().strip()
            ways = {name: lambda name=name: measure(name, port, tars) for name in PROGRAMS}
            answers = in_turn("tars", ways, given.rounds, results)
        finally:
            server.kill()

    for figure, title, unit in (
        ("seconds", "an epoch", "s"),
        ("first_batch", "until the first batch", "s"),
        ("processor", "processor time of an epoch", "s"),
        ("memory", "most memory of the main process", "MiB"),
        ("requests", "requests", ""),
        ("bytes", "bytes that came", "MiB"),
    ):
        for name, rounds in answers.items():
            results.kinds[name] = "ours" if name.startswith("ours") else "peer"
            assert all(each["samples"] == n_images for each in rounds), (name, n_images, rounds)
            results.keep(f"tars: {title}", name, [each[figure] for each in rounds], unit)
        results.print(f"tars: {title}", "webdataset")


def main() -> None:
    """Compare the programs."""
    parser = parser_of(__doc__, rounds=3)
    parser.add_argument("--run", nargs=3, metavar=("PROGRAM", "PORT", "FOLDER"))
    given = parser.parse_args()
    if given.run:
        name, port, folder = given.run
        run_here(name, port, Path(folder))
        return
    os.environ["OMP_NUM_THREADS"] = "1"
    results = Results()
    print(machine())
    with tempfile.TemporaryDirectory() as temporary:
        compare((given.folder or Path(temporary)).resolve(), given, results)
    print()
    results.at_least("tars from the line", "tars: an epoch", "ours", "webdataset", 1.0)
    results.at_least(
        "tars from the line", "tars: processor time of an epoch", "ours", "webdataset", 1.0
    )
    results.save(given.json)


if __name__ == "__main__":
    main()
