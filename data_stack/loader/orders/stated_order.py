"""The order that a state names, made again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from data_stack.exception import ConfigError
from data_stack.loader.orders.block_shuffled import BlockShuffled
from data_stack.loader.orders.in_order import InOrder
from data_stack.loader.orders.lanes import Lanes
from data_stack.loader.orders.order import Order
from data_stack.loader.orders.shuffled import Shuffled


def make_order(content: Mapping[str, Any]) -> Order:
    """Make an order from its :meth:`~data_stack.loader.orders.Order.content`.

    Of blocks of different lengths the content has a digest only. The order then takes the blocks of
    the stack, so compare its content with that of the state.

    Raises:
        ConfigError: the content does not tell the order, as with an order of lengths, or is
            damaged.
    """
    try:
        order = _make_known_order(content)
    except (AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(f"damaged content of an order: {content!r:.200}") from error
    if order is None:
        raise ConfigError(
            f"an order cannot be made from its content, {content!r:.200}; in the program, pass it "
            f"as shuffle= to the loader"
        )
    return order


def _make_known_order(content: Mapping[str, Any]) -> Order | None:
    """Make an order from its content; None if the content does not tell it."""
    kind = content.get("order")
    if kind == "in order":
        return InOrder()
    if kind == "shuffled":
        return Shuffled()
    if kind == "block-wise shuffled":
        block_lengths = content["block_lengths"]
        if isinstance(block_lengths, str):  # a digest
            block_lengths = None
        return BlockShuffled(
            block_lengths=block_lengths,
            window=content["window"],
            blocks=content.get("blocks", True),
            samples=content.get("samples", True),
        )
    if kind == "lanes":
        order = make_order(content["of"])
        return Lanes(order, lanes=content["lanes"], batch_size=content["batch_size"])
    return None
