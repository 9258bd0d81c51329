"""A training that each launcher starts.

It notes the samples of each step, saves checkpoints, and one of its ranks may die.

Run: python training_program.py torchrun|lightning|accelerate FOLDER WORLD STEP_OF_DEATH; torchrun
and accelerate in their launchers. It continues from the last checkpoint in FOLDER, if there is one.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.loader import Loader

N_SAMPLES = 96
BATCH_SIZE = 4
STEPS_PER_CHECKPOINT = 3


def loader() -> Loader:
    samples = SequenceDatasetIterator([np.arange(N_SAMPLES)])
    return Loader(samples, BATCH_SIZE, shuffle=True, seed=7, worker_kind="inline").torch()


def note(
    folder: Path,
    rank: int,
    samples: torch.Tensor,
    place: tuple[int, int, int],
    step_of_death: int,
    step: int,
) -> None:
    """Write down the samples of a step, and the position after it; or die before that."""
    if step == step_of_death and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    _, position, _ = place
    numbers = " ".join(str(sample) for sample in samples.tolist())
    with open(folder / f"ledger-{rank}", "a") as ledger:
        ledger.write(f"{position or N_SAMPLES} {numbers}\n")


def last_checkpoint(folder: Path) -> Path | None:
    """Return the last checkpoint that is complete."""
    return max(folder.glob("checkpoint-*"), default=None)


def run_by_torchrun(folder: Path, step_of_death: int) -> None:
    """Keep the state of the loader in a checkpoint of ``torch.distributed.checkpoint``."""
    from torch.distributed.checkpoint.state_dict_loader import load
    from torch.distributed.checkpoint.state_dict_saver import save

    torch.distributed.init_process_group("gloo")
    batches = loader()
    model = torch.nn.Linear(1, 1)
    state = {"model": model, "loader": batches}
    checkpoint = last_checkpoint(folder)
    if checkpoint is not None:
        load(state, checkpoint_id=checkpoint)
    for step, (samples,) in enumerate(batches, 1):
        note(folder, torch.distributed.get_rank(), samples, batches.tell(), step_of_death, step)
        torch.distributed.all_reduce(model(samples[:, None].float()).mean().detach())
        if step % STEPS_PER_CHECKPOINT == 0:
            save(state, checkpoint_id=folder / "unfinished")
            if torch.distributed.get_rank() == 0:
                (folder / "unfinished").rename(folder / f"checkpoint-{batches.tell()[1]:06d}")
            torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def run_by_lightning(folder: Path, world: int, step_of_death: int) -> None:
    """Lightning keeps the state of the loader in its own checkpoints."""
    import lightning
    from lightning.pytorch.callbacks import ModelCheckpoint

    from data_stack.loader.lightning import ContinueOnOtherRanks

    batches = loader()

    class Model(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch: Any, step: int) -> torch.Tensor:
            note(folder, self.global_rank, batch[0], batches.tell(), step_of_death, step + 1)
            loss: torch.Tensor = self.layer(batch[0][:, None].float()).mean()
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1e-6)

    saving = ModelCheckpoint(
        folder, "checkpoint-{step:06d}", every_n_train_steps=STEPS_PER_CHECKPOINT, save_top_k=-1
    )
    trainer = lightning.Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=world,
        max_epochs=1,
        callbacks=[saving, ContinueOnOtherRanks()],
        logger=False,
        enable_progress_bar=False,
    )
    trainer.fit(Model(), batches, ckpt_path=last_checkpoint(folder))


def run_by_accelerate(folder: Path, step_of_death: int) -> None:
    """Register the loader for accelerate's checkpoints."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    batches = loader()
    model = accelerator.prepare(torch.nn.Linear(1, 1))
    accelerator.register_for_checkpointing(batches)
    checkpoint = last_checkpoint(folder)
    if checkpoint is not None:
        accelerator.load_state(str(checkpoint))
    for step, (samples,) in enumerate(batches, 1):
        note(folder, accelerator.process_index, samples, batches.tell(), step_of_death, step)
        accelerator.backward(model(samples[:, None].float()).mean())
        if step % STEPS_PER_CHECKPOINT == 0:
            accelerator.save_state(str(folder / "unfinished"))
            accelerator.wait_for_everyone()
            if accelerator.is_main_process:
                (folder / "unfinished").rename(folder / f"checkpoint-{batches.tell()[1]:06d}")
            accelerator.wait_for_everyone()


if __name__ == "__main__":
    launcher = sys.argv[1]
    folder_of_run = Path(sys.argv[2])
    world = int(sys.argv[3])
    last_step = int(sys.argv[4])
    if launcher == "lightning":
        run_by_lightning(folder_of_run, world, last_step)
    elif launcher == "torchrun":
        run_by_torchrun(folder_of_run, last_step)
    else:
        run_by_accelerate(folder_of_run, last_step)
