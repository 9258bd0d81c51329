"""Loaders of accelerate: what accelerate learns from them, and checkpoints."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import accelerate
import numpy as np
import pytest
import torch

from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.loader import Budget, Loader
from data_stack.loader.accelerate import AccelerateLoader, prepare_loader

N_SAMPLES = 45


@pytest.fixture
def accelerator() -> Iterator[Any]:
    """An accelerator on the CPU; accelerate keeps its states until they are reset."""
    from accelerate.state import AcceleratorState, GradientState

    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    yield accelerate.Accelerator(cpu=True, gradient_accumulation_steps=4)
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


def loader_of(accelerator: Any, **options: Any) -> AccelerateLoader:
    samples = SequenceDatasetIterator([np.arange(N_SAMPLES, dtype=np.float32)])
    chosen = {"shuffle": True, "seed": 3, "worker_kind": "inline", **options}
    return prepare_loader(Loader(samples, 4, **chosen), accelerator)


def test_gradients_are_not_carried_over_the_end_of_an_epoch(accelerator: Any) -> None:
    loader = loader_of(accelerator)
    model = accelerator.prepare(torch.nn.Linear(1, 1))

    makes_step = []
    for _ in range(2):
        for _batch in loader:
            with accelerator.accumulate(model):
                makes_step.append(accelerator.sync_gradients)

    epoch = [False, False, False, True] * 3
    assert makes_step == [*epoch, *epoch]
    assert not accelerator.gradient_state.in_dataloader


def test_the_last_batch_makes_a_step_also_after_few(accelerator: Any) -> None:
    loader = loader_of(accelerator, drop_last=True)
    model = accelerator.prepare(torch.nn.Linear(1, 1))

    makes_step = []
    for _batch in loader:
        with accelerator.accumulate(model):
            makes_step.append(accelerator.sync_gradients)

    assert makes_step[-3:] == [False, False, True]


@pytest.mark.parametrize("options", [{}, {"drop_last": True}, {"epochs": 2}, {"epochs": None}])
def test_metrics_have_the_samples_of_the_loader(accelerator: Any, options: dict[str, Any]) -> None:
    loader = loader_of(accelerator, **options)
    expected = [batch[0].tolist() for _, batch in zip(range(20), loader, strict=False)]
    loader.set_epoch(0)

    gathered = []
    for _, batch in zip(range(20), loader, strict=False):
        gathered.append(accelerator.gather_for_metrics(batch[0]).tolist())

    assert gathered == expected


def test_a_loop_that_is_left_is_forgotten(accelerator: Any) -> None:
    for _batch in loader_of(accelerator):
        assert accelerator.gradient_state.in_dataloader
        break

    assert not accelerator.gradient_state.in_dataloader


def test_loops_may_be_nested(accelerator: Any) -> None:
    outer, inner = loader_of(accelerator), loader_of(accelerator)

    for _batch in outer:
        for _other in inner:
            assert accelerator.gradient_state.active_dataloader is inner
        assert accelerator.gradient_state.active_dataloader is outer


def test_a_checkpoint_continues_inside_an_epoch(accelerator: Any, tmp_path: Path) -> None:
    loader = loader_of(accelerator)
    accelerator.register_for_checkpointing(loader)
    batches = iter(loader)
    for _ in range(5):
        next(batches)
    accelerator.save_state(str(tmp_path / "checkpoint"))
    rest = [batch[0].tolist() for batch in batches]

    accelerator.load_state(str(tmp_path / "checkpoint"))
    again = [batch[0].tolist() for batch in loader]

    assert again == rest
    assert len(again) == len(loader) - 5


def test_skipped_batches_are_those_of_the_epoch(accelerator: Any) -> None:
    loader = loader_of(accelerator)
    whole = [batch[0].tolist() for batch in loader]
    loader.set_epoch(0)

    skipped = [batch[0].tolist() for batch in accelerate.skip_first_batches(loader, 5)]

    assert skipped == whole[5:]


PROGRAM = """
import json, sys
import numpy as np
from accelerate import Accelerator
from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.loader import Loader
from data_stack.loader.accelerate import prepare_loader

accelerator = Accelerator(cpu=sys.argv[2] == "together")
samples = SequenceDatasetIterator([np.arange(45, dtype=np.float32)])
loader = prepare_loader(Loader(samples, 4, worker_kind="inline"), accelerator)
gathered = [x for (batch,) in loader for x in accelerator.gather_for_metrics(batch).tolist()]
if accelerator.is_main_process:
    open(sys.argv[1], "w").write(json.dumps(gathered))
"""


def run_on_two_ranks(folder: Path, how: str) -> tuple[int, str]:
    (folder / "program.py").write_text(PROGRAM, encoding="utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "program.py"]
    ended = subprocess.run(
        [*command, "gathered.json", how],
        cwd=folder,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=False,
    )
    return ended.returncode, ended.stdout


@pytest.mark.full
def test_metrics_of_two_ranks_count_each_sample_once(tmp_path: Path) -> None:
    ended, said = run_on_two_ranks(tmp_path, "together")

    assert ended == 0, said
    numbers = [float(number) for number in range(N_SAMPLES)]
    assert (tmp_path / "gathered.json").read_text() == str(numbers)


@pytest.mark.full
def test_ranks_that_accelerate_does_not_know_are_refused(tmp_path: Path) -> None:
    ended, said = run_on_two_ranks(tmp_path, "apart")

    assert ended != 0
    assert "torch.distributed has 2 processes, but the accelerator knows of one" in said


def test_a_prepared_loader_is_not_an_own_copy(accelerator: Any) -> None:
    samples = SequenceDatasetIterator([np.arange(8)])
    loader = Loader(samples, 4)

    prepared = prepare_loader(loader, accelerator)
    for _batch in prepared:
        pass

    assert loader.epoch == 1
    assert accelerator.prepare(prepared) is prepared


@pytest.mark.parametrize(("world", "n_remaining"), [(1, 0), (2, 1), (3, 0), (4, 1)])
def test_the_remainder_of_a_budget_counts_samples(
    accelerator: Any, world: int, n_remaining: int
) -> None:
    samples = SequenceDatasetIterator([np.arange(N_SAMPLES, dtype=np.float32)])
    budget = Budget(5, np.ones(N_SAMPLES, np.int64))  # nine batches of five samples
    loader = prepare_loader(
        Loader(samples, budget=budget, shard=(0, world), worker_kind="inline"), accelerator
    )

    next(iter(loader))

    assert loader.remainder == 5 * n_remaining
