"""A dataset to be prepared under faults, and what a process can be told to do with it.

A store is described by plain data that another process can be given: ``{"url": "mongodb://…",
"leases": True}``.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from full_disk import files_limited

from data_stack import DatasetCard, DatasetFactory, PreparedResources, Resources
from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.formats.numpy_arrays import NumpyDatasetIterator, write_npy
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.storage_connectors import StorageConnector
from data_stack.io.storage_connectors.url import storage_connector_from_url

NAME = "numbers"
SPLITS = ("train", "valid", "test", "more")
N_SAMPLES = {"train": 2_600, "valid": 300, "test": 20, "more": 700}
WIDTH = 32
NOT_READY, RIGHT = "not ready", "right"

Description = Mapping[str, Any]


# ---------------------------------------------------------------------- the dataset


def source_bytes(split: str) -> bytes:
    """The source of a split: bytes that depend on nothing but its name. 83, 10, 1 and 22 kB."""
    block = hashlib.sha256(split.encode()).digest()
    return b"".join(
        hashlib.sha256(block + i.to_bytes(4, "big")).digest() for i in range(N_SAMPLES[split])
    )


def expected_samples(split: str, factor: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """What the samples of a split must be, shape (n_samples, 32)."""
    return np.frombuffer(source_bytes(split), np.uint8).reshape(-1, WIDTH).astype(np.int64) * factor


def write_sources(folder: Path) -> Path:
    """Put the sources into a folder."""
    for split in SPLITS:
        (folder / f"{split}.bin").write_bytes(source_bytes(split))
    return folder


def factory_for(connector: StorageConnector, folder: str, version: int = 1) -> DatasetFactory:
    """The dataset in a store. Its version is the factor of its samples, so that versions do not mix
    unnoticed.
    """

    class NumbersFactory(DatasetFactory):
        """Rows of 32 numbers and their sums."""

        card = DatasetCard(name=NAME, version=str(version))
        sources = tuple(
            ResourceDefinition(
                f"raw/{split}.bin",
                Path(folder, f"{split}.bin").as_uri(),
                sha256=hashlib.sha256(source_bytes(split)).hexdigest(),
            )
            for split in SPLITS
        )
        splits = SPLITS
        prepared_resources = tuple(
            f"preprocessed/{split}/{part}.npy" for split in SPLITS for part in ("samples", "sums")
        )

        def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
            for split in prepared.steps(self.splits):
                with raw[f"raw/{split}.bin"] as source:
                    samples = (
                        np.frombuffer(source.read(), np.uint8).reshape(-1, WIDTH).astype(np.int64)
                        * version
                    )
                time.sleep(float(os.environ.get("FAULTS_PAUSE", "0")))
                for part, array in (("samples", samples), ("sums", samples.sum(axis=1))):
                    with prepared.create(f"preprocessed/{split}/{part}.npy") as file:
                        write_npy(file, array)

        def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
            return NumpyDatasetIterator(
                [
                    prepared[f"preprocessed/{split}/{part}.npy"]
                    for part in ("samples", "sums", "sums")
                ]
            )

    return NumbersFactory(connector)


def wrong_samples(factory: DatasetFactory, version: int) -> str | None:
    """What is wrong with the samples of a ready dataset; None if each is as it should be."""
    for split in SPLITS:
        expected = expected_samples(split, version)
        iterator, _ = factory.get_dataset_iterator({"split": split})
        if len(iterator) != len(expected):
            return f"{split}: {len(iterator)} samples instead of {len(expected)}"
        if not np.array_equal(iterator.read_column(0), expected) or not np.array_equal(
            iterator.read_column(1), expected.sum(axis=1)
        ):
            return f"{split}: other samples than expected"
    return None


# ---------------------------------------------------------------------- the stores


@contextlib.contextmanager
def opened(description: Description) -> Iterator[StorageConnector]:
    """The store of a description; ``"leases": False`` gives one where every process may think that
    it is alone.
    """
    connector = storage_connector_from_url(description["url"])
    if not description.get("leases", True):
        kind = type(connector)
        connector.__class__ = type(
            f"Unleased{kind.__name__}", (kind,), {"lease": StorageConnector.lease}
        )
    try:
        yield connector
    finally:
        getattr(connector, "close", lambda: None)()


def read(description: Description, identifier: str) -> bytes:
    """All bytes of a resource, by a new connector."""
    with opened(description) as connector, connector.get_resource(identifier) as resource:
        return resource.read()


# ----------------------------------------------------------------- what a process can be told to do


def prepare(description: Description, sources: str, version: int = 1) -> str:
    """Prepare the dataset."""
    with opened(description) as connector:
        report = factory_for(connector, sources, version).prepare(progress=False)
        return "ready" if report.already_ready else "prepared"


def prepare_with_small_files(description: Description, sources: str, max_bytes: int) -> str:
    """Prepare the dataset where no file can be longer than that: any write may find the disk
    full.
    """
    with files_limited(max_bytes):
        return prepare(description, sources)


def check(description: Description, sources: str, version: int = 1) -> str:
    """Whether the dataset looks ready, and if so whether it is: "not ready", "right" or what is
    wrong.
    """
    with opened(description) as connector:
        factory = factory_for(connector, sources, version)
        if not factory.is_ready():
            return NOT_READY
        return (
            wrong_samples(factory, version)
            or "; ".join(str(finding) for finding in factory.verify())
            or RIGHT
        )


def heal(description: Description, sources: str, version: int = 1) -> str:
    """Prepare it again, sweep, and say whether it is right now."""
    with opened(description) as connector:
        factory_for(connector, sources, version).prepare(progress=False)
        connector.collect_garbage(0)
        if left := connector.collect_garbage(0, dry_run=True):
            return f"left over: {left}"
    return check(description, sources, version)


def use(description: Description, sources: str, version: int = 1) -> str:
    """Load the dataset as a training program does, prepared or not, and read every sample."""
    with opened(description) as connector:
        return wrong_samples(factory_for(connector, sources, version), version) or RIGHT


def sweep(description: Description, grace_seconds: float) -> None:
    """Collect garbage once in a while, beside whoever writes."""
    with opened(description) as connector:
        for _ in range(5):
            connector.collect_garbage(grace_seconds)
            time.sleep(0.05)


def version_of(number: int) -> bytes:
    """A resource of 300 kB that says throughout which version it is, and of how many bytes."""
    return (b"%07d\n" % number) * (37_000 + number % 1_000)


def check_version(data: bytes) -> int:
    """The number of a version; an error if the bytes are not all of one."""
    number = int(data[:7])
    if data != version_of(number):
        raise ValueError(f"a mixture of versions: {len(data)} bytes that begin as {number}")
    return number
