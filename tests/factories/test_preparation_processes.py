"""Processes that prepare the same dataset, killed anywhere or beside each other, leave a right dataset or none."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from sizes import sized

PROGRAM = Path(__file__).parent / "programs" / "demo_dataset.py"
NOT_READY, READY = 0, 3
#: Each process of the demo is a fork of one that has imported data_stack.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["data_stack.factories.declarative", "data_stack.io.work"])


def run_program(arguments: list[str], environment: dict[str, str], output: Path) -> None:
    """The body of a process of the demo."""
    with output.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.update(environment)
    sys.argv = arguments
    runpy.run_path(arguments[0], run_name="__main__")


class Demo:
    """The demo dataset in one store, worked on by processes of their own."""

    def __init__(self, store: Path, sources: Path) -> None:
        self.store, self.sources, self.n_started = store, sources, 0

    def start(self, action: str, **environment: str) -> tuple[Any, Path]:
        self.n_started += 1
        output = self.store.with_name(f"{self.store.name}-{self.n_started}.out")
        arguments = [str(PROGRAM), action, str(self.store), str(self.sources)]
        process = FORKS.Process(target=run_program, args=(arguments, environment, output))
        process.start()
        return process, output

    def run(self, action: str, **environment: str) -> tuple[int, str]:
        return self.finish(*self.start(action, **environment))

    @staticmethod
    def finish(process: Any, output: Path) -> tuple[int, str]:
        process.join(120)
        return process.exitcode, output.read_text()

    def is_right_or_not_ready(self) -> bool:
        return self.run("check")[0] in (NOT_READY, READY)

    def is_right(self) -> bool:
        return self.run("check")[0] == READY


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    for first, split in ((0, "train"), (10_000, "test")):
        folder.joinpath(f"{split}.txt").write_text("".join(f"{first + i}\n" for i in range(2_000)))
    return folder


@pytest.fixture
def demo(tmp_path: Path, sources: Path) -> Demo:
    return Demo(tmp_path / "store", sources)


def wait_for(path: Path, process: Any) -> None:
    while not path.exists():
        assert process.is_alive()
        time.sleep(0.01)


def test_steps_done_before_a_crash_are_not_repeated(demo: Demo, tmp_path: Path) -> None:
    log, journal = tmp_path / "steps.log", demo.store / "demo/1.0.0/journal.json"
    process, _ = demo.start("prepare", DEMO_LOG=str(log), DEMO_PAUSE="1")
    wait_for(journal, process)
    while "preprocessed/train" not in journal.read_text():
        time.sleep(0.01)
    process.kill()  # in the pause of the second step
    process.join()

    assert demo.run("prepare", DEMO_LOG=str(log))[0] == 0

    assert [line.split()[1] for line in log.read_text().splitlines()] == ["train", "test"]
    assert demo.is_right()


def test_processes_that_start_at_once_do_the_work_once(demo: Demo, tmp_path: Path) -> None:
    log, n_processes = tmp_path / "steps.log", sized(3, 8)

    started = [demo.start("prepare", DEMO_LOG=str(log), DEMO_PAUSE="0.2") for _ in range(n_processes)]
    outputs = [demo.finish(*each)[1].strip() for each in started]

    assert sorted(outputs) == ["prepared"] + ["ready"] * (n_processes - 1)
    assert [line.split()[1] for line in log.read_text().splitlines()] == ["train", "test"]
    assert demo.is_right()
    assert demo.run("left") == (0, "\n")


def test_processes_without_leases_and_with_different_results_never_mix_them(demo: Demo) -> None:
    environment = {"DEMO_NO_LEASE": "1", "DEMO_RANDOM": "1", "DEMO_PAUSE": "0.05"}

    started = [demo.start("prepare", **environment) for _ in range(sized(3, 8))]
    while any(process.is_alive() for process, _ in started):
        assert demo.is_right_or_not_ready()
    ends = [demo.finish(*each) for each in started]

    assert all(code == 0 for code, _ in ends), ends
    assert demo.is_right()


def test_a_waiting_process_takes_over_when_the_holder_of_the_lease_is_killed(demo: Demo) -> None:
    holder, _ = demo.start("prepare", DEMO_PAUSE="30")
    wait_for(demo.store / "demo/1.0.0/journal.json", holder)
    waiting, output = demo.start("prepare")
    time.sleep(0.5)
    assert waiting.is_alive()

    holder.kill()

    assert demo.finish(waiting, output) == (0, "prepared\n")
    assert demo.is_right()
