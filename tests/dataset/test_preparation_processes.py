"""Processes that prepare the same dataset, killed anywhere or beside each other, leave a right dataset or none."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sizes import sized

PROGRAM = Path(__file__).parent / "programs" / "demo_dataset.py"
ROOT = Path(__file__).parents[2]
NOT_READY, READY = 0, 3
#: Crashes are tried at this many places, spread over all changes of files, and at each of the last ones.
N_SPREAD, N_LAST = sized(2, 16), sized(1, 8)


class Demo:
    """The demo dataset in one store, worked on by processes of their own."""

    def __init__(self, store: Path, sources: Path) -> None:
        self.store, self.sources = store, sources

    def start(self, action: str, **environment: str) -> subprocess.Popen[str]:
        path = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(ROOT)])
        return subprocess.Popen(
            [sys.executable, str(PROGRAM), action, str(self.store), str(self.sources)],
            env={**os.environ, "PYTHONPATH": path, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, action: str, **environment: str) -> tuple[int, str]:
        process = self.start(action, **environment)
        out, errors = process.communicate(timeout=60)
        return process.returncode, out + errors

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


def n_operations(demo: Demo, tmp_path: Path) -> int:
    """How many changes of files an undisturbed preparation makes."""
    code, out = Demo(tmp_path / "undisturbed", demo.sources).run("prepare", DEMO_KILL_AT="0")
    assert code == 0, out
    return int(re.findall(r"^operations (\d+)$", out, re.MULTILINE)[-1])  # among warnings


def places(n: int) -> list[int]:
    return sorted({1 + i * (n - 1) // (N_SPREAD - 1) for i in range(N_SPREAD)} | set(range(n - N_LAST + 1, n + 1)))


def test_killed_anywhere_the_next_run_finishes_and_nothing_half_ready_is_served(demo: Demo, tmp_path: Path) -> None:
    def end_at(place: int) -> int:
        killed = Demo(tmp_path / f"killed-{place}", demo.sources)

        end, _ = killed.run("prepare", DEMO_KILL_AT=str(place))

        assert killed.run("heal") == (READY, ""), place
        return end

    with ThreadPoolExecutor(2) as threads:
        ends = list(threads.map(end_at, places(n_operations(demo, tmp_path))))
    # The number of operations differs by a few from run to run, so the last place may not be reached.
    assert ends.count(-signal.SIGKILL) >= N_SPREAD


def test_killed_anywhere_while_replacing_an_earlier_version_either_version_is_whole(demo: Demo, tmp_path: Path) -> None:
    def replace_until(place: int) -> None:
        killed = Demo(tmp_path / f"killed-{place}", demo.sources)
        assert killed.run("prepare")[0] == 0

        code, _ = killed.run("prepare", DEMO_KILL_AT=str(place), DEMO_VERSION="2.0.0")

        assert code in (0, -signal.SIGKILL)
        assert killed.is_right_or_not_ready(), place
        assert killed.run("heal", DEMO_VERSION="2.0.0") == (READY, ""), place

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(replace_until, places(n_operations(demo, tmp_path))[::4]))


def test_steps_done_before_a_crash_are_not_repeated(demo: Demo, tmp_path: Path) -> None:
    log = tmp_path / "steps.log"
    process = demo.start("prepare", DEMO_LOG=str(log), DEMO_PAUSE="0.5")
    while not (demo.store / "demo/1.0.0/preprocessed/train/targets.json").exists():
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(0.2)  # in the pause of the second step
    process.kill()
    process.communicate()

    assert demo.run("prepare", DEMO_LOG=str(log))[0] == 0

    assert [line.split()[1] for line in log.read_text().splitlines()] == ["train", "test"]
    assert demo.is_right()


@pytest.mark.parametrize("n_processes", [sized(3, 8)])
def test_processes_that_start_at_once_do_the_work_once(demo: Demo, tmp_path: Path, n_processes: int) -> None:
    log = tmp_path / "steps.log"

    processes = [demo.start("prepare", DEMO_LOG=str(log), DEMO_PAUSE="0.2") for _ in range(n_processes)]
    outputs = [process.communicate(timeout=60)[0].strip() for process in processes]

    assert sorted(outputs) == ["prepared"] + ["ready"] * (n_processes - 1)
    assert [line.split()[1] for line in log.read_text().splitlines()] == ["train", "test"]
    assert demo.is_right()
    assert demo.run("left") == (0, "\n")


def test_processes_without_leases_and_with_different_results_never_mix_them(demo: Demo) -> None:
    environment = {"DEMO_NO_LEASE": "1", "DEMO_RANDOM": "1", "DEMO_PAUSE": "0.05"}

    processes = [demo.start("prepare", **environment) for _ in range(sized(3, 8))]
    while any(process.poll() is None for process in processes):
        assert demo.is_right_or_not_ready()
    ends = [(process.returncode, process.communicate()[1]) for process in processes]

    assert all(code == 0 for code, _ in ends), ends
    assert demo.is_right()


def test_whoever_waits_takes_over_when_the_holder_of_the_lease_is_killed(demo: Demo, tmp_path: Path) -> None:
    holder = demo.start("prepare", DEMO_PAUSE="30")
    while not (demo.store / "demo/1.0.0/journal.json").exists():
        assert holder.poll() is None
        time.sleep(0.01)
    waiting = demo.start("prepare")
    time.sleep(0.5)
    assert waiting.poll() is None

    holder.kill()
    holder.communicate()

    assert waiting.communicate(timeout=30)[0].strip() == "prepared"
    assert demo.is_right()
