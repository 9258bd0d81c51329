"""Shards prepared by Spark, its Pythons and executors killed, give what they give one after the other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import sharded_dataset
from process_census import children
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

ROOT = Path(__file__).parents[2]


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


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """The environment in which the dataset is installed."""
    folder = tmp_path / "site" / "sharded-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: sharded\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[data_stack.datasets]\nsharded = sharded_dataset:Sharded\n")
    path = os.pathsep.join([str(tmp_path / "site"), str(Path(sharded_dataset.__file__).parent), str(ROOT)])
    return {
        **os.environ,
        "PYTHONPATH": path,
        "SHARDED_LOG": str(tmp_path / "log"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # made for short lives
    }


def below(pid: int) -> list[int]:
    """A process and all that it has started, and so on."""
    return [pid, *(each for child in children(pid) for each in below(child))]


def is_executor(pid: int) -> bool:
    with suppress(OSError):
        return b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


@pytest.mark.full
def test_executors_of_a_cluster_that_are_killed_lose_and_double_nothing(
    installed: dict[str, str], in_turn: tuple[ResourceRecord, ...], tmp_path: Path
) -> None:
    store, log, errors = tmp_path / "store", tmp_path / "log", tmp_path / "errors"
    arguments = ["--json", "--storage", str(store), "prepare", "sharded", "--master", "local-cluster[2,1,1024]"]
    with (
        errors.open("wb") as stream,
        subprocess.Popen(
            [sys.executable, "-m", "data_stack.cli", *arguments],
            env={**installed, "SHARDED_PAUSE": "2"},
            stdout=subprocess.PIPE,
            stderr=stream,
        ) as driver,
    ):
        try:
            while not log.exists() or len(log.read_text().splitlines()) < 3:
                assert driver.poll() is None, errors.read_text()[-4000:]
                time.sleep(0.01)
            at_work = int(log.read_text().splitlines()[-1].split()[1])  # has just begun a shard
            (executor,) = [each for each in below(driver.pid) if is_executor(each) and at_work in below(each)]

            # Its Pythons too, as when a machine is lost: left alone, they would end what they are at, and that would count.
            for process in reversed(below(executor)):
                os.kill(process, signal.SIGKILL)
            out, _ = driver.communicate(timeout=200)
        finally:
            driver.kill()

    assert driver.returncode == 0, errors.read_text()[-4000:]
    assert json.loads(out)["steps"][0]["step"] == "12 shards"
    assert sum(attempts(tmp_path).values()) > N_SHARDS
    assert_right(Sharded(FileStorageConnector(store)), in_turn)
