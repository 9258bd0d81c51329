"""Pickles stacks of thousands of layers, where pickle itself would exceed Python's limit of recursion."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, SupportsIndex

_MOST_NESTED: Final = 100


class _Below(NamedTuple):
    """Stands for a layer of the list in the state of those above."""

    number: int


def reduce_stack(top: Any, protocol: SupportsIndex) -> str | tuple[Any, ...]:
    """``__reduce_ex__`` of layers: more than 100 on each other are reduced to a list of them, the lowest first."""
    depths: dict[int, int] = {}
    for layer, below in _walk(top, vars):
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
    for layer, _ in _walk(top, state_of):  # a state may lack what the layer has been made with
        *made, state = parts[id(layer)]
        if isinstance(state, dict):
            state = {name: _replace(value, numbers) for name, value in state.items()}
        listed.append((state, *made))
        numbers[id(layer)] = len(numbers)
    return _restore, (listed,)


def _walk(top: Any, state_of: Callable[[Any], Mapping[str, Any]]) -> Iterator[tuple[Any, list[Any]]]:
    """The layers of a stack, each once, with those that it is stacked on, which come before it."""
    done: set[int] = set()
    pending = [(top, _layers_in(state_of(top)))]
    while pending:
        layer, below = pending[-1]
        left = [each for each in below if id(each) not in done]
        if left:
            pending.append((left[0], _layers_in(state_of(left[0]))))
            continue
        pending.pop()
        done.add(id(layer))
        yield layer, below


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
