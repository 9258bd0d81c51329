"""The engine of Spark keeps the contract of engines.

``make test`` runs two of its tests, ``make test-full`` all of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from data_stack_spark import SparkEngine
from data_stack_spark.engine import find_suspects
from pyspark.sql import SparkSession

from data_stack.engines import PreparationEngine
from data_stack.testing import EngineContract


@pytest.fixture
def engine(spark: SparkSession) -> PreparationEngine:
    return SparkEngine(session=spark, attempts=2)


class TestSparkEngineQuickly:
    def test_shards_whose_processes_die_are_prepared(
        self, engine: PreparationEngine, tmp_path: Path
    ) -> None:
        EngineContract().test_shards_are_prepared_as_in_one_process(engine, tmp_path, True)

    def test_a_run_that_is_closed_ends_its_tasks(
        self, engine: PreparationEngine, tmp_path: Path
    ) -> None:
        EngineContract().test_a_run_that_is_given_up_ends_its_tasks(engine, tmp_path, "closed")


@pytest.mark.full
@pytest.mark.timeout(600)  # Spark takes 30 ms for each of two thousand tasks
class TestSparkEngine(EngineContract):
    @pytest.fixture
    def driver_engine(self) -> PreparationEngine:
        return SparkEngine("local[2]", attempts=2)


# ---------------------------------------------------------------------- who made Spark abort


@pytest.mark.parametrize(
    ("problem", "suspects"),
    [
        ("Task 1 in stage 0.0 failed 4 times", ["b"]),
        ("Task 0 in stage 0.0 failed 4 times", ["b", "c"]),  # it has a result
        ("the cluster is gone", ["b", "c"]),
    ],
)
def test_spark_blames_one_task_or_all_unfinished_ones(problem: str, suspects: list[str]) -> None:
    assert find_suspects(problem, ["a", "b", "c"], ["b", "c"]) == suspects
