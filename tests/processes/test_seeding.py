"""Other processes of a program draw numbers of their own, and have its settings."""

from __future__ import annotations

import decimal
import json
import locale
import os
import random
import socket
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from left_out import needs_torch
from process_harness import in_fork, run_python

from data_stack.engines import ProcessEngine
from data_stack.processes.fork_server import ForkedProcess, hold
from data_stack.processes.program_settings import ProgramSettings, ThreadSettings
from data_stack.processes.seeding import draw_entropy, seed_generators

HERE = "tests.processes.test_seeding"


def drawn() -> list[float]:
    import torch

    return [random.random(), float(np.random.random()), torch.rand(1).item()]


def test_equal_entropy_and_facts_give_equal_numbers() -> None:
    numbers = []
    for facts in ((1, 2), (1, 2), (1, 3), (2, 2)):
        seed_generators(b"x" * 16, *facts)
        numbers.append(drawn())

    assert numbers[0] == numbers[1]
    assert len({value for row in numbers for value in row}) == 9


@needs_torch
def test_generators_that_are_imported_later_are_seeded() -> None:
    program = """
import importlib.util
import sys

from data_stack.processes.seeding import seed_generators

assert "numpy.random" not in sys.modules and "torch" not in sys.modules
seed_generators(b"x" * 16, 1)
assert importlib.util.find_spec("torch") and importlib.util.find_spec("numpy.random")

import numpy as np

later = np.random.random()
import torch

later_torch = torch.rand(1).item()
seed_generators(b"x" * 16, 1)
assert [later, later_torch] == [np.random.random(), torch.rand(1).item()]
"""

    assert run_python("-c", program) == ("", "")


def entropy_in_forks(prepare: Callable[[], object]) -> list[bytes]:
    """What two forks of this process draw first."""
    answers = []
    for _ in range(2):
        reader, writer = os.pipe()

        def work(writer: int = writer) -> None:
            prepare()
            os.write(writer, draw_entropy(0))

        assert in_fork(work) == 0
        answers.append(os.read(reader, 100))
        os.close(reader)
        os.close(writer)
    return answers


def test_the_seed_of_torch_repeats_entropy_and_none_does_not() -> None:
    import torch

    one, other = entropy_in_forks(lambda: torch.manual_seed(3))
    unseeded, unseeded_again = entropy_in_forks(torch.seed)

    assert one == other
    assert len({one, unseeded, unseeded_again}) == 3
    assert draw_entropy(0) != draw_entropy(0)


def say_what_it_draws(descriptor: int) -> None:
    os.write(descriptor, json.dumps(drawn()).encode())


@needs_torch
def test_all_processes_draw_other_numbers() -> None:
    hold(["numpy.random", "torch"])
    numbers = []
    for _ in range(3):
        ours, theirs = socket.socketpair()
        with ours, ours.makefile("rb") as answer:
            with theirs:
                process = ForkedProcess(f"{HERE}:say_what_it_draws", [], [theirs.fileno()])
            numbers += json.loads(answer.read())
        assert process.poll(60) == 0

    assert len(set(numbers)) == 9


def draw_task(number: int) -> list[float]:
    return drawn()


@needs_torch
def test_tasks_of_the_engine_draw_other_numbers() -> None:
    tasks = {str(number): number for number in range(4)}

    results = dict(ProcessEngine(2).run(draw_task, tasks, title="drawing"))

    assert len({value for row in results.values() for value in row}) == 12


def settings_of_task(number: int) -> Any:
    import torch

    third = str(decimal.Decimal(1) / 3)
    return third, np.geterr()["over"], str(torch.get_default_dtype()), torch.is_grad_enabled()


def test_tasks_of_the_engine_have_the_settings_of_the_program() -> None:
    import torch

    with decimal.localcontext() as context, np.errstate(over="raise"), torch.no_grad():
        context.prec = 4
        torch.set_default_dtype(torch.float64)
        try:
            results = dict(ProcessEngine(1).run(settings_of_task, {"a": 1}, title="settings"))
        finally:
            torch.set_default_dtype(torch.float32)

    assert results["a"] == ("0.3333", "raise", "torch.float64", False)


SCRIPT = """
import sys
from data_stack.processes.program_settings import ProgramSettings
from data_stack.processes.seeding import seed_generators
for dtype in ("float32", "float64"):
    ProgramSettings(torch_dtype=dtype, torch_records_gradients=False).apply_to_process()
seed_generators(b"x" * 16)
assert "torch" not in sys.modules
import torch, inspect
print(torch.get_default_dtype(), torch.is_grad_enabled(), torch.rand(1).item())
print(type(torch.__loader__).__name__, type(torch.__spec__.loader).__name__)
import numpy.random
print([finder for finder in sys.meta_path if "data_stack" in type(finder).__module__])
"""


@needs_torch
def test_torchs_settings_and_seed_wait_for_its_import() -> None:
    output, errors = run_python("-W", "ignore", "-c", SCRIPT)

    first, second, third = output.splitlines()
    assert errors == ""
    assert first.startswith("torch.float64 False ")
    assert second == "SourceFileLoader SourceFileLoader"
    assert third == "[]"


def test_settings_survive_pickling_and_are_compared_by_value() -> None:
    import pickle

    with decimal.localcontext() as context:
        context.prec = 7
        settings = ProgramSettings.of_thread()

    assert pickle.loads(pickle.dumps(settings)) == settings
    assert settings != ProgramSettings.of_thread()
    assert settings.locale_name == locale.setlocale(locale.LC_ALL)


def test_a_locale_that_is_missing_here_is_passed_over() -> None:
    before = locale.setlocale(locale.LC_ALL)

    ProgramSettings(locale_name="xx_XX.nowhere").apply_to_process()

    assert locale.setlocale(locale.LC_ALL) == before


@pytest.mark.parametrize("mode", ["ignore", "raise"])
def test_a_thread_runs_a_function_with_settings_of_another(mode: Any) -> None:
    answers: list[Any] = []
    with decimal.localcontext() as context, np.errstate(over=mode):
        context.prec = 3
        settings = ThreadSettings()

    def work() -> None:
        answers.append((decimal.getcontext().prec, np.geterr()["over"]))

    thread = threading.Thread(target=settings.run, args=[work])
    thread.start()
    thread.join()

    assert answers == [(3, mode)]
