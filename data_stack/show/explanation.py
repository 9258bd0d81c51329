"""Implements ``iterator.explain``: the tree of layers with lengths, memory and licences."""

from __future__ import annotations

import functools
import html
import inspect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from data_stack.codecs.plain_data import shorten
from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.iterator.layers.informed import InformedDatasetIterator
from data_stack.show.held_memory import HeldMemory
from data_stack.show.markup import Block, Document, Paragraph, Rich, printable, readable, size_text

_MAX_PARTS = 8
_PARTS_FIRST = 4  # if there are more parts, only the first four and the last one are drawn
_MAX_CHARACTERS_OF_ARGUMENTS = 120
_MAX_DATASETS = 20


@dataclass(frozen=True, slots=True)
class ExplainedLayer:
    """One iterator of a stack; an :class:`InformedDatasetIterator` is described with the iterator that it wraps.

    Attributes:
        number: counts from 1; an iterator comes before those below it.
        layer: its name in recipes, such as ``"view"``, or the name of its class.
        arguments: of its constructor, shortened; arguments equal to their defaults are left out.
        n_samples: None if unknown.
        stacked_on: numbers of the iterators below it, in order.
        dataset: name, version and split of its origin, or name and tag of its meta.
        license: that of its origin; None if unknown.
        is_origin: whether a repository loaded these samples.
        n_bytes: about how much memory it holds, without the iterators below it; shared memory counts once.
        notes: randomness and cost.
    """

    number: int
    layer: str
    arguments: str
    n_samples: int | None
    stacked_on: tuple[int, ...]
    dataset: str | None
    license: str | None
    is_origin: bool
    n_bytes: int
    notes: tuple[str, ...]

    @property
    def title(self) -> str:
        """Name, arguments and length in one line."""
        arguments = f"({self.arguments})" if self.arguments else ""
        return f"{self.layer}{arguments}  {_samples_text(self.n_samples)}"


class Explanation(Document):
    """A stack of iterators as a tree. It prints as text, and shows as HTML in a notebook.

    Attributes:
        layers: all iterators, each once; ``layers[n - 1].number == n``.
        n_bytes: memory that all of them hold.
        licenses: the loaded datasets, by licence; the key None has those of unknown licence.
    """

    def __init__(self, layers: Sequence[ExplainedLayer]) -> None:
        self.layers = tuple(layers)
        self.n_bytes = sum(layer.n_bytes for layer in layers)
        self.licenses: dict[str | None, list[str]] = {}
        for layer in layers:
            datasets = self.licenses.setdefault(layer.license, []) if layer.is_origin else []
            if layer.dataset is not None and layer.dataset not in datasets:
                datasets.append(layer.dataset)

    def __str__(self) -> str:
        return "\n".join([*self._lines(), "", *self._summary()])

    __repr__ = __str__

    def document(self, level: int = 1) -> list[Block]:
        """The tree, memory and licences."""
        tree = "\n".join(self._lines())
        drawn = Rich(tree, f"<pre>{html.escape(printable(tree, keep=chr(10)))}</pre>")
        return [Paragraph(drawn), *map(Paragraph, self._summary())]

    def _summary(self) -> list[str]:
        lines = [f"kept in memory: {size_text(self.n_bytes)}"]
        for of_datasets, datasets in self.licenses.items():
            more = f", … {len(datasets) - _MAX_DATASETS:,} more" if len(datasets) > _MAX_DATASETS else ""
            what = "licence unknown" if of_datasets is None else f"licence {readable(of_datasets)}"
            lines.append(f"{what}: {', '.join(datasets[:_MAX_DATASETS])}{more}")
        return lines

    def _lines(self) -> Iterator[str]:
        n_above = Counter(number for layer in self.layers for number in layer.stacked_on)
        drawn: set[int] = set()
        # A stack of what is still to draw: a layer's number or a text, and the prefixes of its first and its other lines.
        waiting: list[tuple[int | str, str, str]] = [(1, "", "")] if self.layers else []
        while waiting:
            what, first, rest = waiting.pop()
            if isinstance(what, str):
                yield first + what
                continue
            layer = self.layers[what - 1]
            name = f"[{what}] " if n_above[what] > 1 else ""
            if what in drawn:
                yield f"{first}{name or f'[{what}] '}{layer.title}, as above"
                continue
            drawn.add(what)
            yield first + name + layer.title
            below = rest + ("│  " if layer.stacked_on else "   ")
            yield from (below + fact for fact in self._facts(layer))
            waiting += reversed(self._below(layer, rest))

    def _facts(self, layer: ExplainedLayer) -> Iterator[str]:
        below = [self.layers[number - 1] for number in layer.stacked_on]
        is_named_below = any(part.is_origin or part.dataset == layer.dataset for part in below)
        if layer.is_origin:
            yield f"dataset {layer.dataset or 'without a name'}, licence {readable(layer.license or 'unknown')}"
        elif layer.dataset is not None and (layer.number == 1 or not is_named_below):
            yield f"dataset {layer.dataset}"
        if layer.n_bytes:
            yield f"keeps {size_text(layer.n_bytes)} in memory"
        yield from layer.notes

    def _below(self, layer: ExplainedLayer, rest: str) -> list[tuple[int | str, str, str]]:
        """The parts to draw below a layer whose lines begin with ``rest``."""
        parts: list[int | str] = list(layer.stacked_on)
        if len(parts) == 1:  # no indent: a chain may be deep
            return [(parts[0], rest, rest)]
        if len(parts) > _MAX_PARTS:
            parts = [*parts[:_PARTS_FIRST], f"… {len(parts) - _PARTS_FIRST - 1:,} more", parts[-1]]
        lines = [(part, rest + "├─ ", rest + "│  ") for part in parts[:-1]]
        return lines + [(part, rest + "└─ ", rest + "   ") for part in parts[-1:]]


def explain(iterator: Any) -> Explanation:
    """Describe ``iterator`` and its stack without reading samples.

    Args:
        iterator: any iterator or sequence.
    """
    found = _find(iterator)
    numbers = {id(node.layer): number for number, node in enumerate(found, start=1)}
    memory = HeldMemory()
    explained = [
        ExplainedLayer(
            number=numbers[id(node.layer)],
            layer=_name(node.layer),
            arguments=_arguments_text(node.layer) if node.below else "",
            n_samples=_length(node.layer),
            stacked_on=tuple(numbers[id(below)] for below in node.below),
            dataset=_dataset_text(node),
            license=_license(node),
            is_origin=node.origin is not None,
            n_bytes=memory.of(node.layer),
            notes=tuple(_notes(node)),
        )
        for node in reversed(found)  # from below: shared memory counts there
    ]
    return Explanation(explained[::-1])


@dataclass(frozen=True, slots=True)
class _Node:
    """An iterator with the meta and origin of the InformedDatasetIterators around it."""

    layer: Any
    meta: Any
    origin: Mapping[str, Any] | None
    below: tuple[Any, ...]


def _find(iterator: Any) -> list[_Node]:
    """All iterators of a stack, each once, depth first."""
    nodes: list[_Node] = []
    seen: set[int] = set()
    waiting = [iterator]
    while waiting:
        layer, meta, origin = _unwrap(waiting.pop())
        if id(layer) in seen:
            continue
        seen.add(id(layer))
        given = _stack_on(layer)
        nodes.append(_Node(layer, meta, origin, tuple(_unwrap(below)[0] for below in given)))
        waiting += reversed(given)
    return nodes


def _unwrap(iterator: Any) -> tuple[Any, Any, Mapping[str, Any] | None]:
    meta, origin = None, None
    while type(iterator) is InformedDatasetIterator:
        meta = iterator.dataset_meta if meta is None else meta
        origin = iterator._origin if origin is None else origin
        iterator = iterator._dataset_iterator
    return iterator, getattr(iterator, "dataset_meta", None) if meta is None else meta, origin


def _is_ours(layer: Any) -> bool:
    """Whether its class is a layer of ours; a client's subclass may not have called our constructor."""
    return isinstance(layer, DatasetIteratorIF) and "_layer_name" in vars(type(layer))


def _stack_on(layer: Any) -> list[Any]:
    return list(layer._stack_on() if _is_ours(layer) else getattr(layer, "underlying_iterators", ()))


def _name(layer: Any) -> str:
    return str(layer._layer_name) if _is_ours(layer) else type(layer).__name__


def _length(layer: Any) -> int | None:
    try:
        return len(layer)
    except Exception:  # noqa: BLE001  # foreign code
        return None


def _samples_text(n_samples: int | None) -> str:
    if n_samples is None:
        return "of unknown length"
    return "1 sample" if n_samples == 1 else f"{n_samples:,} samples"


def _license(node: _Node) -> str | None:
    found = None if node.origin is None else node.origin.get("license")
    return None if found is None else str(found)


def _dataset_text(node: _Node) -> str | None:
    parts: list[Any] = []
    if node.origin is not None:
        name = " ".join(str(node.origin[key]) for key in ("name", "version") if node.origin.get(key) is not None)
        parts = [name, node.origin.get("split")]
    elif node.meta is not None:
        parts = [node.meta.dataset_name, node.meta.dataset_tag]
    return ", ".join(readable(part) for part in parts if part) or None


def _notes(node: _Node) -> Iterator[str]:
    if not node.below and (noted := getattr(node.layer, "_noted", "")):
        yield noted.strip()
    if not _is_ours(node.layer) or not node.below:
        return
    arguments = node.layer._arguments()
    if "epoch" in arguments and arguments.get("seed") is not None:
        yield "random: at_epoch changes it"
    if callable(arguments.get("function")):
        yield f"calls a Python function for each {'batch' if arguments.get('batched') else 'sample'}"


# ---------------------------------------------------------------------------------------------- arguments


def _arguments_text(layer: Any) -> str:
    if not _is_ours(layer):
        return ""
    defaults = {name: parameter.default for name, parameter in inspect.signature(type(layer).__init__).parameters.items()}
    given = {name: value for name, value in layer._arguments().items() if value is not defaults.get(name, layer)}
    shown = [f"{name}={_short(value)}" for name, value in given.items()]
    return readable(", ".join(shown), _MAX_CHARACTERS_OF_ARGUMENTS)


def _short(value: Any) -> str:
    """A value in a few words, a function by its name."""
    name = getattr(value, "__qualname__", None)
    if isinstance(name, str):
        return name
    if isinstance(value, functools.partial):
        return f"partial({_short(value.func)})"
    return shorten(value) if type(value).__module__ in ("builtins", "numpy") else type(value).__name__
