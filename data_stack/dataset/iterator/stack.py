"""The layers of a stack, from the bottom up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from data_stack.exception import ConfigError


def walk_stack(top: Any, below_of: Callable[[Any], list[Any]]) -> Iterator[tuple[Any, list[Any]]]:
    """The layers of a stack, each once, with the layers that it is stacked on, which come first; without recursion.

    Raises:
        ConfigError: a layer is stacked on itself.
    """
    done: dict[int, Any] = {}  # keeps the objects, so that no other object gets one of these ids
    below = below_of(top)
    pending = {id(top): (top, below, iter(below))}
    while pending:
        layer, below, left = next(reversed(pending.values()))
        following = next((each for each in left if id(each) not in done), done)
        if following is done:
            done[pending.popitem()[0]] = layer
            yield layer, below
            continue
        if id(following) in pending:
            kind = f"{type(following).__module__}.{type(following).__qualname__}"
            raise ConfigError(
                f"{kind} is stacked on itself: its underlying_iterators lead back to it"
            )
        below = below_of(following)
        pending[id(following)] = following, below, iter(below)
