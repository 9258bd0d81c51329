"""Shards prepared by Spark, its Pythons and executors killed, give what they give one after the other."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sharded_dataset import N_SHARDS, Sharded

from data_stack.exception import PreparationError, TaskError
from data_stack.factories.declarative import PreparedResources, Resources
from data_stack.factories.engine import PreparationEngine
from data_stack.factories.manifest import ResourceRecord
from data_stack.io.storage_connectors import FileStorageConnector
from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.testing import EngineContract

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Directed(Sharded):
    """A dataset whose attempts are directed by files in a folder, since Spark's Pythons keep the environment of their start."""

    folder = ""

    def prepare_shard(self, shard: Any, raw: Resources, prepared: PreparedResources) -> None:
        os.environ["SHARDED_LOG"] = f"{self.folder}/log"
        os.environ.pop("SHARDED_DIE", None)
        if os.path.isdir(f"{self.folder}/die"):
            os.environ["SHARDED_DIE"] = f"{self.folder}/die"
        if shard["part"] == 7 and os.path.exists(f"{self.folder}/fail"):
            raise ValueError("part 7 cannot be read")
        super().prepare_shard(shard, raw, prepared)


@pytest.fixture(params=["file", pytest.param("mongodb", marks=pytest.mark.full)])
def connector(request: pytest.FixtureRequest, tmp_path: Path) -> StorageConnector:
    if request.param == "file":
        return FileStorageConnector(tmp_path / "store")
    from data_stack.io.storage_connectors.mongodb import MongoDBStorageConnector

    return MongoDBStorageConnector(request.getfixturevalue("mongodb_uri"))


@pytest.fixture(scope="module")
def in_turn(tmp_path_factory: pytest.TempPathFactory) -> tuple[ResourceRecord, ...]:
    """What the shards give one after the other."""
    factory = Sharded(FileStorageConnector(tmp_path_factory.mktemp("in_turn")))
    factory.prepare(progress=False)
    manifest = factory.manifest()
    assert manifest is not None
    return manifest.prepared


def direct(connector: StorageConnector, folder: Path) -> Directed:
    factory = Directed(connector)
    factory.folder = str(folder)
    return factory


def attempts(folder: Path) -> Counter[str]:
    return Counter(line.split()[0] for line in (folder / "log").read_text().splitlines())


def assert_right(factory: Sharded, expected: tuple[ResourceRecord, ...]) -> None:
    manifest = factory.manifest()
    assert manifest is not None
    assert manifest.prepared == expected
    names = {f"sharded/1.0.0/{record.identifier}" for record in expected} | {"sharded/1.0.0/manifest.json"}
    assert set(factory.storage_connector.list_resources("sharded/")) == names
    assert factory.verify() == []


class TestSparkEngine(EngineContract):
    @pytest.fixture
    def engine(self, spark: SparkSession) -> PreparationEngine:
        from data_stack_spark import SparkEngine

        return SparkEngine(session=spark, attempts=2)


def test_pythons_of_spark_that_are_killed_lose_and_double_nothing(
    spark: SparkSession, in_turn: tuple[ResourceRecord, ...], tmp_path: Path
) -> None:
    from data_stack_spark import SparkEngine

    marks = tmp_path / "die"
    marks.mkdir()
    for part in range(N_SHARDS):  # marks of the deaths that have been: only one more, as starting a Python takes seconds
        for point in ("begin", "create", "between", "end"):
            if (part, point) != (0, "create"):
                (marks / f"{part}-{point}").touch()
    factory = direct(FileStorageConnector(tmp_path / "store"), tmp_path)

    factory.prepare(engine=SparkEngine(session=spark, attempts=3), progress=False)

    assert attempts(tmp_path)["part-0"] == 2
    assert_right(factory, in_turn)


def test_a_shard_that_fails_in_spark_is_named_and_all_else_is_kept_where_asked_for(
    spark: SparkSession, in_turn: tuple[ResourceRecord, ...], tmp_path: Path
) -> None:
    from data_stack_spark import SparkEngine

    (tmp_path / "fail").touch()
    factory = direct(FileStorageConnector(tmp_path / "store"), tmp_path)

    with pytest.raises(PreparationError) as caught:
        factory.prepare(engine=SparkEngine(session=spark, attempts=2), progress=False, keep_steps=True)

    assert 'shard {"part": 7} failed in each of 2 attempts' in str(caught.value)
    assert isinstance(caught.value.__cause__, TaskError)
    assert isinstance(caught.value.__cause__.__cause__, ValueError)
    before = attempts(tmp_path)
    (tmp_path / "fail").unlink()
    factory.prepare(engine=SparkEngine(session=spark), progress=False)
    assert attempts(tmp_path) - before == {"part-7": 1}
    assert_right(factory, in_turn)


class Deadly(Sharded):
    def prepare_shard(self, shard: Any, raw: Resources, prepared: PreparedResources) -> None:
        if shard["part"] == 3:
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.full
def test_a_shard_that_kills_each_python_is_given_up(spark: SparkSession, tmp_path: Path) -> None:
    from data_stack_spark import SparkEngine

    factory = Deadly(FileStorageConnector(tmp_path))

    with pytest.raises(PreparationError, match=r'{"part": 3} failed in each of 2 attempts; the last one was given up by Spark'):
        factory.prepare(engine=SparkEngine(session=spark, attempts=2), progress=False)
