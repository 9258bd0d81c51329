"""The engine of Spark keeps the contract of engines: two of its tests in ``make test``, all of them in ``make test-full``."""

from __future__ import annotations

from pathlib import Path

import pytest
from data_stack_spark import SparkEngine
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
