"""A callback of Lightning for a training that continues on another number of ranks."""

from __future__ import annotations

from typing import Final

from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.loader.loader import Loader

try:
    import lightning
    from lightning.pytorch.utilities import CombinedLoader
except ImportError as error:
    raise MissingDependencyError("data_stack.loader.lightning", "lightning", "lightning") from error

#: The counts of Lightning's progress in an epoch. They differ by one during a batch.
_COUNTS: Final = ("ready", "started", "processed", "completed")


class ContinueOnOtherRanks(lightning.Callback):
    """Lets an epoch end where its samples end, although other ranks have begun it.

    ::

        trainer = lightning.Trainer(callbacks=[ContinueOnOtherRanks()], …)
        trainer.fit(model, loader.torch(), ckpt_path="last")

    Lightning resumes an epoch by the number of batches that each rank had received. On another
    number of ranks, or with another batch size, as many samples are another number of batches. This
    callback corrects the number by the place of the loader. It changes nothing if ranks and batch
    size are the same.
    """

    def on_train_start(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule
    ) -> None:
        """Correct the number of batches, after Lightning has loaded its checkpoint.

        Raises:
            ConfigError: several loaders would give several numbers.
        """
        loaders = _find_loaders(trainer)
        n_batches_before = {_count_batches_before(loader) for loader in loaders}
        if len(n_batches_before) > 1:
            raise ConfigError(
                f"the loaders of this training have received {sorted(n_batches_before)} batches of "
                "their epochs, so Lightning cannot continue with them on another number of ranks: "
                "continue on as many ranks as before, or at the start of an epoch"
            )
        if not n_batches_before or n_batches_before == {0}:
            return
        progress = trainer.fit_loop.epoch_loop.batch_progress.current
        shift = n_batches_before.pop() - progress.ready
        for name in _COUNTS:
            setattr(progress, name, getattr(progress, name) + shift)


def _find_loaders(trainer: lightning.Trainer) -> list[Loader]:
    """Return the loaders of data_stack among the training's loaders."""
    combined = CombinedLoader(trainer.train_dataloader)
    return [loader for loader in combined.flattened if isinstance(loader, Loader)]


def _count_batches_before(loader: Loader) -> int:
    """Return how many batches of the iteration came before the next one, on these ranks."""
    if not loader.is_inside:
        return 0
    return len(loader) - loader.n_batches_left
