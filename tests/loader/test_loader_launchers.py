"""Trainings that real launchers start: a rank is killed inside an epoch, and another number of
ranks goes on.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from training_program import N_SAMPLES, last_checkpoint

PROGRAM = Path(__file__).parents[1] / "support" / "training_program.py"


def launch(kind: str, folder: Path, world: int, step_of_death: int = 0) -> tuple[int, str]:
    """Train until the end, or until rank 1 kills itself; how the launcher ended, and what it
    wrote.
    """
    started = (
        [] if kind == "lightning" else ["-m", "torch.distributed.run", f"--nproc-per-node={world}"]
    )
    command = [
        sys.executable,
        *started,
        str(PROGRAM),
        kind,
        str(folder),
        str(world),
        str(step_of_death),
    ]
    ended = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=False,
    )
    return ended.returncode, ended.stdout


def take_ledgers(folder: Path) -> list[tuple[int, int]]:
    """Each sample that was trained, with the place of all ranks behind it; the ledgers begin
    again.
    """
    lines = [line for ledger in folder.glob("ledger-*") for line in ledger.read_text().splitlines()]
    for ledger in folder.glob("ledger-*"):
        ledger.unlink()
    return [
        (int(place), int(sample))
        for line in lines
        for place, *samples in [line.split()]
        for sample in samples
    ]


@pytest.mark.full
@pytest.mark.parametrize("kind", ["torchrun", "lightning", "accelerate"])
def test_a_training_continues_with_more_ranks_after_one_was_killed(
    kind: str, tmp_path: Path
) -> None:
    ended, said = launch(kind, tmp_path, world=2, step_of_death=8)
    before, checkpoint = take_ledgers(tmp_path), last_checkpoint(tmp_path)
    assert ended != 0, said
    assert checkpoint is not None, said
    assert (
        max(place for place, _ in before) > 48
    )  # some was trained behind the checkpoint, and is lost with its weights

    ended, said = launch(kind, tmp_path, world=3)
    after = take_ledgers(tmp_path)

    assert ended == 0, said
    assert [sample for place, sample in before if place <= 48] != []
    trained = [sample for place, sample in before if place <= 48] + [sample for _, sample in after]
    assert sorted(trained) == list(range(N_SAMPLES))
