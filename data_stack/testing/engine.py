"""The test suite of engines."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import pytest

from data_stack.engines import PreparationEngine
from data_stack.exception import ConfigError, PreparationError, TaskError
from data_stack.io.storage_connectors.file import FileStorageConnector
from data_stack.io.storage_connectors.memory import InMemoryStorageConnector
from data_stack.processes.pickling import dump
from data_stack.testing.sharded_numbers import (
    ShardedNumbers,
    die_once,
    fail,
    keep_running,
    pause,
    wait_for_other_attempt,
)
from data_stack.testing.waiting import PATIENCE_SECONDS, wait_until

#: How long a task runs that the engine has to stop.
_LONG_SECONDS = 25.0

#: How long such a task runs in this process, where nothing can stop it.
_SHORT_SECONDS = 0.3

#: Tasks by name; each is a number.
_TASKS = {f"number {number}": number for number in range(5)}

#: More results than an engine may hold at a time.
_N_RESULTS = 2_000


class EngineContract:
    """What every engine promises.

    Inherit it in a test class, and define a fixture ``engine``: an engine that runs two tasks at
    the same time, and attempts a task that fails at least twice.

    Attributes:
        keeps_processes: whether processes of tasks outlive the process that prepares, as those of a
            cluster may.
    """

    keeps_processes: ClassVar[bool] = False

    @pytest.fixture
    def driver_engine(self, engine: PreparationEngine) -> PreparationEngine:
        """Return an engine that is pickled and runs in another process, which is killed.

        Override it if ``engine`` does not pickle, as one with a session: return one that connects
        by an address.
        """
        return engine

    @pytest.fixture
    def kill_node(self) -> Callable[[int], None]:
        """Return a function that kills one node of the cluster of ``driver_engine``.

        The function gets the id of the process that prepares; the node must run tasks of that
        process. Override the fixture if ``driver_engine`` has several nodes.
        """
        pytest.skip(
            f"{type(self).__name__} does not override the fixture kill_node: its engine has one "
            "node"
        )

    # ------------------------------------------------------------------ running tasks

    def test_each_task_gives_its_result_once(self, engine: PreparationEngine) -> None:
        """Every task has one result, made in or outside of this process as the engine says."""
        results = list(engine.run(_square, _TASKS, title="squares"))

        squares = sorted((name, result.square) for name, result in results)
        assert squares == [(name, number * number) for name, number in _TASKS.items()]
        for _, result in results:
            has_left_process = result.process_id != os.getpid()
            assert has_left_process == engine.leaves_process

    def test_no_tasks_give_no_results(self, engine: PreparationEngine) -> None:
        """Running nothing ends at once."""
        assert list(engine.run(_square, {}, title="nothing")) == []

    @pytest.mark.parametrize("how", ["closed", "interrupted"])
    def test_a_run_that_is_given_up_ends_its_tasks(
        self, engine: PreparationEngine, tmp_path: Path, how: str
    ) -> None:
        """No task goes on after close() or Ctrl-C, and the engine can be used again."""
        seconds = _LONG_SECONDS if engine.leaves_process else _SHORT_SECONDS
        work = functools.partial(_run_until_stopped, tmp_path, seconds)
        running = engine.run(work, _TASKS, title="given up")

        if how == "closed":
            next(running)
            running.close()
        elif how == "interrupted":
            threading.Thread(target=_press_ctrl_c, args=(tmp_path / "running",)).start()
            with pytest.raises(KeyboardInterrupt):
                list(running)

        assert_quiet(tmp_path)
        results = dict(engine.run(_square, _TASKS, title="the engine can be used"))
        assert len(results) == len(_TASKS)

    def test_two_thousand_results_are_not_kept(self, engine: PreparationEngine) -> None:
        """An engine may hold some results at a time, but not those that were taken."""
        tasks = {f"number {number}": number for number in range(_N_RESULTS)}
        taken = set()
        n_held = _N_RESULTS

        for _, result in engine.run(Fraction, tasks, title="many"):
            taken.add(int(result))
            if len(taken) == _N_RESULTS:
                n_held = sum(type(value) is Fraction for value in gc.get_objects())

        assert n_held < _N_RESULTS // 2

    def test_what_cannot_leave_this_process_is_refused(
        self, engine: PreparationEngine, tmp_path: Path
    ) -> None:
        """A store in memory, work or a result that does not pickle are errors that say so."""
        skip_if_tasks_run_here(engine)
        in_memory = ShardedNumbers(tmp_path, InMemoryStorageConnector())
        work_with_lock = functools.partial(_lock_at_three, threading.Lock())
        work_that_makes_locks = functools.partial(_lock_at_three, None)

        with pytest.raises(ConfigError, match="store in the memory of this process"):
            in_memory.prepare(engine=engine, progress=False)
        with pytest.raises(ConfigError, match="pickle"):
            list(engine.run(work_with_lock, _TASKS, title="work"))
        with pytest.raises(TaskError, match="cannot be pickled") as caught:
            list(engine.run(work_that_makes_locks, _TASKS, title="result"))

        assert caught.value.task == "number 3"

    def test_nothing_is_left_over(
        self, engine: PreparationEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A run leaves no process, descriptor, thread or file, also if it fails or is closed.

        What the first run starts may stay for the next ones.
        """
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        monkeypatch.setenv("TMPDIR", str(tmp_path))

        def fail_and_close() -> None:
            with pytest.raises(TaskError):
                list(engine.run(len, _TASKS, title="a number has no length"))
            with contextlib.closing(engine.run(_square, _TASKS, title="closed")) as running:
                next(running)

        fail_and_close()
        held_before = _HeldResources.now(tmp_path)
        fail_and_close()

        assert wait_until(lambda: not _HeldResources.now(tmp_path).exceeds(held_before))

    # ------------------------------------------------------------------ preparing datasets

    @pytest.mark.parametrize("dies", [False, True])
    def test_shards_are_prepared_as_in_one_process(
        self, engine: PreparationEngine, tmp_path: Path, dies: bool
    ) -> None:
        """The dataset is whole, also if the process of each first attempt dies."""
        if dies:
            skip_if_tasks_run_here(engine)
        dataset = ShardedNumbers(tmp_path, act=die_once if dies else pause)

        dataset.prepare(engine=engine, progress=False)

        dataset.check_whole()
        for n_attempts in dataset.n_attempts().values():
            assert (n_attempts > 1) == dies

    @pytest.mark.parametrize("how", ["raises", "dies"])
    def test_a_shard_that_fails_in_each_attempt_is_named(
        self, engine: PreparationEngine, tmp_path: Path, how: str
    ) -> None:
        """The error has the shard, the number of attempts, and what the last one raised."""
        if how == "dies":
            skip_if_tasks_run_here(engine)
        seconds = _LONG_SECONDS if engine.leaves_process else _SHORT_SECONDS
        act = functools.partial(fail, how, seconds)
        dataset = ShardedNumbers(tmp_path, act=act, n_shards=2)

        with pytest.raises(PreparationError, match="shard 1 failed in each of ") as caught:
            dataset.prepare(engine=engine, progress=False)

        assert_quiet(tmp_path)
        assert not dataset.is_ready()
        error = caught.value.__cause__
        assert isinstance(error, TaskError)
        assert error.task == "shard 1"
        n_attempts = dataset.n_attempts()[1]
        assert n_attempts >= error.n_attempts > 1
        if how == "raises":
            assert isinstance(error.__cause__, ValueError)
            assert n_attempts == error.n_attempts
            assert "in fail\n" in error.traceback_text or not engine.leaves_process

    @pytest.mark.parametrize("winner", [1, 2])
    def test_of_two_attempts_at_once_one_counts(
        self, engine: PreparationEngine, tmp_path: Path, winner: int
    ) -> None:
        """The files of a shard are of one attempt, if two attempts write at the same time."""
        dataset = ShardedNumbers(tmp_path, act=wait_for_other_attempt, is_random=True)

        dataset.prepare(engine=_DuplicatingEngine(engine, winner), progress=False)

        dataset.check_whole()
        assert set(dataset.n_attempts().values()) == {2}

    # ------------------------------------------------------------------ kills

    def test_a_killed_driver_resumes(
        self, engine: PreparationEngine, driver_engine: PreparationEngine, tmp_path: Path
    ) -> None:
        """After the process that prepares is killed, another one prepares only what is missing."""
        dataset = ShardedNumbers(tmp_path, n_shards=12)
        with _start_driver(dataset, driver_engine) as driver:
            assert wait_until(lambda: dataset.n_done() >= 4 or driver.poll() is not None)
            driver.kill()
            assert driver.wait() == -signal.SIGKILL
        if not self.keeps_processes:
            assert wait_until(lambda: not _is_any_running(dataset.process_ids()))
        assert_quiet(tmp_path)
        n_missing = dataset.n_shards - dataset.n_done()
        shutil.copytree(tmp_path / "store", tmp_path / "copy")

        # The engine resumes in the store, and this process without an engine in the copy.
        for successor, store in ((engine, "store"), (None, "copy")):
            n_attempts_before = dataset.n_attempts()
            dataset = ShardedNumbers(tmp_path, FileStorageConnector(tmp_path / store), n_shards=12)
            dataset.prepare(engine=successor, progress=False)

            new_attempts = dataset.n_attempts() - n_attempts_before
            assert len(new_attempts) == n_missing
            assert set(new_attempts.values()) <= {1}
            dataset.check_whole()

    def test_shards_of_a_dead_node_are_not_lost(
        self, kill_node: Any, driver_engine: PreparationEngine, tmp_path: Path
    ) -> None:
        """A preparation goes on on other nodes when one of them is killed."""
        dataset = ShardedNumbers(tmp_path, n_shards=24)

        with _start_driver(dataset, driver_engine) as driver:
            assert wait_until(lambda: dataset.n_done() >= 2 or driver.poll() is not None)
            kill_node(driver.pid)
            assert driver.wait(2 * PATIENCE_SECONDS) == 0

        dataset.check_whole()


def skip_if_tasks_run_here(engine: PreparationEngine) -> None:
    """Skip a test that needs tasks in other processes, if those of the engine run in this one."""
    if not engine.leaves_process:
        pytest.skip("its tasks run in this process")


# ---------------------------------------------------------------------- what tasks do


@dataclass(frozen=True)
class _Square:
    """The result of a task, and the process in which it ran."""

    square: int
    process_id: int


def _square(number: int) -> _Square:
    return _Square(number * number, os.getpid())


def _lock_at_three(lock: Any, number: int) -> Any:
    """Return a lock, which does not pickle, for the number 3."""
    return threading.Lock() if number == 3 else number


def _run_until_stopped(folder: Path, seconds: float, number: int) -> None:
    """Keep running for some time; task 0 ends as soon as another task runs."""
    if number == 0:
        wait_until((folder / "running").exists, seconds)
    else:
        keep_running(folder, seconds)


class _DuplicatingEngine(PreparationEngine):
    """Attempts each task twice at the same time, and takes one of the two results.

    Args:
        engine: runs the attempts.
        winner: the result to take: 1 for the first, 2 for the second.
    """

    def __init__(self, engine: PreparationEngine, winner: int) -> None:
        self._engine = engine
        self._winner = winner

    @property
    def leaves_process(self) -> bool:  # type: ignore[override]  # elsewhere an attribute of a class
        return self._engine.leaves_process

    def run(
        self, work: Callable[[Any], Any], tasks: Mapping[str, Any], *, title: str
    ) -> Generator[tuple[str, Any], None, None]:
        attempts = {}
        for name, task in tasks.items():
            attempts[f"{name} #1"] = task
            attempts[f"{name} #2"] = task

        n_results: Counter[str] = Counter()
        n_missing = len(tasks)
        with contextlib.closing(self._engine.run(work, attempts, title=title)) as results:
            while n_missing > 0:
                attempt, result = next(results)
                name = attempt.rpartition(" #")[0]
                n_results[name] += 1
                if n_results[name] == self._winner:
                    n_missing -= 1
                    yield name, result


# ---------------------------------------------------------------------- processes


@contextlib.contextmanager
def _start_driver(
    dataset: ShardedNumbers, engine: PreparationEngine
) -> Iterator[subprocess.Popen[bytes]]:
    """Prepare a dataset in another process, which ends with the block."""
    work = functools.partial(dataset.prepare, engine=engine, progress=False)
    pickled_work = dump(work, in_one_piece=True)[0]
    path = dataset.folder / "driver.pickle"
    path.write_bytes(pickled_work)
    program = f"import pathlib, pickle; pickle.loads(pathlib.Path({str(path)!r}).read_bytes())()"
    search_path = os.pathsep.join(folder for folder in sys.path if folder)
    environment = {**os.environ, "PYTHONPATH": search_path}
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, env=environment) as process:  # noqa: S603  # our own program
        try:
            yield process
        finally:
            process.kill()


def _is_any_running(process_ids: list[int]) -> bool:
    """Return whether at least one of these processes runs on this machine."""
    return any(Path(f"/proc/{process_id}").exists() for process_id in process_ids)


def _press_ctrl_c(running: Path) -> None:
    """Interrupt the main thread once a task runs, which then writes the file ``running``."""
    if wait_until(running.exists):
        os.kill(os.getpid(), signal.SIGINT)


def assert_quiet(folder: Path) -> None:
    """Check that no task runs any more: that none writes dots, or begins an attempt."""
    last_size: int | None = None

    def is_quiet() -> bool:
        nonlocal last_size
        size = 0
        for path in (folder / "running", folder / "attempts"):
            if path.exists():
                size += path.stat().st_size
        has_grown = size != last_size
        last_size = size
        time.sleep(0.4)
        return not has_grown

    assert wait_until(is_quiet, _LONG_SECONDS / 2), "tasks go on"


@dataclass(frozen=True)
class _HeldResources:
    """The number of things that this process holds, and of files in a folder."""

    n_children: int
    n_descriptors: int
    n_threads: int
    n_files: int

    @classmethod
    def now(cls, folder: Path) -> _HeldResources:
        """Count what this process holds now, and the files in ``folder``."""
        n_children = 0
        for path in Path("/proc/self/task").glob("*/children"):
            n_children += len(path.read_text().split())
        return cls(
            n_children=n_children,
            n_descriptors=len(list(Path("/proc/self/fd").glob("*"))),
            n_threads=threading.active_count(),
            n_files=len(list(folder.rglob("*"))),
        )

    def exceeds(self, other: _HeldResources) -> bool:
        """Return whether one of the numbers is larger than in ``other``."""
        return (
            self.n_children > other.n_children
            or self.n_descriptors > other.n_descriptors
            or self.n_threads > other.n_threads
            or self.n_files > other.n_files
        )
