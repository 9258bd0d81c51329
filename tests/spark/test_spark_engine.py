"""The engine of Spark keeps the contract of engines, and gives up a shard that kills each of its Pythons."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sharded_dataset import Deadly

from data_stack.exception import PreparationError
from data_stack.factories.engine import PreparationEngine
from data_stack.io.storage_connectors import FileStorageConnector
from data_stack.testing import EngineContract

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TestSparkEngine(EngineContract):
    @pytest.fixture
    def engine(self, spark: SparkSession) -> PreparationEngine:
        from data_stack_spark import SparkEngine

        return SparkEngine(session=spark, attempts=2)


@pytest.mark.full
def test_a_shard_that_kills_each_python_is_given_up(spark: SparkSession, tmp_path: Path) -> None:
    from data_stack_spark import SparkEngine

    factory = Deadly(FileStorageConnector(tmp_path))

    with pytest.raises(PreparationError, match=r'{"part": 3} failed in each of 2 attempts; the last one was aborted by Spark'):
        factory.prepare(engine=SparkEngine(session=spark, attempts=2), progress=False)
