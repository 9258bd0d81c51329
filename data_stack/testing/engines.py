"""What every engine of preparations promises."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from data_stack.dataset.iterator import DatasetIteratorIF, SequenceDatasetIterator
from data_stack.exception import TaskError
from data_stack.factories.declarative import DatasetCard, DatasetFactory, PreparedResources, Resources
from data_stack.factories.engine import PreparationEngine
from data_stack.io.storage_connectors.file import FileStorageConnector

_TASKS = {f"number {i}": i for i in range(5)}


class EngineContract:
    """Inherit it in a test class, and define a fixture ``engine``, which attempts a task at least twice."""

    def test_each_task_gives_its_result_once(self, engine: PreparationEngine) -> None:
        results = list(engine.run(_square, _TASKS, title="squares"))

        assert sorted(results) == [(name, i * i) for name, i in _TASKS.items()]
        assert list(engine.run(_square, {}, title="nothing")) == []

    def test_a_task_that_raises_in_each_attempt_is_named(self, engine: PreparationEngine) -> None:
        with pytest.raises(TaskError) as caught:
            list(engine.run(_fail_at_three, _TASKS, title="failing"))

        assert caught.value.task == "number 3"
        assert caught.value.n_attempts > 1
        assert isinstance(caught.value.__cause__, ValueError)

    def test_a_run_that_is_given_up_leaves_the_engine_usable(self, engine: PreparationEngine) -> None:
        running = engine.run(_square, _TASKS, title="given up")
        next(running)
        running.close()

        assert dict(engine.run(_square, _TASKS, title="again")) == {name: i * i for name, i in _TASKS.items()}

    def test_a_task_whose_process_is_killed_is_attempted_again(self, engine: PreparationEngine, tmp_path: Path) -> None:
        if not engine.leaves_process:
            pytest.skip("its tasks run in this process")

        results = dict(engine.run(functools.partial(_die_once, str(tmp_path)), _TASKS, title="killed"))

        assert results == _TASKS

    def test_shards_are_prepared_as_one_process_prepares_them(self, engine: PreparationEngine, tmp_path: Path) -> None:
        alone, spread = (_Numbers(FileStorageConnector(tmp_path / name)) for name in ("alone", "spread"))

        alone.prepare(progress=False)
        spread.prepare(engine=engine, progress=False)

        expected, made = alone.manifest(), spread.manifest()
        assert expected is not None
        assert made is not None
        assert made.prepared == expected.prepared
        assert spread.verify() == []
        assert len(spread.storage_connector.list_resources()) == len(made.prepared) + 1


def _square(number: int) -> int:
    return number * number


def _fail_at_three(number: int) -> int:
    if number == 3:
        raise ValueError("three cannot be done")
    return number


def _die_once(folder: str, number: int) -> int:
    mark = Path(folder, "died")
    if number == 2 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


class _Numbers(DatasetFactory):
    """A number in each of four shards."""

    card = DatasetCard("numbers", "1.0.0")
    splits = ("all",)

    def preparation_shards(self, raw: Resources) -> Sequence[Any]:
        return range(4)

    def prepare_shard(self, shard: Any, raw: Resources, prepared: PreparedResources) -> None:
        with prepared.create(f"{shard}.txt") as file:
            file.write(b"%d" % shard)

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        return SequenceDatasetIterator([sorted(prepared)])
