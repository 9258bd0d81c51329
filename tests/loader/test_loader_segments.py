"""Segments: batches that are made where they travel, and memory that is not written to while somebody has it."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from data_stack.loader.workers.parcels import Parcel, contents_of
from data_stack.loader.workers.segments import Leases, SegmentReader, SegmentWriter
from data_stack.util.large_arrays import find_first_by, new_array

MEBI = 1 << 20


class Pair:
    """A worker's and the consumer's side of its segments."""

    def __init__(self, n_kept: int = 4) -> None:
        self.writer, self.reader = SegmentWriter(n_kept), SegmentReader(Leases(64))
        self.n_new = 0
        self.last = -1

    def send(self, batch: list[dict[str, Any]]) -> dict[str, Any]:
        """The batch in the list as the consumer gets it; nobody else has it any more."""
        parcel = Parcel(batch.pop())
        self.last, spans, descriptor = self.writer.write(parcel.buffers)
        self.reader.drop(self.writer.given_back())
        if descriptor is not None:
            self.n_new += 1
            self.reader.add(self.last, descriptor)
        pickled = bytes(parcel.pickle)
        del parcel
        received: dict[str, Any] = contents_of(pickled, self.reader.lend(self.last, spans))
        return received

    def return_what_is_free(self) -> None:
        gc.collect()
        self.writer.free(*self.reader.freed())


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    find_first_by(pair.writer.memory)
    yield pair
    find_first_by(lambda n_bytes: None)
    pair.reader.close()


def made(value: int, mebibytes: int = 5) -> dict[str, Any]:
    large = new_array((mebibytes, MEBI), "uint8")
    large[:] = value
    return {"numbers": np.arange(value, value + 10), "large": large, "text": "abc"}


def is_of(batch: dict[str, Any], value: int) -> bool:
    return bool((batch["large"] == value).all() and (batch["numbers"] == np.arange(value, value + 10)).all())


def place_of_map(pair: Pair) -> int:
    """Where the worker has mapped the segment that was sent last."""
    place: int = np.frombuffer(pair.writer._maps[pair.last], np.uint8).ctypes.data
    return place


def test_arrays_are_made_in_the_segment_that_they_are_sent_in_once_their_size_is_known(pair: Pair) -> None:
    pair.writer.open()
    first = pair.send([made(1)])
    pair.writer.open()
    batch = made(2)
    place = batch["large"].ctypes.data
    batches = [batch]
    del batch
    second = pair.send(batches)

    assert place == place_of_map(pair)
    assert is_of(first, 1)
    assert is_of(second, 2)
    assert second["large"].flags.writeable


def test_segments_serve_again_and_batches_that_are_kept_stay_as_they_are(pair: Pair) -> None:
    kept = []
    for value in range(30):
        pair.writer.open()
        received = pair.send([made(value)])
        assert is_of(received, value)
        if value % 10 == 4:
            kept.append(received)
        else:
            received["large"][:] = 99
        del received
        pair.return_what_is_free()

    assert [is_of(batch, value) for batch, value in zip(kept, (4, 14, 24), strict=True)] == [True] * 3
    assert pair.n_new <= 6


def test_an_array_that_the_worker_keeps_is_not_written_to_again(pair: Pair) -> None:
    pair.writer.open()
    pair.send([made(1)])
    pair.return_what_is_free()
    pair.writer.open()
    batch = made(2)
    kept = batch["large"]
    batches = [batch]
    del batch
    received = pair.send(batches)
    assert is_of(received, 2)
    del received
    pair.return_what_is_free()

    for value in range(3, 10):
        pair.writer.open()
        assert is_of(pair.send([made(value)]), value)
        pair.return_what_is_free()

    assert (kept == 2).all()


def test_a_batch_that_was_never_sent_leaves_its_segment_to_the_next(pair: Pair) -> None:
    pair.send([made(1)])
    pair.return_what_is_free()
    for value in range(2, 20):
        pair.writer.open()
        assert is_of(made(value), value)  # and is thrown away, as where the batch could not be finished

    pair.writer.open()
    received = pair.send([made(20)])

    assert is_of(received, 20)
    assert pair.n_new <= 2


@pytest.mark.parametrize("mebibytes", [4, 6, 20])
def test_batches_that_are_smaller_or_larger_than_the_one_before_arrive_whole(pair: Pair, mebibytes: int) -> None:
    for value, size in enumerate((5, mebibytes, 5, 4 * mebibytes, 1, mebibytes)):
        pair.writer.open()
        received = pair.send([made(value, size)])

        assert is_of(received, value)
        del received
        pair.return_what_is_free()


def test_an_array_that_is_not_sent_and_several_that_are_do_not_get_in_each_others_way(pair: Pair) -> None:
    pair.send([{"a": np.ones((20, MEBI), "uint8"), "b": np.ones(10)}])
    pair.return_what_is_free()
    pair.writer.open()
    unsent, large, other = (new_array((5, MEBI), "uint8") for _ in range(3))
    unsent[:], large[:], other[:] = 1, 2, 3

    received = pair.send([{"b": other[1:], "a": large, "c": np.arange(10_000)}])

    assert (received["a"] == 2).all()
    assert (received["b"] == 3).all()
    assert received["b"].shape == (4, MEBI)
    assert (received["c"] == np.arange(10_000)).all()
    assert (unsent == 1).all()


def test_few_large_segments_are_kept_and_many_small_ones() -> None:
    for mebibytes, expected in ((20, 1), (9, 2), (0, 4)):
        pair = Pair()
        batches = [pair.send([{"a": np.full(mebibytes * MEBI + 5000, value, np.uint8)}]) for value in range(6)]
        del batches

        pair.return_what_is_free()

        assert len(pair.writer._free) == len(pair.writer._maps) == expected
        pair.reader.close()


def test_a_segment_that_goes_before_it_was_sent_leaves_no_descriptor(pair: Pair) -> None:
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    pair.send([made(1)])
    for size in (5, 9, 17, 33):
        pair.writer._last_bytes = size * MEBI
        pair.writer.open()
    pair.writer.free([], [])

    assert not set(pair.writer.given_back()) & set(pair.writer._unsent)
    after = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    assert after - before <= 4  # a map has one: two of what was sent, one of what is open, whose descriptor is not sent yet
