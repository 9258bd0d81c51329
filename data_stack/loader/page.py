"""The facts of a loader that notebooks show above its samples."""

from __future__ import annotations

from data_stack.loader.orders import Order
from data_stack.loader.plan import Plan
from data_stack.show.markup import Block, Facts, Heading


def facts_of_loader(
    plan: Plan, order: Order, seed: int, epochs: int | None, place: tuple[int, int], conversion: str | None
) -> list[Block]:
    """Describe a loader.

    Args:
        plan: of an epoch.
        order: of the samples.
        seed: of the order.
        epochs: of an iteration; None: it never ends.
        place: epoch, and number of samples in it that all ranks have received.
        conversion: the kind of tensors; None for arrays.
    """
    facts = [
        ("batches", f"{plan.n_steps():,} in an epoch, of {plan.batch_size:,} samples"),
        ("order", f"{order!r}, seed {seed}"),
        ("epochs", "without end" if epochs is None else f"{epochs:,}"),
        ("next batch", f"epoch {place[0]:,}, after {place[1]:,} of {plan.n_samples:,} samples"),
    ]
    if plan.world > 1:
        facts.append(("shard", f"rank {plan.rank} of {plan.world}"))
    if conversion is not None:
        facts.append(("as", conversion))
    return [Heading(1, "Loader"), Facts(facts)]
