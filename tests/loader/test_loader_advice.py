"""What the figures of a loader say would help."""

from __future__ import annotations

from dataclasses import replace

import pytest

from data_stack.loader import LoaderStatistics
from data_stack.loader.advice import Pace, advise

#: A hundred batches, of which each takes the model 10 ms, and a worker 40 ms.
SLOW_TRANSFORM = Pace(
    n_batches=100,
    elapsed_seconds=2.0,
    waiting_seconds=1.0,
    convert_seconds=0.0,
    stage_seconds={"fetch": 0.1, "decode": 0.3, "collate": 0.0, "transform": 3.6},
    n_workers=2,
    n_processors=8,
    is_automatic=False,
)


def test_few_batches_say_nothing() -> None:
    assert advise(replace(SLOW_TRANSFORM, n_batches=19)) is None
    assert LoaderStatistics().advice is None


def test_a_consumer_that_hardly_waits_has_a_slow_model() -> None:
    advice = advise(replace(SLOW_TRANSFORM, waiting_seconds=0.04))

    assert advice is not None
    assert (advice.bottleneck, advice.share, advice.more_workers) == ("model", 0.98, 0)
    assert str(advice) == "the consumer waited 2% of the time: a faster loader would not help"


def test_as_many_workers_are_advised_as_hide_loading() -> None:
    advice = advise(SLOW_TRANSFORM)

    assert advice is not None
    assert advice.bottleneck == "transform"
    assert advice.share == pytest.approx(0.9)
    assert advice.more_workers == 2
    assert "90% of the time of a batch; 2 more workers would hide it: workers=4" in advice.text


def test_no_more_workers_are_advised_than_there_are_processors() -> None:
    advice = advise(replace(SLOW_TRANSFORM, n_processors=3))

    assert advice is not None
    assert advice.more_workers == 0
    assert "; 3 workers, one for each of 3 processors, are too few to hide it" in advice.text


def test_workers_that_wait_for_a_store_need_no_processors() -> None:
    pace = replace(
        SLOW_TRANSFORM,
        stage_seconds={"fetch": 3.6, "decode": 0.4, "collate": 0.0, "transform": 0.0},
        n_processors=2,
    )

    advice = advise(pace)

    assert advice is not None
    assert (advice.bottleneck, advice.more_workers) == ("fetch", 2)


def test_no_workers_are_advised_where_measuring_has_chosen() -> None:
    advice = advise(replace(SLOW_TRANSFORM, is_automatic=True))

    assert advice is not None
    assert advice.more_workers == 0
    assert "workers" not in advice.text


def test_slow_conversion_is_told_apart_from_slow_workers() -> None:
    advice = advise(replace(SLOW_TRANSFORM, convert_seconds=0.8))

    assert advice is not None
    assert (advice.bottleneck, advice.share) == ("convert", 0.4)
    assert "pin_memory=True" in advice.text


def test_workers_that_are_enough_get_no_more() -> None:
    advice = advise(replace(SLOW_TRANSFORM, n_workers=4))

    assert advice is not None
    assert advice.more_workers == 0


def test_figures_show_their_advice_on_a_line_of_its_own() -> None:
    statistics = LoaderStatistics(
        n_batches=100, n_samples=100, elapsed_seconds=1.0, waiting_seconds=0.01
    )

    assert str(statistics).splitlines()[1] == str(statistics.advice)
