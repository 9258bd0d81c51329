"""The loader in workers of Ray Train: each sample is read once.

This holds also for a run that loses a node, or goes on with more workers.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import data_stack
from data_stack.exception import ConfigError, LoaderStateError

pytestmark = pytest.mark.filterwarnings("ignore")  # of Ray, pandas and protobuf

N_SAMPLES = 48
BATCH_SIZE = 4


def train(config: dict[str, Any]) -> None:
    """Log the samples of each step that is in a checkpoint.

    In the middle of the epoch, stop, or wait for the loss of a node.
    """
    import ray.train
    from data_stack_ray import RayLoader

    rank = ray.train.get_context().get_world_rank()
    log = Path(config["log"])
    with RayLoader(config["samples"], BATCH_SIZE, shuffle=True, seed=3, workers=0) as loader:
        loader.restore(config.get("checkpoint"))
        for step, batch in enumerate(loader):
            with tempfile.TemporaryDirectory() as folder:
                loader.save(folder)
                checkpoint = ray.train.Checkpoint.from_directory(folder)
                ray.train.report({"step": step}, checkpoint=checkpoint if rank == 0 else None)
            ray.train.get_all_reported_checkpoints()  # returns when the controller has this one
            samples = " ".join(str(sample) for sample in batch["x"].tolist())
            (log / f"{config['run']}-{loader.tell()[1]}-{rank}").write_text(samples)
            if step != 1:
                continue
            if config["ends"] == "stops":
                return
            if config["ends"] == "waits":
                while not log.with_name("lost").exists():
                    time.sleep(0.05)


def fit(n_workers: Any, folder: Path, *, n_cpus: float = 0.4, **config: Any) -> Any:
    """Run Ray Train's workers; return its result."""
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    trainer = DataParallelTrainer(
        train,
        train_loop_config={
            "samples": data_stack.from_numpy({"x": np.arange(N_SAMPLES)}),
            "log": str(folder / "log"),
            **config,
        },
        scaling_config=ScalingConfig(num_workers=n_workers, resources_per_worker={"CPU": n_cpus}),
        run_config=RunConfig(
            name=config["run"],
            storage_path=str(folder),
            failure_config=FailureConfig(max_failures=1),
        ),
    )
    return trainer.fit()


def samples_of_steps(folder: Path) -> dict[str, list[str]]:
    """Return what each worker has read in each step, by run, step and rank."""
    samples = {}
    for path in (folder / "log").iterdir():
        if "-" in path.name:
            samples[path.name] = path.read_text().split()
    return samples


def read_samples(steps: dict[str, list[str]]) -> list[int]:
    """Return all samples of some steps, in order."""
    return sorted(int(sample) for samples in steps.values() for sample in samples)


@pytest.mark.full
def test_a_run_that_gets_more_workers_reads_samples_once(ray_cluster: None, tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()

    stopped = fit(1, tmp_path, run="first", ends="stops")
    done = fit(2, tmp_path, run="second", ends="", checkpoint=stopped.checkpoint)

    steps = samples_of_steps(tmp_path)
    first_steps = [name for name in steps if name.startswith("first")]
    ranks_of_second_run = {name.rpartition("-")[2] for name in steps if name.startswith("second")}
    assert stopped.error is None
    assert done.error is None
    assert len(first_steps) == 2
    assert ranks_of_second_run == {"0", "1"}
    assert read_samples(steps) == list(range(N_SAMPLES))


_PROGRAM = """
import sys
from pathlib import Path
import ray
from test_ray_train import fit

ray.init(sys.argv[1], logging_level="ERROR", log_to_driver=False)
print(fit((1, 3), Path(sys.argv[2]), run="all", ends="waits", n_cpus=1).error)
"""


@pytest.mark.full
@pytest.mark.timeout(900)  # Ray takes its time to find out, two minutes alone
def test_a_run_that_loses_a_node_reads_samples_once(ray_nodes: Any, tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    command = [sys.executable, "-W", "ignore", "-c", _PROGRAM, ray_nodes.address, str(tmp_path)]

    with subprocess.Popen(
        command, cwd=Path(__file__).parent, stdout=subprocess.PIPE, text=True
    ) as driver:
        n_steps = 0
        while n_steps < 2 * 3:  # two steps of each of three workers
            assert driver.poll() is None
            time.sleep(0.05)
            n_steps = sum(1 for samples in samples_of_steps(tmp_path).values() if samples)
        ray_nodes.remove_node(next(iter(ray_nodes.worker_nodes)), allow_graceful=False)
        (tmp_path / "lost").touch()
        output, _ = driver.communicate(timeout=600)

    steps = samples_of_steps(tmp_path)
    n_workers_of_steps = Counter(name.rpartition("-")[0] for name in steps)
    assert output.splitlines()[-1:] == ["None"]
    assert set(n_workers_of_steps.values()) == {3, 2}
    assert read_samples(steps) == list(range(N_SAMPLES))


def test_loaders_without_ray_train_and_checkpoints_without_state_are_refused(
    tmp_path: Path,
) -> None:
    from data_stack_ray import RayLoader
    from ray.train import Checkpoint

    with pytest.raises(ConfigError, match="belongs into the function"):
        RayLoader([1, 2], 1)
    loader = RayLoader.__new__(RayLoader)
    with pytest.raises(LoaderStateError, match="save"):
        loader.restore(Checkpoint.from_directory(tmp_path))
