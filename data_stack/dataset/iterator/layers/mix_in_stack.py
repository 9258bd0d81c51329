"""The mix in a stack, which may continue another mix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from data_stack.dataset.iterator.access_bases import OneToOneAccess
from data_stack.dataset.iterator.access_of_iterator import own_access
from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.iterator.epochs import iterators_to_redraw
from data_stack.dataset.iterator.layers.mixed import MixedDatasetIterator
from data_stack.exception import ConfigError


@dataclass(frozen=True)
class MixInStack:
    """A mix whose sources have names, and the layers on it.

    Attributes:
        mix: the mix.
        layers_above: the layers on it, the top one first. The sample at a position of each of them
            is made of the sample at the same position of the mix.
    """

    mix: MixedDatasetIterator
    layers_above: list[DatasetIteratorIF]

    @classmethod
    def find(cls, stack: DatasetIteratorIF) -> MixInStack:
        """Find the mix in a stack.

        Raises:
            ConfigError: there is no mix, or a layer on it has other positions; or the sources of
                the mix have no names.
        """
        layers_above: list[DatasetIteratorIF] = []
        layer = stack
        while type(layer) is not MixedDatasetIterator:
            layers_above.append(layer)
            layer = _layer_below(layer, stack)
        if layer.names is None:
            raise ConfigError(
                "the sources of this mix have no names, by which another mix would find them: "
                'pass names=["web", "code"] to mix()'
            )
        return cls(layer, layers_above)

    @property
    def sources(self) -> dict[str, DatasetIteratorIF]:
        """The sources of the mix by their names."""
        return dict(zip(self.mix.names or (), self.mix.underlying_iterators, strict=True))

    def with_consumed(self, consumed: Mapping[str, int]) -> DatasetIteratorIF:
        """Return the stack with a mix that continues others.

        Args:
            consumed: how many samples of each source the mixes before had; sources that are not in
                this mix do not count.

        Raises:
            ConfigError: the mix has no samples then, or ends too early.
        """
        known = {name: consumed[name] for name in self.sources if name in consumed}
        arguments = {**self.mix._arguments(), "consumed": known}
        layer = self.mix._redraw(self.mix._iterators_below(), arguments)
        for layer_above in reversed(self.layers_above):
            layer = layer_above._redraw([layer], layer_above._arguments())
        return layer


def _layer_below(layer: Any, stack: DatasetIteratorIF) -> DatasetIteratorIF:
    """Return what a layer was made on, whose samples have the same positions.

    Args:
        layer: the layer.
        stack: the stack in which it is, for messages.

    Raises:
        ConfigError: it is no layer of data_stack, or has other positions.
    """
    kind = type(layer).__name__
    advice = (
        "a loader continues with a mix at the top of its stack. Above it there may be layers that "
        "make each sample of the one at the same position, such as map, rename or cache. Pack, "
        "filter, shuffle or load each source, then mix"
    )
    # A subclass of a layer may do anything.
    is_layer = "_layer_name" in vars(type(layer))
    below: list[DatasetIteratorIF] = iterators_to_redraw(layer) if is_layer else []
    if len(below) != 1:
        raise ConfigError(f"{stack!r} has no mix below {kind}: {advice}")
    if not isinstance(own_access(layer), OneToOneAccess):
        raise ConfigError(f"in {stack!r}, {kind} is above the mix: {advice}")
    return below[0]
