"""The engine of Ray keeps the contract of engines, also when a node dies."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from sharded_dataset import N_SHARDS

from data_stack.factories.engine import PreparationEngine
from data_stack.testing import EngineContract


@pytest.mark.full  # it starts dozens of workers
class TestRayEngine(EngineContract):
    keeps_processes = True

    @pytest.fixture
    def engine(self, ray_cluster: None) -> PreparationEngine:
        from data_stack_ray import RayEngine

        return RayEngine(attempts=2)

    @pytest.fixture
    def driver_engine(self, ray_cluster: None) -> PreparationEngine:
        import ray
        from data_stack_ray import RayEngine

        return RayEngine(ray.get_runtime_context().gcs_address, attempts=2)


_PROGRAM = """
import sys, threading, time
from pathlib import Path
import ray
from ray.cluster_utils import Cluster
from data_stack_ray import RayEngine
from sharded_dataset import Sharded
from data_stack import FileStorageConnector

store, log, loses_node = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "loses a node"
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
node = cluster.add_node(num_cpus=1)
ray.init(cluster.address, logging_level="ERROR", log_to_driver=False)

def lose():
    while len({line.split()[1] for line in log.read_text().splitlines()}) < 2:  # both nodes are at work
        time.sleep(0.02)
    cluster.remove_node(node, allow_graceful=False)
    log.with_name("lost").touch()

if loses_node:
    threading.Thread(target=lose, daemon=True).start()
factory = Sharded(FileStorageConnector(store))
factory.prepare(engine=RayEngine(), progress=False)
nodes = [each["Alive"] for each in ray.nodes()]
print(factory.verify(), sorted(nodes), factory.is_ready())
ray.shutdown()
cluster.shutdown()
"""


@pytest.mark.full
def test_a_node_and_a_driver_that_die_lose_and_repeat_nothing(ray_environment: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    environment = {**os.environ, "RAY_TMPDIR": ray_environment, "SHARDED_LOG": str(log), "SHARDED_PAUSE": "0.5"}
    command = [sys.executable, "-W", "ignore", "-c", _PROGRAM, str(tmp_path / "store"), str(log)]

    with subprocess.Popen([*command, "loses a node"], env=environment, start_new_session=True) as driver:
        while len(log.read_text().splitlines()) < 7 or not (tmp_path / "lost").exists():
            assert driver.poll() is None
            time.sleep(0.02)
        os.killpg(driver.pid, signal.SIGKILL)  # with its cluster, at once
    done = subprocess.run([*command, "stays whole"], env=environment, capture_output=True, text=True, timeout=120)

    assert done.stdout.splitlines()[-1:] == ["[] [True, True] True"], done.stderr[-3000:]
    repeated = Counter(line.split()[0] for line in log.read_text().splitlines())
    assert {*repeated} == {f"part-{part}" for part in range(N_SHARDS)}
    assert sum(repeated.values()) <= N_SHARDS + 3  # what was at work when node and driver died


@pytest.mark.full
def test_the_code_of_the_page_runs(ray_environment: str, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "ray.md").read_text(encoding="utf-8")
    program = "\n".join(re.findall(r"```python\n(.*?)```", page, flags=re.S)).replace("/shared/runs", str(tmp_path / "runs"))
    (tmp_path / "page.py").write_text(f"{program}\nassert (len(train), int(train[0]['image'].max())) == (1000, 1)\n")
    environment = {**os.environ, "RAY_TMPDIR": ray_environment}

    command = [sys.executable, "-W", "ignore", "page.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr[-3000:]


def test_the_command_prepares_by_ray(ray_cluster: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from data_stack.cli.main import main

    prepare = ["--storage", str(tmp_path), "prepare", "digits"]

    assert main([*prepare, "--address", "auto"]) == 0
    assert main([*prepare, "--address", "auto", "--master", "local[1]"]) != 0
    assert main([*prepare, "--engine", "processes", "--address", "auto"]) != 0
    assert main([*prepare, "--again", "--address", "10.0.0.1:6379"]) != 0
    said = capsys.readouterr()
    assert f"digits is ready in FileStorageConnector({str(tmp_path)!r})" in said.out
    for problem in ("pass one of them", "--address --engine ray", "this process is connected to Ray"):
        assert problem in said.err
