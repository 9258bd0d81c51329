"""The loader in the workers of Ray Train, whose place is in the run's checkpoints."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final, SupportsIndex

import ray.train
from ray.train import Checkpoint

from data_stack import Loader
from data_stack.exception import ConfigError, LoaderStateError

#: The file of a checkpoint that holds the state of the loader.
STATE_FILE: Final = "data_stack_loader.json"


class RayLoader(Loader):
    """A loader that is the shard of a worker of Ray Train.

    ::

        def train(config):
            with RayLoader(samples, 256, shuffle=True, seed=7, epochs=10) as loader:
                loader.restore()  # continue from the last checkpoint of the run
                for step, batch in enumerate(loader.torch()):
                    ...
                    if step % 1000 == 999:
                        with tempfile.TemporaryDirectory() as folder:
                            loader.save(folder)
                            torch.save(model.state_dict(), f"{folder}/model.pt")
                            checkpoint = Checkpoint.from_directory(folder)
                            ray.train.report({"loss": loss}, checkpoint=checkpoint)

        TorchTrainer(train, scaling_config=ScalingConfig(num_workers=4)).fit()

    Rank and number of workers are those of Ray Train's context. A run that continues, also inside
    an epoch and on another number of workers, reads each remaining sample of the epoch once. Ray
    sends ``samples`` to the workers as it sends all of ``train``: they open its files again.

    Args:
        iterator: as for :class:`~data_stack.loader.Loader`.
        batch_size: as for Loader.
        options: the other arguments of Loader, but not ``shard``.

    Raises:
        ConfigError: this is not a worker of Ray Train, or an argument is invalid.
    """

    def __init__(self, iterator: Any, batch_size: SupportsIndex, **options: Any) -> None:
        if "shard" in options:
            raise ConfigError("RayLoader takes its shard from Ray Train; use Loader to pass shard=")
        try:
            context = ray.train.get_context()
            rank = context.get_world_rank()
            n_workers = context.get_world_size()
        except Exception as error:  # Ray's, which differs with its version
            raise ConfigError(
                "RayLoader belongs into the function that Ray Train's workers run; "
                "elsewhere use Loader"
            ) from error
        super().__init__(iterator, batch_size, **options, shard=(rank, n_workers))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the state into the folder of a checkpoint, after the checkpoint's step.

        All workers have the same state after the same step, so it does not matter which of them
        report the checkpoint.
        """
        state = json.dumps(self.state_dict())
        Path(folder, STATE_FILE).write_text(state, encoding="utf-8")

    def restore(self, checkpoint: Checkpoint | None = None) -> bool:
        """Continue from a checkpoint.

        Args:
            checkpoint: of this run or an earlier one; None for the last one of this run, if there
                is one.

        Returns:
            Whether there was a checkpoint.

        Raises:
            LoaderStateError: the checkpoint has no state, or one of other samples or another order.
        """
        if checkpoint is None:
            checkpoint = ray.train.get_checkpoint()
        if checkpoint is None:
            return False
        self.load_state_dict(_read_state(checkpoint))
        return True


def _read_state(checkpoint: Checkpoint) -> Any:
    """Read the state of a loader from a checkpoint.

    Raises:
        LoaderStateError: the checkpoint has none.
    """
    with checkpoint.as_directory() as folder:
        try:
            return json.loads(Path(folder, STATE_FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise LoaderStateError(
                f"{checkpoint!r} has no state of a loader in {STATE_FILE!r}: {error!s:.200}; "
                "write one by save(folder) into each checkpoint"
            ) from error
