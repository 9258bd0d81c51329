"""The figures of an iteration."""

from __future__ import annotations

import numpy as np
import pytest

from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.loader import LoaderStatistics
from data_stack.loader.batch_maker import BatchMaker, MadeBatch, Reading
from data_stack.loader.epoch_stacks import EpochStacks
from data_stack.loader.statistics import StatisticsRecorder
from data_stack.loader.workers.inline import InlineWorkers


def workers() -> InlineWorkers:
    stacks = EpochStacks(SequenceDatasetIterator([np.arange(3)]), redraws=True)
    return InlineWorkers(BatchMaker(stacks))


def test_waiting_that_makes_no_batch_is_conversion() -> None:
    recorder = StatisticsRecorder(workers())
    recorder.begin()

    for _ in recorder.time_making(iter([("batch", "mark")] * 2)):
        made = MadeBatch(None, 80, Reading(seconds=1.0))
        recorder.add_delivered(made, n_samples=4, waiting_seconds=2.0)

    statistics = recorder.read()
    assert (statistics.n_batches, statistics.n_samples, statistics.n_bytes) == (2, 8, 160)
    assert statistics.waiting_seconds == 4.0
    assert statistics.read_seconds == 2.0
    assert 3.0 < statistics.convert_seconds < 4.0
    assert statistics.worker_kind == "inline"


def test_without_a_conversion_all_waiting_makes_batches() -> None:
    recorder = StatisticsRecorder(workers())
    recorder.begin()

    recorder.add_delivered(MadeBatch(None, 80), n_samples=4, waiting_seconds=2.0)

    assert recorder.read().convert_seconds == 0.0


def test_an_iteration_before_its_first_batch_has_taken_no_time() -> None:
    recorder = StatisticsRecorder(workers())

    recorder.begin()

    assert recorder.read() == LoaderStatistics()


def test_what_was_read_does_not_change_with_later_batches() -> None:
    recorder = StatisticsRecorder(workers())
    recorder.begin()
    earlier = recorder.read()

    recorder.add_delivered(MadeBatch(None, 80), n_samples=4, waiting_seconds=2.0)

    assert earlier.n_batches == 0


def test_shares_and_rates_of_nothing_are_zero() -> None:
    assert LoaderStatistics().samples_per_second == 0.0
    assert LoaderStatistics().waiting_share == 0.0


def test_shares_and_rates_are_of_the_elapsed_time() -> None:
    statistics = LoaderStatistics(n_samples=50, elapsed_seconds=10.0, waiting_seconds=2.5)

    assert statistics.samples_per_second == 5.0
    assert statistics.waiting_share == pytest.approx(0.25)
