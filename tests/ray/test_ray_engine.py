"""The engine of Ray keeps the contract of engines, also when a node dies."""

from __future__ import annotations

from pathlib import Path

import pytest
from sharded_dataset import Deadly

from data_stack.exception import PreparationError
from data_stack.factories.engine import PreparationEngine
from data_stack.io.storage_connectors import FileStorageConnector
from data_stack.testing import EngineContract


class TestRayEngine(EngineContract):
    @pytest.fixture
    def engine(self, ray_cluster: None) -> PreparationEngine:
        from data_stack_ray import RayEngine

        return RayEngine(attempts=2)


def test_a_shard_that_kills_each_worker_is_given_up(ray_cluster: None, tmp_path: Path) -> None:
    from data_stack_ray import RayEngine

    with pytest.raises(PreparationError, match=r'{"part": 3} failed in each of 2 attempts; the last one ended in Ray: WorkerCra'):
        Deadly(FileStorageConnector(tmp_path)).prepare(engine=RayEngine(attempts=2), progress=False)
