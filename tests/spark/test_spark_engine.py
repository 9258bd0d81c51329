"""The engine of Spark keeps the contract of engines: two of its tests in ``make test``, all of them in ``make test-full``."""

from __future__ import annotations

import pytest
from data_stack_spark import SparkEngine
from pyspark.sql import SparkSession

from data_stack.factories.engine import PreparationEngine
from data_stack.testing import EngineContract


@pytest.fixture
def engine(spark: SparkSession) -> PreparationEngine:
    return SparkEngine(session=spark, attempts=2)


class TestSparkEngineQuickly:
    test_a_run_that_is_given_up_ends_its_tasks = EngineContract.test_a_run_that_is_given_up_ends_its_tasks
    test_shards_are_prepared_as_in_one_process = EngineContract.test_shards_are_prepared_as_in_one_process


@pytest.mark.full
@pytest.mark.timeout(1800)  # Spark takes some milliseconds to start each of ten thousand tasks
class TestSparkEngine(EngineContract):
    @pytest.fixture
    def driver_engine(self) -> PreparationEngine:
        return SparkEngine("local[2]", attempts=2)
