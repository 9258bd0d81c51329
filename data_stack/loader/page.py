"""Describes a loader to a reader: its batches, its order, its place, and the samples below."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from data_stack.loader.orders import Order
from data_stack.loader.plan import Plan
from data_stack.show.markup import Block, Facts, Heading, TextDocument
from data_stack.show.page import IteratorPage


@dataclass(frozen=True)
class LoaderPage(TextDocument):
    """What a notebook shows of a loader; making it starts no worker.

    Args:
        iterator: the samples.
        plan: of an epoch.
        order: of the samples.
        seed: of the order.
        epochs: of an iteration; None: it never ends.
        place: epoch and number of samples that all ranks have received.
        conversion: the kind of tensors; None for arrays.
    """

    iterator: Any
    plan: Plan
    order: Order
    seed: int
    epochs: int | None
    place: tuple[int, int]
    conversion: str | None

    def document(self, level: int = 1) -> list[Block]:
        """The facts of the loader, then those of the samples."""
        plan = self.plan
        batches = f"{plan.n_steps():,} in an epoch, of {plan.batch_size:,} samples"
        facts = [("batches", batches), ("order", f"{self.order!r}, seed {self.seed}")]
        facts.append(("epochs", "without end" if self.epochs is None else f"{self.epochs:,}"))
        facts.append(("next batch", f"epoch {self.place[0]:,}, after {self.place[1]:,} of {plan.n_samples:,} samples"))
        if plan.world > 1:
            facts.append(("shard", f"rank {plan.rank} of {plan.world}"))
        if self.conversion is not None:
            facts.append(("as", self.conversion))
        return [Heading(level, "Loader"), Facts(facts), *IteratorPage(self.iterator).document(level + 1)]
