"""The test suite of engines."""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import pytest

from data_stack.dataset.iterator import DatasetIteratorIF, SequenceDatasetIterator
from data_stack.engines import PreparationEngine
from data_stack.exception import ConfigError, PreparationError, TaskError
from data_stack.factories.declarative import (
    DatasetCard,
    DatasetFactory,
    PreparedResources,
    Resources,
)
from data_stack.factories.resource_names import JOURNAL
from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.io.storage_connectors.file import FileStorageConnector
from data_stack.io.storage_connectors.memory import InMemoryStorageConnector
from data_stack.processes.pickling import dump

_PATIENCE_SECONDS = 60.0
_LONG_SECONDS = 25.0  # of a task that must be stopped
_SHORT_SECONDS = 0.3  # of a task in this process, which nothing can stop
_TASKS = {f"number {i}": i for i in range(5)}
_MANY = 2_000


class EngineContract:
    """Inherit it in a test class, and define a fixture ``engine``, which runs two tasks at once and attempts each at least twice.

    Attributes:
        keeps_processes: whether processes of tasks outlive the process that prepares, as those of a cluster may.
    """

    keeps_processes: ClassVar[bool] = False

    @pytest.fixture
    def driver_engine(self, engine: PreparationEngine) -> PreparationEngine:
        """An engine that is pickled and runs in another process, which is killed.

        Override it if ``engine`` does not pickle, as one with a session: return one that connects by an address.
        """
        return engine

    @pytest.fixture
    def kill_node(self) -> Callable[[int], None]:
        """Kills a node that runs tasks of the process with that id. Override it if ``driver_engine`` has several nodes."""
        pytest.skip(
            f"{type(self).__name__} does not override the fixture kill_node: its engine has one node"
        )

    def test_each_task_gives_its_result_once(self, engine: PreparationEngine) -> None:
        ends = list(engine.run(_square, _TASKS, title="squares"))

        assert sorted((name, square) for name, (square, _) in ends) == [
            (name, i * i) for name, i in _TASKS.items()
        ]
        assert {pid != os.getpid() for _, (_, pid) in ends} == {engine.leaves_process}
        assert list(engine.run(_square, {}, title="nothing")) == []

    @pytest.mark.parametrize("how", ["closed", "interrupted"])
    def test_a_run_that_is_given_up_ends_its_tasks(
        self, engine: PreparationEngine, tmp_path: Path, how: str
    ) -> None:
        work = functools.partial(
            _go_on, tmp_path, _LONG_SECONDS if engine.leaves_process else _SHORT_SECONDS
        )
        running = engine.run(work, _TASKS, title="given up")

        if how == "closed":
            next(running)
            running.close()
        else:
            threading.Thread(target=_press_ctrl_c, args=(tmp_path / "running",)).start()
            with pytest.raises(KeyboardInterrupt):
                list(running)

        assert_quiet(tmp_path)
        assert len(dict(engine.run(_square, _TASKS, title="the engine can be used"))) == len(_TASKS)

    def test_two_thousand_results_are_not_kept(self, engine: PreparationEngine) -> None:
        seen, n_kept = set[int](), _MANY

        for _, result in engine.run(
            Fraction, {f"number {i}": i for i in range(_MANY)}, title="many"
        ):
            seen.add(int(result))
            if len(seen) == _MANY:
                n_kept = sum(type(each) is Fraction for each in gc.get_objects())

        assert n_kept < _MANY // 2  # an engine may hold some at a time

    def test_what_cannot_leave_this_process_is_refused(
        self, engine: PreparationEngine, tmp_path: Path
    ) -> None:
        skip_in_this_process(engine)
        with pytest.raises(ConfigError, match="store in the memory of this process"):
            _Numbers(tmp_path, InMemoryStorageConnector()).prepare(engine=engine, progress=False)
        with pytest.raises(ConfigError, match="pickle"):
            list(
                engine.run(
                    functools.partial(_lock_at_three, threading.Lock()), _TASKS, title="work"
                )
            )
        with pytest.raises(TaskError, match="cannot be pickled") as caught:
            list(engine.run(functools.partial(_lock_at_three, None), _TASKS, title="result"))

        assert caught.value.task == "number 3"

    def test_nothing_is_left_over(
        self, engine: PreparationEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        monkeypatch.setenv("TMPDIR", str(tmp_path))

        def use() -> tuple[int, ...]:
            with pytest.raises(TaskError):
                list(engine.run(len, _TASKS, title="a number has no length"))
            with contextlib.closing(engine.run(_square, _TASKS, title="closed")) as running:
                next(running)
            return _held(tmp_path)

        before = use()  # what the first use starts may stay
        use()

        assert _until(
            lambda: all(now <= then for now, then in zip(_held(tmp_path), before, strict=True))
        )

    @pytest.mark.parametrize("dies", [False, True])
    def test_shards_are_prepared_as_in_one_process(
        self, engine: PreparationEngine, tmp_path: Path, dies: bool
    ) -> None:
        dataset = _Numbers(tmp_path, act=_die_once if dies else _pause)
        if dies:
            skip_in_this_process(engine)

        dataset.prepare(engine=engine, progress=False)

        dataset.assert_whole()
        assert all((n > 1) is dies for n in dataset.n_attempts().values())

    @pytest.mark.parametrize("how", ["raises", "dies"])
    def test_a_shard_that_fails_in_each_attempt_is_named(
        self, engine: PreparationEngine, tmp_path: Path, how: str
    ) -> None:
        if how == "dies":
            skip_in_this_process(engine)
        seconds = _LONG_SECONDS if engine.leaves_process else _SHORT_SECONDS
        dataset = _Numbers(tmp_path, act=functools.partial(_fail, how, seconds), n_shards=2)

        with pytest.raises(PreparationError, match="shard 1 failed in each of ") as caught:
            dataset.prepare(engine=engine, progress=False)

        assert_quiet(tmp_path)
        error = caught.value.__cause__
        assert isinstance(error, TaskError)
        assert error.task == "shard 1"
        assert dataset.n_attempts()[1] >= error.n_attempts > 1
        if how == "raises":
            assert isinstance(error.__cause__, ValueError)
            assert dataset.n_attempts()[1] == error.n_attempts
            assert "in _fail\n" in error.traceback_text or not engine.leaves_process
        assert not dataset.is_ready()

    @pytest.mark.parametrize("winner", [1, 2])
    def test_of_two_attempts_at_once_one_counts(
        self, engine: PreparationEngine, tmp_path: Path, winner: int
    ) -> None:
        dataset = _Numbers(tmp_path, act=_wait_for_twin, is_random=True)

        dataset.prepare(engine=_Twice(engine, winner), progress=False)

        dataset.assert_whole()
        assert set(dataset.n_attempts().values()) == {2}

    def test_a_killed_driver_resumes(
        self, engine: PreparationEngine, driver_engine: PreparationEngine, tmp_path: Path
    ) -> None:
        dataset = _Numbers(tmp_path, n_shards=12)
        with _driver(dataset, driver_engine) as driver:
            assert _until(lambda: dataset.n_noted() >= 4 or driver.poll() is not None)
            driver.kill()
            assert driver.wait() == -signal.SIGKILL
        processes = [
            Path("/proc", line.split()[1]) for line in dataset.log.read_text().splitlines()
        ]
        assert self.keeps_processes or _until(
            lambda: not any(process.exists() for process in processes)
        )
        assert_quiet(tmp_path)
        n_left = dataset.n_shards - dataset.n_noted()
        shutil.copytree(tmp_path / "store", tmp_path / "copy")

        for successor, store in ((engine, "store"), (None, "copy")):
            before = dataset.n_attempts()
            dataset = _Numbers(tmp_path, FileStorageConnector(tmp_path / store), n_shards=12)
            dataset.prepare(engine=successor, progress=False)

            again = dataset.n_attempts() - before
            assert len(again) == sum(again.values()) == n_left
            dataset.assert_whole()

    def test_shards_of_a_dead_node_are_not_lost(
        self, kill_node: Any, driver_engine: PreparationEngine, tmp_path: Path
    ) -> None:
        dataset = _Numbers(tmp_path, n_shards=24)

        with _driver(dataset, driver_engine) as driver:
            assert _until(lambda: dataset.n_noted() >= 2 or driver.poll() is not None)
            kill_node(driver.pid)
            assert driver.wait(2 * _PATIENCE_SECONDS) == 0

        dataset.assert_whole()


def skip_in_this_process(engine: PreparationEngine) -> None:
    """Skip what needs processes."""
    if not engine.leaves_process:
        pytest.skip("its tasks run in this process")


# ---------------------------------------------------------------------- what tasks do


def _square(number: int) -> tuple[int, int]:
    return number * number, os.getpid()


def _lock_at_three(lock: Any, number: int) -> Any:
    return threading.Lock() if number == 3 else number


def _go_on(folder: Path, seconds: float, number: int) -> None:
    """Say again and again that this task runs; only the first one ends when it sees that."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and (number > 0 or not (folder / "running").exists()):
        if number > 0:
            with (folder / "running").open("a") as file:
                file.write(".")
        time.sleep(0.02)


def _fail(how: str, seconds: float, dataset: _Numbers, shard: int, point: int) -> None:
    """Fail at shard 1, and once at shard 0, whose second attempt runs when shard 1 fails for the last time."""
    is_first = dataset.n_attempts()[shard] == 1
    if point != 2:
        return
    if shard == 0 and not is_first:
        _go_on(dataset.folder, seconds, 1)
    elif shard == 1 and not is_first:
        _until((dataset.folder / "running").exists, 5)
    if how == "dies" and shard == 1:
        os._exit(3)
    elif shard == 1 or is_first:
        raise ValueError("this cannot be read")


def _die_once(dataset: _Numbers, shard: int, point: int) -> None:
    if point == shard and dataset.n_attempts()[shard] == 1:
        os._exit(3) if point % 2 else os.kill(os.getpid(), signal.SIGKILL)


def _wait_for_twin(dataset: _Numbers, shard: int, point: int) -> None:
    _until(lambda: dataset.n_attempts()[shard] > 1, 5)


def _pause(dataset: _Numbers, shard: int, point: int) -> None:
    time.sleep(0.03)


class _Numbers(DatasetFactory):
    """Shards of two equal files.

    Args:
        folder: for marks and the log.
        connector: the store; None: in the folder.
        settings: the attributes below.

    Attributes:
        act: called at each point of each shard: before, in, between and in its files.
        log: has a line for each attempt, its shard and its process.
        is_random: whether each attempt writes other bytes.
        n_shards: number of shards.
    """

    card = DatasetCard("numbers", "1.0.0")
    splits = ("all",)
    folder: Path
    log: Path
    act: Callable[..., None]
    is_random, n_shards = False, 4

    def __init__(
        self, folder: Path, connector: StorageConnector | None = None, **settings: Any
    ) -> None:
        super().__init__(connector or FileStorageConnector(folder / "store"))
        vars(self).update({"folder": folder, "log": folder / "attempts", "act": _pause, **settings})

    def preparation_shards(self, raw: Resources) -> Sequence[Any]:
        return range(self.n_shards)

    def prepare_shard(self, shard: Any, raw: Resources, prepared: PreparedResources) -> None:
        with self.log.open("a") as file:
            file.write(f"{shard} {os.getpid()}\n")
        content = os.urandom(8) if self.is_random else b"%d" % shard
        for number, name in enumerate("ab"):
            self.act(self, shard, 2 * number)
            with prepared.create(f"{shard}/{name}.txt") as writer:
                writer.write(content)
                self.act(self, shard, 2 * number + 1)

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        return SequenceDatasetIterator([[prepared.stat(name).sha256 for name in sorted(prepared)]])

    def n_attempts(self) -> Counter[int]:
        """How often each shard was begun."""
        return Counter(int(line.split()[0]) for line in self.log.read_text().splitlines())

    def n_noted(self) -> int:
        """How many shards are done, by the journal."""
        journal = self.folder / "store" / self.card.name / self.card.version / JOURNAL
        return len(json.loads(journal.read_text())["steps"]) if journal.exists() else 0

    def assert_whole(self) -> None:
        """Each file of the dataset is right, and nothing else is stored."""
        store: Any = self.storage_connector
        manifest: Any = self.manifest()
        contents = [
            store.get_resource(f"numbers/1.0.0/{record.identifier}").read()
            for record in manifest.prepared
        ]
        assert [each.identifier for each in manifest.prepared] == [
            f"{n}/{x}.txt" for n in range(self.n_shards) for x in "ab"
        ]
        assert contents[::2] == contents[1::2]
        assert self.is_random or contents[::2] == [b"%d" % shard for shard in range(self.n_shards)]
        assert self.verify() == []
        find = Path(store.root_path).rglob
        # Of two attempts, one may be killed once the other has counted, and leave garbage.
        assert _until(
            lambda: (
                not (
                    (self.is_random and store.collect_garbage())
                    or [*find("*.~*"), *find("*preparing@*")]
                )
            )
        )
        assert len(store.list_resources()) == 2 * self.n_shards + 1


class _Twice(PreparationEngine):
    """Starts each task of another engine twice, and takes the first or the second of the two results."""

    def __init__(self, engine: PreparationEngine, winner: int) -> None:
        self.engine, self.winner = engine, winner
        vars(self)["leaves_process"] = engine.leaves_process

    def run(
        self, work: Callable[[Any], Any], tasks: Mapping[str, Any], *, title: str
    ) -> Generator[tuple[str, Any], None, None]:
        twins, n_seen = (
            {f"{name} #{i}": task for name, task in tasks.items() for i in (1, 2)},
            Counter[str](),
        )
        with contextlib.closing(self.engine.run(work, twins, title=title)) as ends:
            while sum(n >= self.winner for n in n_seen.values()) < len(tasks):
                twin, result = next(ends)
                n_seen[name := twin.rpartition(" #")[0]] += 1
                if n_seen[name] == self.winner:
                    yield name, result


# ---------------------------------------------------------------------- processes


@contextlib.contextmanager
def _driver(dataset: _Numbers, engine: PreparationEngine) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that prepares a dataset."""
    path = dataset.folder / "driver.pickle"
    path.write_bytes(
        dump(functools.partial(dataset.prepare, engine=engine, progress=False), in_one_piece=True)[
            0
        ]
    )
    program = f"import pathlib, pickle; pickle.loads(pathlib.Path({str(path)!r}).read_bytes())()"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen([sys.executable, "-c", program], env=environment) as process:  # noqa: S603  # our own program
        try:
            yield process
        finally:
            process.kill()


def _press_ctrl_c(running: Path) -> None:
    """Interrupt the main thread once a task runs."""
    if _until(running.exists):
        os.kill(os.getpid(), signal.SIGINT)


def assert_quiet(folder: Path) -> None:
    """No task says that it runs any more."""
    sizes = [-1]

    def is_quiet() -> bool:
        sizes.append(
            sum(
                path.stat().st_size
                for path in (folder / "running", folder / "attempts")
                if path.exists()
            )
        )
        time.sleep(0.4)
        return sizes[-1] == sizes[-2]

    assert _until(is_quiet, _LONG_SECONDS / 2), "tasks go on"


def _held(folder: Path) -> tuple[int, ...]:
    """Number of child processes, descriptors, threads, and files in a folder."""
    children = [
        pid
        for path in Path("/proc/self/task").glob("*/children")
        for pid in path.read_text().split()
    ]
    return (
        len(children),
        len(list(Path("/proc/self/fd").glob("*"))),
        threading.active_count(),
        len(list(folder.rglob("*"))),
    )


def _until(condition: Callable[[], bool], seconds: float = _PATIENCE_SECONDS) -> bool:
    """Wait until a condition holds, but no longer than that; whether it does."""
    end = time.monotonic() + seconds
    while not (holds := condition()) and time.monotonic() < end:
        time.sleep(0.01)
    return holds
