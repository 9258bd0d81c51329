"""What a cache in a store writes, gives back, shares between processes, and refuses."""

from __future__ import annotations

import enum
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from far_store import FarStorageConnector
from hypothesis import given
from hypothesis import strategies as st
from kept_samples import STRUCTURES, VALUES, Point, check_equal_to_list
from layer_laws import Samples
from process_harness import flipped
from sizes import sized
from torch_or_stand_in import torch

from data_stack.dataset.iterator.access_of_iterator import own_access
from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats import NumpyDatasetIterator, StoredCacheDatasetIterator, write_npy
from data_stack.formats.sample_codec import SampleCodec
from data_stack.io.storage_connectors import (
    FileStorageConnector,
    InMemoryStorageConnector,
    StorageConnector,
)


def cached(
    source: Any, storage: StorageConnector, identifier: str | None = None
) -> StoredCacheDatasetIterator:
    """A cache of a client's source, which needs a version."""
    return StoredCacheDatasetIterator(source, storage, identifier, version="1")


@pytest.fixture(params=["files", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> StorageConnector:
    return (
        FileStorageConnector(tmp_path) if request.param == "files" else InMemoryStorageConnector()
    )


@given(
    data=st.data(),
    n_samples=st.integers(0, 12),
    structure=st.sampled_from(["tuple", "list", "dict", "dict with other keys", "bare"]),
)
def test_stored_samples_equal_those_of_a_list(
    data: st.DataObject, n_samples: int, structure: str
) -> None:
    kinds = data.draw(
        st.lists(st.sampled_from(sorted(VALUES.keys() - {"record"})), min_size=1, max_size=4)
    )
    samples = [STRUCTURES[structure]([VALUES[kind](i) for kind in kinds]) for i in range(n_samples)]
    indices = (
        data.draw(st.lists(st.integers(-n_samples, n_samples - 1), max_size=6)) if samples else []
    )

    check_equal_to_list(cached(Samples(samples), InMemoryStorageConnector()), samples, indices)


def test_integers_of_any_size_come_back(storage: StorageConnector) -> None:
    samples = [(10**5000, -(2**70)), (1, 0)]

    assert list(cached(Samples(samples), storage)) == samples


# --- writing --------------------------------------------------------------------------------------


class Colour(enum.IntEnum):
    RED = 1


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ({1, 2}, "builtins.set"),
        (Colour.RED, "Colour"),
        (bytearray(b"a"), "bytearray"),
        ((1, [object()]), "builtins.object"),
        ({"a": Point(1, 2)}, "Point"),
        (torch.ones(1, requires_grad=True), "Tensor"),
        (np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]), "ndarray"),
    ],
)
def test_a_value_that_would_change_is_refused_with_its_place(value: Any, named: str) -> None:
    storage = InMemoryStorageConnector()
    cache = cached(Samples([(0, 0), (1, 1), (2, value)]), storage, "x")

    with pytest.raises(ConfigError, match=f"(?s)sample 2.*{named}"):
        cache[0]

    assert list(storage.list_resources()) == []


def test_after_a_failure_of_the_source_access_tries_again(
    storage: StorageConnector,
) -> None:
    class Failing(Samples):
        fails = True

        def __iter__(self) -> Iterator[Any]:
            yield from self.samples[:2]
            if self.fails:
                raise OSError("unplugged")
            yield from self.samples[2:]

    source = Failing([(i,) for i in range(5)])
    cache = cached(source, storage, "x")

    with pytest.raises(OSError, match="unplugged"):
        cache[0]
    assert list(storage.list_resources()) == []
    source.fails = False

    assert list(cache) == [(i,) for i in range(5)]


# --- damage ---------------------------------------------------------------------------------------

SAMPLES = [
    (i, np.arange(3) + i, "é" * i, np.ones(i % 2), torch.full((i % 2,), 0.5), {"a": [i]})
    for i in range(5)
]


def _is_even(sample: int) -> bool:
    return sample % 2 == 0


def test_a_cache_of_another_number_of_samples_is_an_error(storage: StorageConnector) -> None:
    # They differ where a fingerprint does not look.
    half_are_even = Samples(list(range(100))).filter(_is_even)
    one_more_is_even = Samples([0, 2, *range(2, 100)]).filter(_is_even)
    cached(half_are_even, storage).fill()

    with pytest.raises(ConfigError, match=r"has 50 samples, but the iterator has 51.*version"):
        list(cached(one_more_is_even, storage))


def test_a_flipped_bit_is_an_error(storage: StorageConnector) -> None:
    written = f"{cached(Samples(SAMPLES), storage).fill()}/sample.bag"
    with storage.get_resource(written) as resource:
        content = resource.read()

    for position in range(0, len(content), sized(211, 3)):
        storage.set_resource(written, flipped(content, 8 * position + position % 8))
        with pytest.raises(DatasetFileCorruptError, match="sample"):
            list(cached(Samples(SAMPLES), storage))


@given(data=st.data())
def test_a_hostile_record_is_an_error_or_gives_a_sample(data: st.DataObject) -> None:
    codec = SampleCodec()
    record = bytearray(codec.encode(data.draw(st.sampled_from(SAMPLES))))
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(record) - 1))
        record[position] = data.draw(st.sampled_from([0, 1, 255, *b'0129"[]{},<as']))

    # what a reader turns into an error of the dataset; a lack of memory it does not
    with suppress(
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        ArithmeticError,
        RuntimeError,
        struct.error,
    ):
        codec.decode(bytes(record))


# --- processes and threads ------------------------------------------------------------------------


def test_while_one_stores_the_others_wait_for_it(tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    class Slow(Samples):
        def __iter__(self) -> Iterator[Any]:
            begun.set()
            assert go_on.wait(120)
            return iter(self.samples)

    class Untouched(Samples):
        def __iter__(self) -> Iterator[Any]:
            raise AssertionError("stored twice")

    samples = [(i,) for i in range(5)]
    first = cached(Slow(samples), FileStorageConnector(tmp_path), "x")
    second = cached(Untouched(samples), FileStorageConnector(tmp_path), "x")
    brought: Any = own_access
    brought(second).fingerprint = brought(first).fingerprint  # the classes differ

    with ThreadPoolExecutor(2) as threads:
        storing = threads.submit(first.fill)
        assert begun.wait(60)
        waiting = threads.submit(list, second)
        go_on.set()

        assert waiting.result() == samples
        assert storing.result() == second.identifier


# --- as a layer -----------------------------------------------------------------------------------


def test_what_is_stored_is_not_prefetched_below(tmp_path: Path) -> None:
    far = FarStorageConnector(tmp_path / "far")
    with far.create("a.npy") as file:
        write_npy(file, np.zeros((400, 8192)))
    cached = NumpyDatasetIterator([far.get_resource("a.npy")]).cache(storage=tmp_path / "near")
    assert isinstance(cached, StoredCacheDatasetIterator)
    cached.fill()
    far.requests.clear()

    own_access(cached).prefetch(np.array([0, 399]))

    assert cached[399][0].sum() == 0
    assert not far.requests
