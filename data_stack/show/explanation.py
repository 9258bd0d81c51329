"""Explains what a stack consists of."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from data_stack.dataset.iterator.layers.informed import InformedDatasetIterator
from data_stack.dataset.iterator.stack import walk_stack
from data_stack.show.explained_layer import ExplainedLayer, explain_layer, is_layer_of_ours
from data_stack.show.markup import Block, Document, Paragraph, Rich, printable, readable
from data_stack.show.stack_tree import draw_tree

#: The maximum number of datasets that are listed for a license.
_MAX_DATASETS = 20


class Explanation(Document):
    """A stack of iterators as a tree. It prints as text, and shows as HTML in a notebook.

    Args:
        layers: all iterators, each once; ``layers[n - 1].number == n``.
    """

    #: All iterators, each once.
    layers: tuple[ExplainedLayer, ...]

    #: The loaded datasets, by license; the key None has those of unknown license.
    licenses: dict[str | None, list[str]]

    def __init__(self, layers: Sequence[ExplainedLayer]) -> None:
        self.layers = tuple(layers)
        self.licenses = {}
        for layer in layers:
            if layer.is_origin:
                datasets = self.licenses.setdefault(layer.license, [])
                if layer.dataset is not None and layer.dataset not in datasets:
                    datasets.append(layer.dataset)

    def __str__(self) -> str:
        lines = [draw_tree(self.layers)]
        if self.licenses:
            lines.append("")
        lines += self._list_licenses()
        return "\n".join(lines)

    __repr__ = __str__

    def document(self, level: int = 1) -> list[Block]:
        """Return the tree and the licenses."""
        tree = draw_tree(self.layers)
        tree_in_html = f"<pre>{html.escape(printable(tree, keep=chr(10)))}</pre>"
        blocks: list[Block] = [Paragraph(Rich(tree, tree_in_html))]
        blocks += [Paragraph(line) for line in self._list_licenses()]
        return blocks

    def _list_licenses(self) -> Iterator[str]:
        """Yield a line for each license."""
        for license_name, datasets in self.licenses.items():
            title = "license unknown"
            if license_name is not None:
                title = f"license {readable(license_name)}"
            line = f"{title}: {', '.join(datasets[:_MAX_DATASETS])}"
            n_more = len(datasets) - _MAX_DATASETS
            if n_more > 0:
                line += f", … {n_more:,} more"
            yield line


def explain(iterator: Any) -> Explanation:
    """Describe ``iterator`` and its stack without reading samples.

    Args:
        iterator: any iterator or sequence.

    Raises:
        ConfigError: an iterator is stacked on itself.
    """
    stack = _StackWithFacts()
    layers_with_below = list(walk_stack(stack.unwrap(iterator), stack.list_below))
    # The walk begins at the bottom, and an explanation at the top.
    layers_with_below.reverse()
    numbers: dict[int, int] = {}
    for number, (layer, _) in enumerate(layers_with_below, start=1):
        numbers[id(layer)] = number

    explained_layers = []
    for layer, below in layers_with_below:
        facts = stack.facts_of(layer)
        explained_layers.append(
            explain_layer(
                layer,
                numbers[id(layer)],
                # They are listed from the last to the first, see list_below.
                tuple(numbers[id(part)] for part in reversed(below)),
                meta=facts.meta,
                origin=facts.origin,
            )
        )
    return Explanation(explained_layers)


class _Facts(NamedTuple):
    """The facts that are known of the samples of a layer.

    Attributes:
        meta: their meta; None without one.
        origin: what a repository noted of the dataset that it loaded; None for other layers.
    """

    meta: Any
    origin: Mapping[str, Any] | None


class _StackWithFacts:
    """The layers of a stack without the layers that only add a meta or an origin.

    What these layers add is kept as the facts of the layer below them.
    """

    #: The facts of the layers that are not left out, by ``id``.
    _facts: dict[int, _Facts]

    def __init__(self) -> None:
        self._facts = {}

    def unwrap(self, layer: Any) -> Any:
        """Return the first layer that does more than inform; the topmost facts count."""
        meta = None
        origin = None
        while type(layer) is InformedDatasetIterator:
            if meta is None:
                meta = layer.dataset_meta
            if origin is None:
                origin = layer._origin
            layer = layer._dataset_iterator
        if meta is None:
            meta = getattr(layer, "dataset_meta", None)
        self._facts.setdefault(id(layer), _Facts(meta, origin))
        return layer

    def list_below(self, layer: Any) -> list[Any]:
        """Return what a layer is stacked on, the last one first.

        The walk is read backwards, so that its order becomes that of the tree.
        """
        if is_layer_of_ours(layer):
            below = layer._iterators_below()
        else:
            below = getattr(layer, "underlying_iterators", ())
        return [self.unwrap(other) for other in reversed(list(below))]

    def facts_of(self, layer: Any) -> _Facts:
        """Return what is known of a layer that :meth:`unwrap` returned."""
        return self._facts[id(layer)]
