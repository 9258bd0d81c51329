"""Requests that a shuffled loader sends ahead, to a real web server that can hold answers back."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from web_server import Answer, Seen, WebServer

import data_stack
from data_stack import DatasetCard, DatasetFactory
from data_stack.exception import LoadingError
from data_stack.formats import records
from data_stack.loader import BlockShuffled, Loader

N_SAMPLES, SAMPLE_BYTES = 350, 200_000
#: A block of a shuffle has 1.5 MiB of a remote store.
SAMPLES_OF_BLOCK = 7
SEED = 1
#: How long to wait for what must happen. It is far longer than that takes.
PATIENCE_SECONDS = 120.0


def payload(index: int) -> bytes:
    return index.to_bytes(4, "little") * (SAMPLE_BYTES // 4)


class Distant(DatasetFactory):
    """70 MB of records: three windows of 16 blocks, and two blocks."""

    card = DatasetCard("distant", "1.0.0", license="CC0-1.0")
    splits = ("train",)

    def preprocess(self, raw: Any, prepared: Any) -> None:
        with records.RecordWriter(
            prepared, {"data": "bytes", "label": "i64"}, prefix="train"
        ) as writer:
            for index in range(N_SAMPLES):
                writer.append({"data": payload(index), "label": index})

    def open(self, split: str, prepared: Any) -> Any:
        return records.open(prepared, prefix=split)


class HoldingServer(WebServer):
    """Serves a folder. The answers about some blocks of the shuffle wait until they are released.

    Attributes:
        held: the numbers of these blocks.
        released: lets the answers go.
        requested: the numbers of the blocks that were requested so far.
    """

    def __init__(self, folder: Path) -> None:
        self.held: set[int] = set()
        self.released = threading.Event()
        self.requested: set[int] = set()
        self._folder = folder
        super().__init__()

    def answer(self, seen: Seen) -> Answer:
        path = self._folder / seen.path.lstrip("/")
        if not path.is_file():
            return Answer(status=404)
        if path.name == "data.bag":
            blocks = blocks_in(seen.headers["range"])
            self.requested |= blocks
            if blocks & self.held:
                assert self.released.wait(PATIENCE_SECONDS)
        return Answer(path.read_bytes(), ranges=True)


def blocks_in(range_header: str) -> set[int]:
    """Return the blocks of the shuffle whose middle lies in a range of the records."""
    start, last = map(int, re.findall(r"\d+", range_header))
    block_bytes = SAMPLES_OF_BLOCK * SAMPLE_BYTES
    middles = {block: block * block_bytes + block_bytes // 2 for block in range(50)}
    return {block for block, middle in middles.items() if start <= middle <= last}


def wait_until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published")
    data_stack.default_repository().register("distant", Distant, replace=True)
    data_stack.publish("distant", folder / "www", storage=folder / "store")
    return folder / "www"


@pytest.fixture
def server(published: Path) -> Iterator[HoldingServer]:
    with HoldingServer(published) as server:
        yield server
        server.released.set()


def blocks_of_window(window: int, number: int) -> set[int]:
    """Return the blocks of a window of the first epoch."""
    lengths = [SAMPLES_OF_BLOCK] * (N_SAMPLES // SAMPLES_OF_BLOCK)
    order = BlockShuffled(block_lengths=lengths, window=window)
    n_samples = window * SAMPLES_OF_BLOCK
    positions = range(number * n_samples, (number + 1) * n_samples)
    samples = order.indices(np.array(positions), N_SAMPLES, SEED, 0)
    return set((samples // SAMPLES_OF_BLOCK).tolist())


def test_the_next_windows_are_requested_before_this_one_is_complete(
    server: HoldingServer, tmp_path: Path
) -> None:
    train = data_stack.load(f"{server.origin}?cache={tmp_path}", split="train")
    window_samples = 4 * SAMPLES_OF_BLOCK
    # The first batch ends in the second window, the second one in the third.
    loader = Loader(
        train,
        window_samples + 10,
        shuffle=BlockShuffled(window=4),
        seed=SEED,
        worker_kind="inline",
    )
    server.held = blocks_of_window(4, 2)

    labels = list[int]()
    for batch in loader:
        labels += batch["label"].tolist()
        # While the third window is incomplete, the fourth one is requested.
        wait_until(lambda: blocks_of_window(4, 3) <= server.requested)
        server.released.set()

    assert sorted(labels) == list(range(N_SAMPLES))


@pytest.mark.parametrize("worker_kind", ["inline", "threads"])
def test_breaking_off_cancels_what_is_queued(
    server: HoldingServer, tmp_path: Path, worker_kind: Any
) -> None:
    train = data_stack.load(f"{server.origin}?cache={tmp_path}", split="train")
    loader = Loader(train, 8, shuffle=BlockShuffled(window=16), seed=SEED, worker_kind=worker_kind)
    # 16 requests of the next two windows are under way, and 16 are queued.
    first_window = blocks_of_window(16, 0)
    ahead = blocks_of_window(16, 1) | blocks_of_window(16, 2)
    server.held = ahead

    for _ in loader:
        wait_until(lambda: len(server.requested & ahead) == 16)
        break
    loader.close()
    server.released.set()
    sample = train[N_SAMPLES - 1]

    assert sample["data"] == payload(N_SAMPLES - 1)
    last_block = (N_SAMPLES - 1) // SAMPLES_OF_BLOCK
    assert len(server.requested - first_window - {last_block}) <= 16


def test_an_error_of_a_prefetched_block_comes_with_its_batch(
    server: HoldingServer, published: Path, tmp_path: Path
) -> None:
    train = data_stack.load(f"{server.origin}?cache={tmp_path}", split="train")
    loader = Loader(train, 8, shuffle=BlockShuffled(window=4), seed=SEED, worker_kind="inline")
    damaged_block = min(blocks_of_window(4, 2))
    bag = next(published.rglob("data.bag"))
    intact = bag.read_bytes()
    place = damaged_block * SAMPLES_OF_BLOCK * SAMPLE_BYTES + 700_000

    n_batches = 0
    try:
        bag.write_bytes(intact[:place] + b"x" + intact[place + 1 :])
        with pytest.raises(LoadingError, match="damaged"):
            for _ in loader:
                n_batches += 1
    finally:
        bag.write_bytes(intact)

    # The samples of the first two windows came before.
    assert n_batches >= 2 * 4 * SAMPLES_OF_BLOCK // 8
