"""The batches of a loader for accelerate, which learns from them where an epoch ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.loader.loader import Loader, TorchLoader
from data_stack.loader.ranks import find_group_shard
from data_stack.loader.torch import TorchConversion

try:
    from accelerate.data_loader import DataLoaderStateMixin
    from accelerate.state import GradientState
except ImportError as error:
    raise MissingDependencyError(
        "data_stack.loader.accelerate", "accelerate", "accelerate"
    ) from error

if TYPE_CHECKING:
    from accelerate import Accelerator


class AccelerateLoader(DataLoaderStateMixin, TorchLoader):  # type: ignore[misc]  # no types
    """A loader that accelerate follows, see :func:`prepare_loader`.

    Attributes:
        gradient_state: what accelerate knows about the loops that run.
        end_of_dataloader: whether the last batch was the last one of the iteration. Then
            ``accelerator.accumulate(model)`` makes a step, also with fewer batches.
        remainder: the number of samples in the last step of all ranks, 0 for a full step, and -1
            if no rank repeats a sample. ``accelerator.gather_for_metrics`` leaves out what ranks
            repeat to have as many samples.
    """

    def __iter__(self) -> Iterator[Any]:
        batches = super().__iter__()
        return self._follow(batches)

    def _follow(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield batches, while accelerate knows this loader as the one that runs."""
        self.begin()
        self.remainder = self._count_remainder()
        _, _, first_epoch = self.tell()
        try:
            for batch in batches:
                _, _, next_first_epoch = self.tell()
                self.end_of_dataloader = next_first_epoch != first_epoch
                yield batch
        finally:
            self.end()

    def _count_remainder(self) -> int:
        """Return :attr:`remainder` for the iteration that begins."""
        if self.plan.drop_last or self._epochs is None:
            return -1
        epoch, position, first_epoch = self.tell()
        last_epoch = first_epoch + self._epochs - 1
        plan = self._timetable.plan_of(last_epoch)
        n_samples = plan.n_samples
        if epoch == last_epoch:
            n_samples -= position
        n_remaining = n_samples % plan.samples_per_step
        if self._budget_batches is None or n_remaining == 0:
            return n_remaining
        # With a budget these are batches, of which accelerate has to know the samples.
        batches = self._budget_batches.at(last_epoch, self._session.seed)
        last_batches = range(plan.n_samples - n_remaining, plan.n_samples)
        return sum(len(batches.samples_of(batch)) for batch in last_batches)


def prepare_loader(
    loader: Loader, accelerator: Accelerator, *, pin_memory: bool = False
) -> AccelerateLoader:
    """Return a loader with torch tensors on the device of an accelerator.

    ::

        accelerator = Accelerator()
        loader = prepare_loader(Loader(train, 64, shuffle=True, seed=7), accelerator)
        accelerator.register_for_checkpointing(loader)

    It takes the place of ``accelerator.prepare(loader)``. The ranks share the samples as those of
    every loader do. ``accelerator.accumulate`` and ``accelerator.gather_for_metrics`` work as with
    a prepared ``DataLoader``. Both loaders share their state and workers.

    Args:
        loader: a loader of arrays or of torch tensors.
        accelerator: the accelerator of the training.
        pin_memory: whether to use page-locked memory, see :meth:`Loader.torch`.

    Raises:
        ConfigError: there is a process group of several ranks, of which the accelerator knows
            nothing. It would not share gradients among them.
    """
    group = find_group_shard()
    if group is not None and group.world > 1 and accelerator.num_processes == 1:
        raise ConfigError(
            f"torch.distributed has {group.world} processes, but the accelerator knows of one, so "
            "each would train a model of its own with a part of the samples; on CPUs, pass "
            "Accelerator(cpu=True), TrainingArguments(use_cpu=True) or set ACCELERATE_USE_CPU=1"
        )
    device = accelerator.device
    needs_copy = accelerator.device_placement and device.type != "cpu"
    conversion = TorchConversion(device=device if needs_copy else None, pin_memory=pin_memory)
    prepared = loader._with_conversion(AccelerateLoader, conversion)
    prepared.gradient_state = GradientState()
    return prepared
