"""The speed of a training step without loading."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch

from data_stack import Loader
from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.exception import ConfigError


def numbers() -> SequenceDatasetIterator:
    return SequenceDatasetIterator([np.arange(100)])


def test_one_batch_comes_again_and_again() -> None:
    loader = Loader(numbers(), 8, shuffle=True, seed=3)
    (first, *_) = loader

    batches = list(loader.speed_without_loading(5))

    assert len(batches) == 5
    assert all(batch is batches[0] for batch in batches)
    assert sorted(batches[0][0].tolist()) != sorted(first[0].tolist())  # of the next epoch


def test_samples_are_counted_by_the_time_of_the_steps() -> None:
    loader = Loader(numbers(), 8)
    alone = loader.speed_without_loading(5)

    for _ in alone:
        time.sleep(0.01)

    assert 0 < alone.samples_per_second < 800
    assert loader.stats().speed_without_loading == alone.samples_per_second
    assert "without loading" in str(loader.stats())


def test_a_loop_that_breaks_off_has_a_speed() -> None:
    loader = Loader(numbers(), 8)
    alone = loader.speed_without_loading(100)

    for n_steps, _ in enumerate(alone):
        if n_steps == 3:
            break

    assert loader.stats().speed_without_loading == alone.samples_per_second > 0


def test_the_batch_is_converted() -> None:
    loader = Loader(numbers(), 8).torch()

    (batch, *_) = loader.speed_without_loading(2)

    assert isinstance(batch[0], torch.Tensor)


def test_the_place_of_the_loader_stays() -> None:
    loader = Loader(numbers(), 8, shuffle=True)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()

    list(loader.speed_without_loading(3))

    assert loader.state_dict() == state
    assert len(list(batches)) == 12


def test_an_empty_loader_has_no_batch_to_repeat() -> None:
    with pytest.raises(ConfigError, match="no batch"):
        Loader(numbers()[:0], 8).speed_without_loading()


def test_fewer_than_two_steps_are_refused() -> None:
    with pytest.raises(ConfigError, match="n_batches"):
        Loader(numbers(), 8).speed_without_loading(1)
