"""Shards prepared by processes, killed anywhere, give what they give one after the other, once, and
leave nothing behind.
"""

from __future__ import annotations

import importlib
import itertools
import sys
import threading
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest
from process_harness import run_python
from sharded_dataset import N_SHARDS, Random, Sharded

from data_stack import DatasetFactory, PreparedResources, Resources
from data_stack.dataset.iterator import DatasetIteratorIF, SequenceDatasetIterator
from data_stack.engines import PreparationEngine, ProcessEngine
from data_stack.exception import PreparationError, TaskError
from data_stack.factories.definition import DatasetDefinition
from data_stack.factories.resource_record import ResourceRecord
from data_stack.io.storage_connectors import FileStorageConnector, InMemoryStorageConnector
from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.processes import fork_server
from data_stack.testing import EngineContract

Result = TypeVar("Result")


@pytest.fixture(scope="module")
def in_turn(tmp_path_factory: pytest.TempPathFactory) -> tuple[ResourceRecord, ...]:
    """What the shards give one after the other."""
    return prepared(Sharded(FileStorageConnector(tmp_path_factory.mktemp("in_turn"))))


def prepared(
    factory: DatasetFactory, engine: PreparationEngine | None = None, *, keep_steps: bool = False
) -> tuple[ResourceRecord, ...]:
    """What a preparation gives."""
    factory.prepare(engine=engine, progress=False, keep_steps=keep_steps)
    manifest: Any = factory.manifest()
    return tuple(manifest.prepared)


def attempts(log: Path) -> Counter[str]:
    return Counter(line.split()[0] for line in log.read_text().splitlines())


def assert_nothing_left(factory: DatasetFactory) -> None:
    """Only what the manifest lists is there, with the copy of what ``open()`` reads, and every byte of it is right."""
    connector: Any = factory.storage_connector
    name = DatasetDefinition(factory, DatasetFactory).folder
    manifest: Any = factory.manifest()
    expected = {f"{name}/{record.identifier}" for record in manifest.prepared} | {
        f"{name}/manifest.json",
        f"{name}/opening@files",
    }
    assert set(connector.list_resources(f"{name}/")) == expected
    assert factory.verify() == []
    assert not any(
        path.name.startswith(".~") or "preparing" in path.name
        for path in Path(connector.root_path).rglob("*")
    )


class TestProcessEngine(EngineContract):
    @pytest.fixture
    def engine(self) -> PreparationEngine:
        return ProcessEngine(2, attempts=2)


def imports(module: str) -> bool:
    return module not in sys.modules and bool(importlib.import_module(module))


def test_modules_imported_by_a_task_are_there_in_later_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fork_server, "_server", None)

    assert [dict(ProcessEngine(1).run(imports, {"": "h5py"}, title="")) for _ in range(2)] == [
        {"": True},
        {"": False},
    ]


class ThreadEngine(PreparationEngine):
    """Begins each task twice, takes what ends first, and lets the others go on when all is over."""

    leaves_process = False

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []

    def run(
        self, work: Callable[[Any], Result], tasks: Mapping[str, Any], *, title: str
    ) -> Generator[tuple[str, Result], None, None]:
        for name, task in tasks.items():
            ends: list[Result] = []
            has_ended = threading.Event()

            def attempt(
                task: Any = task, ends: list[Result] = ends, has_ended: threading.Event = has_ended
            ) -> None:
                ends.append(work(task))
                has_ended.set()

            for _ in range(3):
                self.threads.append(threading.Thread(target=attempt))
                self.threads[-1].start()
            has_ended.wait()
            yield name, ends[0]

    def join(self) -> None:
        for thread in self.threads:
            thread.join()


def test_attempts_that_outlive_the_run_change_and_leave_nothing(
    store: StorageConnector, log: Path
) -> None:
    factory, engine = Random(store), ThreadEngine()

    records = prepared(factory, engine)
    engine.join()

    assert sum(attempts(log).values()) > N_SHARDS
    assert len(records) == 2 * N_SHARDS + 1
    iterator, _ = factory.get_dataset_iterator()
    assert all(first == second for [(first, second)] in iterator)
    assert_nothing_left(factory)


@pytest.mark.parametrize("keep_steps", [True, False])
def test_a_failing_shard_is_named_and_others_kept_if_asked(
    store: FileStorageConnector,
    in_turn: tuple[ResourceRecord, ...],
    log: Path,
    monkeypatch: pytest.MonkeyPatch,
    keep_steps: bool,
) -> None:
    monkeypatch.setenv("SHARDED_FAIL", "7")
    factory = Sharded(store)

    with pytest.raises(PreparationError) as caught:
        prepared(factory, ProcessEngine(1, attempts=2), keep_steps=keep_steps)

    said = 'shard {"part": 7} failed in each of 2 attempts; the last one raised ValueError: part 7 cannot be read'
    assert said in str(caught.value)
    assert isinstance(caught.value.__cause__, TaskError)
    assert not factory.is_ready()
    assert any("preparing@" in name for name in store.list_resources()) is keep_steps
    before = attempts(log)
    monkeypatch.delenv("SHARDED_FAIL")

    assert prepared(factory, ProcessEngine(2)) == in_turn

    assert attempts(log) - before == (
        {"part-7": 1} if keep_steps else {f"part-{part}": 1 for part in range(N_SHARDS)}
    )
    assert_nothing_left(factory)


class Described(Sharded):
    def preparation_shards(self, raw: Resources) -> Any:
        return self.shards  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("shards", "said"),
    [
        ([1, 1], "one shard twice: 1"),
        ([float("nan")], "must return plain JSON"),
        ("abc", "must return a list"),
        ([1], "the factory Described cannot be sent to other processes: TypeError"),
    ],
)
def test_shards_that_are_unlisted_repeated_or_unpicklable_are_refused(
    tmp_path: Path, shards: Any, said: str
) -> None:
    factory = Described(FileStorageConnector(tmp_path))
    vars(factory).update(shards=shards, lock=threading.Lock())

    with pytest.raises(PreparationError, match=said):
        prepared(factory, ProcessEngine(1))


class Empty(Described):
    def prepare_shard(self, shard: Any, raw: Resources, prepared: PreparedResources) -> None:
        pass

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        return SequenceDatasetIterator([[0]])


@pytest.mark.parametrize("engine", [None, ThreadEngine()], ids=["none", "threads"])
def test_the_work_per_shard_does_not_grow_with_their_number(
    engine: PreparationEngine | None,
) -> None:
    n_calls = []
    for n_shards in (10, 30, 300):  # the first one imports modules
        calls = itertools.count()
        factory = Empty(InMemoryStorageConnector())
        vars(factory).update(shards=range(n_shards))
        sys.setprofile(lambda *_, calls=calls: next(calls))
        try:
            factory.prepare(engine=engine, progress=False)
        finally:
            sys.setprofile(None)
        n_calls.append(next(calls))

    assert n_calls[2] < 12 * n_calls[1]


SCRIPT = """
import sys
from data_stack import DatasetCard, DatasetFactory, FileStorageConnector, SequenceDatasetIterator
from data_stack.engines import ProcessEngine

class Own(DatasetFactory):
    card = DatasetCard("own", "1")
    splits = ("all",)
    def preparation_shards(self, raw):
        return [(1, 2), None]
    def prepare_shard(self, shard, raw, prepared):
        print("not on standard output")
        with prepared.create("one.txt" if shard else "none.txt") as file:
            file.write(repr(shard).encode())
    def open(self, split, prepared):
        return SequenceDatasetIterator([sorted(prepared)])

factory = Own(FileStorageConnector(sys.argv[1]))
factory.prepare(engine=ProcessEngine(2))
print(list(factory.get_dataset_iterator()[0]))
"""


def test_a_script_needs_no_guard(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)

    output, errors = run_python(tmp_path / "script.py", tmp_path / "store")

    assert output == "[('none.txt',), ('one.txt',)]\n", errors
    assert errors.count("not on standard output") == 2
