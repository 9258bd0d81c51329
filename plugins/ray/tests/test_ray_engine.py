"""The engine of Ray keeps the contract of engines, also when a node dies."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from data_stack.engines import PreparationEngine
from data_stack.exception import TaskError
from data_stack.testing import EngineContract


@pytest.fixture
def engine(ray_cluster: None) -> PreparationEngine:
    from data_stack_ray import RayEngine

    return RayEngine(attempts=2)


class TestRayEngineQuickly:
    def test_a_run_that_is_closed_ends_its_tasks(
        self, engine: PreparationEngine, tmp_path: Path
    ) -> None:
        EngineContract().test_a_run_that_is_given_up_ends_its_tasks(engine, tmp_path, "closed")


@pytest.mark.full  # it starts dozens of workers
class TestRayEngine(EngineContract):
    keeps_processes = True

    @pytest.fixture
    def driver_engine(self, ray_nodes: Any) -> PreparationEngine:
        from data_stack_ray import RayEngine

        return RayEngine(ray_nodes.address, attempts=2)

    @pytest.fixture
    def kill_node(self, ray_nodes: Any) -> Callable[[int], None]:
        return lambda driver: ray_nodes.remove_node(
            next(iter(ray_nodes.worker_nodes)), allow_graceful=False
        )


@pytest.mark.parametrize("n_deaths", [pytest.param(2, marks=pytest.mark.full), 99])
def test_tasks_of_an_actor_that_dies_are_attempted_alone(
    engine: PreparationEngine, tmp_path: Path, n_deaths: int
) -> None:
    def die_at_forty(number: int) -> int:
        if number == 40:
            with (tmp_path / "deaths").open("a") as deaths:
                if deaths.tell() < n_deaths:
                    os.write(deaths.fileno(), b".")
                    os._exit(3)
        return number

    run = engine.run(die_at_forty, {f"number {i}": i for i in range(60)}, title="quick")

    if n_deaths == 2:  # with others, and alone
        assert sorted(number for _, number in run) == list(range(60))
    else:
        with pytest.raises(TaskError) as caught:
            list(run)
        assert (caught.value.task, caught.value.n_attempts) == ("number 40", 2)


@pytest.mark.full
def test_the_code_of_the_page_runs(ray_environment: str, tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "ray.md").read_text(encoding="utf-8")
    program = "\n".join(re.findall(r"```python\n(.*?)```", page, flags=re.S))
    (tmp_path / "page.py").write_text(
        f"{program}\nassert (len(train), int(train[0]['image'].max())) == (1000, 1)\n"
    )

    done = subprocess.run(
        [sys.executable, "-W", "ignore", "page.py"], cwd=tmp_path, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr[-3000:]


def test_the_command_prepares_by_ray(
    ray_cluster: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from data_stack.cli.main import main

    prepare = ["--storage", str(tmp_path), "prepare", "digits"]

    assert main([*prepare, "--address", "auto"]) == 0
    assert main([*prepare, "--address", "auto", "--master", "local[1]"]) != 0
    assert main([*prepare, "--engine", "processes", "--address", "auto"]) != 0
    assert main([*prepare, "--again", "--address", "10.0.0.1:6379"]) != 0
    said = capsys.readouterr()
    assert f"digits is ready in FileStorageConnector({str(tmp_path)!r})" in said.out
    for problem in (
        "pass one of them",
        "--address --engine ray",
        "this process is connected to Ray",
    ):
        assert problem in said.err
