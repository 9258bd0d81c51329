"""What is kept in memory: at once or when it is read, what is let go, and what threads are
promised.
"""

from __future__ import annotations

import os
import pickle
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kept_samples import STRUCTURES, VALUES, check_equal_to_list, exact
from layer_laws import Samples

from data_stack.dataset.iterator import (
    DatasetIteratorView,
    InMemoryDatasetIterator,
    SequenceDatasetIterator,
)
from data_stack.dataset.iterator.layers.cached import CachedDatasetIterator


class Counting(Samples):
    """Arrays of 1,000 bytes with their position; notes also the requests for several."""

    def __init__(self) -> None:
        super().__init__([(np.full(1000, i, dtype=np.uint8), i) for i in range(20)])
        self.requests: list[list[int]] = []

    def __getitems__(self, indices: Any) -> list[Any]:
        self.requests.append(list(indices))
        return super().__getitems__(indices)


def test_each_sample_is_read_once() -> None:
    source = Counting()
    cache = CachedDatasetIterator(source)

    first = [cache[3], cache[3]]
    list(cache)
    cache.read_batch([3, 4, -1])
    DatasetIteratorView(cache, [5, 3])[1]

    assert sorted(source.read) == list(range(20))
    assert first[0][1] == first[1][1]


def test_a_batch_reads_what_it_lacks_in_one_request() -> None:
    source = Counting()
    cache = CachedDatasetIterator(source)
    cache.__getitems__([1, 2])

    samples = cache.__getitems__([5, 1, 5, 2, 9, 1])

    assert [index for _, index in samples] == [5, 1, 5, 2, 9, 1]
    assert source.requests == [[1, 2], [5, 9]]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_keeps_the_samples_while_a_thread_reads() -> None:
    begun, go_on, parent = threading.Event(), threading.Event(), os.getpid()

    class Slow(Counting):
        def __getitem__(self, index: int) -> Any:
            if index == 7 and os.getpid() == parent:
                begun.set()
                assert go_on.wait(120)
            return super().__getitem__(index)

    source = Slow()
    cache = CachedDatasetIterator(source)
    kept = cache[3]
    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(lambda: cache[7])
        assert begun.wait(120)
        child = os.fork()
        if child == 0:
            os._exit(
                0 if cache[3][1] == kept[1] and cache[7][1] == 7 and source.read == [3, 7] else 1
            )
        go_on.set()

        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert reading.result()[1] == 7


@given(data=st.data(), n_samples=st.integers(0, 12), structure=st.sampled_from(list(STRUCTURES)))
def test_samples_in_memory_equal_those_of_a_list(
    data: st.DataObject, n_samples: int, structure: str
) -> None:
    kinds = data.draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=4))
    samples = [STRUCTURES[structure]([VALUES[kind](i) for kind in kinds]) for i in range(n_samples)]
    indices = (
        data.draw(st.lists(st.integers(-n_samples, n_samples - 1), max_size=6)) if samples else []
    )

    in_memory = InMemoryDatasetIterator(Samples(samples))

    check_equal_to_list(in_memory, samples, indices)
    check_equal_to_list(pickle.loads(pickle.dumps(in_memory)), samples, indices)


def test_small_samples_take_little_more_than_their_bytes() -> None:
    n_samples = 50_000
    source = SequenceDatasetIterator([np.arange(n_samples), np.random.rand(n_samples, 2)])
    n_bytes = n_samples * (8 + 16)

    tracemalloc.start()
    in_memory = InMemoryDatasetIterator(source, keep_source=False)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert exact(in_memory[7]) == exact(source[7])
    assert exact(in_memory.read_batch([7, -1])) == exact(source.read_batch([7, -1]))
    assert kept < 1.1 * n_bytes


@pytest.mark.parametrize("dtype", [">f8", ">i2", ">M8[s]", "U3", ">U3", "S2", "f4", "?", "c8"])
def test_a_cached_column_has_the_dtype_below_before_and_after(dtype: str) -> None:
    scalars = np.array([0, 1, 0, 1]).astype("f4" if dtype in ("U3", ">U3", "S2") else dtype)
    column = scalars.astype(dtype)
    below = SequenceDatasetIterator([column, np.stack([column, column], axis=1)]).as_dict("x", "y")
    cached = below.cache()

    for _ in range(2):
        for key in ("x", "y"):
            read = [cached.read_column(key), cached.read_column(key, [0, 2])]
            batch: Any = cached.read_batch([0, 2])
            read.append(batch[key])
            assert {values.dtype.str for values in read} == {below.read_column(key).dtype.str}
            assert read[1].tolist() == read[2].tolist() == below.read_column(key, [0, 2]).tolist()
        assert list(map(exact, cached)) == list(map(exact, below))
