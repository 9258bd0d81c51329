"""Runs a program that trains, notes what each of its steps has trained, and may kill it.

Run: python observed_program.py PROGRAM LEDGER STEP_OF_DEATH

It observes Keras where KERAS_BACKEND is set, and torch otherwise. Each rank appends a line of JSON to LEDGER-RANK after each step: the digests of the images, and the
sum of the weights after the step. Rank 1, or the only rank, kills itself before it notes the step
of death; 0 for none.
"""

from __future__ import annotations

import hashlib
import json
import os
import runpy
import signal
import sys
from typing import Any

PROGRAM = sys.argv[1]
LEDGER = sys.argv[2]
STEP_OF_DEATH = int(sys.argv[3])


class Observer:
    """Notes the steps of a training.

    Attributes:
        n_steps: the number of steps until now.
        images: the digests of the images of the next step.
    """

    def __init__(self) -> None:
        self.n_steps = 0
        self.images: list[str] = []

    def note_images(self, images: Any) -> None:
        """Note the images of a step, an array of shape (n, 8, 8)."""
        self.images += [hashlib.sha1(image.tobytes()).hexdigest()[:12] for image in images]

    def note_step(self, weights: float) -> None:
        """Write down a step; or die before that."""
        rank = int(os.environ.get("RANK", "0"))
        world = int(os.environ.get("WORLD_SIZE", "1"))
        self.n_steps += 1
        if self.n_steps == STEP_OF_DEATH and rank == min(1, world - 1):
            os.kill(os.getpid(), signal.SIGKILL)
        with open(f"{LEDGER}-{rank}", "a") as ledger:
            ledger.write(json.dumps([self.images, weights]) + "\n")
        self.images = []


OBSERVER = Observer()


def observe_torch() -> None:
    """Note the input of each flattening in a training, and the weights after each step."""
    import torch
    from torch.nn.modules.module import register_module_forward_pre_hook
    from torch.optim.optimizer import register_optimizer_step_post_hook

    def before_module(module: torch.nn.Module, inputs: Any) -> None:
        if isinstance(module, torch.nn.Flatten) and module.training and torch.is_grad_enabled():
            OBSERVER.note_images(inputs[0].numpy())

    def after_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        parameters = [value for group in optimizer.param_groups for value in group["params"]]
        OBSERVER.note_step(sum(float(value.detach().double().sum()) for value in parameters))

    register_module_forward_pre_hook(before_module)
    register_optimizer_step_post_hook(after_step)


def observe_keras() -> None:
    """Note the weights after each step of ``fit``."""
    import keras

    class NoteSteps(keras.callbacks.Callback):  # type: ignore[misc]  # keras has no types
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            weights = self.model.get_weights()
            OBSERVER.note_step(sum(float(value.sum(dtype="float64")) for value in weights))

    fit = keras.Model.fit

    def fit_and_note(*arguments: Any, callbacks: Any = (), **options: Any) -> Any:
        return fit(*arguments, callbacks=[NoteSteps(), *callbacks], **options)

    keras.Model.fit = fit_and_note


if "KERAS_BACKEND" in os.environ:
    observe_keras()
else:
    observe_torch()
runpy.run_path(PROGRAM, run_name="__main__")
