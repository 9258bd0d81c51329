"""Walks through stacks of thousands of layers and pickles them, where recursion would exceed Python's limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, SupportsIndex

from data_stack.exception import ConfigError

_MOST_NESTED: Final = 100


class _Below(NamedTuple):
    """Stands for a layer of the list in the state of those above."""

    number: int


def reduce_stack(top: Any, protocol: SupportsIndex) -> str | tuple[Any, ...]:
    """``__reduce_ex__`` of layers: more than 100 on each other are reduced to a list of them, the lowest first."""
    depths: dict[int, int] = {}
    for layer, below in walk_stack(top, lambda layer: _layers_in(vars(layer))):
        depths[id(layer)] = 1 + max((depths[id(each)] for each in below), default=0)
    if depths[id(top)] <= _MOST_NESTED:
        return object.__reduce_ex__(top, protocol)
    parts: dict[int, tuple[Any, ...]] = {}

    def state_of(layer: Any) -> Mapping[str, Any]:
        if id(layer) not in parts:
            reduced: Any = object.__reduce_ex__(layer, 4)
            parts[id(layer)] = (*reduced[1], reduced[2])
        state = parts[id(layer)][-1]
        return state if isinstance(state, dict) else {}

    numbers: dict[int, int] = {}
    listed = []
    for layer, _ in walk_stack(top, lambda layer: _layers_in(state_of(layer))):
        *made, state = parts[id(layer)]
        if isinstance(state, dict):
            state = {name: _replace(value, numbers) for name, value in state.items()}
        listed.append((state, *made))
        numbers[id(layer)] = len(numbers)
    return _restore, (listed,)


def walk_stack(top: Any, below_of: Callable[[Any], list[Any]]) -> Iterator[tuple[Any, list[Any]]]:
    """The layers of a stack, each once, with those that it is stacked on, which come before it; no recursion.

    Raises:
        ConfigError: a layer is stacked on itself.
    """
    done: dict[int, Any] = {}  # with the objects, lest another one gets the id of one
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
            raise ConfigError(f"{kind} is stacked on itself: its underlying_iterators lead back to it")
        below = below_of(following)
        pending[id(following)] = following, below, iter(below)


def _layers_in(state: Mapping[str, Any]) -> list[Any]:
    found = []
    for value in state.values():
        found += [each for each in (value if _is_list(value) else (value,)) if _is_layer(each)]
    return found


def _is_list(value: Any) -> bool:
    return type(value) in (list, tuple) and len(value) > 0 and _is_layer(value[0])


def _is_layer(value: Any) -> bool:
    kind: Any = type(value)
    return kind.__reduce_ex__ is reduce_stack and kind.__reduce__ is object.__reduce__


def _replace(value: Any, numbers: Mapping[int, int]) -> Any:
    if _is_list(value):
        return type(value)([_replace(each, numbers) for each in value])
    return _Below(numbers[id(value)]) if _is_layer(value) else value


def _restore(listed: list[tuple[Any, ...]]) -> Any:
    layers: list[Any] = []

    def put_back(value: Any) -> Any:
        if type(value) in (list, tuple) and len(value) > 0 and isinstance(value[0], _Below):
            return type(value)(map(put_back, value))
        return layers[value.number] if isinstance(value, _Below) else value

    for state, kind, *arguments in listed:
        layer = kind.__new__(kind, *arguments)
        if isinstance(state, dict):
            state = {name: put_back(value) for name, value in state.items()}
        if hasattr(layer, "__setstate__"):
            layer.__setstate__(state)
        else:
            layer.__dict__.update(state)
        layers.append(layer)
    return layers[-1]
