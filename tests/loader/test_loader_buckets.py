"""The bucketed order: every sample once, chunks of similar length, random access."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.exception import ConfigError
from data_stack.loader import Bucketed, Loader, Shuffled

LENGTHS = np.random.default_rng(0).lognormal(4, 0.9, 10_000).astype(np.int64)


def epoch_of(order: Any, n_samples: int, seed: int = 0, epoch: int = 0) -> npt.NDArray[np.int64]:
    return np.asarray(order.indices(np.arange(n_samples), n_samples, seed, epoch))


@given(st.integers(1, 200), st.integers(1, 20), st.integers(1, 5), st.integers(-3, 3), st.integers(0, 3), st.data())
def test_every_sample_is_at_one_position_with_random_access(
    n_samples: int, chunk: int, window: int, seed: int, epoch: int, data: Any
) -> None:
    lengths = data.draw(st.lists(st.integers(0, 9), min_size=n_samples, max_size=n_samples))
    positions = np.array(data.draw(st.lists(st.integers(0, n_samples - 1), max_size=20)), dtype=np.int64)

    indices = epoch_of(Bucketed(lengths, chunk=chunk, window=window), n_samples, seed, epoch)
    part = Bucketed(lengths, chunk=chunk, window=window).indices(positions, n_samples, seed, epoch)

    assert sorted(indices.tolist()) == list(range(n_samples))
    assert part.tolist() == indices[positions].tolist()


@given(st.integers(1, 300), st.integers(1, 20), st.integers(1, 6), st.integers(0, 99))
def test_a_window_is_that_of_the_shuffled_order_in_chunks_of_neighbouring_lengths(
    n_samples: int, chunk: int, window: int, seed: int
) -> None:
    lengths = LENGTHS[:n_samples]
    shuffled = epoch_of(Shuffled(), n_samples, seed)

    indices = epoch_of(Bucketed(lengths, chunk=chunk, window=window), n_samples, seed)

    for start in range(0, n_samples, chunk * window):
        here = indices[start : start + chunk * window]
        assert sorted(here.tolist()) == sorted(shuffled[start : start + chunk * window].tolist())
        chunks = [here[at : at + chunk] for at in range(0, len(here), chunk)]
        chunks.sort(key=lambda its: (lengths[its].min(), lengths[its].max()))
        joined = lengths[np.concatenate(chunks)]
        assert (np.diff(joined) >= 0).all()


@pytest.mark.parametrize(
    ("lengths", "arguments", "message"),
    [
        ([1.5, 2], {"chunk": 2}, "lengths .* got float64"),
        ([3, -1, 2], {"chunk": 2}, "that of sample 1 is -1"),
        ([1], {"chunk": 0}, "the chunk of a bucketed order must be at least 1"),
    ],
)
def test_wrong_arguments_are_refused(lengths: Any, arguments: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Bucketed(lengths, **arguments)


def test_lengths_of_another_number_of_samples_are_refused() -> None:
    loader = Loader(SequenceDatasetIterator([np.arange(5)]), 2, shuffle=Bucketed([1, 2, 3], chunk=2), worker_kind="inline")

    with pytest.raises(ConfigError, match="3 samples, but the iterator has 5"):
        list(loader)
