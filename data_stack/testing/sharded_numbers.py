"""A dataset of shards, for the test suite of engines: its preparation can fail at any point."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from data_stack.dataset.iterator import DatasetIteratorIF, SequenceDatasetIterator
from data_stack.factories.declarative import (
    DatasetCard,
    DatasetFactory,
    PreparedResources,
    Resources,
)
from data_stack.factories.resource_names import JOURNAL
from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.io.storage_connectors.file import FileStorageConnector
from data_stack.testing.waiting import wait_until

# The points of the preparation of a shard, at which ShardedNumbers calls its ``act``.
BEFORE_FIRST_FILE = 0
IN_FIRST_FILE = 1
BEFORE_SECOND_FILE = 2
IN_SECOND_FILE = 3

Act: TypeAlias = Callable[["ShardedNumbers", int, int], None]
"""A function that is called at each point, with the dataset, the shard and the point."""


def pause(dataset: ShardedNumbers, shard: int, point: int) -> None:
    """Take as long as work would, so that tasks run at the same time."""
    time.sleep(0.03)


class ShardedNumbers(DatasetFactory):
    """A dataset of shards, each of which has two equal files.

    Args:
        folder: for the store and the log.
        connector: the store; None: a store in the folder.
        act: called at each point of the preparation of each shard.
        n_shards: number of shards.
        is_random: whether each attempt writes other bytes.
    """

    card = DatasetCard("numbers", "1.0.0")
    splits = ("all",)

    folder: Path
    #: Has a line for each attempt at a shard: the shard, the id of the process.
    log: Path
    act: Act
    n_shards: int
    is_random: bool

    def __init__(
        self,
        folder: Path,
        connector: StorageConnector | None = None,
        *,
        act: Act = pause,
        n_shards: int = 4,
        is_random: bool = False,
    ) -> None:
        super().__init__(connector or FileStorageConnector(folder / "store"))
        self.folder = folder
        self.log = folder / "attempts"
        self.act = act
        self.n_shards = n_shards
        self.is_random = is_random

    def preparation_shards(self, raw: Resources) -> Sequence[Any]:
        return range(self.n_shards)

    def prepare_shard(self, shard: Any, raw: Resources, prepared: PreparedResources) -> None:
        with self.log.open("a") as file:
            file.write(f"{shard} {os.getpid()}\n")
        content = os.urandom(8) if self.is_random else _content_of_shard(shard)
        self.act(self, shard, BEFORE_FIRST_FILE)
        with prepared.create(f"{shard}/a.txt") as writer:
            writer.write(content)
            self.act(self, shard, IN_FIRST_FILE)
        self.act(self, shard, BEFORE_SECOND_FILE)
        with prepared.create(f"{shard}/b.txt") as writer:
            writer.write(content)
            self.act(self, shard, IN_SECOND_FILE)

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        digests = [prepared.stat(name).sha256 for name in sorted(prepared)]
        return SequenceDatasetIterator([digests])

    # ------------------------------------------------------------------ what has happened

    def n_attempts(self) -> Counter[int]:
        """Return how often each shard was begun."""
        lines = self.log.read_text().splitlines()
        return Counter(int(line.split()[0]) for line in lines)

    def process_ids(self) -> list[int]:
        """Return the ids of the processes of all attempts."""
        return [int(line.split()[1]) for line in self.log.read_text().splitlines()]

    def n_done(self) -> int:
        """Return how many shards are done, by the journal of the preparation."""
        journal = self.folder / "store" / self.card.name / self.card.version / JOURNAL
        if not journal.exists():
            return 0
        return len(json.loads(journal.read_text())["steps"])

    def check_whole(self) -> None:
        """Check that each file of the dataset is right, and that nothing else is stored."""
        store: Any = self.storage_connector
        manifest: Any = self.manifest()

        # The manifest lists two files of each shard.
        expected_names = []
        for shard in range(self.n_shards):
            expected_names.extend([f"{shard}/a.txt", f"{shard}/b.txt"])
        names = [record.identifier for record in manifest.prepared]
        assert names == expected_names

        # Both files are of one attempt.
        for shard in range(self.n_shards):
            first_content = store.get_resource(f"numbers/1.0.0/{shard}/a.txt").read()
            second_content = store.get_resource(f"numbers/1.0.0/{shard}/b.txt").read()
            assert first_content == second_content
            assert self.is_random or first_content == _content_of_shard(shard)
        assert self.verify() == []

        # Of two attempts at a shard, the slower one may be killed when the other one has counted.
        # It then leaves garbage.
        assert wait_until(self._has_no_garbage)
        assert len(store.list_resources()) == len(expected_names) + 1  # the manifest

    def _has_no_garbage(self) -> bool:
        store: Any = self.storage_connector
        if self.is_random and store.collect_garbage():
            return False
        root = Path(store.root_path)
        unfinished_files = list(root.rglob("*.~*"))
        marks_of_preparations = list(root.rglob("*preparing@*"))
        return not unfinished_files and not marks_of_preparations


def _content_of_shard(shard: int) -> bytes:
    return str(shard).encode()


# ---------------------------------------------------------------------- what attempts do


def die_once(dataset: ShardedNumbers, shard: int, point: int) -> None:
    """Kill the process of the first attempt at each shard, each shard at another point."""
    is_first_attempt = dataset.n_attempts()[shard] == 1
    if point != shard or not is_first_attempt:
        return
    if point % 2 == 1:
        os._exit(3)
    os.kill(os.getpid(), signal.SIGKILL)


def wait_for_other_attempt(dataset: ShardedNumbers, shard: int, point: int) -> None:
    """Wait until the shard is attempted a second time, so that two attempts run at once."""
    wait_until(lambda: dataset.n_attempts()[shard] > 1, 5)


def fail(how: str, seconds: float, dataset: ShardedNumbers, shard: int, point: int) -> None:
    """Fail at shard 1 in each attempt, and at shard 0 in the first one.

    The second attempt at shard 0 runs when shard 1 fails for the last time, so that the engine has
    a task to stop.

    Args:
        how: how shard 1 fails: ``"raises"`` an error, or ``"dies"``, which ends its process.
        seconds: how long the second attempt at shard 0 runs.
        dataset: the dataset that is prepared; it has two shards.
        shard: the shard that is prepared, 0 or 1.
        point: the point of its preparation; nothing fails at others than ``BEFORE_SECOND_FILE``.
    """
    is_first_attempt = dataset.n_attempts()[shard] == 1
    if point != BEFORE_SECOND_FILE:
        return
    if shard == 0 and is_first_attempt:
        raise ValueError("this cannot be read")
    if shard == 0:
        keep_running(dataset.folder, seconds)
        return
    if not is_first_attempt:
        wait_until((dataset.folder / "running").exists, 5)
    if how == "dies":
        os._exit(3)
    raise ValueError("this cannot be read")


def keep_running(folder: Path, seconds: float) -> None:
    """Write dots into the file ``running`` of a folder for some time, as a task that goes on."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with (folder / "running").open("a") as file:
            file.write(".")
        time.sleep(0.02)
