"""The programs of the pages on Lightning, accelerate, the Trainer, Keras and torchrun: they are
killed in mid-epoch, continue, and end as if nothing had happened.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OBSERVER = ROOT / "tests" / "support" / "observed_program.py"
N_SAMPLES = 1437
N_EPOCHS = 3

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]


@dataclass(frozen=True)
class Step:
    """What all ranks have done in a step: the images, and the weights after it."""

    images: list[str]
    weights: list[float]


@dataclass(frozen=True)
class Client:
    """A page of the documentation.

    Attributes:
        page: its name.
        packages: what its program imports.
        variables: variables of the environment.
    """

    page: str
    packages: tuple[str, ...]
    variables: dict[str, str] = field(default_factory=dict)

    def skip_if_missing(self) -> None:
        missing = [package for package in self.packages if find_spec(package) is None]
        if missing:
            pytest.skip(f"{', '.join(missing)} not installed: make clients")

    def run(self, folder: Path, *, world: int = 1, step_of_death: int = 0) -> tuple[int, str]:
        """Run the program in a folder; the exit code, and what was written."""
        page = (ROOT / "docs" / "how_to" / f"{self.page}.md").read_text(encoding="utf-8")
        program, *_ = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
        folder.mkdir(exist_ok=True)
        (folder / "train.py").write_text(program, encoding="utf-8")
        launcher = []
        if world > 1:
            launcher = ["-m", "torch.distributed.run", f"--nproc-per-node={world}"]
        command = [sys.executable, *launcher, str(OBSERVER), "train.py", "ledger"]
        variables = dict(os.environ)
        variables.pop("KERAS_BACKEND", None)
        ended = subprocess.run(
            [*command, str(step_of_death)],
            cwd=folder,
            env={
                **variables,
                "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
                "DATA_STACK_HOME": str(folder.parent / "store"),
                "OMP_NUM_THREADS": "1",
                "CUDA_VISIBLE_DEVICES": "",
                **self.variables,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=400,
            check=False,
        )
        return ended.returncode, ended.stdout


def take_steps(folder: Path) -> list[Step]:
    """The steps in the ledgers of all ranks, which begin again. Steps that a rank lacks are left
    out.
    """
    ledgers = []
    for path in sorted(folder.glob("ledger-*")):
        ledgers.append([json.loads(line) for line in path.read_text().splitlines()])
        path.unlink()
    steps = []
    for of_ranks in zip(*ledgers, strict=False):
        images = [image for images, _ in of_ranks for image in images]
        steps.append(Step(images, [weights for _, weights in of_ranks]))
    return steps


LIGHTNING = Client("lightning", ("lightning",))
ACCELERATE = Client("accelerate", ("accelerate",), {"ACCELERATE_USE_CPU": "1"})
TRAINER = Client("trainer", ("transformers", "accelerate"), {"ACCELERATE_USE_CPU": "1"})
TORCHRUN = Client("many_gpus", ("torch",))
KERAS_ON_JAX = Client("keras", ("keras", "jax"), {"KERAS_BACKEND": "jax"})
KERAS_ON_TORCH = Client("keras", ("keras", "torch"), {"KERAS_BACKEND": "torch"})


@pytest.mark.parametrize(
    ("client", "n_steps_kept"),
    [
        pytest.param(LIGHTNING, 30, id="lightning"),
        pytest.param(ACCELERATE, 33, id="accelerate"),
        pytest.param(TRAINER, 30, id="trainer"),
        pytest.param(KERAS_ON_JAX, 33, id="keras on jax"),
        pytest.param(KERAS_ON_TORCH, 33, id="keras on torch"),
    ],
)
def test_a_killed_training_ends_with_the_same_weights(
    client: Client, n_steps_kept: int, tmp_path: Path
) -> None:
    client.skip_if_missing()

    ended, said = client.run(tmp_path / "whole")
    whole = take_steps(tmp_path / "whole")
    assert ended == 0, said
    ended, said = client.run(tmp_path / "killed", step_of_death=35)
    before = take_steps(tmp_path / "killed")
    assert ended == -signal.SIGKILL, said
    ended, said = client.run(tmp_path / "killed")
    after = take_steps(tmp_path / "killed")

    assert ended == 0, said
    assert len(whole) == N_EPOCHS * 23
    assert before == whole[:34]
    assert after == whole[n_steps_kept:]
    if client.page != "keras":  # whose images the observer does not see
        for epoch in range(N_EPOCHS):
            steps = whole[epoch * 23 : (epoch + 1) * 23]
            images = [image for step in steps for image in step.images]
            assert len(images) == len({*images}) == N_SAMPLES


@pytest.mark.parametrize(
    ("client", "step_of_death", "n_steps_kept", "n_steps_left_of_epoch"),
    [
        # After 15 steps of 2 ranks, 1,053 samples of epoch 1 are left for steps of 3 times 64.
        pytest.param(TORCHRUN, 18, 15, 6, id="torchrun"),
        # After 22 steps, 157 samples.
        pytest.param(ACCELERATE, 24, 22, 1, id="accelerate"),
    ],
)
def test_a_killed_training_continues_on_more_ranks(
    client: Client,
    step_of_death: int,
    n_steps_kept: int,
    n_steps_left_of_epoch: int,
    tmp_path: Path,
) -> None:
    client.skip_if_missing()

    ended, said = client.run(tmp_path, world=2, step_of_death=step_of_death)
    before = take_steps(tmp_path)
    assert ended != 0, said
    ended, said = client.run(tmp_path, world=3)
    after = take_steps(tmp_path)

    assert ended == 0, said
    assert len(after) == n_steps_left_of_epoch + 8
    epoch = [*before[12:n_steps_kept], *after[:n_steps_left_of_epoch]]
    images = [image for step in epoch for image in step.images]
    assert len({*images}) == N_SAMPLES
    assert len(images) - N_SAMPLES < 3  # repeated, so that all ranks have as many
    for step in after:
        assert len({*step.weights}) == 1


def test_the_trainer_continues_on_as_many_ranks(tmp_path: Path) -> None:
    TRAINER.skip_if_missing()

    ended, said = TRAINER.run(tmp_path / "whole", world=2)
    whole = take_steps(tmp_path / "whole")
    assert ended == 0, said
    ended, said = TRAINER.run(tmp_path / "killed", world=2, step_of_death=18)
    take_steps(tmp_path / "killed")
    assert ended != 0, said
    ended, said = TRAINER.run(tmp_path / "killed", world=2)
    after = take_steps(tmp_path / "killed")

    assert ended == 0, said
    assert len(whole) == N_EPOCHS * 12
    assert after == whole[10:]
