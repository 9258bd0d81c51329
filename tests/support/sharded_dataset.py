"""A dataset of twelve shards that says what it does, and can be told to wait or fail; also a
program that prepares it.

    python sharded_dataset.py FOLDER ENGINE

ENGINE is "none" or "unleased": none, with a store where every process may think that it is alone.

Environment variables, so that they reach every process:
    SHARDED_LOG     file that gets a line "NAME PID" when an attempt at a shard begins
    SHARDED_PAUSE   seconds that a shard takes
    SHARDED_FAIL    number of a shard that fails
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from data_stack import DatasetCard, DatasetFactory, PreparedResources, Resources
from data_stack.dataset.iterator import DatasetIteratorIF, SequenceDatasetIterator
from data_stack.io.storage_connectors import FileStorageConnector, StorageConnector

N_SHARDS = 12


class Sharded(DatasetFactory):
    """A dataset whose shards are two arrays each."""

    card = DatasetCard("sharded", "1.0.0")
    splits = ("all",)

    def preparation_shards(self, raw: Resources) -> Sequence[Any]:
        return [{"part": part} for part in range(N_SHARDS)]

    def prepare_shard(self, shard: Any, raw: Resources, prepared: PreparedResources) -> None:
        part = shard["part"]
        _log(f"part-{part}")
        if os.environ.get("SHARDED_FAIL") == str(part):
            raise ValueError(f"part {part} cannot be read")
        with prepared.create(f"parts/{part}/samples.npy") as file:
            np.save(file, np.arange(100) + 1000 * part)
        time.sleep(float(os.environ.get("SHARDED_PAUSE", "0")))
        with (
            prepared.create(f"parts/{part}/targets.json") as file,
            prepared[f"parts/{part}/samples.npy"] as samples,
        ):
            file.write(json.dumps(np.load(samples).tolist()).encode())

    def finish_preparation(self, raw: Resources, prepared: PreparedResources) -> None:
        names = sorted(prepared)
        sizes = [prepared.stat(name).size for name in names]
        with prepared.create("index.json") as file:
            file.write(json.dumps(dict(zip(names, sizes, strict=True))).encode())

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        values = []
        for part in range(N_SHARDS):
            with prepared[f"parts/{part}/targets.json"] as file:
                values += json.loads(file.read())
        return SequenceDatasetIterator([values])


class Random(Sharded):
    """One whose attempts all make other bytes, of other files."""

    def prepare_shard(self, shard: Any, raw: Resources, prepared: PreparedResources) -> None:
        _log(f"part-{shard['part']}")
        attempt = secrets.token_hex(4)
        for kind in ("a", "b"):
            time.sleep(secrets.randbelow(30) / 1000)
            with prepared.create(f"parts/{shard['part']}/{kind}.txt") as file:
                file.write(attempt.encode())

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        attempts = []
        for part in range(N_SHARDS):
            with (
                prepared[f"parts/{part}/a.txt"] as first,
                prepared[f"parts/{part}/b.txt"] as second,
            ):
                attempts.append((first.read(), second.read()))
        return SequenceDatasetIterator([attempts])


def _log(line: str) -> None:
    if path := os.environ.get("SHARDED_LOG"):
        with open(path, "a") as file:
            file.write(f"{line} {os.getpid()}\n")


def main(folder: str, engine: str) -> None:
    factory = Sharded(FileStorageConnector(folder))
    if engine == "unleased":
        factory = Random(
            type("Unleased", (FileStorageConnector,), {"lease": StorageConnector.lease})(folder)
        )
    report = factory.prepare(progress=False)
    print("ready" if report.already_ready else "prepared")
