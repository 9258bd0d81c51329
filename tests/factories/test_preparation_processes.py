"""Processes that prepare the same dataset, killed anywhere or beside each other, leave a right dataset or none."""

from __future__ import annotations

import multiprocessing
import os
import re
import runpy
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sizes import sized

PROGRAM = Path(__file__).parent / "programs" / "demo_dataset.py"
NOT_READY, READY = 0, 3
#: Crashes are tried at this many places, spread over all changes of files, and at each of the last ones.
N_SPREAD, N_LAST = sized(5, 16), sized(2, 8)
#: Each process of the demo is a fork of one that has imported data_stack.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["data_stack.factories.declarative", "data_stack.io.progress", "data_stack.testing.processes"])


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


@pytest.fixture(scope="module")
def places(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> list[int]:
    """Numbers of the changes of files at which a process is killed, among those of an undisturbed preparation."""
    code, out = Demo(tmp_path_factory.mktemp("undisturbed") / "store", sources).run("prepare", DEMO_KILL_AT="0")
    assert code == 0, out
    n = int(re.findall(r"^operations (\d+)$", out, re.MULTILINE)[-1])  # among warnings
    return sorted({1 + i * (n - 1) // (N_SPREAD - 1) for i in range(N_SPREAD)} | set(range(n - N_LAST + 1, n + 1)))


def test_killed_anywhere_while_replacing_an_earlier_version_either_version_is_whole(
    demo: Demo, places: list[int], tmp_path: Path
) -> None:
    def replace_until(place: int) -> None:
        killed = Demo(tmp_path / f"killed-{place}", demo.sources)
        assert killed.run("prepare")[0] == 0

        code, _ = killed.run("prepare", DEMO_KILL_AT=str(place), DEMO_VERSION="2.0.0")

        assert code in (0, -signal.SIGKILL)
        assert killed.is_right_or_not_ready(), place
        assert killed.run("heal", DEMO_VERSION="2.0.0") == (READY, ""), place

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(replace_until, places[1::4]))


def wait_for(path: Path, process: Any) -> None:
    while not path.exists():
        assert process.is_alive()
        time.sleep(0.01)


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
