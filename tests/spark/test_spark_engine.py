"""The engine of Spark keeps the contract of engines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from data_stack.factories.engine import PreparationEngine
from data_stack.testing import EngineContract

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TestSparkEngine(EngineContract):
    @pytest.fixture
    def engine(self, spark: SparkSession) -> PreparationEngine:
        from data_stack_spark import SparkEngine

        return SparkEngine(session=spark, attempts=2)

    @pytest.mark.full
    @pytest.mark.timeout(1800)  # Spark takes some milliseconds to start each task
    def test_ten_thousand_results_are_not_kept(self, engine: PreparationEngine) -> None:
        super().test_ten_thousand_results_are_not_kept(engine)

    @pytest.mark.full
    def test_a_killed_driver_resumes(self, engine: PreparationEngine, driver_engine: PreparationEngine, tmp_path: Path) -> None:
        super().test_a_killed_driver_resumes(engine, driver_engine, tmp_path)

    @pytest.fixture
    def driver_engine(self) -> PreparationEngine:
        from data_stack_spark import SparkEngine

        return SparkEngine("local[2]", attempts=2)
