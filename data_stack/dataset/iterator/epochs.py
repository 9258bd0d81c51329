"""Draws the random layers of a stack for another epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from data_stack.dataset.iterator.contract import DatasetIteratorIF, InformedDatasetIteratorIF
from data_stack.dataset.iterator.stack import walk_stack
from data_stack.dataset.positions import check_integer
from data_stack.dataset.randomness import Draw
from data_stack.exception import ConfigError


def at_epoch(iterator: DatasetIteratorIF, epoch: int) -> DatasetIteratorIF:
    """Make the same stack with its random layers drawn for another epoch.

    Layers below which nothing is random are shared with ``iterator``, not made again. If nothing at
    all is random, ``iterator`` itself is returned. A layer that reads when it is made (filtered,
    sorted, balanced, in memory …) reads again if what lies below it changes. A dataset that a
    repository has loaded is not redrawn.

    Args:
        iterator: any stack.
        epoch: the number of the epoch, at least 0. Stacks are made for epoch 0.

    Raises:
        ConfigError: ``epoch`` is not such a number, or an iterator of a class that is not a layer
            of data_stack is stacked on something random.
    """
    wanted_epoch = check_integer("an epoch", epoch, at_least=0)
    #: The layer at the wanted epoch, by the id of the layer.
    redrawn_of: dict[int, Any] = {}
    for layer, below in walk_stack(iterator, iterators_to_redraw):
        redrawn_below = [redrawn_of[id(other)] for other in below]
        redrawn_of[id(layer)] = _redraw(layer, below, redrawn_below, wanted_epoch)
    redrawn: DatasetIteratorIF = redrawn_of[id(iterator)]
    return redrawn


def _redraw(layer: Any, below: list[Any], redrawn_below: list[Any], epoch: int) -> Any:
    """Return a layer as it is at an epoch; the layer itself if nothing changes.

    Args:
        layer: the layer.
        below: the iterators that it was made on.
        redrawn_below: the same iterators at the epoch.
        epoch: the number of the epoch.
    """
    draw = _draw_of(layer)
    if draw is not None and draw.epoch != epoch:
        return layer._redraw(redrawn_below, {**layer._arguments(), "epoch": epoch})
    if _are_the_same(redrawn_below, below):
        return layer
    if not _is_layer(layer):
        kind = f"{type(layer).__module__}.{type(layer).__qualname__}"
        raise ConfigError(
            f"{kind} cannot be made again for another epoch: put it below the layers that are "
            f"random"
        )
    return layer._redraw(redrawn_below, layer._arguments())


def has_random_layers(iterator: DatasetIteratorIF) -> bool:
    """Return whether :func:`at_epoch` makes another stack for another epoch; reads no sample."""
    layers = walk_stack(iterator, iterators_to_redraw)
    return any(_draw_of(layer) is not None for layer, _ in layers)


def list_draws(iterator: DatasetIteratorIF) -> list[Any]:
    """Return the layers of a stack that keep samples of random layers in memory.

    A pickle of such a layer does not hold the iterator that it was read from. Without that
    iterator, :func:`at_epoch` cannot draw the layer again.
    """
    ids_of_random_layers: set[int] = set()
    draws: list[Any] = []
    for layer, below in walk_stack(iterator, iterators_to_redraw):
        is_drawn_below = any(id(other) in ids_of_random_layers for other in below)
        if not is_drawn_below and _draw_of(layer) is None:
            continue
        ids_of_random_layers.add(id(layer))
        if _is_layer(layer) and layer._layer_name == "in_memory":
            draws.append(layer)
    return draws


def iterators_to_redraw(iterator: Any) -> list[Any]:
    """Return what a layer was made on; nothing where a repository has loaded the iterator."""
    if not isinstance(iterator, DatasetIteratorIF):
        return []
    if isinstance(iterator, InformedDatasetIteratorIF):
        # Not getattr(): a client's wrapper may forward attributes to what it wraps.
        attributes = getattr(iterator, "__dict__", {})
        if isinstance(attributes.get("_origin"), Mapping):
            return []
    return list(iterator._iterators_below() or ())


def _draw_of(iterator: Any) -> Draw | None:
    """Return what decides the random numbers of a layer; None where nothing is random.

    Raises:
        ConfigError: a layer takes an epoch and does not say that it draws by it.
    """
    if not _is_layer(iterator):
        return None
    draw: Draw | None = iterator._draw
    if draw is None and "epoch" in iterator._arguments():
        raise ConfigError(
            f"the layer {iterator._layer_name!r} has an argument 'epoch', but no draw, so each "
            f"epoch would be the same: set self._draw = check_draw(name, seed, epoch) in its "
            f"constructor"
        )
    return draw


def _is_layer(iterator: Any) -> bool:
    """Return whether the class itself is decorated as a layer; a subclass of a layer may not be."""
    return isinstance(iterator, DatasetIteratorIF) and "_layer_name" in vars(type(iterator))


def _are_the_same(iterators: list[Any], others: list[Any]) -> bool:
    return all(one is other for one, other in zip(iterators, others, strict=True))
