"""The policy of automatic workers: which kind follows from which measurements."""

from __future__ import annotations

import math
from typing import Any

import pytest

from data_stack.loader.workers.choice import choose_kind
from data_stack.loader.workers.measuring import Measurement, Probe, is_enough


def choose(milliseconds: dict[str, tuple[float, float]], **changes: Any) -> str:
    """Choose by the waiting and step times of some kinds, for many batches on a large machine."""
    measurements = {
        kind: Measurement(waiting / 1000, step / 1000)
        for kind, (waiting, step) in milliseconds.items()
    }
    arguments = {
        "n_workers": 4,
        "n_processors": 8,
        "n_batches": math.inf,
        "can_use_processes": True,
        "are_kept": False,
        **changes,
    }
    return choose_kind(measurements, **arguments)


def test_threads_are_tried_first() -> None:
    assert choose({"inline": (20, 0)}) == "threads"


def test_processes_are_tried_after_threads() -> None:
    assert choose({"inline": (20, 0), "threads": (18, 0)}) == "processes"


@pytest.mark.parametrize(
    ("milliseconds", "fastest"),
    [
        ({"inline": (20, 0), "threads": (10, 0), "processes": (7, 0)}, "processes"),
        ({"inline": (20, 0), "threads": (6, 0), "processes": (7, 0)}, "threads"),
        ({"inline": (20, 0), "threads": (10, 0), "processes": (9.6, 0)}, "threads"),
        ({"inline": (20, 0), "threads": (19, 0), "processes": (17, 0)}, "processes"),
        ({"inline": (20, 0), "threads": (19, 0), "processes": (18.5, 0)}, "inline"),
        ({"inline": (20, 5), "threads": (1, 30), "processes": (30, 5)}, "inline"),
    ],
)
def test_the_fastest_kind_is_chosen_if_clearly_faster(
    milliseconds: dict[str, tuple[float, float]], fastest: str
) -> None:
    assert choose(milliseconds) == fastest


def test_nothing_is_tried_that_cannot_be_faster() -> None:
    assert choose({"inline": (0.1, 0)}) == "inline"  # handing over takes as long
    assert choose({"inline": (1, 100)}) == "inline"  # the consumer is the bottleneck
    assert choose({"inline": (20, 0)}, n_workers=1) == "inline"


def test_processes_are_tried_only_if_they_pay_for_their_start() -> None:
    milliseconds = {"inline": (20.0, 0.0), "threads": (19.0, 0.0)}

    assert choose(milliseconds, n_batches=10) == "inline"
    assert choose(milliseconds, n_batches=100) == "processes"
    assert choose(milliseconds, n_batches=10, are_kept=True) == "processes"


def test_processes_need_processors_and_threads_do_not() -> None:
    milliseconds = {"inline": (20.0, 0.0), "threads": (19.0, 0.0)}

    assert choose(milliseconds, n_processors=1) == "inline"
    assert choose({"inline": (20, 0)}, n_processors=1) == "threads"


def test_processes_are_tried_where_threads_are_slower_than_they_could_be() -> None:
    # Threads took 90 ms where two workers that do not disturb each other take 80 ms.
    assert choose({"inline": (160, 0), "threads": (90, 0)}, n_processors=2) == "processes"
    assert choose({"inline": (160, 0), "threads": (83, 0)}, n_processors=2) == "threads"


def test_refused_processes_are_not_chosen_though_measured_fastest() -> None:
    milliseconds = {"inline": (20.0, 0.0), "threads": (10.0, 0.0), "processes": (5.0, 0.0)}

    assert choose(milliseconds, can_use_processes=False) == "threads"
    assert choose({"inline": (20, 0), "threads": (19, 0)}, can_use_processes=False) == "inline"


def test_an_iteration_at_its_end_tries_nothing() -> None:
    assert choose({"inline": (20, 0)}, n_batches=0) == "inline"


@pytest.mark.parametrize(
    ("n_rounds", "elapsed_seconds", "expected"),
    [
        (4, 0.06, True),
        (100, 0.04, False),
        (2, 0.51, True),
        (2, 0.4, False),
        (3, 0.06, False),
        (1, 1.1, True),
        (1, 0.9, False),
        (0, 9.0, False),
    ],
)
def test_a_measurement_takes_many_rounds_or_long_ones(
    n_rounds: int, elapsed_seconds: float, expected: bool
) -> None:
    assert is_enough(n_rounds, elapsed_seconds) is expected


def test_a_probe_leaves_the_first_round_out() -> None:
    probe = Probe(n_workers=2)

    probe.add(asked_at=0.0, delivered_at=0.5)
    probe.add(asked_at=0.6, delivered_at=1.1)
    for number in range(4):
        probe.add(asked_at=1.2 + 0.2 * number, delivered_at=1.3 + 0.2 * number)

    measurement = probe.measurement()
    assert measurement.waiting_seconds == pytest.approx(0.1)
    assert measurement.step_seconds == pytest.approx(0.1)
    assert measurement.batch_seconds == pytest.approx(0.2)
    assert probe.is_done


def test_a_probe_measures_a_slow_first_batch() -> None:
    probe = Probe(n_workers=0)

    probe.add(asked_at=0.0, delivered_at=2.0)

    assert probe.is_done
    assert probe.measurement().waiting_seconds == 2.0


def test_a_probe_of_slow_workers_measures_whole_rounds() -> None:
    probe = Probe(n_workers=2)
    # Both make a batch in 2 s, so one comes every second.
    probe.add(asked_at=0.0, delivered_at=2.0)
    probe.add(asked_at=2.0, delivered_at=2.0)

    probe.add(asked_at=2.0, delivered_at=4.0)
    is_done_in_the_middle_of_a_round = probe.is_done
    probe.add(asked_at=4.0, delivered_at=4.0)

    assert not is_done_in_the_middle_of_a_round
    assert probe.is_done
    assert probe.measurement().batch_seconds == 1.0


def test_a_pause_between_iterations_is_no_step() -> None:
    probe = Probe(n_workers=0)
    probe.add(asked_at=0.0, delivered_at=0.1)

    probe.pause()
    probe.add(asked_at=1000.0, delivered_at=1000.1)

    assert probe.measurement().step_seconds == 0.0
