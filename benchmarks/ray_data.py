"""Ray: 1,000 shards prepared by its tasks and by our processes; Ray Data over our records and over
Parquet.

Run: python benchmarks/ray_data.py [--only CASE …] [--rounds N] [--small] [--folder DIR] [--json
    FILE]

Cases:
  preparation  a shard is an array that is sorted and written durably, in about 5 ms or in 25; both engines have a process for
               each processor, which they start within the figure
  reading      images of 64 × 64 × 3 with their label as torch batches of 256, by ``from_data_stack`` of our records, and by
               ``ray.data.read_parquet`` of what ``Dataset.write_parquet`` writes of them
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import ray
import ray.data
from data_stack_ray import RayEngine, from_data_stack
from harness import Results, in_turn, machine, parser_of

import data_stack
from data_stack import DatasetCard, DatasetFactory, FileStorageConnector, SequenceDatasetIterator
from data_stack.engines import ProcessEngine
from data_stack.formats.records import ShardedRecordWriter

OURS, PARQUET = "ours: records", "Ray's Parquet"


class Sorted(DatasetFactory):
    """Shards of sorted numbers."""

    card = DatasetCard("sorted", "1.0.0")
    splits = ("all",)
    n_shards, n_numbers = 1000, 50_000

    def preparation_shards(self, raw: Any) -> Any:
        """Their seeds."""
        return range(self.n_shards)

    def prepare_shard(self, shard: Any, raw: Any, prepared: Any) -> None:
        """Sort numbers, 50,000 in about 3 ms."""
        with prepared.create(f"{shard:04d}.npy") as file:
            np.save(file, np.sort(np.random.default_rng(shard).random(self.n_numbers)))

    def open(self, split: str, prepared: Any) -> Any:
        """Their names."""
        return SequenceDatasetIterator([sorted(prepared)])


def prepare(engine: Any, folder: Path) -> float:
    """Seconds of a preparation into a new store."""
    with tempfile.TemporaryDirectory(dir=folder) as store:  # 1,000 longer shards are 4 GB
        started = time.perf_counter()
        Sorted(FileStorageConnector(store)).prepare(engine=engine, progress=False)
        return time.perf_counter() - started


def write_images(folder: Path, n_images: int) -> None:
    """Write images as our records, and what Ray reads of them as its Parquet."""
    rng = np.random.default_rng(0)
    with ShardedRecordWriter(
        folder / "records", {"image": "array", "label": "i64"}, shardlen=1024
    ) as writer:
        for start in range(0, n_images, 1024):
            images = rng.integers(0, 256, (min(1024, n_images - start), 64, 64, 3), np.uint8)
            writer.extend({"image": images, "label": np.arange(start, start + len(images))})
    from_data_stack(data_stack.load(folder / "records")).write_parquet(str(folder / "parquet"))


def read(dataset: Any) -> float:
    """Seconds of an epoch of torch batches, for each image."""
    started, n_images, total = time.perf_counter(), 0, 0
    for batch in dataset.iter_torch_batches(batch_size=256):
        n_images += len(batch["image"])
        total += int(batch["label"].sum())
    assert total == n_images * (n_images - 1) // 2, "not each image once"
    return (time.perf_counter() - started) / n_images


def main() -> None:
    """Measure both."""
    given, results = parser_of(__doc__, ["preparation", "reading"]).parse_args(), Results()
    print(machine())
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    warnings.simplefilter("ignore")
    n_processors = len(os.sched_getaffinity(0))
    ray.init(
        "local",
        num_cpus=n_processors,
        include_dashboard=False,
        logging_level=logging.ERROR,
        object_store_memory=1 << 30,
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        if "preparation" in given.only:
            Sorted.n_shards = 100 if given.small else 1000
            for case, Sorted.n_numbers in (
                ("preparation", 50_000),
                ("preparation, longer", 500_000),
            ):
                engines = {"ours: Ray": RayEngine(), "ours: processes": ProcessEngine(n_processors)}
                ways = {
                    way: lambda engine=engine: prepare(engine, folder)
                    for way, engine in engines.items()
                }
                for way, figures in in_turn(case, ways, given.rounds, results).items():
                    results.keep(case, way, figures, "s")
                results.print(case, "ours: processes")
                results.at_least("1,000 shards by Ray", case, "ours: Ray", "ours: processes", 0.9)
        if "reading" in given.only:
            write_images(folder, 1024 if given.small else 8192)
            results.kinds[PARQUET] = "peer"
            images = data_stack.load(folder / "records")
            ways = {
                OURS: lambda: read(from_data_stack(images)),
                PARQUET: lambda: read(ray.data.read_parquet(str(folder / "parquet"))),
            }
            for way in ways.values():
                way()  # Ray's workers import what they need
            for way, figures in in_turn("reading", ways, given.rounds, results).items():
                results.keep("reading", way, figures)
            results.print("reading", PARQUET)
            results.at_least("images by Ray Data", "reading", OURS, PARQUET, 1.5)
    ray.shutdown()
    results.save(given.json)


if __name__ == "__main__":
    main()
