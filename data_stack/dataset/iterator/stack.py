"""Walks through the layers of a stack, from the bottom up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from data_stack.exception import ConfigError


def walk_stack(top: Any, list_below: Callable[[Any], list[Any]]) -> Iterator[tuple[Any, list[Any]]]:
    """Yield the layers of a stack, each once and after those that it is stacked on.

    The walk does not recurse, as Python's limit would end that after some hundred layers.

    Args:
        top: the layer at the top.
        list_below: returns the layers that a layer is stacked on.

    Yields:
        A layer, and what ``list_below`` returned for it.

    Raises:
        ConfigError: a layer is stacked on itself.
    """
    # By id, for layers need not be hashable. Both dicts keep the layers alive, so that no other
    # object gets one of these ids.
    entered: dict[int, list[Any]] = {}
    finished: dict[int, Any] = {}
    waiting = [top]
    while waiting:
        layer = waiting[-1]
        if id(layer) in finished:
            # another layer is stacked on it, too
            waiting.pop()
        elif id(layer) in entered:
            waiting.pop()
            finished[id(layer)] = layer
            yield layer, entered[id(layer)]
        else:
            below = list_below(layer)
            entered[id(layer)] = below
            for other in reversed(below):
                # what is entered and not finished waits for this layer
                if id(other) in entered and id(other) not in finished:
                    raise _stacked_on_itself(other)
                waiting.append(other)


def _stacked_on_itself(layer: Any) -> ConfigError:
    kind = f"{type(layer).__module__}.{type(layer).__qualname__}"
    return ConfigError(f"{kind} is stacked on itself: its underlying_iterators lead back to it")
