"""Prepares and checks a small dataset as a process of its own, to be killed, failed and run beside others.

::

    demo_dataset.py prepare STORE SOURCES   prepare it; prints "prepared" or "ready"
    demo_dataset.py check STORE SOURCES     exit status 0: not ready, 3: ready and every sample right
    demo_dataset.py left STORE SOURCES      exit status 0: no file but those of a ready dataset

The environment directs what happens on the way: DEMO_NO_LEASE=1 makes every lease free, DEMO_LOG=file gets a line for each
step done, DEMO_PAUSE=seconds is slept in each step, DEMO_RANDOM=1 makes every preparation different.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

from data_stack.dataset.iterator import DatasetIteratorIF, SequenceDatasetIterator
from data_stack.factories.declarative import DatasetCard, DatasetFactory, PreparedResources, Resources
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.storage_connectors import FileStorageConnector, Lease

SPLITS = ("train", "test")
N_SAMPLES = 2_000


def source_text(split: str) -> bytes:
    """The source of a split: one number a line."""
    first = 10_000 if split == "test" else 0
    return "".join(f"{first + i}\n" for i in range(N_SAMPLES)).encode()


class UnleasedConnector(FileStorageConnector):
    """A file store where every process may think that it is alone."""

    def lease(self, identifier: str) -> contextlib.AbstractContextManager[Lease]:
        return contextlib.nullcontext(Lease())


def demo_factory(store: str, folder: str) -> DatasetFactory:
    """The dataset of the sources in ``folder``, kept in ``store``."""

    class DemoFactory(DatasetFactory):
        """Numbers, and their doubles as targets."""

        card = DatasetCard(name="demo", version="1.0.0")
        sources = tuple(ResourceDefinition(f"raw/{split}.txt", Path(folder, f"{split}.txt").as_uri()) for split in SPLITS)
        splits = SPLITS
        prepared_resources = tuple(f"preprocessed/{split}/{part}.json" for split in SPLITS for part in ("samples", "targets"))

        def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
            for split in prepared.steps(self.splits):
                salt = random.random() if os.environ.get("DEMO_RANDOM") else 0
                with raw[f"raw/{split}.txt"] as source:
                    samples = [int(line) for line in source.readlines()]
                time.sleep(float(os.environ.get("DEMO_PAUSE", "0")))
                for part, values in (("samples", samples), ("targets", [2 * sample for sample in samples])):
                    with prepared.create(f"preprocessed/{split}/{part}.json") as file:
                        file.write(json.dumps({"salt": salt, "values": values}).encode())
                if "DEMO_LOG" in os.environ:
                    with open(os.environ["DEMO_LOG"], "a") as log:
                        log.write(f"{os.getpid()} {split}\n")

        def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
            parts: list[Any] = []
            for part in ("samples", "targets"):
                with prepared[f"preprocessed/{split}/{part}.json"] as resource:
                    parts.append(json.loads(resource.read()))
            samples, targets = parts
            if samples["salt"] != targets["salt"]:
                raise RuntimeError(f"MIXED: the samples and targets of {split} are of two preparations")
            return SequenceDatasetIterator([samples["values"], targets["values"], [split] * len(samples["values"])])

    return DemoFactory((UnleasedConnector if os.environ.get("DEMO_NO_LEASE") else FileStorageConnector)(store))


def is_right(factory: DatasetFactory) -> bool:
    """Whether every sample of a ready dataset is as it should be."""
    for split in SPLITS:
        iterator, _ = factory.get_dataset_iterator({"split": split})
        expected = [int(line) for line in source_text(split).split()]
        if [tuple(iterator[i]) for i in range(len(iterator))] != [(value, 2 * value, split) for value in expected]:
            return False
    return not factory.verify()


def find_left_over(store: str) -> list[str]:
    """Files that no ready dataset needs: unfinished writes, and journals."""
    return [str(path) for path in Path(store).rglob("*") if path.name.startswith(".~") or path.name == "journal.json"]


def main() -> int:
    action, store, folder = sys.argv[1:]
    logging.basicConfig(level=logging.ERROR)  # what is stored unverified, and why, is known
    factory = demo_factory(store, folder)
    if action == "check":
        if not factory.is_ready():
            return 0
        return 3 if is_right(factory) else 1
    if action == "left":
        found = find_left_over(store)
        print(*found)
        return 1 if found else 0
    report = factory.prepare(progress=False)
    print("ready" if report.already_ready else "prepared")
    return 0


if __name__ == "__main__":
    sys.exit(main())
