"""Draws a stack of iterators as a tree of text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from data_stack.show.explained_layer import ExplainedLayer
from data_stack.show.markup import readable, samples_text

#: The maximum number of parts below a layer that are all drawn.
_MAX_PARTS = 8

#: How many parts of a larger number are drawn before the last one.
_N_FIRST_PARTS = 4


def draw_tree(layers: Sequence[ExplainedLayer]) -> str:
    """Draw layers, from the top of the stack to its sources.

    Args:
        layers: all layers, each once; ``layers[n - 1].number == n``.
    """
    return "\n".join(_StackTree(layers).draw(1, "", ""))


class _StackTree:
    """Draws the layers of a stack, each once: further occurrences refer to the first one.

    Args:
        layers: all layers, each once; ``layers[n - 1].number == n``.
    """

    _layers: Sequence[ExplainedLayer]

    #: The number of layers that are stacked on a layer, by its number.
    _n_above: Counter[int]

    #: The numbers of the layers that are drawn already.
    _drawn: set[int]

    def __init__(self, layers: Sequence[ExplainedLayer]) -> None:
        self._layers = layers
        self._n_above = Counter()
        for layer in layers:
            self._n_above.update(layer.stacked_on)
        self._drawn = set()

    def draw(self, number: int, first_indent: str, indent: str) -> Iterator[str]:
        """Yield the lines of a layer and of all layers below.

        A chain of layers has no indent. It is drawn in a loop, for it may be longer than Python's
        limit of recursion.

        Args:
            number: the number of the layer.
            first_indent: begins the first line.
            indent: begins all other lines.
        """
        while True:
            layer = self._layers[number - 1]
            title = self._title_of(layer)
            if number in self._drawn:
                yield f"{first_indent}{title}, as above"
                return
            self._drawn.add(number)
            yield f"{first_indent}{title}"
            margin = indent + ("│  " if layer.stacked_on else "   ")
            for fact in self._facts_of(layer):
                yield margin + fact
            if len(layer.stacked_on) != 1:
                break
            (number,) = layer.stacked_on
            first_indent = indent
        if layer.stacked_on:
            yield from self._draw_parts(layer.stacked_on, indent)

    def _draw_parts(self, parts: Sequence[int], indent: str) -> Iterator[str]:
        """Yield the lines of the layers below a layer that joins several."""
        first_parts = parts[:-1]
        if len(parts) > _MAX_PARTS:
            first_parts = parts[:_N_FIRST_PARTS]
        n_left_out = len(parts) - len(first_parts) - 1
        for part in first_parts:
            yield from self.draw(part, indent + "├─ ", indent + "│  ")
        if n_left_out:
            yield f"{indent}├─ … {n_left_out:,} more"
        yield from self.draw(parts[-1], indent + "└─ ", indent + "   ")

    def _title_of(self, layer: ExplainedLayer) -> str:
        """Return name, arguments and length; the number if several layers are stacked on it."""
        is_shared = self._n_above[layer.number] > 1
        number = f"[{layer.number}] " if is_shared else ""
        arguments = f"({layer.arguments})" if layer.arguments else ""
        length = "of unknown length"
        if layer.n_samples is not None:
            length = samples_text(layer.n_samples)
        return f"{number}{layer.layer}{arguments}  {length}"

    def _facts_of(self, layer: ExplainedLayer) -> Iterator[str]:
        """Yield the dataset and the notes of a layer.

        The dataset is left out if a layer below names it.
        """
        if layer.is_origin:
            name = layer.dataset or "without a name"
            yield f"dataset {name}, license {readable(layer.license or 'unknown')}"
        elif layer.dataset is not None:
            is_top = layer.number == 1
            if is_top or not self._is_named_below(layer):
                yield f"dataset {layer.dataset}"
        yield from layer.notes

    def _is_named_below(self, layer: ExplainedLayer) -> bool:
        """Return whether a layer right below names the dataset of a layer, or another dataset."""
        for number in layer.stacked_on:
            below = self._layers[number - 1]
            if below.is_origin or below.dataset == layer.dataset:
                return True
        return False
