"""Stacks whose random layers are drawn for another epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from data_stack.dataset.iterator.contract import DatasetIteratorIF, InformedDatasetIteratorIF
from data_stack.dataset.iterator.stack import walk_stack
from data_stack.dataset.positions import check_integer
from data_stack.exception import ConfigError


def at_epoch(iterator: DatasetIteratorIF, epoch: int) -> DatasetIteratorIF:
    """The same stack with its random layers drawn for another epoch.

    Layers below which nothing is random are shared with ``iterator``, not made again; if nothing at all is random, the answer
    is ``iterator``. A layer that reads when it is made (filtered, sorted, balanced, in memory …) reads again if what lies
    below it changes. A dataset that a repository has loaded is taken as it is.

    Args:
        iterator: any stack.
        epoch: at least 0; a stack is made for epoch 0 unless it says otherwise.

    Raises:
        ConfigError: ``epoch`` is not such a number, or an iterator of a class that is not of data_stack is stacked on something
            random.
    """
    number = check_integer("an epoch", epoch, at_least=0)
    drawn: dict[int, Any] = {}
    for each, below in walk_stack(iterator, _drawn_from):
        new, arguments = [drawn[id(one)] for one in below], _arguments_of(each)
        if _is_random(arguments) and arguments["epoch"] != number:
            arguments = {**arguments, "epoch": number}
        elif all(one is other for one, other in zip(new, below, strict=True)):
            drawn[id(each)] = each
            continue
        if "_layer_name" not in vars(type(each)):
            kind = f"{type(each).__module__}.{type(each).__qualname__}"
            raise ConfigError(
                f"{kind} cannot be made again for another epoch: put it below the layers that are random"
            )
        drawn[id(each)] = each._redrawn(new, arguments)
    return drawn[id(iterator)]  # type: ignore[no-any-return]  # an iterator


def has_random_layers(iterator: DatasetIteratorIF) -> bool:
    """Whether :func:`at_epoch` makes another stack for another epoch; reads no sample."""
    return any(_is_random(_arguments_of(each)) for each, _ in walk_stack(iterator, _drawn_from))


def list_draws(iterator: DatasetIteratorIF) -> list[Any]:
    """The layers of a stack that hold samples of random layers in memory.

    Pickled, each leaves behind what it was read from, without which :func:`at_epoch` cannot draw it again.
    """
    random: dict[int, Any] = {}
    for each, below in walk_stack(iterator, _drawn_from):
        if _is_random(_arguments_of(each)) or any(id(one) in random for one in below):
            random[id(each)] = each
    return [each for each in random.values() if vars(type(each)).get("_layer_name") == "in_memory"]


def _drawn_from(iterator: Any) -> list[Any]:
    """What a layer draws from: nothing, where a repository has loaded it."""
    # a client's wrapper may forward attributes; the origin of what it wraps is not its own
    origin = (
        getattr(iterator, "__dict__", {}).get("_origin")
        if isinstance(iterator, InformedDatasetIteratorIF)
        else None
    )
    return (
        list(iterator._stack_on() or ())
        if isinstance(iterator, DatasetIteratorIF) and not isinstance(origin, Mapping)
        else []
    )


def _arguments_of(iterator: Any) -> Mapping[str, Any]:
    is_layer = isinstance(iterator, DatasetIteratorIF) and "_layer_name" in vars(type(iterator))
    return iterator._arguments() if is_layer else {}


def _is_random(arguments: Mapping[str, Any]) -> bool:
    return "epoch" in arguments and arguments.get("seed", 0) is not None
